"""`Stream`: a query over events, written by chaining operators. Nothing runs until an answer is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from squill.arguments import check_takes_streams
from squill.errors import PlanError
from squill.plan import functions
from squill.plan.aggregates import AggregateExpr
from squill.plan.build import aggregation, lifetime, pairs, patterns, payload, two_inputs, user, windows
from squill.plan.build.names import with_free_names
from squill.plan.expressions import IntoExpression
from squill.plan.node import Node
from squill.plan.pattern import Pattern
from squill.plan.schema import Schema
from squill.stream_actions import StreamActions
from squill.time import Duration, TimeType
from squill.wording import kind_of, shortened

__all__ = ["Stream"]

GROUP_EXAMPLE = "group_apply('key', lambda g: g.count())"
SHARE_EXAMPLE = "share(lambda s: s.join(s.shift(1), on='k'))"


class Stream(StreamActions):
    """Events with lifetimes, and what is to be done with them.

    A stream is immutable: every method returns a new one. Inside `group_apply` it stands for the events of
    one key.

    Examples
    --------
    >>> import squill as sq
    >>> clicks = sq.from_frame({"t": [1, 2, 7], "ad": ["a", "b", "a"]}, start="t")
    >>> clicks.group_apply("ad", lambda g: g.sliding_window(10).aggregate(n=sq.count())).collect(sort=True)
    shape: (4, 4)
    ┌───────┬─────┬─────┬─────┐
    │ start ┆ end ┆ ad  ┆ n   │
    │ ---   ┆ --- ┆ --- ┆ --- │
    │ i64   ┆ i64 ┆ str ┆ i64 │
    ╞═══════╪═════╪═════╪═════╡
    │ 1     ┆ 7   ┆ a   ┆ 1   │
    │ 2     ┆ 12  ┆ b   ┆ 1   │
    │ 7     ┆ 11  ┆ a   ┆ 2   │
    │ 11    ┆ 17  ┆ a   ┆ 1   │
    └───────┴─────┴─────┴─────┘
    """

    __slots__ = ("_group", "_keys", "_node")

    def __init__(self, node: Node, keys: Sequence[str] = (), group: object | None = None) -> None:
        self._node = with_free_names(node)
        self._keys = tuple(keys)
        self._group = group

    def _with(self, node: Node) -> Stream:
        return Stream(node, self._keys, self._group)

    @property
    def schema(self) -> Schema:
        """The payload columns and their types."""
        return self._node.schema

    @property
    def time(self) -> TimeType | None:
        """The type of the lifetimes; None for relational data."""
        return self._node.time

    @property
    def plan(self) -> Node:
        """The logical plan."""
        return self._node

    def __repr__(self) -> str:
        time = "relational" if self.time is None else f"time {self.time}"
        return f"Stream({self.schema!r}; {time})"

    # -- payload ------------------------------------------------------------------------------------------

    def where(self, *predicates: IntoExpression) -> Stream:
        """Keep the events for which every predicate is true; null is not true."""
        return self._with(payload.where(self._node, predicates))

    def select(self, *columns: object, **named: object) -> Stream:
        """Keep or compute just these columns; inside a group the key columns stay."""
        return self._with(payload.select(self._node, self._keys, columns, named))

    def with_columns(self, *columns: object, **named: object) -> Stream:
        """Add or replace columns."""
        return self._with(payload.with_columns(self._node, self._keys, columns, named))

    def drop(self, *names: str) -> Stream:
        """Leave these columns out."""
        return self._with(payload.drop(self._node, self._keys, names))

    def rename(self, mapping: Mapping[str, str]) -> Stream:
        """Give columns new names."""
        return self._with(payload.rename(self._node, self._keys, mapping))

    def select_many(
        self, items: IntoExpression | Callable[..., Any], schema: Mapping[str, Any] | None = None
    ) -> Stream:
        """Turn each event into one per list item, each with the event's lifetime; no item, no event.

        `items` is a list expression, whose column holds the items afterwards, or a function of a payload row
        (a dict) that returns the new rows, whose columns `schema` names.
        """
        return self._with(payload.select_many(self._node, self._keys, items, schema))

    def map_batches(self, function: Callable[..., Any], schema: Mapping[str, Any] | None = None) -> Stream:
        """Run your own row-wise Python on frames of payload; one row out for each row in, in order.

        `schema` names the columns that `function` returns; without it they stay as they are.
        """
        return self._with(payload.map_batches(self._node, self._keys, function, schema, many=False))

    def operator(self, cls: Callable[..., Any], /, **arguments: Any) -> Stream:
        """Run your own algorithm: an object of `cls(**arguments)` for each key, which gets whole instants.

        The class has a `schema` (the columns of its rows) and the methods

        - ``on_instant(self, t, starts)``: the events that start at t, as a frame in the order rule's order; with a
          third parameter ``ends`` it is also told of those that end. It returns rows (dicts or a frame) or None;
        - ``save(self)`` and ``load(self, state)``: its state as plain data, for checkpoints;
        - ``on_time(self, t)``, if it wants to be woken: when time reaches ``self.wake_at``, before the events there.

        Rows are points at t; with ``lifetime = "interval"`` they say their `end` (and `start`), with
        ``lifetime = "until_next"`` they live until the key's next answer. Times are in ticks. An object that says
        ``alive = False``, with no timer and no open row, is let go. State: one object per key.

        Examples
        --------
        >>> class Change:
        ...     schema = {"by": pl.Int64}
        ...     last = None
        ...     def on_instant(self, t, starts):
        ...         before, self.last = self.last, starts["x"][-1]
        ...         return None if before is None else {"by": self.last - before}
        ...     def save(self):
        ...         return self.last
        ...     def load(self, state):
        ...         self.last = state
        >>> readings = sq.from_frame({"t": [1, 2, 5], "x": [10, 13, 11]}, start="t")
        >>> readings.operator(Change).collect().rows()
        [(2, 3, 3), (5, 6, -2)]
        """
        return self._with(user.operator(self._node, self._keys, cls, arguments))

    def snapshot_apply(self, fn: Callable[..., Any], schema: Mapping[str, Any] | None = None) -> Stream:
        """Call `fn` with a frame of the events alive, whenever that changes; its rows live until it changes again.

        The frame is in order of start, then the order rule. `fn` returns a frame, a dict (one row), several
        dicts, or None. `schema` names its columns; without it `fn` is called with an empty frame once to learn
        them. Where nothing is alive it is not called, and there is no row. State: the events alive.

        Examples
        --------
        >>> def spread(alive):
        ...     return alive.select(spread=pl.col("p").max() - pl.col("p").min())
        >>> prices = sq.from_frame({"t": [1, 2, 4], "p": [5, 9, 6]}, start="t").sliding_window(3)
        >>> prices.snapshot_apply(spread).collect().rows()
        [(1, 2, 0), (2, 4, 4), (4, 5, 3), (5, 7, 0)]
        """
        return self._with(user.snapshot_apply(self._node, self._keys, fn, schema))

    # -- lifetime -----------------------------------------------------------------------------------------

    def with_duration(self, duration: Duration | pl.Expr | None) -> Stream:
        """Let each event live `duration` from its start; None is for ever, ≤ 0 from an expression is not at all."""
        return self._with(lifetime.with_duration(self._node, duration))

    def alter_lifetime(self, *, start: pl.Expr | None = None, duration: Duration | pl.Expr | None = None) -> Stream:
        """Move starts by a monotone expression of `sq.start()`, then set the duration."""
        return self._with(lifetime.alter_lifetime(self._node, start, duration))

    def shift(self, by: Duration) -> Stream:
        """Move lifetimes later (or earlier, if negative)."""
        return self._with(lifetime.shift(self._node, by))

    def extend(self, by: Duration) -> Stream:
        """End later (or earlier, if negative: what would end before its start vanishes)."""
        return self._with(lifetime.extend(self._node, by))

    def clip(
        self, limit: Duration | Stream, on: object = None, *, left_on: object = None, right_on: object = None
    ) -> Stream:
        """Let no event live longer than `limit`, or, given a stream, than the next start of a matching event there.

        What ends or is alive already in the other stream does not clip; without `on` every start there does.
        """
        if isinstance(limit, Stream):
            node = self._other(limit, "clip")
            return self._with(two_inputs.clip(self._node, node, self._on(on, left_on, right_on)))
        if any(item is not None for item in (on, left_on, right_on)):
            raise PlanError(f"clip: key columns go with a stream, not with {shortened(limit)}", "clip(other, on='k')")
        return self._with(lifetime.clip(self._node, limit))

    def point_at_end(self) -> Stream:
        """Replace each event by a point at its end; endless events give nothing."""
        return self._with(lifetime.point_at_end(self._node))

    def chop(self, period: Duration, offset: Duration = 0) -> Stream:
        """Split lifetimes at every offset + k·period strictly inside them."""
        return self._with(lifetime.chop(self._node, period, offset))

    def stitch(self) -> Stream:
        """Merge an event that ends at t with one of equal payload that starts at t."""
        return self._with(lifetime.stitch(self._node))

    def quantize(
        self, size: Duration, period: Duration, offset: Duration = 0, progress: Duration | None = None
    ) -> Stream:
        """Grow lifetimes to the grid, so that each covers every window of `size` that it overlaps."""
        return self._with(lifetime.quantize(self._node, size, period, offset, progress))

    def wait_for_ends(self) -> Stream:
        """Hold each event until its end is known, so that `sq.end()` may be used."""
        return self._with(lifetime.wait_for_ends(self._node))

    def cast_time(self, unit: str) -> Stream:
        """Count time in "ns", "us", "ms" or "d"; where that is coarser, starts are floored and ends raised."""
        return self._with(lifetime.cast_time(self._node, unit))

    # -- window -------------------------------------------------------------------------------------------

    def tumbling_window(self, size: Duration, offset: Duration = 0, closed: str = "left") -> Stream:
        """Put each event into the one window [w − size, w) it falls in; it lives from w to w + size."""
        return self._with(windows.hopping_window(self._node, size, size, offset, closed, "tumbling_window"))

    def hopping_window(self, size: Duration, hop: Duration, offset: Duration = 0, closed: str = "left") -> Stream:
        """Put each event into the windows [w − size, w), w on the grid of `hop`; each answer is reported at w.

        The cost does not depend on size / hop. `closed="right"` takes (w − size, w] instead.
        """
        return self._with(windows.hopping_window(self._node, size, hop, offset, closed))

    def sliding_window(self, size: Duration) -> Stream:
        """Let each event live `size` from its start."""
        return self._with(lifetime.with_duration(self._node, size))

    def count_window(self, n: int) -> Stream:
        """Let each event live until the n-th later event (of its key)."""
        return self._with(windows.count_window(self._node, self._keys, n))

    def session_window(self, timeout: Duration, max_duration: Duration | None = None, rows: str = "running") -> Stream:
        """Let each event live until its session ends: `timeout` after the last event (of its key).

        `rows="final"` makes every event a point at the session's end instead, so that an aggregate gives one
        row per session.
        """
        return self._with(windows.session_window(self._node, self._keys, timeout, max_duration, rows))

    def per_window(self) -> Stream:
        """After a windowed aggregate: one row per window, with `window_start` and `window_end` as columns."""
        return self._with(windows.per_window(self._node, self._keys))

    # -- aggregate and group ------------------------------------------------------------------------------

    def aggregate(self, **named: AggregateExpr) -> Stream:
        """Give, between every two change points, one row of aggregates over the events alive."""
        return self._with(aggregation.aggregate(self._node, self._keys, named))

    def group_apply(
        self, keys: object = None, fn: Callable[[Stream], Stream] | None = None, **named: pl.Expr
    ) -> Stream:
        """Run the query `fn` for each key apart and unite the results, key columns first.

        A key that is not a plain column needs a name: ``group_apply("a", fn, h=sq.col("b") % 10)``.
        """
        if callable(keys) and fn is None:
            keys, fn = None, keys
        if not callable(fn):
            raise PlanError("group_apply: there is no function to apply", GROUP_EXAMPLE)
        check_takes_streams(fn, 1, "group_apply", GROUP_EXAMPLE)
        node, names = aggregation.group_keys(self._node, self._keys, keys, named, "group_apply")
        group = object()
        result = fn(Stream(node, names, group))
        if not isinstance(result, Stream):
            raise PlanError(f"group_apply: the function returned {kind_of(result)}, not a Stream", "return g.…")
        if result._group is not group:
            raise PlanError(
                "group_apply: the function returned a stream that is not made from its argument",
                "use the argument only: lambda g: g.aggregate(…).",
            )
        return self._with(aggregation.keys_first(result._node, names, "group_apply"))

    def group_aggregate(self, keys: object = None, **named: AggregateExpr | pl.Expr) -> Stream:
        """Aggregate per key: ``group_aggregate("user", n=sq.count())``; named expressions are further keys."""
        aggregates = {name: item for name, item in named.items() if isinstance(item, AggregateExpr)}
        key_expressions = {name: item for name, item in named.items() if isinstance(item, pl.Expr)}
        unknown = named.keys() - aggregates.keys() - key_expressions.keys()
        if unknown:
            raise PlanError(f"group_aggregate: {min(unknown)}= is neither an aggregate nor a key", "n=sq.count()")
        return self.group_apply(keys, lambda g: g.aggregate(**aggregates), **key_expressions)

    def distinct(self) -> Stream:
        """Keep, of equal events alive together, one: the maximal parts in which at least one is alive."""
        return self._with(aggregation.distinct(self._node))

    def count(self) -> Stream:
        """Count the events alive, in the column `count`."""
        return self.aggregate(count=functions.count())

    def sum(self, *columns: str) -> Stream:
        """Sum columns under their own names."""
        return self._shortcut(functions.sum, columns, "sum")

    def mean(self, *columns: str) -> Stream:
        """Average columns under their own names."""
        return self._shortcut(functions.mean, columns, "mean")

    def min(self, *columns: str) -> Stream:
        """Take the minimum of columns under their own names."""
        return self._shortcut(functions.min, columns, "min")

    def max(self, *columns: str) -> Stream:
        """Take the maximum of columns under their own names."""
        return self._shortcut(functions.max, columns, "max")

    def product(self, *columns: str) -> Stream:
        """Multiply columns under their own names."""
        return self._shortcut(functions.product, columns, "product")

    def var(self, *columns: str) -> Stream:
        """Take the sample variance of columns under their own names."""
        return self._shortcut(functions.var, columns, "var")

    def std(self, *columns: str) -> Stream:
        """Take the sample standard deviation of columns under their own names."""
        return self._shortcut(functions.std, columns, "std")

    def first(self, *columns: str) -> Stream:
        """Take the first value of columns under their own names."""
        return self._shortcut(functions.first, columns, "first")

    def last(self, *columns: str) -> Stream:
        """Take the last value of columns under their own names."""
        return self._shortcut(functions.last, columns, "last")

    def _shortcut(self, function: Callable[[str], AggregateExpr], columns: Sequence[str], what: str) -> Stream:
        if not columns:
            raise PlanError(f"{what}: no column is given", f'name one: .{what}("x").')
        for name in columns:
            if not isinstance(name, str):
                raise PlanError(
                    f"{what}: {shortened(name)} is not the name of a column",
                    f'give names, .{what}("x"); of an expression say how the answer is called: '
                    f".aggregate(x=sq.{what}(…)).",
                )
        return self.aggregate(**{name: function(name) for name in columns})

    # -- several inputs -----------------------------------------------------------------------------------

    def join(
        self,
        other: Stream,
        on: object = None,
        *,
        left_on: object = None,
        right_on: object = None,
        where: pl.Expr | None = None,
        how: str = "inner",
    ) -> Stream:
        """Pair the events of both streams whose keys are equal, alive where both are alive.

        `how` is "inner", "left", "right", "full" (unmatched parts stay, with nulls) or "cross" (no keys).
        Key columns named by `on` appear once; a right column whose name the left has too gets the suffix
        ``_right``. `where` sees a pair's columns under these names. Inside a group the group's keys are keys
        of the join.
        """
        node = self._other(other, "join")
        return self._with(two_inputs.join(self._node, node, self._on(on, left_on, right_on), where, how))

    def where_exists(
        self,
        other: Stream,
        on: object = None,
        *,
        left_on: object = None,
        right_on: object = None,
        where: pl.Expr | None = None,
    ) -> Stream:
        """Keep the parts of lifetimes in which a matching event of `other` is alive, each once."""
        node, keys = self._other(other, "where_exists"), self._on(on, left_on, right_on)
        return self._with(two_inputs.exists(self._node, node, keys, where, negated=False))

    def where_not_exists(
        self,
        other: Stream,
        on: object = None,
        *,
        left_on: object = None,
        right_on: object = None,
        where: pl.Expr | None = None,
    ) -> Stream:
        """Keep the parts of lifetimes in which no matching event of `other` is alive."""
        node, keys = self._other(other, "where_not_exists"), self._on(on, left_on, right_on)
        return self._with(two_inputs.exists(self._node, node, keys, where, negated=True))

    def asof_join(
        self,
        other: Stream,
        on: object = None,
        *,
        left_on: object = None,
        right_on: object = None,
        tolerance: Duration | None = None,
        order_by: object = None,
        how: str = "left",
    ) -> Stream:
        """Give each event the latest event of `other` (with its key) that began no later than it did.

        Lifetimes stay as they are. An event without such a partner gets nulls, or goes with `how="inner"`; so
        does one whose partner began more than `tolerance` before it. Of partners that began together the last
        by `order_by`, then by payload, is taken.
        """
        node, keys = self._other(other, "asof_join"), self._on(on, left_on, right_on)
        return self._with(two_inputs.asof_join(self._node, node, keys, tolerance, order_by, how))

    def union(self, *others: Stream) -> Stream:
        """Take all events of all streams, equal ones kept; columns are matched by name."""
        nodes = [self._other(other, "union") for other in others]
        return self._with(aggregation.union([self._node, *nodes]))

    def share(self, fn: Callable[[Stream], Stream]) -> Stream:
        """Return `fn` of this stream: whatever it uses the stream for, the stream is computed once."""
        if not callable(fn):
            raise PlanError(f"share: {shortened(fn)} cannot be called", SHARE_EXAMPLE)
        check_takes_streams(fn, 1, "share", SHARE_EXAMPLE)
        result = fn(self)
        if not isinstance(result, Stream):
            raise PlanError(f"share: the function returned {kind_of(result)}, not a Stream", "return s.…")
        return result

    def _other(self, other: object, operator: str) -> Node:
        if not isinstance(other, Stream):
            is_sharded = hasattr(other, "query")
            hint = "give it to query: query(other, lambda l, r: …)." if is_sharded else "wrap it with sq.from_frame(…)."
            raise PlanError(f"{operator}: {kind_of(other)} is not a Stream", hint)
        if other._group is not self._group:
            raise PlanError(f"{operator}: the other stream comes from outside this group", "use the argument only.")
        return other._node

    def _on(self, on: object, left_on: object, right_on: object) -> two_inputs.On:
        return two_inputs.On(on, left_on, right_on, self._keys)

    # -- pattern ------------------------------------------------------------------------------------------

    def detect(
        self,
        pattern: Pattern | pl.Expr,
        within: Duration | None = None,
        overlap: bool = True,
        order_by: IntoExpression | Sequence[IntoExpression] | None = None,
    ) -> Stream:
        """Give the registers of every match of `pattern` (see `sq.pattern`), alive from its last event on.

        A match lives until `within` after its first event, for ever without; its last event must come before
        that. Every event of the key must be taken by the pattern or the match is over: nothing is skipped. A
        match that can go on is given each time it is complete. With `overlap=False` an event that goes on with
        a match begins none. Simultaneous events are read in the order of `order_by`; without it only
        `sq.pattern.any` and `none` take them.

        >>> p = sq.pattern
        >>> top = p.any(top="price", low="price")
        >>> fall = p.plus(p.one(lambda price, low: price < low, low="price"))
        >>> prices = sq.from_frame({"t": [1, 2, 3, 4], "price": [5, 4, 2, 9]}, start="t")
        >>> prices.detect(p.seq(top, fall), within=9).collect(sort=True).rows()
        [(2, 10, 5, 4), (3, 10, 5, 2), (3, 11, 4, 2)]
        """
        return self._with(patterns.detect(self._node, self._keys, pattern, within, overlap, order_by))

    def followed_by(
        self,
        a: IntoExpression,
        b: IntoExpression,
        within: Duration | None,
        order_by: IntoExpression | Sequence[IntoExpression] | None = None,
    ) -> Stream:
        """Give a point, with the columns of both events, where `b` is true of the event right after one with `a`.

        The second event comes less than `within` after the first; None is any time. Its columns end in
        `_right`. Simultaneous events are in the order of `order_by`, then of their payload.

        >>> clicks = sq.from_frame({"t": [1, 3, 4], "page": ["search", "buy", "buy"]}, start="t")
        >>> clicks.followed_by(sq.col("page") == "search", sq.col("page") == "buy", within=5).collect().rows()
        [(3, 4, 'search', 'buy')]
        """
        return self._with(pairs.followed_by(self._node, self._keys, a, b, within, order_by))

    def sessionize(self, is_start: IntoExpression, is_end: IntoExpression, on: object = None) -> Stream:
        """Give a point at each end event, once for every start event since the last one, with the columns of both.

        An end event closes the start events strictly before it; of simultaneous ones the first by payload counts.
        `on` names key columns, which appear once; the end event's other columns end in `_right`.

        >>> log = sq.from_frame({"t": [1, 2, 5, 9], "user": list("abab"), "op": ["in", "in", "out", "out"]}, start="t")
        >>> log.sessionize(sq.col("op") == "in", sq.col("op") == "out", on="user").collect().rows()
        [(5, 6, 'a', 'in', 'out'), (9, 10, 'b', 'in', 'out')]
        """
        return self._with(pairs.sessionize(self._node, self._keys, is_start, is_end, on))

    def consecutive_pairs(self, order_by: IntoExpression | Sequence[IntoExpression] | None = None) -> Stream:
        """Give every event with its immediate successor (of its key): a point there, with the columns of both.

        The successor's columns end in `_right`. Simultaneous events are in the order of `order_by`, then of their
        payload.

        >>> sq.from_frame({"t": [1, 4, 6], "x": [7, 8, 9]}, start="t").consecutive_pairs().collect().rows()
        [(4, 5, 7, 8), (6, 7, 8, 9)]
        """
        return self._with(pairs.consecutive_pairs(self._node, self._keys, order_by))

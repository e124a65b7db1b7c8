"""Hypothesis strategies: random streams, and random queries over everything one input can be asked.

`streams()` draws events with nulls, duplicates, simultaneous events, negative times and skewed keys, as
tables (points, intervals, endless, with null ends) or as single events with edges and punctuations.
`queries(steps=…)` draws a chain of steps over such a stream. Every step looks at the schema it meets, so
that the plan is always valid; `STEPS` names them all, so that a test can switch steps on one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
from hypothesis import strategies as st

import squill as sq
from squill.plan.aggregates import AggregateExpr
from squill.plan.events import Event
from squill.plan.node import walk
from squill.plan.nodes import EventsSource, FrameSource
from squill.plan.pattern import Pattern
from squill.stream import Stream
from tests.user_operators import OPERATORS, described

__all__ = ["AGGREGATES", "RELATIONAL_STEPS", "STEPS", "describe", "queries", "relations", "streams"]

Draw = st.DrawFn

NESTED = (pl.List, pl.Array, pl.Struct)
PAYLOAD: dict[str, Any] = {
    "k": pl.Int64, "n": pl.Int64, "x": pl.Float64, "s": pl.String, "b": pl.Boolean,
}  # fmt: skip

VALUES: dict[str, st.SearchStrategy[Any]] = {
    # Half of the events share one key.
    "k": st.one_of(st.just(0), st.sampled_from([0, 1, 2, 3, None])),
    "n": st.one_of(st.none(), st.integers(-9, 9)),
    "x": st.one_of(
        st.none(),
        st.integers(-40, 40).map(lambda quarters: quarters / 4),
        st.sampled_from([0.1, -0.0, 1e6, float("nan"), float("inf"), float("-inf")]),
    ),
    "s": st.one_of(st.none(), st.sampled_from(["", "a", "b", "ab", "é"])),
    "b": st.one_of(st.none(), st.booleans()),
}
FINITE = st.one_of(st.none(), st.integers(-40, 40).map(lambda quarters: quarters / 4))

payloads = st.fixed_dictionaries(VALUES)
finite_payloads = st.fixed_dictionaries({**VALUES, "x": FINITE})
starts = st.integers(-15, 40)
lengths = st.integers(1, 12)


# -- streams ------------------------------------------------------------------------------------------------


Times = dict[str, list[int] | list[int | None]]


def _frame(columns: Times, rows: list[dict[str, Any]], unit: str) -> pl.DataFrame:
    dtype: dict[str, pl.DataType] = {"1": pl.Int64(), "ms": pl.Datetime("ms"), "d": pl.Date()}
    times = [pl.Series(name, ticks, pl.Int64).cast(dtype[unit]) for name, ticks in columns.items()]
    values = [pl.Series(name, [row[name] for row in rows], kind) for name, kind in PAYLOAD.items()]
    return pl.DataFrame([*times, *values])


def _table(draw: Draw, rows: list[dict[str, Any]], unit: str) -> Stream:
    kind = draw(st.sampled_from(["points", "intervals", "open"]))
    begun = [draw(starts) for _ in rows]
    if kind != "intervals":
        frame = _frame({"t": begun}, rows, unit)
        return sq.from_frame(frame, start="t", lifetime="open" if kind == "open" else "point")
    ends: list[int | None] = [
        None if draw(st.integers(0, 9)) == 0 else start + draw(st.integers(0, 12)) for start in begun
    ]
    return sq.from_frame(_frame({"t": begun, "u": ends}, rows, unit), start="t", end="u")


def _events(draw: Draw, rows: list[dict[str, Any]]) -> Stream:
    timed: list[tuple[int, int, Event]] = []
    for row in rows:
        start = draw(starts)
        end = start + draw(lengths)
        match draw(st.sampled_from(["point", "interval", "open", "edges", "edges"])):
            case "point":
                timed.append((start, 1, sq.point(start, **row)))
            case "interval":
                timed.append((start, 1, sq.interval(start, end, **row)))
            case "open":
                timed.append((start, 1, sq.start_edge(start, **row)))
            case _:
                timed.append((start, 1, sq.start_edge(start, **row)))
                timed.append((end, draw(st.integers(0, 2)), sq.end_edge(end, start, **row)))
    timed.extend((t, 0, sq.punctuation(t)) for t in draw(st.lists(st.integers(-20, 60), max_size=3)))
    timed.sort(key=lambda item: item[:2])
    return sq.from_events([event for _, _, event in timed], schema=PAYLOAD)


@st.composite
def streams(
    draw: Draw,
    *,
    max_rows: int = 12,
    edges: bool = True,
    calendar: bool = True,
    special: bool = True,
    unit: str | None = None,
) -> Stream:
    """Draw a stream of the columns k, n, x, s, b.

    `edges` allows streams of single events, `calendar` Date and Datetime times, `special` NaN and infinities;
    `unit` says which times: "1" for integers, "ms" or "d".
    """
    rows = draw(st.lists(payloads if special else finite_payloads, max_size=max_rows))
    repeats = draw(st.integers(0, 1))
    rows = rows + rows[:repeats]
    if edges and unit in (None, "1") and draw(st.booleans()):
        return _events(draw, rows)
    units = ["1", "1", "1", "ms", "d"] if calendar else ["1"]
    return _table(draw, rows, unit or draw(st.sampled_from(units)))


@st.composite
def relations(draw: Draw, *, max_rows: int = 12) -> Stream:
    """Draw relational data of the columns k, n, x, s, b."""
    return sq.from_frame(_frame({}, draw(st.lists(payloads, max_size=max_rows)), "1"))


def describe(query: Stream) -> str:
    """Return the plan and the data below it, to be noted by a failing test."""
    parts = [query.explain()]
    for node in walk(query.plan):
        if isinstance(node, FrameSource):
            parts.append(repr(node.frame.to_dict(as_series=False)))
        elif isinstance(node, EventsSource):
            parts.extend(repr(event) for event in node.events)
    return "\n".join(parts)


# -- what a step may use ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Allowed:
    """The names of the steps and aggregates that a query may use."""

    steps: tuple[str, ...]
    aggregates: tuple[str, ...]

    def without_groups(self) -> Allowed:
        return replace(self, steps=tuple(name for name in self.steps if not name.startswith("group")))


@dataclass(frozen=True)
class Place:
    """Where a step stands: the stream so far, the keys of the groups around it, the steps that may follow."""

    draw: Draw
    stream: Stream
    keys: tuple[str, ...]
    allowed: Allowed
    depth: int

    @property
    def steps(self) -> tuple[str, ...]:
        return self.allowed.steps

    @property
    def aggregates(self) -> tuple[str, ...]:
        return self.allowed.aggregates

    def span(self, low: int, high: int) -> Any:
        """Draw a duration of that many ticks or, on calendar time, milliseconds or days."""
        return self.spell(self.draw(st.integers(low, high)))

    def spell(self, ticks: int) -> Any:
        assert self.stream.time is not None
        if self.is_integer:
            return ticks
        return f"{ticks}{'d' if self.stream.time.unit == 'd' else 'ms'}"

    @property
    def is_integer(self) -> bool:
        return self.stream.time is not None and self.stream.time.is_integer

    def columns(self, wanted: Callable[[pl.DataType], bool]) -> list[str]:
        return [name for name, dtype in self.stream.schema.items() if wanted(dtype)]

    @property
    def numbers(self) -> list[str]:
        return self.columns(lambda dtype: dtype.is_float() or dtype.is_integer() or dtype == pl.Boolean())

    @property
    def simple(self) -> list[str]:
        return self.columns(lambda dtype: not isinstance(dtype, NESTED))

    @property
    def is_nested(self) -> bool:
        return len(self.simple) < len(self.stream.schema)

    def free(self, stem: str) -> str:
        """Return a column name that no column begins with."""
        taken = self.stream.schema.names
        names = (f"{stem}{number}_" for number in range(1000))
        return next(name for name in names if not any(column.startswith(name) for column in taken))

    def pick(self, names: Sequence[str]) -> str:
        return self.draw(st.sampled_from(names))

    def predicate(self) -> pl.Expr:
        """Draw a condition over the payload or the times."""
        options = [pl.lit(True)]
        for name in self.simple:
            column, dtype = sq.col(name), self.stream.schema[name]
            options.append(column.is_not_null())
            if dtype.is_integer() or dtype.is_float():
                options.append(column > self.draw(st.integers(-5, 5)))
            if dtype == pl.String():
                options.append(column == "a")
            if dtype == pl.Boolean():
                options.append(column)
        if self.stream.time is not None:
            options.append(sq.start().cast(pl.Int64) % 3 != 0)
            if self.stream.plan.properties.ends_known:
                options.append(sq.end().is_not_null())
        return self.draw(st.sampled_from(options))

    def value(self) -> pl.Expr:
        """Draw a new column's value."""
        options = [pl.lit(7)]
        for name in self.simple:
            column, dtype = sq.col(name), self.stream.schema[name]
            options.append(column.is_null())
            if dtype.is_integer():
                options.append(column.cast(pl.Float64) / 2)
                options.append(column.clip(-3, 3) + 1)
            if dtype.is_float():
                options.append(column * 0.5)
            if dtype == pl.String():
                options.append(column + "!")
        return self.draw(st.sampled_from(options))


def _aggregates(place: Place, prefix: str) -> dict[str, AggregateExpr]:
    return {f"{prefix}{i}": _aggregate(place) for i in range(place.draw(st.integers(1, 3)))}


def _aggregate(place: Place) -> AggregateExpr:
    ordered = bool(place.simple) and not place.is_nested
    groups = {"any": True, "simple": bool(place.simple), "ordered": ordered, "numbers": bool(place.numbers)}
    possible = [name for name in place.aggregates if groups[AGGREGATES[name][0]]]
    where = place.predicate() if place.draw(st.integers(0, 3)) == 0 else None
    return AGGREGATES[place.pick(possible or ["count"])][1](place, where)


def _of(function: Callable[..., AggregateExpr], *options: st.SearchStrategy[Any]) -> Aggregation:
    """Return how to draw an aggregate of a number with these further arguments."""
    return lambda place, where: function(place.pick(place.numbers), *map(place.draw, options), where=where)


def _of_any(function: Callable[..., AggregateExpr], *options: st.SearchStrategy[Any]) -> Aggregation:
    return lambda place, where: function(place.pick(place.simple), *map(place.draw, options), where=where)


def _ordered(function: Callable[..., AggregateExpr]) -> Aggregation:
    def drawn(place: Place, where: pl.Expr | None) -> AggregateExpr:
        order_by = place.draw(st.sampled_from([None, *place.simple]))
        return function(place.pick(place.simple), order_by=order_by, where=where)

    return drawn


Aggregation = Callable[[Place, pl.Expr | None], AggregateExpr]

AGGREGATES: dict[str, tuple[str, Aggregation]] = {
    "arithmetic": ("numbers", lambda place, _: sq.sum(place.pick(place.numbers)) / sq.count()),
    "collect_list": ("ordered", _ordered(sq.collect_list)),
    "count": ("any", lambda _, where: sq.count(where=where)),
    "count_distinct": ("simple", _of_any(sq.count_distinct)),
    "count_not_null": ("simple", _of_any(sq.count_not_null)),
    "first": ("ordered", _ordered(sq.first)),
    "last": ("ordered", _ordered(sq.last)),
    "max": ("simple", _of_any(sq.max)),
    "mean": ("numbers", _of(sq.mean)),
    "min": ("simple", _of_any(sq.min)),
    "percentile": ("numbers", _of(sq.percentile, st.sampled_from([0, 0.25, 0.5, 1]), st.booleans())),
    "product": ("numbers", _of(sq.product)),
    "std": ("numbers", _of(sq.std)),
    "sum": ("numbers", _of(sq.sum)),
    "top_k": ("ordered", _of_any(sq.top_k, st.integers(1, 3), st.booleans())),
    "var": ("numbers", _of(sq.var, st.integers(0, 1))),
}
"""The aggregates, each with what it needs: any row, a simple column, an ordered payload, or a number."""


# -- steps --------------------------------------------------------------------------------------------------

Step = Callable[[Place], Stream]


def where(place: Place) -> Stream:
    return place.stream.where(place.predicate())


def select(place: Place) -> Stream:
    kept = place.draw(st.lists(st.sampled_from(place.stream.schema.names), min_size=1, unique=True))
    return place.stream.select(*kept, **{place.free("c"): place.value()})


def with_columns(place: Place) -> Stream:
    return place.stream.with_columns(**{place.free("c"): place.value()})


def drop(place: Place) -> Stream:
    others = [name for name in place.stream.schema if name not in place.keys]
    return place.stream.drop(place.pick(others)) if len(others) > 1 else place.stream


def rename(place: Place) -> Stream:
    others = [name for name in place.stream.schema if name not in place.keys]
    return place.stream.rename({place.pick(others): place.free("r")}) if others else place.stream


def select_many(place: Place) -> Stream:
    name = place.pick(place.simple)
    items = (
        pl.concat_list([name, name])
        if place.draw(st.booleans())
        else pl.col(name).repeat_by(place.draw(st.integers(0, 2)))
    )
    return place.stream.select_many(items.alias(place.free("i")))


def select_many_by_function(place: Place) -> Stream:
    column = place.free("f")
    return place.stream.select_many(
        # Not by the text of the row: a key's -0.0 may be any of its equals, and sums end in any digit.
        lambda row: (
            [] if sum(value is None for value in row.values()) % 2 else [{**row, column: 1}, {**row, column: 2}]
        ),
        schema={**place.stream.schema, column: pl.Int64},
    )


def map_batches(place: Place) -> Stream:
    column = place.free("m")
    return place.stream.map_batches(
        lambda frame: frame.with_columns(pl.lit(1, pl.Int64).alias(column)),
        schema={**place.stream.schema, column: pl.Int64},
    )


def operator(place: Place) -> Stream:
    chosen = place.draw(st.sampled_from(OPERATORS))
    return place.stream.operator(chosen, prefix=place.free("o"), every=place.draw(st.integers(1, 3)))


def snapshot_apply(place: Place) -> Stream:
    function, schema = described(place.free("s"))
    return place.stream.snapshot_apply(function, schema=schema)


def with_duration(place: Place) -> Stream:
    whole = place.columns(lambda dtype: dtype.is_integer())
    choices: list[Any] = [place.span(1, 12), None]
    if place.is_integer and whole:
        choices.append(sq.col(place.pick(whole)).cast(pl.Int64).fill_null(4).clip(-5, 20))
    return place.stream.with_duration(place.draw(st.sampled_from(choices)))


def alter_lifetime(place: Place) -> Stream:
    duration = place.draw(st.sampled_from([place.span(1, 12), None]))
    if not place.is_integer:
        return place.stream.alter_lifetime(duration=duration)
    moved = place.draw(st.sampled_from([sq.start() + 3, sq.start() // 5 * 5]))
    return place.stream.alter_lifetime(start=moved, duration=duration)


def shift(place: Place) -> Stream:
    return place.stream.shift(place.span(-9, 9))


def extend(place: Place) -> Stream:
    return place.stream.extend(place.span(-6, 9))


def clip(place: Place) -> Stream:
    return place.stream.clip(place.span(1, 8))


def point_at_end(place: Place) -> Stream:
    return place.stream.point_at_end()


def chop(place: Place) -> Stream:
    # Mostly bounded; an endless event must be refused by both.
    bounded = place.stream if place.draw(st.integers(0, 9)) == 0 else place.stream.clip(place.spell(30))
    return bounded.chop(place.span(2, 9), place.span(-3, 3))


def stitch(place: Place) -> Stream:
    return place.stream if place.is_nested else place.stream.stitch()


def quantize(place: Place) -> Stream:
    period = place.draw(st.sampled_from([2, 6, 10]))
    progress = place.draw(st.sampled_from([None, place.spell(period // 2), place.spell(period)]))
    return place.stream.quantize(place.span(1, 15), place.spell(period), place.span(-3, 3), progress)


def wait_for_ends(place: Place) -> Stream:
    waited = place.stream.wait_for_ends()
    return waited.where(sq.end().is_not_null()) if place.draw(st.booleans()) else waited


def cast_time(place: Place) -> Stream:
    assert place.stream.time is not None
    if place.stream.time.unit == "d":
        # In finer units a day would have millions of ticks.
        return place.stream
    return place.stream.cast_time(place.pick(["us", "ns", "ms", "d"]))


def hopping_window(place: Place) -> Stream:
    closed = place.pick(["left", "right"])
    return place.stream.hopping_window(place.span(1, 12), place.span(1, 9), place.span(-3, 3), closed)


def tumbling_window(place: Place) -> Stream:
    return place.stream.tumbling_window(place.span(1, 12), place.span(-3, 3), place.pick(["left", "right"]))


def sliding_window(place: Place) -> Stream:
    return place.stream.sliding_window(place.span(1, 12))


def count_window(place: Place) -> Stream:
    return place.stream if place.is_nested else place.stream.count_window(place.draw(st.integers(1, 4)))


def session_window(place: Place) -> Stream:
    longest = place.span(1, 15) if place.draw(st.booleans()) else None
    return place.stream.session_window(place.span(1, 8), longest, place.pick(["running", "final"]))


def per_window(place: Place) -> Stream:
    named = _aggregates(place, place.free("w"))
    windowed = hopping_window(place).aggregate(**named)
    return windowed.per_window()


def aggregate(place: Place) -> Stream:
    return place.stream.aggregate(**_aggregates(place, place.free("a")))


def group_aggregate(place: Place) -> Stream:
    return place.stream.group_aggregate(_keys(place, 1), **_aggregates(place, place.free("g")))


def group_apply(place: Place) -> Stream:
    """Apply a chain to each group; groups may stand in groups."""
    keys = _keys(place)
    named = {} if keys else {place.free("h"): pl.lit(1)}
    inner = tuple(dict.fromkeys([*place.keys, *keys, *named]))
    allowed = place.allowed if place.depth == 0 else place.allowed.without_groups()

    def query(group: Stream) -> Stream:
        return chain(place.draw, group, allowed, keys=inner, depth=place.depth + 1, most=2)

    return place.stream.group_apply(keys or None, query, **named)


def _keys(place: Place, fewest: int = 0) -> list[str]:
    return place.draw(st.lists(st.sampled_from(place.simple), min_size=fewest, max_size=2, unique=True))


def distinct(place: Place) -> Stream:
    return place.stream if place.is_nested else place.stream.distinct()


def union(place: Place) -> Stream:
    other = place.stream if place.stream.time is None or place.draw(st.booleans()) else shift(place)
    return place.stream.union(other.where(place.predicate()) if place.draw(st.booleans()) else other)


# -- steps with a second input ------------------------------------------------------------------------------


def _second(place: Place) -> Stream:
    """Draw another input: part of the stream itself or, outside groups, one that has nothing to do with it."""
    time = place.stream.time
    unit = None if time is None else "1" if time.is_integer else str(time.unit)
    if not place.keys and unit in ("1", "ms", "d") and place.draw(st.booleans()):
        return place.draw(st.one_of(streams(max_rows=8, unit=unit), streams(max_rows=8, unit=unit), relations()))
    if not place.keys and time is None:
        return place.draw(st.one_of(relations(max_rows=6), streams(max_rows=6)))
    own = place.stream if time is None else shift(place)
    return own.where(place.predicate()) if place.draw(st.booleans()) else own


def _temporal_second(place: Place) -> Stream:
    other = _second(place)
    return other if other.time is not None else place.stream


def _distinct_names(place: Place, other: Stream, on: Sequence[str]) -> Stream:
    """Return the second input with names that no suffix brings together."""
    left = place.stream.schema
    if not any(name in left and (f"{name}_right" in left or f"{name}_right" in other.schema) for name in other.schema):
        return other
    # Names inside lists and structs stay; only the columns matter here.
    prefix = place.free("o")
    kept = {*on, *place.keys}
    return other.rename({name: prefix + name for name in other.schema if name not in kept})


def _common(place: Place, other: Stream) -> list[str]:
    return [
        name for name in place.simple if name not in place.keys and other.schema.get(name) == place.stream.schema[name]
    ]


def _keys_of_pairs(place: Place, other: Stream) -> list[str]:
    common = _common(place, other)
    if not common:
        return []
    return place.draw(st.lists(st.sampled_from(common), min_size=0 if place.keys else 1, max_size=2, unique=True))


def _pair_condition(place: Place, other: Stream, on: Sequence[str]) -> pl.Expr | None:
    """Draw nothing, or a comparison of a left number with a right one."""
    shared = {*on, *place.keys}
    right = [name for name, dtype in other.schema.items() if name not in shared and dtype.is_numeric()]
    left = [name for name, dtype in place.stream.schema.items() if dtype.is_numeric()]
    if not left or not right or place.draw(st.booleans()):
        return None
    name = place.pick(right)
    return sq.col(place.pick(left)) <= sq.col(f"{name}_right" if name in place.stream.schema else name)


def join(place: Place) -> Stream:
    other = _second(place)
    on = _keys_of_pairs(place, other)
    other = _distinct_names(place, other, on)
    if not on:
        return place.stream.join(other, how="cross", where=_pair_condition(place, other, on))
    how = place.pick(["inner", "inner", "left", "right", "full"])
    return place.stream.join(other, on=on, how=how, where=_pair_condition(place, other, on))


def exists(place: Place) -> Stream:
    other = _second(place)
    on = _keys_of_pairs(place, other)
    if not on and not place.keys:
        return place.stream
    other = _distinct_names(place, other, on)
    method = place.draw(st.sampled_from([sq.Stream.where_exists, sq.Stream.where_not_exists]))
    return method(place.stream, other, on=on or None, where=_pair_condition(place, other, on))


def clip_by_stream(place: Place) -> Stream:
    other = _temporal_second(place)
    return place.stream.clip(other, on=_keys_of_pairs(place, other) or None)


def asof_join(place: Place) -> Stream:
    other = _temporal_second(place)
    on = _keys_of_pairs(place, other)
    other = _distinct_names(place, other, on)
    if any(isinstance(dtype, NESTED) for dtype in other.schema.values()):
        return place.stream
    tolerance = place.span(0, 12) if place.draw(st.booleans()) else None
    order_by = place.draw(st.sampled_from([None, *other.schema]))
    how = place.draw(st.sampled_from(["left", "inner"]))
    return place.stream.asof_join(other, on=on or None, how=how, tolerance=tolerance, order_by=order_by)


def detect(place: Place) -> Stream:
    if place.is_nested or not place.simple:
        return place.stream
    columns = [place.pick(place.simple) for _ in range(place.draw(st.integers(1, 2)))]
    registers = {f"{place.free('p')}{number}": column for number, column in enumerate(columns)}
    pattern = _pattern(place, registers, depth=2)
    whole: dict[str, Any] = {name: 5 for name, column in registers.items() if place.stream.schema[column] == pl.Int64()}
    has_first_values = place.draw(st.booleans())
    if whole and has_first_values:
        pattern = pattern.with_registers(**whole)
    # A register that nothing sets has no type.
    pattern = sq.pattern.seq(sq.pattern.any(**registers), pattern)
    within = place.draw(st.sampled_from([place.span(1, 12), place.span(1, 12), None]))
    order_by = place.draw(st.sampled_from([None, *place.simple]))
    return place.stream.detect(pattern, within, place.draw(st.booleans()), order_by)


def _pattern(place: Place, registers: dict[str, str], depth: int, *, choices: bool = True) -> Pattern:
    """Draw a pattern; choices inside of loops would double the matches with every event."""
    kinds = ["one", "one", "any", "none"]
    if depth:
        kinds += ["seq", "star", "plus", *(["alt", "opt"] if choices else [])]
    kind = place.pick(kinds)
    if kind in ("one", "any", "none"):
        updates = {name: _update(place, column) for name, column in registers.items() if place.draw(st.booleans())}
        return getattr(sq.pattern, kind)(place.predicate(), **updates)
    inside = choices and kind in ("seq", "alt", "opt")
    fewest = 2 if kind in ("seq", "alt") else 1
    parts = [_pattern(place, registers, depth - 1, choices=inside) for _ in range(fewest)]
    return getattr(sq.pattern, kind)(*parts)


def _update(place: Place, column: str) -> pl.Expr:
    return sq.col(column) if place.draw(st.booleans()) else pl.when(place.predicate()).then(sq.col(column))


def _pairs_possible(place: Place) -> bool:
    return not place.is_nested and not any(name.endswith("_right") for name in place.stream.schema)


def consecutive_pairs(place: Place) -> Stream:
    order_by = place.draw(st.sampled_from([None, *place.simple]))
    return place.stream.consecutive_pairs(order_by) if _pairs_possible(place) else place.stream


def followed_by(place: Place) -> Stream:
    if not _pairs_possible(place):
        return place.stream
    order_by = place.draw(st.sampled_from([None, *place.simple]))
    within = place.draw(st.sampled_from([place.span(1, 9), None]))
    return place.stream.followed_by(place.predicate(), place.predicate(), within, order_by)


def sessionize(place: Place) -> Stream:
    if not _pairs_possible(place):
        return place.stream
    return place.stream.sessionize(place.predicate(), place.predicate(), on=_keys(place) or None)


RELATIONAL = (
    where, select, with_columns, drop, rename, select_many, select_many_by_function, map_batches, aggregate,
    group_aggregate, group_apply, distinct, union, join, exists, snapshot_apply,
)  # fmt: skip
TEMPORAL = (
    with_duration, alter_lifetime, shift, extend, clip, point_at_end, chop, stitch, quantize, wait_for_ends,
    cast_time, hopping_window, tumbling_window, sliding_window, count_window, session_window, per_window, detect,
    consecutive_pairs, followed_by, sessionize, clip_by_stream, asof_join, operator,
)  # fmt: skip
STEPS: dict[str, Step] = {step.__name__: step for step in (*RELATIONAL, *TEMPORAL)}
RELATIONAL_STEPS = tuple(step.__name__ for step in RELATIONAL)

NEEDS_SIMPLE_COLUMNS = ("select_many", "group_apply")
NEEDS_CALENDAR = ("cast_time",)


def _possible(place: Place) -> Iterator[str]:
    for name in place.steps:
        if place.stream.time is None and name not in RELATIONAL_STEPS:
            continue
        if name in NEEDS_CALENDAR and place.is_integer:
            continue
        if name in NEEDS_SIMPLE_COLUMNS and not place.simple:
            continue
        if name == "group_aggregate" and (not place.simple or place.keys):
            continue
        if name == "per_window" and "window_start" in place.stream.schema:
            continue
        yield name


def chain(
    draw: Draw,
    stream: Stream,
    allowed: Allowed,
    *,
    keys: tuple[str, ...] = (),
    depth: int = 0,
    most: int = 4,
) -> Stream:
    """Return the stream with up to `most` random steps after it."""
    for _ in range(draw(st.integers(0 if depth == 0 else 1, most))):
        place = Place(draw, stream, keys, allowed, depth)
        possible = list(_possible(place))
        if not possible:
            break
        stream = STEPS[draw(st.sampled_from(possible))](place)
    return stream


@st.composite
def queries(
    draw: Draw,
    *,
    steps: Collection[str] = tuple(STEPS),
    aggregates: Collection[str] = tuple(AGGREGATES),
    sources: st.SearchStrategy[Stream] | None = None,
    most: int = 4,
) -> Stream:
    """Draw a query: a stream of `sources` (any, when None) and up to `most` of these steps and aggregates."""
    source = draw(st.one_of(streams(), streams(), streams(), relations()) if sources is None else sources)
    return chain(draw, source, Allowed(tuple(steps), tuple(aggregates)), most=most)

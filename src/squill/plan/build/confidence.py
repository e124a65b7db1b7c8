"""Build confidence intervals over samples by hash.

What is sampled are *clusters*, the rows of equal hashed columns: at step k of n each is there with probability
f = k/n, by itself. So an aggregate with intervals becomes

::

    aggregate(keys, m=ci.mean(x))    →   select(m = interval of the moments and of f)
                                           chop(1)                       because f changes at every step
                                             aggregate(keys, moments of clusters)
                                               aggregate(keys + hashed columns, sum(x), count(x))

which the engine keeps up to date as any other plan. Ordinary aggregates, and quantiles, which look at rows, are
computed beside and put together with the moments by key.

A total is the sample's divided by f (Horvitz and Thompson); its variance is (1-f)/f² Σ t² over the clusters' totals t.
A quotient R = Σy/Σm has the variance (1-f)/(Σm)² Σ(y - R·m)². The share of rows up to a value is such a quotient, and
a quantile's interval is that of the share, read from the rows in order (Woodruff). All are 0 at f = 1.

Of one cluster, (arrived - f)/(1-f) is a martingale over the steps, with variance f/(1-f). So is a sum over clusters,
which is as good as Brownian motion in the time f/(1-f), and the normal mixture bound (Robbins) on that holds at all
steps at once: the factor of `uniform`, in the place of the normal quantile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist

import polars as pl

from squill.errors import UnsupportedOperatorError
from squill.plan import functions
from squill.plan.aggregates import AggregateExpr, BoundAggregate
from squill.plan.apart import carried_columns
from squill.plan.assignment import AtStart, Hashed
from squill.plan.build.aggregation import aggregate
from squill.plan.build.progress import ProgressInput
from squill.plan.confidence import FIELDS, Estimated
from squill.plan.expressions import Expression, Scope, bind_one, column, start
from squill.plan.node import Node, walk
from squill.plan.nodes import Aggregate, Chop, Select, Source, Union
from squill.plan.rebuild import rebuild
from squill.plan.schema import Schema
from squill.time import PROGRESS

__all__ = ["has_intervals", "with_intervals"]

BEST_AT = 1 / 9
"""Where `uniform` intervals are narrowest, in the time f/(1-f): at a tenth of the clusters."""
WIDEST = 0.5
RATIO = 0.8
LEVELS = 36
"""Quantiles are read at the shares p ± WIDEST·RATIO^k: as near as the interval, or up to a quarter farther."""

Clusters = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Interval(Estimated):
    """An estimated column, and how the names of all begin that it is computed from."""

    prefix: str

    def name(self, what: str) -> str:
        return f"{self.prefix}{self.column}_{what}"

    def part(self, what: str) -> pl.Expr:
        return pl.col(self.name(what))

    @property
    def share(self) -> pl.Expr:
        return pl.col(_share_name(self.prefix))


def _share_name(prefix: str) -> str:
    return f"{prefix}share"


def _free_prefix(node: Aggregate) -> str:
    """Return a prefix that no column of the aggregate or of its input has."""
    prefix, number = "__ci_", 1
    while any(name.startswith(prefix) for name in (*node.schema, *node.parent.schema)):
        number += 1
        prefix = f"__ci_{number}_"
    return prefix


def has_intervals(root: Node) -> bool:
    return any(isinstance(node, Aggregate) and node.estimated for node in walk(root))


def with_intervals(root: Node, inputs: list[ProgressInput], coarsen: int) -> Node:
    """Return the plan with estimates and their intervals computed from what is there at each step."""
    given = {id(item.source): item for item in inputs}

    def change(node: Node, original: Node) -> Node:
        if not isinstance(node, Aggregate) or not isinstance(original, Aggregate) or not node.estimated:
            return node
        sample = _sample_of(original, given)
        if sample is None:
            return node
        clusters, steps = sample
        return _Expansion(node, clusters, steps, coarsen).built()

    return rebuild(root, change)


def _sample_of(node: Aggregate, given: Mapping[int, ProgressInput]) -> tuple[Clusters, int] | None:
    """Return the columns whose values are sampled, and in how many steps; None where groups are there as a whole."""
    shown = ", ".join(item.column for item in node.estimated)
    below = [given[id(item)] for item in walk(node.parent) if isinstance(item, Source)]
    for item in below:
        if not isinstance(item.assignment, (Hashed, AtStart)):
            raise UnsupportedOperatorError(
                f"progressive: the intervals {shown} need rows that come in the order of a hash, "
                f"but the input {item.name!r} has {item.assignment}",
                "give sq.progress.hashed(columns, steps), or take sq.mean in the place of sq.ci.mean, and so on.",
            )
    hashed = {id(item.source): item.assignment for item in below if isinstance(item.assignment, Hashed)}
    if not hashed:
        return None

    def refuse(where: Node, why: str) -> UnsupportedOperatorError:
        return UnsupportedOperatorError(
            f"progressive: the intervals {shown} need a sample of rows, but below them {where.name} looks at rows of "
            f"different steps: {why}, which do not contain the hashed columns",
            "let sq.ci.… be the first aggregate over the rows, or hash by columns that are keys of all before it.",
        )

    carried = carried_columns(node.parent, {source: item.names for source, item in hashed.items()}, refuse)
    assert carried is not None
    first = next(iter(hashed.values()))
    for name, columns in zip(first.names, carried, strict=True):
        if not columns:
            raise UnsupportedOperatorError(
                f"progressive: the intervals {shown} are computed from the rows of each {name!r}, "
                f"the hashed column, which the rows no longer have",
                f"keep {name!r} in the select(…) before; the aggregate need not name it.",
            )
    keys = set(node.keys)
    clusters = tuple(min(columns) for columns in carried if not columns & keys)
    # A group that has the hashed columns among its keys is there as a whole or not at all.
    return (clusters, first.steps) if clusters else None


class _Expansion:
    """One aggregate with intervals, as a plan over clusters."""

    def __init__(self, node: Aggregate, clusters: Clusters, steps: int, coarsen: int) -> None:
        self._node = node
        self._clusters = clusters
        self._steps = steps
        self._coarsen = coarsen
        self._prefix = _free_prefix(node)
        self._intervals = [_Interval(**vars(item), prefix=self._prefix) for item in node.estimated]
        self._calls = {call.placeholder: call for call in node.calls}

    def built(self) -> Node:
        moments = self._moments()
        beside = self._beside()
        together = moments if beside is None else self._together(beside, moments)
        last = (self._steps - 1) // self._coarsen * self._coarsen
        pieces = Chop(parent=together, period=self._coarsen, offset=0, until=last)
        there = pl.min_horizontal(start() + self._coarsen, pl.lit(self._steps)) / self._steps
        computed = _with(pieces, {_share_name(self._prefix): there})
        # In several selects, since what one computes the next uses more than once.
        for stage in (_estimates, _halves, _bounds):
            named = [stage(item) for item in self._intervals]
            computed = _with(computed, {name: expr for columns in named for name, expr in columns.items()})
        names = (*self._node.keys, *(item.name for item in self._node.columns))
        return Select(parent=computed, columns=tuple(column(name, computed.schema[name]) for name in names))

    # -- over clusters ------------------------------------------------------------------------------------

    def _moments(self) -> Node:
        """Return, by group, sums over the clusters of what intervals are computed from."""
        wanted = dict.fromkeys(name for item in self._intervals for name in _summed(item))
        calls = tuple(self._calls[name] for name in wanted)
        per_cluster = Aggregate(
            parent=self._node.parent,
            keys=(*self._node.keys, *self._clusters),
            calls=calls,
            columns=tuple(column(call.placeholder, call.dtype) for call in calls),
        )
        sums: dict[str, AggregateExpr] = {}
        for item in self._intervals:
            sums.update(_sums(item))
        return aggregate(per_cluster, self._node.keys, sums)

    # -- over rows ----------------------------------------------------------------------------------------

    def _beside(self) -> Aggregate | None:
        """Return what looks at rows: aggregates without intervals, and values at ranks."""
        estimated = {item.column for item in self._intervals}
        plain = tuple(item for item in self._node.columns if item.name not in estimated)
        used = {root for item in plain for root in item.roots}
        calls = [call for call in self._node.calls if call.placeholder in used]
        columns = list(plain)
        for item in self._intervals:
            if item.kind == "quantile":
                self._read_ranks(item, calls, columns)
        if not columns:
            return None
        return replace(self._node, calls=tuple(calls), columns=tuple(columns), estimated=())

    def _read_ranks(self, item: _Interval, calls: list[BoundAggregate], columns: list[Expression]) -> None:
        base = self._calls[item.of[0]]
        if all(call.placeholder != base.placeholder for call in calls):
            calls.append(base)
        columns.append(column(base.placeholder, base.dtype).renamed(item.name("value")))
        for side, neighbour, sign in (("lows", "below", -1), ("highs", "above", 1)):
            shares = enumerate(_shares(item.p, sign))
            places = [_rank_call(base, neighbour, level, share) for level, share in shares if share is not None]
            calls += places
            types = Schema((call.placeholder, call.dtype) for call in places)
            read = [pl.col(call.placeholder).cast(pl.Float64) for call in places]
            unknown = [pl.lit(None, pl.Float64)] * (LEVELS - len(places))  # the widest, which come first
            values = pl.concat_list([*unknown, *read])
            columns.append(bind_one(values, Scope(types, None, ends_known=False), "sq.ci").renamed(item.name(side)))

    def _together(self, rows: Aggregate, moments: Node) -> Node:
        """Return both sides of each group in one row; by union, since a join would lose keys that are null."""
        keys = self._node.keys
        schema = {**rows.schema, **moments.schema}
        order = tuple(schema)
        united = Union(parents=tuple(_widened(node, order, schema) for node in (rows, moments)))
        return aggregate(united, keys, {name: functions.first(name) for name in order if name not in keys})


def _with(node: Node, named: Mapping[str, pl.Expr]) -> Node:
    """Return the node with more columns; progress, of which it does not know yet, is its time."""
    scope = Scope(node.schema, PROGRESS, ends_known=False)
    kept = [column(name, dtype) for name, dtype in node.schema.items() if name not in named]
    new = [bind_one(expr, scope, "sq.ci").renamed(name) for name, expr in named.items()]
    return Select(parent=node, columns=(*kept, *new))


def _summed(item: _Interval) -> Iterable[str]:
    return item.of[1:] if item.kind == "quantile" else item.of


def _sums(item: _Interval) -> dict[str, AggregateExpr]:
    """Return the sums over clusters: of totals and their squares, and of how many clusters have any."""
    *above, below = (pl.col(name).cast(pl.Float64) for name in _summed(item))
    sums = {
        "n": functions.count(where=below != 0),
        "y": functions.sum(below),
        "yy": functions.sum(below * below),
    }
    for x in above:
        sums |= {"x": functions.sum(x), "xx": functions.sum(x * x), "xy": functions.sum(x * below)}
    return {item.name(what): total for what, total in sums.items()}


def _estimates(item: _Interval) -> dict[str, pl.Expr]:
    y = item.part("y")
    match item.kind:
        case "sum" | "count":
            estimate = y / item.share
        case "mean" | "ratio":
            estimate = pl.when(y != 0).then(item.part("x") / y)
        case _:
            estimate = item.part("value").cast(pl.Float64)
    return {item.name("estimate"): estimate, item.name("factor"): _factor(item)}


def _halves(item: _Interval) -> dict[str, pl.Expr]:
    """Return half the width of the interval; of a quantile, that of the share of rows."""
    n, y, yy, xx, xy, estimate = (item.part(what) for what in ("n", "y", "yy", "xx", "xy", "estimate"))
    missing = 1 - item.share
    match item.kind:
        case "sum" | "count":
            error = (missing * yy).sqrt() / item.share
        case "mean" | "ratio":
            spread = (xx - 2 * estimate * xy + estimate * estimate * yy).clip(0)
            error = (missing * spread * n / (n - 1)).sqrt() / y.abs()
        case _:
            error = (missing * item.p * (1 - item.p) * yy * n / (n - 1)).sqrt() / y
    return {item.name("half"): item.part("factor") * error}


def _bounds(item: _Interval) -> dict[str, pl.Expr]:
    """Return estimate, low and high."""
    estimate, half = item.part("estimate"), item.part("half")
    low, high = estimate - half, estimate + half
    is_known = item.part("n") >= 2
    if item.kind == "count":
        low = pl.max_horizontal(low, item.part("y"))  # rows that have been counted are there for good
    if item.kind == "quantile":
        level = ((half / WIDEST).log() / math.log(RATIO)).floor().clip(0, LEVELS - 1).cast(pl.Int64)
        low, high = (item.part(side).list.get(level, null_on_oob=True) for side in ("lows", "highs"))
        # Values between two neighbours are rounded, and may leave them by that much.
        low = pl.when(low > estimate).then(estimate).otherwise(low)
        high = pl.when(high < estimate).then(estimate).otherwise(high)
        is_known &= half <= WIDEST
    values = {FIELDS[0]: estimate}
    for name, bound in zip(FIELDS[1:], (low, high), strict=True):
        values[name] = pl.when(item.share >= 1).then(estimate).when(is_known).then(bound)
    return {item.column: pl.struct(value.alias(name) for name, value in values.items())}


def _factor(item: _Interval) -> pl.Expr:
    """Return how many standard deviations the interval has on each side.

    Few clusters tell little of their spread: the factor grows as the quantiles of Student's t do, by the first terms of
    their expansion in 1/(n - 1).
    """
    miss = 1 - item.level
    z = NormalDist().inv_cdf(1 - miss / 2)
    free = (item.part("n") - 1).cast(pl.Float64)
    terms = (
        (z**2 + 1) / 4,
        (5 * z**4 + 16 * z**2 + 3) / 96,
        (3 * z**6 + 19 * z**4 + 17 * z**2 - 15) / 384,
    )
    small = 1 + terms[0] / free + terms[1] / free**2 + terms[2] / free**3
    if not item.uniform:
        return z * small
    time = item.share / (1 - item.share)
    mixed = BEST_AT / (2 * math.log(1 / miss) + math.log(1 + 2 * math.log(1 / miss)))
    return ((1 + mixed / time) * ((time + mixed) / (mixed * miss**2)).log()).sqrt() * small


def _shares(p: float, sign: int) -> list[float | None]:
    """Return the shares of rows at which values are read on one side, the farthest first; None outside of all rows."""
    shares = [p + sign * WIDEST * RATIO**level for level in range(LEVELS)]
    return [share if 0 < share < 1 else None for share in shares]


def _rank_call(base: BoundAggregate, neighbour: str, level: int, share: float) -> BoundAggregate:
    """Return the value at a share of the rows; of the two that it lies between the one away from the estimate."""
    options = (("p", share), ("discrete", True), ("neighbour", neighbour))
    placeholder = f"{base.placeholder}{neighbour}{level}"
    return replace(base, placeholder=placeholder, options=options, dtype=base.inputs[0].dtype)


def _widened(node: Node, order: Iterable[str], types: Mapping[str, pl.DataType]) -> Node:
    columns = []
    for name in order:
        if name in node.schema:
            columns.append(column(name, types[name]))
        else:
            columns.append(bind_one(pl.lit(None, types[name]), node.scope, "sq.ci").renamed(name))
    return Select(parent=node, columns=tuple(columns))

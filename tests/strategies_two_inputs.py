"""Hypothesis strategies for operators over two inputs: pairs of streams and random joins of them.

Both inputs have the columns of `tests.strategies`, so every right column that is not a key gets its suffix, and
may have passed an operator before, so that ends come in every way they can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from hypothesis import strategies as st

import squill as sq
from squill.stream import Stream
from tests.strategies import Allowed, Draw, Place, _frame, _table, chain, payloads, relations, streams

__all__ = ["asof_joins", "lookups", "narrowed", "pairs", "relational_joins"]

BEFORE = ("where", "with_duration", "count_window", "session_window", "clip", "stitch", "chop")
AFTER = ("where", "count_window", "hopping_window", "aggregate", "group_aggregate", "stitch")
AGGREGATES = ("count", "sum", "max")
ROWS = st.lists(payloads, max_size=10)


@st.composite
def pairs(draw: Draw) -> tuple[Stream, Stream]:
    """Draw two streams of the same time."""
    if draw(st.integers(0, 3)) == 0:
        unit = draw(st.sampled_from(["ms", "d"]))
        return _before(draw, _table(draw, draw(ROWS), unit)), _before(draw, _table(draw, draw(ROWS), unit))
    left, right = (draw(streams(max_rows=10, calendar=False)) for _ in range(2))
    return _before(draw, left), _before(draw, right)


def _before(draw: Draw, stream: Stream) -> Stream:
    return chain(draw, stream, Allowed(BEFORE, AGGREGATES), most=1)


def _after(draw: Draw, stream: Stream) -> Stream:
    return chain(draw, stream, Allowed(AFTER, AGGREGATES), most=1)


def keys(draw: Draw, fewest: int) -> dict[str, Any]:
    """Draw how keys are named; k and n have the same type."""
    if draw(st.integers(0, 4)) == 0:
        return {"left_on": ["n"], "right_on": ["k"]}
    named = draw(st.lists(st.sampled_from(["k", "s", "b", "x"]), min_size=fewest, max_size=2, unique=True))
    return {"on": named} if named else {}


def condition(draw: Draw, on: dict[str, Any]) -> pl.Expr | None:
    """Draw a condition over a pair, or none; columns that are keys of both have no suffix."""
    shared: Sequence[str] = on.get("on", ())
    options: list[pl.Expr | None] = [None, None, sq.col("n") > 0]
    options += [sq.col(name) <= sq.col(f"{name}_right") for name in ("n", "x", "s") if name not in shared]
    return draw(st.sampled_from(options))


@st.composite
def asof_joins(draw: Draw) -> Stream:
    """Draw an AS OF join, sometimes inside a group, where a stream meets a part of itself."""
    left, right = draw(pairs())
    options: dict[str, Any] = {"how": draw(st.sampled_from(["left", "inner"]))}
    place = Place(draw, right, (), Allowed((), ()), 0)
    tolerance = place.span(0, 12) if draw(st.booleans()) else None
    order_by = draw(st.sampled_from([None, "x", [-sq.col("n"), "s"], sq.start()]))
    options |= {"tolerance": tolerance, "order_by": order_by}
    if draw(st.integers(0, 3)) == 0:
        later = right.shift(place.span(0, 3))
        inside = keys(draw, 0) if draw(st.booleans()) else {}
        inside = {} if inside.get("on") == ["k"] else inside
        joined = later.group_apply("k", lambda g: g.asof_join(g.where(place.predicate()), **inside, **options))
    else:
        joined = left.asof_join(right, **keys(draw, 0), **options)
    return _after(draw, joined)


@st.composite
def lookups(draw: Draw) -> Stream:
    """Draw a join or an existence test of which one input is relational."""
    stream = _before(draw, draw(streams(max_rows=7)))
    table = draw(tables())
    kind = draw(st.sampled_from(["join", "join", "mirrored join", "where_exists", "where_not_exists"]))
    left, right = (table, stream) if kind == "mirrored join" else (stream, table)
    return _after(draw, _related(draw, left, right, kind))


@st.composite
def tables(draw: Draw) -> Stream:
    """Draw relational data, half of the time with unique values of k."""
    table = draw(relations(max_rows=7))
    if draw(st.booleans()):
        return table
    rows = draw(st.lists(payloads, max_size=6, unique_by=lambda row: row["k"]))
    return sq.from_frame(_frame({}, rows, "1"))


@st.composite
def sorted_tables(draw: Draw) -> Stream:
    """Draw relational data that is promised in the order of k."""
    frame = _frame({}, draw(st.lists(payloads, max_size=7)), "1").sort("k", nulls_last=False)
    stream = sq.from_frame(frame, sorted_by="k")
    return stream.where(sq.col("n").is_not_null()) if draw(st.booleans()) else stream


@st.composite
def relational_joins(draw: Draw) -> Stream:
    """Draw a join or an existence test of two relations."""
    kind = draw(st.sampled_from(["join", "join", "where_exists", "where_not_exists"]))
    kinds = sorted_tables() if draw(st.booleans()) else tables()
    left, right = draw(kinds), draw(kinds)
    if draw(st.integers(0, 3)) == 0:
        place = Place(draw, left, (), Allowed((), ()), 0)
        return left.group_apply("k", lambda g: _related(draw, g, g.where(place.predicate()), kind, inside=True))
    return _related(draw, left, right, kind)


@st.composite
def narrowed(draw: Draw) -> Stream:
    """Draw one operator over two inputs, or one over two of these, of which little is used afterwards."""
    kind = draw(st.sampled_from(["join", "join", "where_exists", "where_not_exists", "clip"]))
    if kind == "clip":
        left, right = draw(pairs())
        related = left.clip(right, **keys(draw, 1))
    else:
        left, right = draw(pairs()) if draw(st.booleans()) else (draw(tables()), draw(tables()))
        related = _related(draw, left, right, kind)
    if kind == "join" and draw(st.integers(0, 2)) == 0:
        related = related.join(right.select("k", other="n"), on="k")
    used = draw(st.lists(st.sampled_from(list(related.plan.schema)), max_size=2, unique=True))
    if not used:
        return related.aggregate(n=sq.count())
    if draw(st.booleans()):
        return related.select(*used)
    return related.group_aggregate(used[:1], n=sq.count_not_null(used[-1]))


def _related(draw: Draw, left: Stream, right: Stream, kind: str, *, inside: bool = False) -> Stream:
    if kind.endswith("join"):
        how = draw(st.sampled_from(["inner", "inner", "left", "right", "full", "cross"]))
        on = {} if how == "cross" else keys(draw, 0 if inside else 1)
        on = {} if inside and "k" in on.get("on", ()) else on
        return left.join(right, **on, where=condition(draw, {"on": ["k"]} if inside else on), how=how)
    on = keys(draw, 1)
    test = left.where_exists if kind == "where_exists" else left.where_not_exists
    return test(right, **on, where=condition(draw, on))

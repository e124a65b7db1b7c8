"""Queries over a pushed source, one or more for every operator, by name: both sides of a restart build them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

import squill as sq
from squill.engine.subscription import Subscription
from squill.plan.codec import Codec
from squill.pushed import PushedSource
from squill.stream import Stream
from tests.user_operators import OPERATORS, described

SCHEMA = {
    "t": pl.Int64, "u": pl.Int64, "k": pl.Int64, "s": pl.String, "x": pl.Float64, "i": pl.Int32, "l": pl.List(pl.Int64),
    "d": pl.Decimal(12, 2), "b": pl.Boolean, "e": pl.Enum(["p", "q"]),
}  # fmt: skip
POINTS: dict[str, Any] = {}
INTERVALS: dict[str, Any] = {"end": "u"}
OPEN: dict[str, Any] = {"lifetime": "open"}


@dataclass(frozen=True)
class Case:
    """A query, and how the source under it reads lifetimes."""

    query: Callable[[Stream], Stream]
    source: dict[str, Any]
    emit: str = "closed"


def _points(query: Callable[[Stream], Stream], **source: Any) -> Case:
    return Case(query, source)


def _intervals(query: Callable[[Stream], Stream]) -> Case:
    return Case(query, INTERVALS)


def _plus_one(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(k=frame["k"] + 1, x=frame["x"])


def _boxes(frame: pl.DataFrame) -> pl.DataFrame:
    return pl.DataFrame({"z": pl.Series([complex(k, 1) for k in frame["k"]], dtype=pl.Object)})


def _codec() -> Codec:
    return sq.codec(complex, lambda z: repr(z).encode(), lambda given: complex(given.decode()))


def _average(**more: Any) -> Any:
    return sq.aggregate_fn(
        "x",
        init=lambda: (0, 0.0),
        accumulate=lambda state, t, x: (state[0] + 1, state[1] + x),
        result=lambda state: state[1] / state[0] if state[0] > 0 else None,
        dtype=pl.Float64,
        **more,
    )


def _compiled() -> Any:
    return _average(deaccumulate=lambda state, t, x: (state[0] - 1, state[1] - x))


def _plain_python() -> Any:
    # A dict inside keeps Numba from compiling it.
    return sq.aggregate_fn(
        "i",
        init=lambda: (0,),
        accumulate=lambda state, t, i: ({"sum": state[0] + i}["sum"],),
        deaccumulate=lambda state, t, i: ({"sum": state[0] - i}["sum"],),
        result=lambda state: state[0],
        dtype=pl.Int64,
    )


def _rising() -> Any:
    p = sq.pattern
    return p.seq(p.any(low="i", text="s"), p.plus(p.one(lambda i, low: i >= low, low="i")))


def _spelling() -> Any:
    """A register of text, which plain Python computes."""
    p = sq.pattern
    any_two = p.seq(*(p.one(pl.lit(True), text=lambda text, s: text + (s or "")) for _ in range(3)))
    return any_two.with_registers(text="")


def _stored() -> Stream:
    frame = pl.DataFrame({"t": [3, 40, 90], "k": [1, 2, 3], "x": [0.5, None, 2.0]})
    return sq.from_frame(frame, start="t")


def _described(stream: Stream) -> Stream:
    function, schema = described("d")
    return stream.snapshot_apply(function, schema=schema)


def _own(operator: type) -> Callable[[Stream], Stream]:
    return lambda s: s.group_apply("k", lambda g: g.operator(operator, prefix="o", every=2))


PER_KEY: dict[str, Callable[[], dict[str, Any]]] = {
    "counts": lambda: {"n": sq.count(), "m": sq.count_not_null("x")},
    "sums": lambda: {"a": sq.sum("x"), "b": sq.sum("i"), "c": sq.sum("d"), "d": sq.mean("x"), "e": sq.std("x")},
    "products": lambda: {"a": sq.product("x"), "b": sq.product("i")},
    "extremes": lambda: {"a": sq.min("x"), "b": sq.max("s"), "c": sq.min("d"), "d": sq.max("e")},
    "firsts": lambda: {"a": sq.first("s"), "b": sq.last("x"), "c": sq.first("x", order_by="s")},
    "lists": lambda: {"a": sq.collect_list("s"), "b": sq.top_k("x", 2), "c": sq.collect_list("l")},
    "ranks": lambda: {"a": sq.percentile("x", 0.5), "b": sq.percentile("i", 0.3, discrete=True)},
    "distinct values": lambda: {"a": sq.count_distinct("s"), "b": sq.count_distinct("i", where=sq.col("b"))},
    "user aggregate": lambda: {"a": _compiled()},
    "user aggregate without deaccumulate": lambda: {"a": _average()},
    "user aggregate in Python": lambda: {"a": _plain_python()},
}


def _grouped(name: str, shape: Callable[[Stream], Stream]) -> Callable[[Stream], Stream]:
    return lambda s: shape(s).group_aggregate(["k", "s"] if name == "counts" else "k", **PER_KEY[name]())


CASES: dict[str, Case] = {
    "as it is": _points(lambda s: s),
    "intervals": _intervals(lambda s: s),
    "open": Case(lambda s: s, OPEN, "changes"),
    "where": _points(lambda s: s.where(sq.col("k") > 1)),
    "select": _points(lambda s: s.select("k", y=sq.col("x") * 2)),
    "select_many": _points(lambda s: s.select_many("l")),
    "map_batches": _points(lambda s: s.map_batches(_plus_one, schema={"k": pl.Int64, "x": pl.Float64})),
    "codec": _points(lambda s: s.map_batches(_boxes, schema={"z": _codec()}).sliding_window(9)),
    "with_duration": _points(lambda s: s.with_duration(sq.col("k") * 7 + 1)),
    "with_duration of all": Case(lambda s: s.with_duration(20), POINTS, "changes"),
    "alter_lifetime": _intervals(lambda s: s.alter_lifetime(start=sq.start() + 3, duration=5)),
    "shift": _intervals(lambda s: s.shift(5)),
    "extend": _intervals(lambda s: s.extend(4)),
    "shrink": _intervals(lambda s: s.extend(-4)),
    "clip": _intervals(lambda s: s.stitch().clip(6)),
    "point_at_end": _intervals(lambda s: s.point_at_end()),
    "chop": _intervals(lambda s: s.chop(4)),
    "chop of edges": _intervals(lambda s: s.select("k").stitch().chop(5)),
    "stitch": _points(lambda s: s.select("k", "s").sliding_window(6).stitch()),
    "quantize": _intervals(lambda s: s.quantize(10, 5)),
    "quantize of edges": _intervals(lambda s: s.select("k").stitch().quantize(10, 5)),
    "wait_for_ends": _intervals(lambda s: s.select("k").stitch().wait_for_ends()),
    "cast_time": Case(lambda s: s.cast_time("us"), {"time": pl.Datetime("ms")}),
    "hopping_window": _points(lambda s: s.hopping_window(10, 3)),
    "count_window": _points(lambda s: s.group_apply("k", lambda g: g.count_window(3))),
    "session_window": _points(lambda s: s.group_apply("s", lambda g: g.session_window(7, 20))),
    "final sessions": _points(lambda s: s.group_apply("k", lambda g: g.session_window(7, rows="final").count())),
    "per_window": _points(lambda s: s.group_apply("k", lambda g: g.hopping_window(12, 4).count()).per_window()),
    "distinct": _intervals(lambda s: s.select("k", "b").distinct()),
    "union": _points(lambda s: s.union(s.shift(11))),
    "stored beside": _points(lambda s: s.select("k", "x").sliding_window(30).union(_stored()).group_aggregate(
        "k", n=sq.count(), a=sq.sum("x")
    )),
    "join": _intervals(lambda s: s.select("k", "s").join(s.select("k", "x").shift(3), on="k")),
    "full join of edges": _intervals(
        lambda s: s.select("k").stitch().join(s.select("k", "b").shift(5).stitch(), on="k", how="full")
    ),
    "asof_join": _points(lambda s: s.select("k", "s").asof_join(s.select("k", "x").shift(3), on="k")),
    "where_exists": _intervals(lambda s: s.select("k", "s").where_exists(s.shift(4), on="k")),
    "where_not_exists": _intervals(lambda s: s.select("k", "s").where_not_exists(s.shift(4), on="k")),
    "clip by a stream": _points(lambda s: s.select("k", "s").with_duration(None).clip(s.shift(2), on="k")),
    "detect": _points(lambda s: s.group_apply("k", lambda g: g.detect(_rising(), within=40, order_by="i"))),
    "detect endless": Case(lambda s: s.detect(_rising(), order_by="i"), POINTS, "changes"),
    "detect text": _points(lambda s: s.group_apply("k", lambda g: g.detect(_spelling(), within=40, order_by="i"))),
    "followed_by": _points(lambda s: s.followed_by(sq.col("i") > 2, sq.col("i") < 3, within=9)),
    "sessionize": _points(lambda s: s.select("k", "i").sessionize(sq.col("i") > 3, sq.col("i") < 2, on="k")),
    "consecutive_pairs": _points(lambda s: s.select("k", "s").group_apply("k", lambda g: g.consecutive_pairs())),
    "nested": _intervals(lambda s: s.group_aggregate("k", n=sq.count()).aggregate(m=sq.max("n"))),
    "snapshot_apply": _intervals(lambda s: s.group_apply("k", _described)),
    "snapshot_apply, edges": Case(lambda s: s.select("k").stitch().group_apply("k", _described), INTERVALS, "changes"),
    **{f"operator {item.__name__}": _intervals(_own(item)) for item in OPERATORS},
    **{f"operator {item.__name__}, changes": Case(_own(item), INTERVALS, "changes") for item in OPERATORS},
    "stragglers": _points(lambda s: s.hopping_window(10, 5).count(), disorder=sq.drop(wait=15)),
    "stragglers moved": _points(lambda s: s.count(), disorder=sq.adjust(wait=2)),
    "punctuated": _points(lambda s: s.tumbling_window(10).count(), punctuate_every=10),
    "company": _points(lambda s: s.tumbling_window(10).count(), max_delay="1h"),
    **{f"{name}, sliding": _points(_grouped(name, lambda s: s.sliding_window(25))) for name in PER_KEY},
    **{f"{name}, intervals": _intervals(_grouped(name, lambda s: s)) for name in PER_KEY},
    **{f"{name}, endless": Case(_grouped(name, lambda s: s), OPEN, "changes") for name in PER_KEY},
}  # fmt: skip


def source_of(case: Case) -> PushedSource:
    options = dict(case.source)
    schema = {**SCHEMA, "t": options.pop("time", pl.Int64)}
    return sq.source(schema, start="t", **options)


def started(
    name: str, fn: Callable[[pl.DataFrame], object], restore: str | None = None
) -> tuple[PushedSource, Subscription]:
    case = CASES[name]
    source = source_of(case)
    return source, case.query(source).subscribe(fn, emit=case.emit, restore=restore)


def pieces(name: str, seed: int, rows: int = 120, cuts: int = 7) -> list[pl.DataFrame]:
    """Return the rows of a case, cut into pushes."""
    random = np.random.default_rng(seed)
    case = CASES[name]
    t = np.sort(random.integers(0, 100, rows))
    if case.source.get("disorder") is not None:
        t = t + random.integers(-1, 2, rows)
    text = ["", "a", "bb", "a text that is longer than twelve bytes", None]
    frame = pl.DataFrame(
        {
            "t": t,
            "u": t + random.integers(0, 20, rows),
            "k": random.integers(0, 4, rows),
            "s": [text[i] for i in random.integers(0, 5, rows)],
            "x": [None if v > 9 else float(v) for v in random.integers(-3, 12, rows)],
            "i": random.integers(1, 5, rows).astype(np.int32),
            "l": [[1, 2][: int(v)] for v in random.integers(0, 3, rows)],
            "d": [f"{v}.25" for v in random.integers(0, 50, rows)],
            "b": [None if v == 2 else bool(v) for v in random.integers(0, 3, rows)],
            "e": [["p", "q", None][v] for v in random.integers(0, 3, rows)],
        }
    )
    frame = frame.with_columns(pl.col("t").cast(case.source.get("time", pl.Int64)), pl.col("d").cast(pl.Decimal(12, 2)))
    frame = frame.with_columns(pl.col("e").cast(pl.Enum(["p", "q"])), pl.col("l").cast(pl.List(pl.Int64)))
    if case.source.get("disorder") == sq.throw() or "disorder" not in case.source:
        frame = frame.sort("t", maintain_order=True)
    bounds = [0, *sorted(random.integers(0, rows, cuts).tolist()), rows]
    return [frame[low:high] for low, high in pairwise(bounds)]

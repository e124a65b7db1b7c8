"""A column of Python objects with a codec stays one, wherever its values come out again, or the plan is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill import pattern as p
from squill.errors import PlanError
from squill.stream import Stream


@dataclass(frozen=True)
class Model:
    weight: int


MODEL = sq.codec(Model, pickle.dumps, pickle.loads)
OTHER = sq.codec(Model, lambda model: str(model.weight).encode(), lambda data: Model(int(data)))
X, Z = sq.col("x"), sq.col("z")
A, B, C = Model(1), Model(2), Model(3)


def train(frame: pl.DataFrame) -> pl.DataFrame:
    """Give every row a model of its weight; 4 has none."""
    models = [None if x == 4 else Model(x) for x in frame["x"]]
    return frame.with_columns(pl.Series("z", models, pl.Object))


def trained(stream: Stream, codec: Any = MODEL) -> Stream:
    return stream.map_batches(train, schema={"k": pl.Int64, "x": pl.Int64, "z": codec})


ROWS = {"k": [1, 1, 2, 2], "x": [1, 2, 3, 4]}
TABLE = trained(sq.from_frame(ROWS, name="rows"))
TIMED = trained(sq.from_frame({"t": [1, 2, 3, 4], **ROWS}, start="t"))


def last_of(query: Stream) -> dict[int, Any]:
    """Return by key what the last of its rows has in its last column."""
    return {row[-2]: row[-1] for row in query.collect().select(pl.nth(-2, -1)).rows()}


@pytest.mark.parametrize(("kind", "one", "two"), [("first", A, C), ("last", B, C), ("collect_list", [A, B], [C, None])])
@pytest.mark.parametrize("rows", [TABLE, TIMED.with_duration(None)], ids=["relational", "temporal"])
def test_aggregates_that_give_values_back_give_objects(rows: Stream, kind: str, one: object, two: object) -> None:
    assert last_of(rows.group_aggregate("k", z=getattr(sq, kind)("z"))) == {1: one, 2: two}


@pytest.mark.parametrize("kind", ["first", "collect_list"])
def test_aggregates_on_shards_give_objects(kind: str) -> None:
    query = TABLE.group_aggregate("k", z=getattr(sq, kind)("z"))
    with sq.local(cores=2) as cluster:
        assert sorted(query.collect(on=cluster).rows()) == sorted(query.collect().rows())


def test_items_of_a_list_of_objects_are_objects() -> None:
    lists = TABLE.group_aggregate("k", models=sq.collect_list("z")).rename({"models": "m"})
    assert sorted(lists.select_many("m").collect()["m"].to_list()[:2], key=lambda model: model.weight) == [A, B]
    lengths = lists.map_batches(
        lambda f: f.select("k", n=pl.Series(map(len, f["m"]))), schema={"k": pl.Int64, "n": pl.Int64}
    )
    assert sorted(lengths.collect().rows()) == [(1, 2), (2, 2)]


def test_a_function_must_say_what_becomes_of_lists_of_objects() -> None:
    lists = TABLE.group_aggregate("k", m=sq.collect_list("z"))
    with pytest.raises(PlanError, match="map_batches: column 'm' holds lists of Python objects") as refused:
        lists.map_batches(lambda frame: frame)
    assert "Hint: name what the function returns: schema={'m': sq.codec(list" in str(refused.value)
    kept = lists.map_batches(lambda f: f, schema={"k": pl.Int64, "m": sq.codec(list, pickle.dumps, pickle.loads)})
    assert dict(kept.collect().rows())[1] == [A, B]


def test_numbers_of_bytes_may_be_computed() -> None:
    assert TABLE.aggregate(n=sq.count_distinct("z")).collect().item() == 3
    sizes = TABLE.select(size=Z.bin.size()).aggregate(most=sq.max("size"))
    assert sizes.collect().item() == TABLE.aggregate(most=sq.max(Z.bin.size())).collect().item() > 0


def test_registers_hold_objects() -> None:
    rise = p.seq(p.one(X == 1, z="z"), p.one(X == 2))
    assert TIMED.detect(rise, within=9).collect()["z"].to_list() == [A]


ORDERED: dict[str, Callable[[], Stream]] = {
    "aggregate min": lambda: TABLE.aggregate(z=sq.min("z")),
    "aggregate max": lambda: TABLE.max("z"),
    "aggregate top_k": lambda: TABLE.aggregate(z=sq.top_k("z", 1)),
    "aggregate first": lambda: TABLE.aggregate(x=sq.first("x", order_by="z")),
    "asof_join order_by": lambda: TIMED.asof_join(TIMED, on="k", order_by="z"),
    "consecutive_pairs: order_by": lambda: TIMED.consecutive_pairs(order_by="z"),
    "detect: order_by": lambda: TIMED.detect(p.one(X == 1, x="x"), within=9, order_by="z"),
}


@pytest.mark.parametrize("operator", ORDERED)
def test_objects_are_not_ordered_by_their_bytes(operator: str) -> None:
    with pytest.raises(
        PlanError, match=f"^{operator}: column 'z' holds Python objects, which have no order"
    ) as refused:
        ORDERED[operator]()
    assert "Hint: order by what map_batches(fn, schema=…) computes from them" in str(refused.value)


LOST: dict[str, Callable[[], Stream]] = {
    "select": lambda: TABLE.select(y=pl.when(X > 1).then(Z)),
    "with_columns": lambda: TABLE.with_columns(y=pl.struct("x", "z")),
    "aggregate first": lambda: TABLE.aggregate(y=sq.first(pl.coalesce(Z, pl.lit(b"")))),
    "aggregate": lambda: TABLE.aggregate(y=sq.first("z").pipe(lambda z: z.fill_null(b""))),
    "detect: register 'y'": lambda: TIMED.detect(p.one(X == 1, y=Z.fill_null(b"")), within=9),
}


@pytest.mark.parametrize("operator", LOST)
def test_bytes_of_objects_are_not_mixed_with_others(operator: str) -> None:
    with pytest.raises(
        PlanError, match=f"^{operator}: .* which holds Python objects: expressions see only their bytes"
    ):
        LOST[operator]()


def test_rows_of_top_k_hold_no_objects() -> None:
    with pytest.raises(PlanError, match="top_k: column 'z' holds Python objects, which cannot be in the rows"):
        TABLE.aggregate(top=sq.top_k("x", 1))
    best = TABLE.drop("z").aggregate(top=sq.top_k("x", 2)).select_many("top").select(x=sq.col("top").struct.field("x"))
    assert best.join(TABLE, on="x").collect(sort=True)["z"].to_list() == [C, None]


def test_keys_of_different_codecs_never_meet() -> None:
    for other in (trained(sq.from_frame(ROWS), OTHER), TABLE.select("x", z=pl.lit(b"2"))):
        with pytest.raises(
            PlanError, match="join: the keys 'z' on the left and 'z' on the right have different codecs"
        ):
            TABLE.join(other.select("z"), on="z")
    assert TABLE.join(TABLE.select("z", y="x"), on="z").collect().height == 3


def test_a_register_is_of_one_codec() -> None:
    mixed = p.seq(p.one(X == 1, y="z"), p.one(X == 2, y=pl.lit(b"2")))
    with pytest.raises(PlanError, match="detect: the register 'y' is set to Python objects of a codec, and to what"):
        TIMED.detect(mixed, within=9)


def test_hints_for_objects_without_a_codec_are_true() -> None:
    bare = sq.from_frame(pl.DataFrame({"k": [1, 2]}).with_columns(pl.Series("z", [A, B], dtype=pl.Object)))
    with pytest.raises(PlanError, match="max: column 'z' is Object") as refused:
        bare.aggregate(z=sq.max("z"))
    assert "map_batches(fn, schema=…), or use sq.count_not_null" in str(refused.value)
    weighed = bare.map_batches(lambda f: f.select(w=pl.Series([z.weight for z in f["z"]])), schema={"w": pl.Int64})
    assert weighed.max("w").collect().item() == 2
    assert bare.aggregate(n=sq.count_not_null("z")).collect().item() == 2
    with pytest.raises(PlanError, match=r"first: .*\nHint: .*make it in map_batches"):
        bare.aggregate(z=sq.first("z"))
    coded = bare.map_batches(lambda frame: frame, schema={"k": pl.Int64, "z": MODEL})
    assert coded.aggregate(z=sq.first("z")).collect().item() == A

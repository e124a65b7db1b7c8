"""Groups and joins of relational rows that are more than memory holds, worked off in parts of their keys."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import squill as sq
from squill.engine import lookup, parts
from squill.engine.batch import Batch
from squill.engine.compile import compile_plan
from squill.engine.egress import CollectSink
from squill.engine.operators import in_parts, relational_aggregate
from squill.engine.operators.aggregate import AggregateOperator
from squill.engine.operators.in_parts import InParts
from squill.engine.parts import PARTS, OfPart, state_bytes
from squill.engine.run import drive
from squill.errors import BudgetExceededError, NumericOverflowError, SquillError
from squill.plan.rewrite import rewrite
from tests.mapped_files import mapped_files

KEYS = 20_000
ROWS = 3 * KEYS
MAPPED_BY_AN_ERROR = 2
"""So many files at most have the rows that were worked on, to which the frames of an error refer."""
SHARE = 400_000
"""Far less than the groups take, and far more than those of one part."""

NOT_ALWAYS_A_NUMBER = sq.col("s").cast(pl.Int64) == sq.col("x")


@pytest.fixture
def divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Counts divisions by depth; no file may be left of them."""
    depths: list[int] = []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for module in (in_parts, lookup, relational_aggregate):
        monkeypatch.setattr(module, "state_share", lambda: SHARE)
    monkeypatch.setattr(relational_aggregate, "_may_outgrow_memory", lambda _: True)
    monkeypatch.setattr(relational_aggregate, "HELD_BYTES", 0)
    monkeypatch.setattr(parts, "HELD_BYTES", 100_000)

    class Counted(parts.Parts):
        def __init__(self, depth: int, inputs: int = 1) -> None:
            super().__init__(depth, inputs)
            depths.append(depth)

    for module in (in_parts, lookup):
        monkeypatch.setattr(module, "Parts", Counted)
    yield depths
    assert mapped_files(tmp_path) == 0


def frame(seed: int, keys: int = KEYS) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    k = pl.Series("k", rng.integers(0, keys, ROWS))
    return pl.DataFrame({"k": k.set(k == 7, None), "x": rng.integers(0, 100, ROWS), "s": [f"t{i % 11}" for i in k]})


AGGREGATES: dict[str, tuple[Any, pl.Expr]] = {
    "count": (sq.count(), pl.len().cast(pl.Int64)),
    "sum": (sq.sum("x"), pl.col("x").sum()),
    "mean": (sq.mean("x"), pl.col("x").mean()),
    "max": (sq.max("s"), pl.col("s").max()),
    "list": (sq.collect_list("x", order_by="x"), pl.col("x").sort()),
    "distinct": (sq.count_distinct("s"), pl.col("s").n_unique().cast(pl.Int64)),
    "median": (sq.percentile("x", 0.5), pl.col("x").median()),
}


@pytest.mark.parametrize("name", AGGREGATES)
def test_groups_are_the_same_in_parts(name: str, divided: list[int]) -> None:
    rows = frame(1)
    ours, theirs = AGGREGATES[name]
    query = sq.from_frame(rows).group_aggregate("k", n=sq.count(), found=ours)
    expected = rows.group_by("k").agg(pl.len().cast(pl.Int64).alias("n"), theirs.alias("found")).sort("k")
    assert_frame_equal(query.collect(batch_rows=2_000).sort("k"), expected)
    assert divided


def test_the_state_that_is_looked_at_stays_near_its_share(divided: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    look = InParts._look

    def measured(self: InParts) -> None:
        sizes.append(state_bytes(self._all.save()))
        look(self)

    monkeypatch.setattr(InParts, "_look", measured)
    rows = frame(2, 10 * KEYS)
    answer = sq.from_frame(rows).group_aggregate("k", n=sq.collect_list("x")).collect(batch_rows=1_000)
    assert answer.height == rows["k"].n_unique()
    assert max(sizes) < 2 * SHARE
    assert len(divided) > 1
    assert max(divided) > 0  # parts that are too large again


def test_one_key_that_is_too_large_is_taken_as_it_is(divided: list[int]) -> None:
    rows = pl.DataFrame({"k": [1] * 100_000, "x": range(100_000)})
    answer = sq.from_frame(rows).group_aggregate("k", n=sq.collect_list("x")).collect(batch_rows=5_000)
    assert answer["n"].list.len().to_list() == [100_000]


def test_groups_without_a_key_are_never_divided(divided: list[int]) -> None:
    rows = pl.DataFrame({"x": range(100_000)})
    answer = sq.from_frame(rows).aggregate(n=sq.collect_list("x")).collect(batch_rows=5_000)
    assert answer["n"].list.len().to_list() == [100_000]
    assert divided == []


Two = Callable[[sq.Stream, sq.Stream], sq.Stream]
TWO_INPUTS: dict[str, tuple[Two, Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame]]] = {
    "inner": (lambda a, b: a.join(b, on="k"), lambda a, b: a.join(b, on="k")),
    "other names": (
        lambda a, b: a.join(b.rename({"k": "j"}), left_on="k", right_on="j"),
        lambda a, b: a.join(b.rename({"k": "j"}), left_on="k", right_on="j", coalesce=False),
    ),
    "condition": (
        lambda a, b: a.join(b, on="k", where=sq.col("x") < sq.col("y")),
        lambda a, b: a.join(b, on="k").filter(pl.col("x") < pl.col("y")),
    ),
    "left": (lambda a, b: a.join(b, on="k", how="left"), lambda a, b: a.join(b, on="k", how="left")),
    "full": (
        lambda a, b: a.join(b, on="k", how="full"),
        lambda a, b: a.join(b, on="k", how="full", coalesce=True),
    ),
    "exists": (lambda a, b: a.where_exists(b, on="k"), lambda a, b: a.join(b, on="k", how="semi")),
    "not exists": (lambda a, b: a.where_not_exists(b, on="k"), lambda a, b: a.join(b, on="k", how="anti")),
}


@pytest.mark.parametrize("name", TWO_INPUTS)
def test_joins_are_the_same_in_parts(name: str, divided: list[int]) -> None:
    ours, theirs = TWO_INPUTS[name]
    left, right = frame(3), frame(4, 2 * KEYS).select("k", y="x")[: ROWS // 2]
    expected = theirs(left, right)
    found = ours(sq.from_frame(left), sq.from_frame(right)).collect(batch_rows=2_000)
    assert_frame_equal(found.sort(found.columns), expected.select(found.columns).sort(found.columns))
    assert divided


def test_sides_in_the_order_of_their_key_are_divided_too(divided: list[int]) -> None:
    left = pl.DataFrame({"k": range(50_000), "x": range(50_000)})
    right = pl.DataFrame({"k": range(0, 100_000, 2), "y": range(50_000)})
    streams = [sq.from_frame(side, sorted_by="k") for side in (left, right)]
    found = streams[0].join(streams[1], on="k").collect(batch_rows=2_000)
    assert_frame_equal(found.sort("k"), left.join(right, on="k").sort("k"))
    assert divided


def test_a_table_beside_rows_with_times_stays_whole(divided: list[int]) -> None:
    table = pl.DataFrame({"k": range(50_000)})
    events = sq.from_frame({"t": [1, 2], "k": [3, 70_000]}, start="t")
    assert events.join(sq.from_frame(table), on="k").collect(batch_rows=2_000)["k"].to_list() == [3]
    assert divided == []


def test_parts_that_an_error_meets_are_removed(divided: list[int]) -> None:
    rows = frame(5).with_columns(x=pl.lit(2**62, pl.Int64))
    query = sq.from_frame(rows).group_aggregate("k", n=sq.collect_list("s"), total=sq.sum("x"))
    with pytest.raises(NumericOverflowError):
        query.collect(batch_rows=2_000)


def test_parts_of_parts_that_an_error_meets_are_removed(divided: list[int], tmp_path: Path) -> None:
    rows = frame(7, 10 * KEYS)
    large = pl.DataFrame({"k": [11, 11], "x": [2**62, 2**62], "s": ["last", "last"]})
    query = sq.from_frame(pl.concat([rows, large])).group_aggregate("k", n=sq.collect_list("s"), total=sq.sum("x"))
    with pytest.raises(NumericOverflowError) as kept:
        query.collect(batch_rows=1_000)
    assert max(divided) > 0
    assert mapped_files(tmp_path) <= MAPPED_BY_AN_ERROR
    del kept  # who keeps the error, as notebooks do, keeps what it refers to


def test_parts_of_the_sides_of_a_join_that_an_error_meets_are_removed(
    divided: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "state_share", lambda: SHARE // 10)
    left = pl.DataFrame({"k": range(30_000), "s": [str(i) for i in range(29_999)] + ["none"]})
    both = sq.from_frame(left).join(sq.from_frame(left.select("k", x="k")), on="k", where=NOT_ALWAYS_A_NUMBER)
    with pytest.raises(SquillError, match="none") as kept:
        both.aggregate(n=sq.count()).collect(batch_rows=5_000)  # which keeps no rows of the answer
    assert max(divided) > 0
    assert mapped_files(tmp_path) <= MAPPED_BY_AN_ERROR
    del kept


def test_parts_of_a_state_that_find_no_room_are_removed(
    divided: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_state = parts.Parts.put_state

    def only_the_first(self: parts.Parts, part: int, state: object) -> None:
        if part:
            raise BudgetExceededError("no room", "make some.")
        put_state(self, part, state)

    monkeypatch.setattr(parts.Parts, "put_state", only_the_first)
    with pytest.raises(BudgetExceededError) as kept:
        sq.from_frame(frame(8)).group_aggregate("k", n=sq.collect_list("x")).collect(batch_rows=2_000)
    assert mapped_files(tmp_path) <= MAPPED_BY_AN_ERROR
    del kept


def test_distinct_rows_are_the_same_in_parts(divided: list[int]) -> None:
    rows = frame(10)[: KEYS // 2].with_columns(y=pl.col("k") / 7, of=pl.concat_list("x"))
    rows = pl.concat([rows, rows[: KEYS // 4]])
    rows = rows.with_columns(y=pl.when(pl.col("x") == 3).then(float("nan")).otherwise("y"))
    found = sq.from_frame(rows).distinct().collect(batch_rows=2_000)
    assert_frame_equal(found.sort("k", "x"), rows.unique().sort("k", "x"))
    assert divided


def test_distinct_rows_that_no_hash_tells_apart_are_never_divided(divided: list[int]) -> None:
    rows = pl.DataFrame({"of": [[i % 9_000] for i in range(20_000)]})
    assert sq.from_frame(rows).distinct().collect(batch_rows=2_000).height == 9_000
    assert divided == []


@pytest.mark.parametrize("operator", ["group", "join"])
def test_parts_are_not_worked_off_for_nobody(operator: str, divided: list[int], tmp_path: Path) -> None:
    """What is on disk may take long, and somebody who has stopped the run waits for it."""
    rows = sq.from_frame(frame(9))
    query = rows.group_aggregate("k", n=sq.count()) if operator == "group" else rows.join(rows.select("k"), on="k")
    plan = rewrite(query.plan)
    sink = CollectSink(plan)

    def checkpoint() -> None:
        if sink.pieces():
            raise InterruptedError

    with pytest.raises(InterruptedError):
        drive(compile_plan(plan, sink, checkpoint), 2_000)
    assert divided
    assert 0 < sink.frame().height < rows.collect().height / 4
    assert mapped_files(tmp_path) <= MAPPED_BY_AN_ERROR


def test_a_state_in_parts_forgets_nobody(divided: list[int]) -> None:
    plan = sq.from_frame(frame(6)).group_aggregate("k", n=sq.collect_list("x")).plan
    operator: Any = InParts(plan, ("k",), lambda: AggregateOperator(plan))  # type: ignore[arg-type]
    for batch in np.array_split(np.arange(50_000), 10):
        columns = {"k": pl.Series("k", batch), "x": pl.Series("x", batch), "s": pl.Series("s", ["a"] * len(batch))}
        operator.push(Batch.relational(columns, len(batch)))
    assert divided
    assert not operator.keep([OfPart(("k",), 0, PARTS, 0)])
    operator.let_go()

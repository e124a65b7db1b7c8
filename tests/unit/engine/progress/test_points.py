"""Progress points: what each assignment gives, on the borders."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.engine.batch import Batch
from squill.engine.progress.arrivals import in_steps
from squill.stream import Stream


def steps(assignment: sq.progress.Assignment, frame: pl.DataFrame) -> list[int]:
    """Return the step at which each row comes."""
    stream: Stream = sq.from_frame(frame.with_row_index("row"))
    first: dict[int, int] = {}
    for early in stream.progressive(assignment):
        for row in early.frame["row"]:
            first.setdefault(row, early.progress)
    return [first[row] for row in range(frame.height)]


def test_exponential_steps_grow() -> None:
    found = steps(sq.progress.exponential(1, 3), pl.DataFrame({"x": range(14)}))
    assert [found.count(step) for step in range(4)] == [1, 3, 9, 1]


def test_hashed_steps_depend_on_values_alone() -> None:
    frame = pl.DataFrame({"k": range(1_000)})
    found = steps(sq.progress.hashed("k", 10), frame)
    narrow = steps(sq.progress.hashed("k", 10), frame.select(pl.col("k").cast(pl.Int16)))
    assert found == narrow
    assert min(found.count(step) for step in range(10)) > 70


def test_hashed_steps_and_shards_are_independent() -> None:
    """A step whose rows were all on one shard would let the others wait."""
    from squill.engine.hashing import hash_columns

    keys = pl.Series("k", range(4_000))
    shard = (hash_columns([keys]) % np.uint64(4)).tolist()
    found = steps(sq.progress.hashed("k", 4), pl.DataFrame([keys]))
    together = [
        sum(a == step and b == where for a, b in zip(found, shard, strict=True))
        for step in range(4)
        for where in range(4)
    ]
    assert min(together) > 180


def test_stratified_keys_come_side_by_side() -> None:
    frame = pl.DataFrame({"k": ["a", "a", "a", "a", "b", None, "a", "b", None]})
    assert steps(sq.progress.stratified("k", 2), frame) == [0, 0, 1, 1, 0, 0, 2, 0, 0]


@pytest.mark.parametrize("batch_rows", [1, 3, 100])
def test_pieces_end_where_steps_do(batch_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squill.engine.progress.arrivals.SMALL_STEP", 2)
    sync = np.array([0, 0, 0, 1, 2, 2, 5])
    pieces = list(in_steps(Batch(sync, 1), batch_rows))
    batches = [piece.batch.sync.tolist() for piece in pieces if piece.batch is not None]
    assert [value for batch in batches for value in batch] == sync.tolist()
    assert {1: 7, 3: 3, 100: 3}[batch_rows] == len(batches)
    assert [piece.clock for piece in pieces][-1] is None

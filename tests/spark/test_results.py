"""The rows of the answer, read from the files that tasks have written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from squill.engine.batch import Batch
from squill.errors import InternalError
from squill.exchange.segments import Run, SegmentWriter
from squill.plan.schema import Schema
from squill.runtime.answer import DRIVER, Receipt
from squill.runtime.spark import results
from squill.runtime.spark.results import all_with_rows
from squill.runtime.spark.task import ANSWER

SCHEMA = Schema({"x": pl.Int64()})


def written(folder: Path, shard: int) -> Run:
    with SegmentWriter(folder / f"{shard}.arrow", fragment=0, shard=shard, attempt=shard) as writer:
        for low in (0, 100):
            times = np.arange(low, low + 100)
            writer.send(ANSWER, [DRIVER], Batch(times, times + 1, {"x": pl.Series("x", times * (shard + 1))}))
        (run,) = writer.runs()
    return run


@pytest.mark.parametrize("rows_per_thread", [1, 1 << 18])
def test_receipts_get_the_rows_of_their_files_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_per_thread: int
) -> None:
    monkeypatch.setattr(results, "ROWS_PER_THREAD", rows_per_thread)
    answered: list[tuple[Receipt, Run | None]] = [(Receipt(shard=shard), written(tmp_path, shard)) for shard in (2, 0)]
    found = all_with_rows([*answered, (Receipt(shard=1), None)], SCHEMA)
    assert [receipt.shard for receipt in found] == [2, 0, 1]
    values = [[batch.columns["x"].to_list() for batch in receipt.pieces] for receipt in found]
    assert values[0] == [[3 * x for x in range(low, low + 100)] for low in (0, 100)]
    assert values[1:] == [[list(range(100)), list(range(100, 200))], []]


@pytest.mark.parametrize("rows_per_thread", [1, 1 << 18])
def test_rows_that_are_not_what_was_written_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_per_thread: int
) -> None:
    monkeypatch.setattr(results, "ROWS_PER_THREAD", rows_per_thread)
    runs = [written(tmp_path, shard) for shard in (0, 1)]
    path = Path(runs[1].path)
    path.write_bytes(path.read_bytes()[:-300] + bytes(300))
    with pytest.raises(InternalError, match="not what fragment 0 wrote"):
        all_with_rows([(Receipt(shard=run.shard), run) for run in runs], SCHEMA)

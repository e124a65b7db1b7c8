"""Every worked case gives its expected rows from large arrays that hold anything when they are handed out."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.engine import collected_rows, egress, large_arrays, late_ends
from squill.engine.codecs import decoded
from squill.engine.compile import compile_plan
from squill.engine.egress import CollectSink, result_frame
from squill.engine.large_arrays import Block, Pool
from squill.engine.run import drive
from squill.plan.rewrite import rewrite
from squill.testing import assert_same_events
from tests.conformance.cases import CASES, QUERIES

GARBAGE = 0xA5


class SoiledPool(Pool):
    """What is handed out holds garbage, and what comes back is garbage at once, whoever may still look at it."""

    def _fresh(self, needed: int) -> Block:
        block = super()._fresh(needed)
        block[:] = GARBAGE
        return block

    def _take_back(self, block: Block) -> None:
        block[:] = GARBAGE
        super()._take_back(block)


@pytest.fixture(autouse=True)
def soiled(monkeypatch: pytest.MonkeyPatch) -> SoiledPool:
    pool = SoiledPool(1 << 26)
    monkeypatch.setattr(large_arrays, "_pool", pool)
    monkeypatch.setattr(large_arrays, "LEAST_BYTES", 1)
    monkeypatch.setattr(collected_rows, "FEW_ROWS", 0)
    monkeypatch.setattr(collected_rows, "SLAB_ROWS", 4)
    monkeypatch.setattr(collected_rows, "LEAST_BATCHES", 1)
    monkeypatch.setattr(egress, "MANY_ROWS", 1)
    monkeypatch.setattr(late_ends, "FIRST_ENDS", 1)
    return pool


@pytest.mark.filterwarnings("ignore:detect. the functions of the pattern run as plain Python")
@pytest.mark.parametrize("cores", [None, 4])
@pytest.mark.parametrize("name", QUERIES)
def test_rows_are_the_expected_ones(name: str, cores: int | None) -> None:
    query, case = QUERIES[name], CASES[name]
    stream = query.stream(case)
    found = stream.collect(batch_rows=1) if cores is None else stream.collect(on=sq.local(cores=cores))
    assert_same_events(found, query.expected(case))


@pytest.mark.filterwarnings("ignore:detect. the functions of the pattern run as plain Python")
@pytest.mark.parametrize("name", QUERIES)
def test_rows_that_leave_once_they_are_finished_are_the_expected_ones(name: str) -> None:
    query, case = QUERIES[name], CASES[name]
    node = rewrite(query.stream(case).plan)
    left: list[pl.DataFrame] = []
    sink = CollectSink(node, lambda batches: left.extend(result_frame(batch, node) for batch in batches))
    drive(compile_plan(node, sink), 1)
    assert_same_events(decoded(pl.concat([*left, sink.frame()]), node.codecs), query.expected(case))


def test_blocks_are_used_again(soiled: SoiledPool) -> None:
    first = large_arrays.large_array(3, np.int64)
    assert set(first.view(np.uint8).tolist()) == {GARBAGE}
    del first
    assert soiled.free_bytes > 0

"""A user's own partitions: each from its own offset on, each with its own time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq

Item = tuple[pl.DataFrame, Any]
ROWS = [
    pl.DataFrame({"t": range(0, 150, 3), "k": [n % 4 for n in range(50)]}),
    pl.DataFrame({"t": range(250), "k": [n % 4 for n in range(250)]}),
    pl.DataFrame({"t": range(500, 520), "k": [n % 4 for n in range(20)]}),
]


def _open(partition: int, offset: int | None) -> Iterator[Item]:
    rows = ROWS[partition]
    for begin in range(offset or 0, rows.height, 10):
        end = min(begin + 10, rows.height)
        yield rows[begin:end], end


def _counts(clicks: sq.ShardedStream) -> sq.ShardedStream:
    return clicks.rekey("k").redistribute().query(lambda s: s.tumbling_window(50).count())


@pytest.mark.parametrize("shards", [1, 2, 4])
@pytest.mark.parametrize("rows_per_epoch", [25, 1_000_000])
def test_partitions_may_be_at_different_times(tmp_path: Path, shards: int, rows_per_epoch: int) -> None:
    given: list[pl.DataFrame] = []
    with sq.local(cores=shards) as cluster:
        clicks = cluster.stream(sq.partitions(3, _open, rows_per_epoch=rows_per_epoch), start="t")
        for complete in (False, True):
            query = _counts(clicks).start(given.append, checkpoint=tmp_path / "ck", until_now=True, complete=complete)
            query.wait()
        wanted = _counts(cluster.from_frame(pl.concat(ROWS), start="t")).collect(sort=True)
    together = pl.concat(given)
    assert together.sort(together.columns).equals(wanted)
    assert query.stable().offsets == {"partitions": {"partitions": {"0": 50, "1": 250, "2": 20}}}
    assert query.late.height == 0


def test_a_partition_without_rows_holds_time_back_until_it_counts_as_idle(tmp_path: Path) -> None:
    grown = [pl.DataFrame({"t": [1, 12, 30]})]

    def only_one(partition: int, offset: int | None) -> Iterator[Item]:
        for number in range(offset or 0, len(grown) if partition == 0 else 0):
            yield grown[number], number + 1

    given: list[pl.DataFrame] = []
    with sq.local(cores=1) as cluster:
        clicks = cluster.stream(sq.partitions(2, only_one), start="t", idle_after="50ms")
        counted = clicks.query(lambda s: s.tumbling_window(10).count())
        with counted.start(given.append, every="5ms") as query:
            while not given:
                assert not query.wait(0.01)
                grown.append(grown[-1].select(pl.col("t") + 30))
    assert given[0].rows()[:2] == [(10, 20, 1), (20, 30, 1)]

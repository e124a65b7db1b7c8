"""Live queries in Spark tasks whose states are more than their memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.stream import Stream
from tests.unit.runtime.live.keyed import KEYED

pytestmark = pytest.mark.spark

EPOCHS = 4
NAMES = ["windows", "first and last"]


def _by_key(clicks: sq.ShardedStream, query: Callable[[Stream], Stream]) -> sq.ShardedStream:
    return clicks.rekey("k").redistribute().query(query)


def _rows(epoch: int, keys: int) -> pl.DataFrame:
    start = pl.Series("t", [10 * epoch + 7 * n % 10 for n in range(keys)])
    return pl.DataFrame({"t": start, "u": start + 9, "k": range(keys), "x": [(5 * n + epoch) % 7 for n in range(keys)]})


def _written(folder: Path, keys: int) -> pl.DataFrame:
    folder.mkdir()
    parts = [_rows(epoch, keys) for epoch in range(EPOCHS)]
    for epoch, part in enumerate(parts):
        part.write_parquet(folder / f"{epoch}.parquet")
    return pl.concat(parts)


def _batch(rows: pl.DataFrame, query: Callable[[Stream], Stream]) -> pl.DataFrame:
    with sq.local(cores=1) as local:
        return _by_key(local.from_frame(rows, start="t", end="u"), query).collect(sort=True)


@pytest.mark.parametrize("name", NAMES)
def test_states_that_fit_nowhere_come_and_go(spark_cluster: sq.Cluster, tmp_path: Path, name: str) -> None:
    rows = _written(tmp_path / "in", 40)
    clicks = spark_cluster.stream(tmp_path / "in", start="t", end="u", files_per_epoch=1, shards=3)
    query = _by_key(clicks, KEYED[name]).start(
        str(tmp_path / "out"), checkpoint=tmp_path / "ck", memory=1, until_now=True
    )
    query.wait()
    found = query.stable().frame
    assert found.sort(found.columns).equals(_batch(rows, KEYED[name]))
    assert query.progress().loads >= 3 * (EPOCHS - 1)


def test_states_that_are_too_large_by_themselves_are_divided(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    rows = _written(tmp_path / "in", 3_000)
    clicks = spark_cluster.stream(tmp_path / "in", start="t", end="u", files_per_epoch=1, shards=2)
    query = _by_key(clicks, KEYED["first and last"]).start(
        str(tmp_path / "out"), checkpoint=tmp_path / "ck", memory=200_000, until_now=True
    )
    query.wait()
    found = query.stable().frame
    assert found.sort(found.columns).equals(_batch(rows, KEYED["first and last"]))
    assert query.progress().shards >= 4

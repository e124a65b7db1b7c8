"""A query that says nothing about Spark: shared by its tasks, or run inside somebody's own."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.stream import Stream
from squill.testing import assert_same_events
from tests.spark.shared import session_of

pytestmark = pytest.mark.spark

ROWS = pl.DataFrame(
    {"t": range(200), "ad": [f"ad {t % 7}" for t in range(200)], "x": [t % 11 for t in range(200)]},
    schema={"t": pl.Int64, "ad": pl.String, "x": pl.Int64},
)


def counted(clicks: Stream) -> Stream:
    return clicks.group_apply("ad", lambda g: g.tumbling_window(50).aggregate(n=sq.count(), x=sq.sum("x")))


def test_tasks_share_the_work(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    for number, part in enumerate(ROWS.iter_slices(60)):
        part.write_parquet(tmp_path / f"{number}.parquet")
    clicks = sq.scan(tmp_path / "*.parquet", start="t")
    owners = sq.from_frame({"ad": ["ad 1", "ad 2"], "owner": [1, 2]})
    bounds = sq.from_events([sq.interval(0, 120, part=1), sq.start_edge(100, part=2)])
    query = counted(clicks).join(owners, on="ad").join(bounds, how="cross")
    assert_same_events(query.collect(on=spark_cluster), query.collect())
    own = sq.aggregate_fn(
        "x",
        init=lambda: (0, 0.0),
        accumulate=lambda state, t, x: (state[0] + 1, state[1] + x * x),
        deaccumulate=lambda state, t, x: (state[0] - 1, state[1] - x * x),
        merge=lambda a, b: (a[0] + b[0], a[1] + b[1]),
        result=lambda state: state[1] / state[0],
        dtype=pl.Float64,
    )
    whole = clicks.tumbling_window(50).aggregate(n=sq.count(), x=sq.sum("x"), m=sq.mean("x"), own=own)
    assert "aggregate_fn.merge" in whole.explain(on=spark_cluster)
    assert_same_events(whole.collect(on=spark_cluster), whole.collect())


def test_query_inside_a_task_of_somebody_else(spark_cluster: sq.Cluster) -> None:
    frame = session_of(spark_cluster).createDataFrame(ROWS.to_arrow(compat_level=pl.CompatLevel.oldest()))
    query = counted(sq.from_frame(ROWS, start="t"))
    function = query.as_arrow_function()
    by_ad = frame.repartition(3, "ad")
    found = by_ad.mapInArrow(function, "start long, end long, ad string, n long, x long").toArrow()
    assert_same_events(pl.DataFrame(found), query.collect())

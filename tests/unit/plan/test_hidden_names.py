from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.errors import PlanError


def test_names_of_columns_that_nobody_sees_may_clash() -> None:
    left = sq.from_frame({"t": [1, 9], "k": [1, 1], "n": [1, 2], "n_right": [3, 4]}, start="t").with_duration(5)
    right = sq.from_frame({"t": [3], "k": [1], "n": [7]}, start="t")
    assert left.clip(right, on="k").collect().rows() == [(1, 3, 1, 1, 3), (9, 14, 1, 2, 4)]
    left_out = left.where_not_exists(right, on="k").collect(sort=True)
    assert left_out.rows() == [(1, 3, 1, 1, 3), (4, 6, 1, 1, 3), (9, 14, 1, 2, 4)]
    with pytest.raises(PlanError, match="two columns would be called 'n_right'"):
        left.where_exists(right, on="k", where=sq.col("n") > 0)


OWN = "__squill_left_x__"
NAMERS: dict[str, Callable[[], object]] = {
    "from_frame": lambda: sq.from_frame({OWN: [1]}),
    "as the time": lambda: sq.from_frame({OWN: [1], "x": [2]}, start=OWN),
    "scan": lambda: sq.scan("a.parquet"),
    "source": lambda: sq.source({"t": pl.Int64, "__squill_mark__": pl.Int64}, start="t"),
    "from_events": lambda: sq.from_events([sq.point(1, __squill_start__=5)]),
    "select": lambda: sq.from_frame({"x": [1]}).select(**{OWN: sq.col("x")}),
    "rename": lambda: sq.from_frame({"x": [1]}).rename({"x": OWN}),
    "aggregate": lambda: sq.from_frame({"x": [1]}).group_aggregate("x", **{OWN: sq.count()}),
    "map_batches": lambda: sq.from_frame({"x": [1]}).map_batches(lambda frame: frame, schema={OWN: pl.Int64}),
    "shards": lambda: sq.local(1).from_frame({OWN: [1]}),
    "stream": lambda: sq.local(1).stream(sq.partitions(1, lambda part, offset: []), schema={OWN: pl.Int64}, start=OWN),
}


@pytest.mark.parametrize("namer", NAMERS)
def test_names_of_columns_that_squill_adds_are_refused(
    namer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pl.DataFrame({OWN: [1]}).write_parquet("a.parquet")
    with pytest.raises(PlanError, match=r"a column is called '__squill_\w+__'; .*\nHint: rename it before\."):
        NAMERS[namer]()


def test_names_that_only_look_alike_are_free() -> None:
    names = ["__squill__x", "__squill_x", "squill__", "__squill_step__"]
    assert sq.from_frame({name: [1] for name in names}).collect().columns == names

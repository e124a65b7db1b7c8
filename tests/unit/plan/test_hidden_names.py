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
    "progressive": lambda: sq.from_frame({"__squill_diff__": [7]}).progressive(sq.progress.at_start()),
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


@pytest.mark.parametrize("name", ["*", "^x$", "^.*$", "a\0b"])
def test_names_that_polars_takes_for_others_are_refused(name: str, tmp_path: Path) -> None:
    pl.DataFrame({name: [1]}).write_parquet(tmp_path / "a.parquet")
    makers: list[Callable[[], object]] = [
        lambda: sq.from_frame({name: [1]}),
        lambda: sq.scan(tmp_path),
        lambda: STREAM.rename({"v": name}),
    ]
    for make in makers:
        with pytest.raises(PlanError, match=r": a column is called .*, which Polars .*\nHint: rename it before\."):
            make()


STREAM = sq.from_frame({"t": [1, 2, 2, 5], "": [1, 1, 2, 2], "v": [1, 2, 3, 4]}, start="t")
NAMELESS: dict[str, Callable[[sq.Stream, str], sq.Stream]] = {
    "top_k": lambda rows, k: rows.with_duration(5).aggregate(top=sq.top_k(k, 2)),
    "map_batches": lambda rows, k: rows.map_batches(lambda frame: frame),
    "group_apply": lambda rows, k: rows.group_apply(k, lambda g: g.tumbling_window(4).count()),
    "snapshot_apply": lambda rows, k: rows.snapshot_apply(lambda r: [{"n": r[k].sum()}], schema={"n": pl.Int64}),
    "join": lambda rows, k: rows.with_duration(3).join(rows.select(k, w="v"), on=k),
    "distinct": lambda rows, k: rows.select(k).with_duration(4).distinct(),
}


@pytest.mark.parametrize("query", NAMELESS)
def test_a_column_may_have_no_name(query: str) -> None:
    asked, named = NAMELESS[query](STREAM, ""), NAMELESS[query](STREAM.rename({"": "k"}), "k")
    answer = asked.collect(sort=True)
    assert str(answer.rows()).replace("'':", "'k':") == str(named.collect(sort=True).rows())
    assert answer.equals(asked.collect(on=sq.local(cores=2), sort=True))


def test_a_key_may_have_no_name() -> None:
    rows = sq.from_frame({"": [1, 1, 2], "v": [1, 2, 3]}, sorted_by="", packed="")
    assert rows.group_aggregate("", n=sq.count()).collect(sort=True).to_dict(as_series=False) == {
        "": [1, 2],
        "n": [2, 1],
    }


def test_who_asks_for_the_time_as_a_column_is_told_how() -> None:
    with pytest.raises(PlanError, match=r"there is no column 't'(.|\n)*sq\.start\(\).*keep_time=True"):
        sq.from_frame({"t": [1], "price": [2]}, start="t").where(sq.col("t") > 0)
    with pytest.raises(PlanError, match="there is no column 't'") as refused:
        sq.from_frame({"price": [2]}).where(sq.col("t") > 0)
    assert "sq.start()" not in str(refused.value)

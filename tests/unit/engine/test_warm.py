"""Compiling ahead: afterwards the queries compile nothing, and nothing of the user's was run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings

import squill as sq
from squill.engine.run import collect
from squill.engine.warm import ROWS, made_up
from squill.errors import PlanError
from squill.plan.node import walk
from tests.strategies import queries, streams

QUERY = """
import polars as pl
import squill as sq
clicks = sq.from_frame({"t": [1, 2, 9], "user": ["a", "b", "a"], "x": [1.5, 2.5, 3.5]}, start="t")
query = clicks.where(sq.col("user") == "a").group_apply(
    "user", lambda g: g.hopping_window(8, 2).aggregate(n=sq.count(), m=sq.max("x"))
)
"""


def compiled(folder: Path) -> int:
    return len(list(folder.rglob("*.nbc")))


def run(code: str, folder: Path) -> None:
    environment = os.environ | {"SQUILL_KERNEL_CACHE": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", QUERY + code], check=True, env=environment)


@pytest.mark.slow
def test_a_warmed_query_compiles_nothing(tmp_path: Path) -> None:
    run("assert sq.warm(query) > 0", tmp_path)
    before = compiled(tmp_path)
    assert before > 10
    run("assert query.collect().height > 0", tmp_path)
    assert compiled(tmp_path) == before


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(queries(sources=streams(edges=True), most=4))
def test_made_up_rows_have_what_is_known_of_the_real_ones(query: sq.Stream) -> None:
    plan = made_up(query.plan)
    assert plan.schema == query.schema
    assert plan.time == query.plan.time
    assert plan.properties.ends_known == query.plan.properties.ends_known
    assert (plan.properties.duration, plan.properties.endless) == (
        query.plan.properties.duration,
        query.plan.properties.endless,
    )


def test_filters_let_pass_and_functions_are_not_called() -> None:
    def fail(frame: pl.DataFrame) -> pl.DataFrame:
        raise AssertionError("called")

    events = sq.from_frame({"t": [1], "k": ["a"], "x": [1]}, start="t")
    query = events.where(sq.col("k") == "b").map_batches(fail, schema={"y": pl.Int64}).with_duration(2)
    assert collect(made_up(query.plan)).height == ROWS
    assert collect(made_up(events.where(sq.col("k") == "b").plan)).height == ROWS - 1
    assert collect(made_up(events.where(sq.start() > 5).plan)).height == ROWS
    selected = events.select("k", when=sq.col("k").str.to_datetime("%Y"), n=sq.col("x").cast(pl.UInt8))
    assert collect(made_up(selected.plan)).height == ROWS
    assert {node.name for node in walk(made_up(query.plan))} == {"with_duration", "select", "frame_source"}


@pytest.mark.parametrize(
    "dtype",
    [pl.Int8(), pl.Float32(), pl.Date(), pl.Time(), pl.Enum(["a", "b"]), pl.Categorical(), pl.Decimal(10, 2),
     pl.Boolean(), pl.Binary(), pl.List(pl.Int64), pl.Duration("ms"), pl.Null(), pl.UInt64()],
    ids=str,
)  # fmt: skip
def test_columns_of_every_type(dtype: pl.DataType) -> None:
    stream = sq.source({"t": pl.Date, "x": dtype}, start="t").with_columns(y=pl.lit(None).cast(dtype))
    answer = collect(made_up(stream.plan))
    assert answer.schema["x"] == answer.schema["y"] == dtype


def test_what_cannot_be_compiled_ahead_is_said() -> None:
    events = sq.from_frame({"t": [1], "k": ["a"]}, start="t")
    with pytest.warns(UserWarning, match=r"warm: not all of a plan could be compiled ahead: .*"):
        sq.warm(events.aggregate(m=sq.max(sq.col("k").str.to_date("%Y-%m-%d"))))


@pytest.mark.parametrize("given_", [0, True, 1.5, "2"])
def test_wrong_processes(given_: Any) -> None:
    with pytest.raises(PlanError, match="warm: processes is"):
        sq.warm(processes=given_)


def test_no_stream() -> None:
    with pytest.raises(PlanError, match="warm: 5 is an int, not a stream"):
        sq.warm(5)  # type: ignore[arg-type]

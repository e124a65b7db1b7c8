from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.errors import PlanError
from squill.plan.explain import explain
from squill.plan.node import walk
from squill.plan.serialise import dumps, loads


def stream() -> sq.Stream:
    source = sq.from_frame({"t": [1, 2], "k": ["a", None], "x": [1.5, 2.5]}, start="t")
    return source.where(sq.col("x") > 1).group_apply("k", lambda g: g.hopping_window(10, 5).sum("x"))


def test_plan_comes_back_equal() -> None:
    plan = stream().plan
    copy = loads(dumps(plan))
    assert copy == plan
    assert explain(copy) == explain(plan)


def test_node_that_is_used_twice_stays_one() -> None:
    source = sq.from_frame({"t": [1, 2], "x": [1, 2]}, start="t")
    copy = loads(dumps(source.where(sq.col("x") > 1).union(source).plan))
    assert len(list(walk(copy))) == 3


def test_remembered_values_are_left_out() -> None:
    plan = stream().plan
    before = len(dumps(plan))
    _ = plan.schema, plan.scope.frame, plan.properties
    assert len(dumps(plan)) == before


def test_function_is_carried_by_value() -> None:
    factor = 3
    assert loads(dumps(lambda x: x * factor))(5) == 15


def test_function_that_cannot_be_sent_is_named_with_its_operator() -> None:
    lock = threading.Lock()

    def locked(frame: pl.DataFrame) -> pl.DataFrame:
        with lock:
            return frame

    plan = stream().map_batches(locked).union(stream()).plan
    with pytest.raises(PlanError, match=r"^map_batches\(.*\): its Python objects cannot be sent .*: cannot pickle"):
        dumps(plan)
    with pytest.raises(TypeError, match=r"^cannot pickle"):
        dumps(lock)


def test_another_process_reads_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan"
    path.write_bytes(dumps(stream().plan))
    code = (
        "import pathlib, sys; from squill.plan.serialise import loads; from squill.plan.explain import explain;"
        "print(explain(loads(pathlib.Path(sys.argv[1]).read_bytes())))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == explain(stream().plan)

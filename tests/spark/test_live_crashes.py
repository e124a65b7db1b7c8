"""A live query on Spark whose driver is killed: its successor's output is that of a run that nothing happened to."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import squill as sq
from tests.spark.live_child import MOMENTS, run, windows

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
CHILD = Path(__file__).with_name("live_child.py")
FILES = 6


def _input(folder: Path) -> pl.DataFrame:
    (folder / "in").mkdir()
    rng = np.random.default_rng(11)
    rows = pl.DataFrame({"t": np.sort(rng.integers(0, 600, 300)), "k": rng.integers(0, 9, 300)})
    for number, part in enumerate(rows.iter_slices(300 // FILES)):
        part.write_parquet(folder / "in" / f"{number}.parquet")
    return rows


def _killed(folder: Path, moment: str, turn: int) -> None:
    """Let a process begin, or go on with, the query, and be killed at the moment."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    ended = subprocess.run([sys.executable, CHILD, folder, moment, str(turn)], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL


def _check(cluster: sq.Cluster, folder: Path, deaths: list[tuple[str, int]]) -> None:
    rows = _input(folder)
    for moment, turn in deaths:
        _killed(folder, moment, turn)
    run(cluster, folder)
    with sq.local(cores=1) as local:
        wanted = windows(local.from_frame(rows, start="t")).collect(sort=True)
    found = pl.read_parquet(folder / "out" / "*.parquet")
    assert found.sort(found.columns).equals(wanted)


def test_a_killed_driver_is_followed_by_another(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    """Each death takes twenty seconds; other moments are among the faults."""
    _check(spark_cluster, tmp_path, [("when a wave has written its states", 2), ("before files are published", 1)])


@pytest.mark.faults
def test_killed_between_waves_and_before_commits(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    _check(spark_cluster, tmp_path, [("before the commit", 2), ("before a wave", 5)])


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(10))
def test_killed_at_many_moments(spark_cluster: sq.Cluster, tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    deaths = [(chosen.choice(list(MOMENTS)), chosen.randint(1, 3)) for _ in range(3)]
    _check(spark_cluster, tmp_path, deaths)

"""What Spark tests share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import squill as sq
from squill.runtime.spark.runtime import SparkRuntime
from squill.runtime.spark.shipping import PACKAGE

__all__ = ["run_driver", "runtime_of", "session_of"]

LIMIT_SECONDS = 900
"""For the slowest of machines; what hangs is ended."""


def runtime_of(cluster: sq.Cluster) -> SparkRuntime:
    assert isinstance(cluster.runtime, SparkRuntime)
    return cluster.runtime


def session_of(cluster: sq.Cluster) -> Any:
    return runtime_of(cluster).session


def run_driver(script: str, *arguments: str, executors_python: Path | str = sys.executable) -> None:
    """Run a script in a process of its own: one process has one Spark session, and most tests share theirs."""
    python_path = os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": python_path, "PYSPARK_PYTHON": str(executors_python)}
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-4_000:]

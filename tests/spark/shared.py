"""What Spark tests share."""

from __future__ import annotations

from typing import Any

import squill as sq
from squill.runtime.spark.runtime import SparkRuntime

__all__ = ["runtime_of", "session_of"]


def runtime_of(cluster: sq.Cluster) -> SparkRuntime:
    assert isinstance(cluster.runtime, SparkRuntime)
    return cluster.runtime


def session_of(cluster: sq.Cluster) -> Any:
    return runtime_of(cluster).session

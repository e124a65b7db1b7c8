"""Sharded plans on Spark beside Spark SQL, on one session and over the same parquet files."""

from __future__ import annotations

from benchmarks.cluster import big_data, exchange, growth, hopping, loops, threads, tumbling
from benchmarks.harness import Experiment

__all__ = ["experiments"]


def experiments() -> list[Experiment]:
    return [
        *hopping.experiments(),
        *big_data.experiments(),
        *tumbling.experiments(),
        *threads.experiments(),
        *loops.experiments(),
        *exchange.experiments(),
        *growth.experiments(),
    ]

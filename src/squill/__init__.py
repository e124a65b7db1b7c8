"""Squill: temporal, progressive and skew-proof analytics for Spark.

A query is written once and gives the same answer in-process, on a Spark cluster over stored data, and
continuously over live data.
"""

# isort: off
import squill.polars_memory  # noqa: F401  (before Polars is loaded, which asks once)
# isort: on

from polars import col

from squill import ci, errors, progress
from squill.cluster import Cluster, local, resume, spark
from squill.ingest import (
    adjust,
    drop,
    end_edge,
    from_events,
    from_frame,
    from_json,
    interval,
    point,
    punctuation,
    scan,
    source,
    start_edge,
    throw,
)
from squill.plan import pattern
from squill.plan.codec import codec
from squill.plan.expressions import end, start
from squill.plan.functions import (
    aggregate_fn,
    collect_list,
    count,
    count_distinct,
    count_not_null,
    first,
    last,
    max,
    mean,
    min,
    percentile,
    product,
    std,
    sum,
    top_k,
    var,
)
from squill.plan.live import partitions
from squill.plan.sinks import folder, table
from squill.polars_signals import wake_by_interrupts
from squill.sharded import ShardedStream
from squill.stream import Stream
from squill.warming import warm

__all__ = [
    "Cluster",
    "ShardedStream",
    "Stream",
    "adjust",
    "aggregate_fn",
    "ci",
    "codec",
    "col",
    "collect_list",
    "count",
    "count_distinct",
    "count_not_null",
    "drop",
    "end",
    "end_edge",
    "errors",
    "first",
    "folder",
    "from_events",
    "from_frame",
    "from_json",
    "interval",
    "last",
    "local",
    "max",
    "mean",
    "min",
    "partitions",
    "pattern",
    "percentile",
    "point",
    "product",
    "progress",
    "punctuation",
    "resume",
    "scan",
    "source",
    "spark",
    "start",
    "start_edge",
    "std",
    "sum",
    "table",
    "throw",
    "top_k",
    "var",
    "warm",
]

__version__ = "0.1.0"

wake_by_interrupts()

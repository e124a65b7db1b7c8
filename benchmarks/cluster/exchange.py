"""What movement costs by itself: wide rows that are redistributed and then dropped, and a plan that does nothing."""

from __future__ import annotations

from pathlib import Path

import squill as sq
from benchmarks.cluster import tables
from benchmarks.cluster.hopping import FAMILY
from benchmarks.cluster.sides import squill_plan
from benchmarks.harness import Comparison, Experiment

__all__ = ["MEGABYTES_PER_EVENT", "MOVED", "NOTHING", "experiments"]

MOVED, MOVED_BY_SPARK = "wide rows that only move, over files", "wide rows that only move, through the shuffle"
NOTHING = "a plan that does nothing"
FILES, SHUFFLE = "files", "shuffle"
MEGABYTES_PER_EVENT = (1 + tables.WIDE_COLUMNS) * 8 / 1e6


def experiments() -> list[Experiment]:
    return [
        *(_movement(name, channel) for name, channel in ((MOVED, FILES), (MOVED_BY_SPARK, SHUFFLE))),
        Comparison(
            family=FAMILY,
            name=NOTHING,
            data=lambda _n: None,
            sides=(squill_plan("squill", _one_row, lambda rows: rows.query(lambda s: s)),),
        ),
    ]


def _movement(name: str, channel: str) -> Experiment:
    """Return one channel by itself: what Spark's shuffle leaves on disk is being written while the next one runs."""
    return Comparison(
        family=FAMILY, name=name, data=tables.wide, sides=(squill_plan(channel, _opened, _moved, channel=channel),)
    )


def _opened(cluster: sq.Cluster, folder: Path) -> tuple[sq.ShardedStream]:
    return (cluster.scan(folder / "*.arrow", format="ipc"),)


def _moved(rows: sq.ShardedStream) -> sq.ShardedStream:
    """No row is kept, but all columns are asked for: what is not asked for does not move."""
    placed = rows.rekey("key").redistribute()
    return placed.query(lambda s: s.where(sq.col("x0") < 0))


def _one_row(cluster: sq.Cluster, _folder: object) -> tuple[sq.ShardedStream]:
    return (cluster.from_frame({"x": [1]}),)

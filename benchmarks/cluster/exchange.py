"""What movement costs by itself: wide rows that are redistributed and then dropped, and a plan that does nothing.

The target is a rate, so it is measured on rows enough (2.9 GB) that what two Spark jobs cost before and after them does
not count much; on a quarter of them that is a third of the time. Both are shown.
"""

from __future__ import annotations

from pathlib import Path

import squill as sq
from benchmarks.cluster import tables
from benchmarks.cluster.hopping import FAMILY
from benchmarks.cluster.sides import squill_plan
from benchmarks.harness import Comparison, Experiment

__all__ = ["MEGABYTES_PER_EVENT", "MOVED", "NOTHING", "experiments"]

MOVED = "wide rows that only move, over files"
FEWER_MOVED = "a quarter of these rows, over files"
MOVED_BY_SPARK = "a quarter of these rows, through the shuffle"
NOTHING = "a plan that does nothing"
FILES, SHUFFLE = "files", "shuffle"
MEGABYTES_PER_EVENT = (1 + tables.WIDE_COLUMNS) * 8 / 1e6
ROWS_PER_EVENT = 4


def experiments() -> list[Experiment]:
    return [
        _movement(MOVED, FILES, times=ROWS_PER_EVENT),
        _movement(FEWER_MOVED, FILES),
        _movement(MOVED_BY_SPARK, SHUFFLE),
        Comparison(
            family=FAMILY,
            name=NOTHING,
            data=lambda _n: None,
            sides=(squill_plan("squill", _one_row, lambda rows: rows.query(lambda s: s)),),
        ),
    ]


def _movement(name: str, channel: str, times: int = 1) -> Experiment:
    """Return one channel by itself: what Spark's shuffle leaves on disk is being written while the next one runs."""
    side = squill_plan(channel, _opened, _moved, channel=channel)
    return Comparison(family=FAMILY, name=name, data=tables.wide, sides=(side,), times=times)


def _opened(cluster: sq.Cluster, folder: Path) -> tuple[sq.ShardedStream]:
    return (cluster.scan(folder / "*.arrow", format="ipc"),)


def _moved(rows: sq.ShardedStream) -> sq.ShardedStream:
    """No row is kept, but all columns are asked for: what is not asked for does not move.

    Nor does what a filter drops, if it can be asked before; this one asks for what is computed afterwards.
    """
    placed = rows.rekey("key").redistribute()
    return placed.query(lambda s: s.with_columns(below=sq.col("x0") < 0).where("below"))


def _one_row(cluster: sq.Cluster, _folder: object) -> tuple[sq.ShardedStream]:
    return (cluster.from_frame({"x": [1]}),)

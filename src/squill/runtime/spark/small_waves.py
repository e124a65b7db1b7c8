"""Waves over so few rows that the driver runs them itself.

A Spark job costs 40 ms or more, and to add up the counts of 60,000 groups takes 10. So what filters or sums up the
rows of few small files is run here, from the same files, into files of the same form. Whatever fails here is left to
Spark: only attempts of its tasks say that something cannot be done.

Left to Spark in any case: what reads stored rows, what may give far more rows than it takes, and whatever holds
functions of the user's, which belong where they can do no harm to this process. ``SQUILL_DRIVER_ROWS`` says how many
rows are few; 0 leaves all waves to Spark.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from squill.engine.run import collect
from squill.engine.warm import made_up
from squill.errors import SquillError
from squill.plan.node import Node, walk
from squill.plan.nodes import (
    Aggregate,
    AlterLifetime,
    CastTime,
    ClipDuration,
    Distinct,
    Extend,
    HoppingWindow,
    PointAtEnd,
    Select,
    SessionWindow,
    Shift,
    Stitch,
    Union,
    Where,
    WithDuration,
)
from squill.plan.nodes.movement import ShardInput
from squill.plan.serialise import packed
from squill.plan.stages import Stage
from squill.runtime.spark.task import OUTPUT, WaveJob

__all__ = ["HERE", "ROWS_ENVIRONMENT_VARIABLE", "SmallWaves"]

HERE = -1
"""The number of an attempt of the driver's; Spark counts from 0."""

ROWS_ENVIRONMENT_VARIABLE = "SQUILL_DRIVER_ROWS"
FEW_ROWS = 1 << 17
FEW_TASKS = 16
FEW_BYTES = 8 << 20

NO_MORE_THAN_GIVEN = frozenset[type[Node]](
    (
        ShardInput, Where, Select, Aggregate, Distinct, Union, WithDuration, AlterLifetime, Shift, Extend, ClipDuration,
        PointAtEnd, Stitch, CastTime, HoppingWindow, SessionWindow,
    )
)  # fmt: skip
"""Operators that give two rows for each that they take, at most."""

_loaded: set[tuple[object, ...]] = set()
"""Of which plans this process has the kernels."""


class SmallWaves:
    """The waves of one run that may turn out to be small: their kernels are loaded while Spark runs others."""

    def __init__(self, waves: Sequence[Sequence[Stage]]) -> None:
        self._most_rows = _most_rows()
        self._loading: threading.Thread | None = None
        unknown = [root for root in _later_roots(waves) if _form(root) not in _loaded] if self._most_rows else []
        if unknown:
            # As long as a job or more, once in a process, so it is done beside the first one.
            self._loading = threading.Thread(target=_load, args=(unknown,), name="load-kernels", daemon=True)
            self._loading.start()

    def run(self, wave: WaveJob, *, holds_code: bool) -> list[pa.RecordBatch] | None:
        """Return what the tasks of a wave would have returned, or None: then they are to run."""
        if holds_code or not self._is_small(wave) or not all(map(_is_plain, _roots([job.stage for job in wave.jobs]))):
            return None
        if self._loading is not None:
            self._loading.join()
        try:
            return [
                pa.RecordBatch.from_pylist(job.run(machine, HERE), schema=OUTPUT)
                for job in wave.jobs
                for machine in range(job.stage.layout.machines)
            ]
        except (SquillError, OSError, MemoryError):
            return None

    def _is_small(self, wave: WaveJob) -> bool:
        if self._most_rows == 0 or wave.tasks > FEW_TASKS:
            return False
        sent = [manifest for job in wave.jobs for manifest in job.inboxes.values()]
        if sum(pc.sum(manifest.column("rows")).as_py() or 0 for manifest in sent) > self._most_rows:
            return False
        segments = [run for manifest in sent for run in manifest.column("segments").to_pylist()]
        # Each is (offset, length, checksum).
        return sum(int(np.frombuffer(run, dtype=np.int64)[1::3].sum()) for run in segments) <= FEW_BYTES


def _most_rows() -> int:
    given = os.environ.get(ROWS_ENVIRONMENT_VARIABLE, "")
    return int(given) if given.isdecimal() else FEW_ROWS


def _roots(stages: Sequence[Stage]) -> list[Node]:
    return [fragment.root for stage in stages for fragment in stage.fragments]


def _later_roots(waves: Sequence[Sequence[Stage]]) -> Iterator[Node]:
    """Yield the plans of waves that may be run here, as far as the plan says it."""
    for stages in waves[1:]:
        roots = _roots(stages)
        if all(map(_is_plain, roots)) and not any(packed(root).holds_code for root in roots):
            yield from roots


def _is_plain(root: Node) -> bool:
    return all(type(node) in NO_MORE_THAN_GIVEN and not _has_lists(node) for node in walk(root))


def _has_lists(node: Node) -> bool:
    """Whether a value may be a list: lists of all that is alive, for each change, are more than was given."""
    return any(isinstance(dtype, (pl.List, pl.Array, pl.Struct, pl.Map)) for dtype in node.schema.values())


def _form(root: Node) -> tuple[object, ...]:
    """Return what the kernels of a plan depend on."""
    return tuple((type(node), node.details(), str(node.schema)) for node in walk(root))


def _load(roots: Sequence[Node]) -> None:
    for root in roots:
        # A plan that cannot be run over made-up rows is run as it is.
        with suppress(Exception):
            collect(made_up(root))
        _loaded.add(_form(root))

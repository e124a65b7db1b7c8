"""Temporian, in a process and an environment of its own (see temporian.in); data crosses as numpy files."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks import data
from benchmarks.harness import Side, same
from benchmarks.hopping import Hopping
from benchmarks.peers.asked_process import AskedProcess

__all__ = ["TEMPORIAN", "temporian_hopping", "temporian_side"]

TEMPORIAN = "temporian"
WORKER = Path(__file__).with_name("temporian_worker.py")
PYTHON = os.environ.get("SQUILL_TEMPORIAN_PYTHON")
MISSING = None if PYTHON and Path(PYTHON).exists() else "SQUILL_TEMPORIAN_PYTHON names no Python (make bench sets it)"
SAMPLED_ROWS = 10_000_000
USERS_PER_EVENT = data.users(data.FULL) / data.FULL


def temporian_side(
    query: dict[str, Any],
    *,
    form: Callable[[pl.DataFrame], pl.DataFrame] = same,
    most_events: int = 2_000_000,
) -> Side:
    """Return a query that the worker knows by name."""
    return Side(
        name=TEMPORIAN,
        prepare=lambda frame: Worker(frame, query),
        rows=lambda worker: worker.rows(),
        form=form,
        most_events=most_events,
        missing=MISSING,
    )


def temporian_hopping(query: Hopping) -> Side | None:
    """Return moving windows sampled at every hop of every key, or None when so few events would fit.

    Its windows are open on the left and closed on the right, so they are sampled half a tick before the hop.
    """
    samples_per_event = query.ticks * (USERS_PER_EVENT if query.key is not None else 1e-9)
    most = min(2_000_000, int(SAMPLED_ROWS / samples_per_event))
    if most < 10_000:
        return None
    asked = {
        "name": "hopping",
        "key": query.key,
        "value": query.value,
        "result": query.result,
        "size": query.size.total_seconds(),
        "hop": query.hop.total_seconds(),
        "ticks": query.ticks,
    }
    return temporian_side(asked, form=query.per_window, most_events=most)


class Worker:
    """A Temporian process that holds one input; called, it runs the query once and returns itself."""

    def __init__(self, frame: pl.DataFrame, query: dict[str, Any]) -> None:
        assert PYTHON is not None
        folder = tempfile.TemporaryDirectory(prefix="squill-bench-")
        given = Path(folder.name) / "given.npz"
        arrays: dict[str, Any] = {column.name: _array(column) for column in frame}
        np.savez(given, **arrays)
        asked = json.dumps(query | {"epoch": data.EPOCH})
        self._process = AskedProcess([PYTHON, str(WORKER), str(given), asked], folder)
        self._process.ask("ready")

    def __call__(self) -> Worker:
        self._process.ask("run")
        return self

    def rows(self) -> pl.DataFrame:
        """Return the last answer, and end the process."""
        answer = self._process.folder / "answer.npz"
        self._process.ask(f"write {answer}")
        frame = pl.DataFrame(dict(np.load(answer)))
        self._process.close()
        return frame


def _array(column: pl.Series) -> np.ndarray[Any, Any]:
    if column.dtype == pl.String:
        return column.to_numpy().astype("U")
    return column.to_physical().to_numpy()

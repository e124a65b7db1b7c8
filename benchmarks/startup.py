"""What a fresh process waits for: the import, the first query, the first aggregate of the user's own.

Every figure is taken inside a new process that has already imported Polars (and Numba, where kernels run).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import DifferentAnswerError, Experiment, Measured, Outcome, Settings

__all__ = ["BEYOND", "CACHED", "EMPTY", "FIRST", "IMPORT", "NEW_AGGREGATE", "NEW_KEYS", "UNSEEN", "experiments"]

FAMILY = "startup"
IMPORT, BEYOND = "import squill", "beyond polars"
FIRST, CACHED, EMPTY = "first windowed count", "kernels cached", "empty cache"
UNSEEN, NEW_AGGREGATE, NEW_KEYS = "not seen before on this host", "a user aggregate", "a key type"

TIMER = """
import time, polars as pl
began = time.perf_counter()
"""
PRELUDE = """
import datetime, time, numba, polars as pl
began = time.perf_counter()
import squill as sq
frame = pl.DataFrame({"t": range(1000), "k": [i % 7 for i in range(1000)], "x": [i / 8 for i in range(1000)]})
frame = frame.with_columns(s=pl.col("k").cast(pl.String), d=pl.lit(datetime.date(2024, 1, 1)))
events = sq.from_frame(frame, start="t")
"""
WINDOWED = "events.hopping_window(60, 10).aggregate(n=sq.count()).collect()\n"
GROUPED = "events.group_apply('k', lambda g: g.hopping_window(60, 10).aggregate(n=sq.count())).collect()\n"
BY_OTHER_KEYS = "events.group_apply(['s', 'd'], lambda g: g.hopping_window(60, 10).aggregate(n=sq.count())).collect()\n"
# The constant makes it another function in every round.
OWN_AGGREGATE = """
own = sq.aggregate_fn(
    "x",
    init=lambda: (0, 0.0),
    accumulate=lambda state, t, x: (state[0] + 1, state[1] + x + {constant}),
    deaccumulate=lambda state, t, x: (state[0] - 1, state[1] - x - {constant}),
    result=lambda state: state[1] / state[0] if state[0] > 0 else None,
    dtype=pl.Float64,
)
events.group_apply("k", lambda g: g.hopping_window(60, 10).aggregate(m=own)).collect()
"""
START_AGAIN = "began = time.perf_counter()\n"
STOP = "print(time.perf_counter() - began)\n"

Process = Callable[[int], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup:
    """Processes that are started in turn; each gives the round and returns seconds."""

    name: str
    sides: dict[str, Process]
    family: str = FAMILY

    def check(self, settings: Settings) -> None:
        loaded = _output(f"{TIMER}import sys, squill; print(*sorted({{'numba', 'pyspark'}} & set(sys.modules)))")
        if loaded:
            raise DifferentAnswerError(f"startup: import squill loads {loaded}")

    def measure(self, settings: Settings) -> Outcome:
        for process in self.sides.values():
            process(-1)
        rounds = [[process(number) for process in self.sides.values()] for number in range(settings.runs)]
        figures = zip(self.sides, zip(*rounds, strict=True), strict=True)
        measured = tuple(Measured(name=name, values=values) for name, values in figures)
        return Outcome(family=self.family, name=self.name, measured=measured)


def experiments() -> list[Experiment]:
    return [
        Startup(name=IMPORT, sides={BEYOND: lambda _: _seconds(f"{TIMER}import squill\n{STOP}")}),
        _first(FIRST, WINDOWED),
        _first(f"{FIRST}, grouped", GROUPED),
        Startup(name=UNSEEN, sides={NEW_AGGREGATE: _new_aggregate, NEW_KEYS: _new_keys}),
    ]


def _first(name: str, query: str) -> Startup:
    code = f"{PRELUDE}{query}{STOP}"

    def cached(_: int) -> float:
        with _warm_cache() as cache:
            before = _file_count(cache)
            seconds = _seconds(code, cache)
            if _file_count(cache) != before:
                raise DifferentAnswerError(
                    "startup: a cached kernel was compiled again; did its source change just now?"
                )
            return seconds

    def empty(_: int) -> float:
        with tempfile.TemporaryDirectory(prefix="squill-bench-") as cache:
            return _seconds(code, cache)

    return Startup(name=name, sides={CACHED: cached, EMPTY: empty})


def _new_aggregate(number: int) -> float:
    with _warm_cache() as cache:
        own = OWN_AGGREGATE.format(constant=float(number + 2))
        return _seconds(f"{PRELUDE}{GROUPED}{START_AGAIN}{own}{STOP}", cache)


def _new_keys(_: int) -> float:
    with _warm_cache() as cache:
        return _seconds(f"{PRELUDE}{GROUPED}{START_AGAIN}{BY_OTHER_KEYS}{STOP}", cache)


@contextmanager
def _warm_cache() -> Iterator[str]:
    """Give a cache of a host that has run a windowed count with and without integer keys, and nothing else."""
    with tempfile.TemporaryDirectory(prefix="squill-bench-") as folder:
        cache = Path(folder) / "kernels"
        shutil.copytree(_warmed(), cache)
        yield str(cache)


_warm: list[tempfile.TemporaryDirectory[str]] = []


def _warmed() -> str:
    if not _warm:
        _warm.append(tempfile.TemporaryDirectory(prefix="squill-bench-"))
        _seconds(f"{PRELUDE}{WINDOWED}{GROUPED}{STOP}", _warm[0].name)
    return _warm[0].name


def _file_count(folder: str) -> int:
    return sum(path.is_file() for path in Path(folder).rglob("*"))


def _seconds(code: str, cache: str | None = None) -> float:
    return float(_output(code, cache))


def _output(code: str, cache: str | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "POLARS_MAX_THREADS"}
    if cache is not None:
        environment["SQUILL_KERNEL_CACHE"] = cache
    found = subprocess.run([sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return found.stdout.strip()

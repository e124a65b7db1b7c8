"""What a checkpoint costs: a gigabyte of state written whole, a hundredth of its keys touched, and read back.

The state is that of a count, a sum and a mean per key over events that never end, 7 M keys at full size. The disk is
measured beside it in every round, with the same bytes in sequential writes of the size that it is fastest with. Neither
side goes through the system's page cache: there a gigabyte took between 0.8 and 3.9 s, whoever wrote it, as it depends
on whether memory that was freed can be had again at once. A shared disk differs from minute to minute and is slower
after much was written, so that the two take turns in being first. Both begin with nothing waiting to be written
(sync) and end with the bytes on the disk (fsync).

What is restored was read once before: it comes from the page cache.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

import squill as sq
from benchmarks import data
from benchmarks.harness import DifferentAnswerError, Experiment, Measured, Outcome, Settings
from squill.engine.subscription import Subscription
from squill.pushed import PushedSource

__all__ = ["CPU", "DISK", "NAME", "RESTORED", "TOUCHED", "TOUCHED_BYTES", "WHOLE", "experiments"]

FAMILY = "checkpoint"
NAME = "count, sum and mean per key"
WHOLE, DISK, RESTORED = "everything", "the disk, as many bytes", "restored"
TOUCHED, TOUCHED_BYTES, CPU = "1 % of the keys touched", "written then", "of that, computing"
KEYS_OF_EVENTS = 0.7
BATCH_ROWS = 1_000_000
PIECE = 8 * 1024 * 1024
SCHEMA = {"t": pl.Int64, "k": pl.Int64, "x": pl.Int64, "y": pl.Float64}


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """One query's checkpoints; the keys are pushed once, the checkpoints made in every round."""

    family: str = FAMILY
    name: str = NAME

    def check(self, settings: Settings) -> None:
        with _folder() as folder:
            source, subscription = started(None)
            push(source, np.arange(10_000), 0)
            subscription.checkpoint(folder)
            push(source, np.arange(100), 1)
            subscription.checkpoint(folder)
            found: list[pl.DataFrame] = []
            again, _ = started(folder, found)
            push(again, np.arange(50), 2)
            again.complete()
            last = pl.concat(found).filter(pl.col("diff") == 1, pl.col("time") == 2)
            if set(last["n"]) != {3} or last.height != 50:
                raise DifferentAnswerError("checkpoint: a restored query gives other counts")

    def measure(self, settings: Settings) -> Outcome:
        keys = int(settings.events * KEYS_OF_EVENTS)
        source, subscription = started(None)
        order, random = np.random.default_rng(0).permutation(keys), np.random.default_rng(1)
        for first in range(0, keys, BATCH_ROWS):
            push(source, order[first : first + BATCH_ROWS], 0)
        source.punctuate(1)
        with _folder() as folder:
            subscription.checkpoint(folder)
            content = aligned(next(folder.glob("*.state")))
        figures: dict[str, list[float]] = {name: [] for name in (WHOLE, DISK, TOUCHED, CPU, TOUCHED_BYTES, RESTORED)}
        for number in range(settings.runs):
            with _folder() as folder:
                sides = {
                    WHOLE: lambda to: subscription.checkpoint(to / "state"),
                    DISK: lambda to: plain_write(to, content),
                }
                for side in (WHOLE, DISK) if number % 2 else (DISK, WHOLE):
                    os.sync()
                    began = time.perf_counter()
                    sides[side](folder.parent)
                    figures[side].append(time.perf_counter() - began)
        with _folder() as folder:
            subscription.checkpoint(folder)
            for number in range(settings.runs):
                push(source, random.integers(0, keys, keys // 100), 2 * number + 1)
                source.punctuate(2 * number + 2)
                os.sync()
                began, busy = time.perf_counter(), time.process_time()
                figures[TOUCHED_BYTES].append(subscription.checkpoint(folder) / 1e6)
                figures[TOUCHED].append(time.perf_counter() - began)
                figures[CPU].append(time.process_time() - busy)
            for file in folder.iterdir():
                file.read_bytes()
            for _ in range(settings.runs):
                began = time.perf_counter()
                started(folder)
                figures[RESTORED].append(time.perf_counter() - began)
        measured = tuple(
            Measured(name=name, values=tuple(values), unit="MB" if name == TOUCHED_BYTES else "s")
            for name, values in figures.items()
        )
        size = Measured(name="state", values=(len(content) / 1e6,), unit="MB")
        return Outcome(family=self.family, name=self.name, measured=(*measured, size))


def experiments() -> list[Experiment]:
    return [Checkpoints()]


def started(restore: Path | None, found: list[pl.DataFrame] | None = None) -> tuple[PushedSource, Subscription]:
    source = sq.source(SCHEMA, start="t", lifetime="open")
    query = source.group_aggregate("k", n=sq.count(), s=sq.sum("x"), m=sq.mean("y"))
    return source, query.subscribe((lambda _: None) if found is None else found.append, restore=restore)


def push(source: PushedSource, keys: np.ndarray[tuple[int], np.dtype[np.int64]], t: int) -> None:
    source.push(pl.DataFrame({"t": np.full(len(keys), t), "k": keys, "x": keys, "y": keys * 0.5}))


def aligned(path: Path) -> mmap.mmap:
    """Return the file's bytes in memory that begins with a page, and whole pages of them."""
    size = path.stat().st_size
    content = mmap.mmap(-1, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
    with path.open("rb", buffering=0) as file:
        read = 0
        while read < size:
            read += file.readinto(memoryview(content)[read:size])
    return content


def plain_write(folder: Path, content: mmap.mmap) -> None:
    """Write these bytes to one file, straight to the disk where it allows that."""
    path, flags, rest = folder / "plain", os.O_WRONLY | os.O_CREAT, memoryview(content)
    try:
        file = os.open(path, flags | getattr(os, "O_DIRECT", 0))
    except OSError:
        file = os.open(path, flags)
    try:
        os.posix_fallocate(file, 0, len(content))
        while rest:
            rest = rest[os.write(file, rest[:PIECE]) :]
        os.fsync(file)
    finally:
        os.close(file)


@contextmanager
def _folder() -> Iterator[Path]:
    # Beside the data: the system's folder for temporary files may lie in memory.
    data.FOLDER.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=data.FOLDER))
    try:
        yield folder / "state"
    finally:
        shutil.rmtree(folder)

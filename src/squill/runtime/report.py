"""Where the time of a run went: what each shard of each fragment did, and what it waited for."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path

import polars as pl

from squill.engine.batch import Batch
from squill.exchange.codec import encoding_seconds
from squill.exchange.scatter import Outbox
from squill.time import MINUS_INFINITY

__all__ = ["MeteredOutbox", "RunReport", "Work", "forget_peak_memory", "own_seconds"]

KINDS = ("read", "compute", "encode", "move", "wait")
SKEWED = 1.5
"""A fragment whose largest shard has so many times the average's rows is called uneven."""


class _Aside(threading.local):
    """What measurements on this thread that are over have counted: it is not the time of those around them."""

    seconds = 0.0
    cpu = 0.0
    encoding = 0.0


_ASIDE = _Aside()


def own_seconds() -> float:
    """Return the time, without what this thread has been measured doing; for differences."""
    return time.perf_counter() - _ASIDE.seconds


def forget_peak_memory() -> None:
    """Let the most that this process has held be what it holds now: a worker runs the tasks of many queries."""
    with suppress(OSError):  # a system that is not Linux
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _own_cpu() -> float:
    return time.thread_time() - _ASIDE.cpu


def _own_encoding() -> float:
    return encoding_seconds() - _ASIDE.encoding


@dataclass(kw_only=True)
class Work:
    """What one shard of one fragment did; times in seconds.

    ``rows_read`` counts those of ``rows_in`` that come from stored sources, ``rows_out`` the rows that it sent on, an
    edge as one and a copy as one more, or the rows of the answer that it gave.

    ``read``     reading and decoding what it was given, in time order.
    ``compute``  pushing it through the plan.
    ``encode``   giving rows the form in which they travel; none where they pass by reference.
    ``move``     sending them; where rows pass by reference, waiting for room.
    ``wait``     waiting for rows of shards that run at the same time.
    ``cpu``      of the threads that did its steps; Polars' threads are not counted.
    ``memory``   the most that its process has held, in bytes; on Spark since the task began, on threads ever.
    ``clock``    how far its rows have come in time, or in progress.
    """

    fragment: int
    shard: int
    rows_in: int = 0
    rows_read: int = 0
    rows_out: int = 0
    bytes_out: int = 0
    read: float = 0.0
    compute: float = 0.0
    encode: float = 0.0
    move: float = 0.0
    wait: float = 0.0
    cpu: float = 0.0
    memory: int = 0
    clock: int = MINUS_INFINITY

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Take the time in context; what is not one of the other kinds is computing.

        Shards do steps of others while they wait: a context within another one counts there alone.
        """
        begin, begin_cpu, begin_encoding = own_seconds(), _own_cpu(), _own_encoding()
        known = self.read + self.move + self.wait
        try:
            yield
        finally:
            seconds, cpu, encoding = own_seconds() - begin, _own_cpu() - begin_cpu, _own_encoding() - begin_encoding
            self.cpu += cpu
            self.encode += encoding
            self.compute += seconds - encoding - (self.read + self.move + self.wait - known)
            self.memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            _ASIDE.seconds += seconds
            _ASIDE.cpu += cpu
            _ASIDE.encoding += encoding

    @property
    def seconds(self) -> float:
        return self.read + self.compute + self.encode + self.move + self.wait


class MeteredOutbox:
    """An outbox whose time and rows count."""

    def __init__(self, outbox: Outbox, work: Work) -> None:
        self._outbox = outbox
        self._work = work

    def send(self, receivers: Sequence[int], batch: Batch) -> int:
        begin, encoding = time.perf_counter(), encoding_seconds()
        sent = self._outbox.send(receivers, batch)
        self._work.move += time.perf_counter() - begin - (encoding_seconds() - encoding)
        self._work.rows_out += len(batch) * len(receivers)
        self._work.bytes_out += sent
        return sent

    def tell(self, clocks: Sequence[tuple[Sequence[int], int]]) -> None:
        self._outbox.tell(clocks)


class RunReport:
    """What a run did. Printed, it is a table by fragment, and the limit that binds.

    ``works``    by fragment and shard.
    ``seconds``  from the beginning of the run to its end.
    """

    def __init__(self, works: Sequence[Work], seconds: float) -> None:
        self.works = sorted(works, key=lambda work: (work.fragment, work.shard))
        self.seconds = seconds

    @property
    def frame(self) -> pl.DataFrame:
        """A row for each shard of each fragment."""
        names = [entry.name for entry in fields(Work)]
        return pl.DataFrame({name: [getattr(work, name) for work in self.works] for name in names})

    @property
    def by_fragment(self) -> pl.DataFrame:
        """A row for each fragment: sums of rows and bytes, the slowest shard's times, the largest process."""
        sums = pl.col("rows_in", "rows_out", "bytes_out", "cpu").sum()
        return (
            self.frame.sort("fragment")
            .group_by("fragment", maintain_order=True)
            .agg(
                sums,
                pl.col(*KINDS).max(),
                pl.col("memory").max(),
                shards=pl.len(),
                largest_share=pl.col("rows_in").max() / pl.col("rows_in").mean(),
            )
        )

    @property
    def binding(self) -> str:
        """What a faster run would need: the kind of work that the slowest shards spent most of their time on."""
        if not self.works:
            return "nothing ran"
        spent = dict.fromkeys(KINDS, 0.0)
        for fragment in {work.fragment for work in self.works}:
            slowest = max((work for work in self.works if work.fragment == fragment), key=lambda work: work.seconds)
            for kind in KINDS:
                # Who waits for others is not what they wait for.
                spent[kind] += getattr(slowest, kind) if kind != "wait" else 0.0
        kind = max(spent, key=lambda kind: spent[kind])
        share = spent[kind] / max(sum(spent.values()), 1e-9)
        said = f"{kind} binds, with {share:.0%} of the slowest shards' time"
        for fragment, largest in self.by_fragment.select("fragment", "largest_share").iter_rows():
            if largest is not None and largest > SKEWED:
                said += f"; fragment {fragment} is uneven, its largest shard has {largest:.1f} times the average's rows"
        return said

    def __str__(self) -> str:
        header = f"{'fragment':>8} {'shards':>6} {'rows in':>13} {'rows out':>13} {'MB out':>9}"
        header += "".join(f" {kind + ' s':>9}" for kind in (*KINDS, "cpu")) + f" {'peak MB':>8}"
        lines = [header]
        for row in self.by_fragment.iter_rows(named=True):
            line = f"{row['fragment']:>8} {row['shards']:>6} {row['rows_in']:>13,} {row['rows_out']:>13,}"
            line += f" {row['bytes_out'] / 1e6:>9.1f}"
            line += "".join(f" {row[kind]:>9.3f}" for kind in (*KINDS, "cpu"))
            lines.append(line + f" {row['memory'] / 1e6:>8.0f}")
        return "\n".join([*lines, f"{self.seconds:.3f} s in all; {self.binding}"])

"""Tests of live queries without threads, sleeping or files of your own: epochs run when the test says so.

>>> from squill.testing import LiveTest, scripted
>>> def counted(clicks):
...     return clicks.query(lambda s: s.tumbling_window(10).count())
>>> with LiveTest(counted, {"clicks": scripted({"t": pl.Int64}, start="t")}) as test:
...     test.push("clicks", {"t": [1, 2, 15]})
...     print(test.step().rows())
...     test.restart()
...     test.push("clicks", {"t": [16, 40]})
...     print(test.step().rows())
...     print(test.complete().rows())
[]
[(10, 20, 2), (20, 30, 2)]
[(50, 60, 1)]
"""

from __future__ import annotations

import datetime as dt
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import polars as pl

from squill.cluster import local
from squill.errors import PlanError
from squill.plan.build.sources import wall_seconds
from squill.plan.live import partitions
from squill.sharded import ShardedStream
from squill.time import Duration

__all__ = ["LiveTest", "Scripted", "ScriptedFailure", "scripted"]

MEMORY = "/dev/shm"  # noqa: S108  (a folder of its own is made in it)
"""Where a checkpoint is written in no time, on systems that have it."""
MOMENTS = ("begin", "read", "work", "commit", "deliver", "sink")
BEGINNING = dt.datetime(2000, 1, 1)


class ScriptedFailure(Exception):  # noqa: N818  (what a test has asked for is no error)
    """What `LiveTest.fail` lets happen."""


@dataclass(frozen=True, kw_only=True)
class Scripted:
    """A live input whose rows a test pushes; made by `scripted`."""

    schema: Mapping[str, Any]
    partitions: int
    options: Mapping[str, Any]
    pushed: Sequence[list[pl.DataFrame]] = field(compare=False)

    def push(self, rows: Any, partition: int) -> None:
        """Put rows at the end of a partition."""
        self.pushed[partition].append(rows if isinstance(rows, pl.DataFrame) else _frame(rows, self.schema))

    def open(self, partition: int, offset: int | None) -> Iterable[tuple[pl.DataFrame, int]]:
        """Read a partition, as `squill.partitions` asks for it."""
        for number in range(offset or 0, len(self.pushed[partition])):
            yield self.pushed[partition][number], number + 1


def scripted(schema: Mapping[str, Any], start: str, *, partitions: int = 1, **options: Any) -> Scripted:
    """Return a live input for a `LiveTest`; the options are those of `cluster.stream`, such as `end` or `disorder`."""
    return Scripted(
        schema=schema,
        partitions=partitions,
        options={"start": start, **options},
        pushed=[[] for _ in range(partitions)],
    )


def _frame(rows: Any, schema: Mapping[str, Any]) -> pl.DataFrame:
    if isinstance(rows, Mapping) and not any(isinstance(value, (list, tuple, pl.Series)) for value in rows.values()):
        rows = [rows]
    return pl.DataFrame(rows, schema=dict(schema))


class LiveTest:
    """A live query on shards of this process, whose epochs, time of day, failures and restarts a test decides.

    Parameters
    ----------
    query
        A function of the inputs, as `cluster.stream` returns them, that returns the sharded query.
    inputs
        By name, in the order of the function's arguments.
    shards, emit, speculate
        On how many shards, and in what form rows come out, as in `start`.
    bootstrap
        The dataset that the query begins from, as in `start`.
    now
        The time of day at the beginning.
    memory
        How many bytes states may take, as in `start`.

    Examples
    --------
    An epoch that fails before it is committed is run again by whoever restarts the query; nothing is doubled:

    >>> from squill.testing import LiveTest, ScriptedFailure, scripted
    >>> clicks = scripted({"t": pl.Int64, "ad": pl.String}, start="t", disorder=sq.drop(wait=5))
    >>> def counted(clicks):
    ...     return clicks.rekey("ad").redistribute().query(lambda s: s.tumbling_window(10).count())
    >>> with LiveTest(counted, {"clicks": clicks}, shards=2) as test:
    ...     test.push("clicks", [{"t": 12, "ad": "a"}, {"t": 3, "ad": "b"}])
    ...     test.fail("commit")
    ...     try:
    ...         test.step()
    ...     except ScriptedFailure as error:
    ...         print(error)
    ...     test.restart()
    ...     _ = test.step(), test.complete()
    ...     print(test.answer().rows())
    about to commit
    [(10, 20, 'b', 1), (20, 30, 'a', 1)]
    """

    def __init__(
        self,
        query: Callable[..., ShardedStream],
        inputs: Mapping[str, Scripted],
        *,
        shards: int = 1,
        emit: str = "closed",
        speculate: bool = False,
        bootstrap: Any = None,
        now: dt.datetime = BEGINNING,
        memory: int | None = None,
    ) -> None:
        self._query = query
        self._inputs = dict(inputs)
        self._emit = emit
        self._memory = memory
        self._speculate = speculate
        self._bootstrap = bootstrap
        self._ended: set[str] = set()
        self._world = _Virtual(now)
        self._given: dict[int, pl.DataFrame] = {}
        self._fresh: list[pl.DataFrame] = []
        self._folder = tempfile.TemporaryDirectory(
            prefix="squill-test-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None
        )
        self._shards = shards
        self._cluster = local(cores=1)  # one after the other, on the test's own thread
        self._running: Any = None
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    # -- what happens ---------------------------------------------------------------------------------------

    def push(self, name: str, rows: Any, *, partition: int = 0) -> None:
        """Give an input rows for the next epoch: a frame, a dict of columns, one row as a dict, or a list of rows."""
        self._check_open(name)
        count = self._inputs[name].partitions
        if partition not in range(count):
            raise PlanError(f"LiveTest: {name!r} has no partition {partition!r}", f"it has {count}, from 0 on.")
        self._inputs[name].push(rows, partition)

    def step(self) -> pl.DataFrame:
        """Run an epoch over what was pushed; return the rows that came out of it, those that the sink was given."""
        return self._stepped()

    def complete(self, name: str | None = None) -> pl.DataFrame:
        """Let all inputs end, or one of them, and run an epoch; return the rows that came out of it."""
        if name is None:
            return self._stepped(is_final=True)
        self._check_open(name)
        rows = self._stepped(ended=(name,))
        self._ended.add(name)
        return rows

    def _check_open(self, name: str) -> None:
        if name not in self._inputs:
            raise PlanError(f"LiveTest: there is no input {name!r}", f"there are: {', '.join(self._inputs)}.")
        if name in self._ended:
            raise PlanError(f"LiveTest: the input {name!r} has ended", "nothing follows complete(name).")

    def advance(self, duration: Duration) -> None:
        """Let the time of day pass, which `idle_after` and `progress.delay` go by; event time goes by the rows."""
        self._world.pass_by(wall_seconds(duration, "LiveTest: advance") or 0.0)

    def fail(self, moment: str, times: int = 1, error: Exception | None = None) -> None:
        """Let the next `times` epochs fail when they are about to "begin", "read", "work", "commit" or "deliver".

        "sink" fails in the sink itself, so many times: `start` calls it three times before it gives up.
        """
        if moment not in MOMENTS:
            raise PlanError(f"LiveTest: nothing can fail at {moment!r}", f"use one of {', '.join(MOMENTS)}.")
        self._world.planned[moment] = (times, error)

    def restart(self, *, shards: int | None = None) -> None:
        """Forget all that is in memory, as a process does that dies now, and go on from the checkpoint.

        With `shards` it goes on where there are so many; its own are then divided, as `start` does.
        """
        self._leave()
        self._shards = self._shards if shards is None else shards
        self._start()

    # -- what came of it ------------------------------------------------------------------------------------

    def answer(self) -> pl.DataFrame:
        """Return all rows that came out so far, each epoch's once."""
        frames = list(self._given.values())
        return pl.concat(frames) if frames else pl.DataFrame()

    @property
    def progress(self) -> Any:
        """What `handle.progress()` says."""
        return self._live.progress()

    @property
    def late(self) -> pl.DataFrame:
        """The late rows, as `handle.late` has them; those of before a restart are forgotten."""
        late: pl.DataFrame = self._live.late
        return late

    @property
    def now(self) -> dt.datetime:
        """The time of day."""
        return self._world.now()

    @property
    def checkpoint(self) -> str:
        """The checkpoint's folder; it is removed with the test."""
        return os.path.join(self._folder.name, "checkpoint")  # noqa: PTH118  (text, for whoever asks)

    # -- how it is done -------------------------------------------------------------------------------------

    @property
    def _live(self) -> Any:
        if self._running is None:
            raise PlanError("LiveTest: the query has failed or was closed", "call restart() to go on.")
        return self._running

    def _start(self) -> None:
        streams = [
            self._cluster.stream(
                partitions(item.partitions, item.open),
                schema=item.schema,
                shards=self._shards,
                name=name,
                **item.options,
            )
            for name, item in self._inputs.items()
        ]
        self._running = self._query(*streams)._prepared(
            self._take,
            checkpoint=self.checkpoint,
            every=None,
            emit=self._emit,
            until_now=False,
            complete=True,
            speculate=self._speculate,
            bootstrap=self._bootstrap,
            memory=self._memory,
            outside=self._world,
        )

    def _stepped(self, *, is_final: bool = False, ended: Sequence[str] = ()) -> pl.DataFrame:
        self._fresh.clear()
        try:
            self._live.step(is_final=is_final, ended=ended)
        except BaseException:
            self._leave()
            raise
        return pl.concat(self._fresh) if self._fresh else pl.DataFrame()

    def _take(self, frame: pl.DataFrame, epoch: int) -> None:
        self._world.about_to("sink")
        before = self._given.get(epoch)
        if before is not None and not before.equals(frame):
            raise AssertionError(f"epoch {epoch} has given other rows:\nbefore: {before.rows()}\nnow: {frame.rows()}")
        self._given[epoch] = frame
        self._fresh.append(frame)

    def _leave(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.leave()

    def close(self) -> None:
        """End the query and remove its checkpoint."""
        self._leave()
        self._cluster.close()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Virtual:
    """A world in which time passes when it is told to and epochs fail as planned."""

    def __init__(self, now: dt.datetime) -> None:
        self._beginning = now
        self._elapsed = 0.0
        self.planned: dict[str, tuple[int, Exception | None]] = {}

    def pass_by(self, seconds: float) -> None:
        self._elapsed += seconds

    def elapsed(self) -> float:
        return self._elapsed

    def now(self) -> dt.datetime:
        return self._beginning + dt.timedelta(seconds=self._elapsed)

    def sleep(self, seconds: float) -> None:
        self._elapsed += seconds

    def about_to(self, moment: str) -> None:
        times, error = self.planned.pop(moment, (0, None))
        if times > 1:
            self.planned[moment] = (times - 1, error)
        if times:
            raise error or ScriptedFailure("the sink fails" if moment == "sink" else f"about to {moment}")

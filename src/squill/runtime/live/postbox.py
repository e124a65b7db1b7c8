"""Rows on their way from one wave of an epoch to the next: by reference, or in Arrow files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from squill.engine.batch import Batch
from squill.exchange.scatter import Outbox
from squill.exchange.segments import Run, SegmentWriter, read_run
from squill.plan.schema import Schema
from squill.time import MINUS_INFINITY

__all__ = ["FilePostbox", "MemoryPostbox", "Postbox", "opened_run"]

Place = tuple[int, int]
"""A channel and a receiver."""


class Postbox(AbstractContextManager[Any], Protocol):
    """Takes what one shard sends in one epoch."""

    def outbox(self, channel: int) -> Outbox:
        """Return where the rows of a channel go."""
        ...

    def runs(self) -> dict[Place, Any]:
        """Return what was sent, to be called once all is; `opened_run` gives the rows back."""
        ...

    @property
    def told(self) -> dict[Place, int]:
        """The clock that each receiver was told last."""
        ...


def opened_run(run: Any, schema: Schema) -> Iterator[Batch]:
    """Yield the batches of a run, in sync order."""
    return read_run(run, schema) if isinstance(run, Run) else iter(run)


class MemoryPostbox:
    """Runs are lists of batches."""

    def __init__(self) -> None:
        self._sent: dict[Place, list[Batch]] = {}
        self.told: dict[Place, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def outbox(self, channel: int) -> Outbox:
        return _Slot(channel, self._send, self.told)

    def _send(self, channel: int, receivers: Sequence[int], batch: Batch) -> int:
        for receiver in receivers:
            self._sent.setdefault((channel, receiver), []).append(batch)
        return 0

    def runs(self) -> dict[Place, Any]:
        return dict(self._sent)


class FilePostbox:
    """One file for all that the shard sends; without rows there is none."""

    def __init__(self, path: Path, *, fragment: int, shard: int, attempt: int, compression: str | None = None) -> None:
        self._path = path
        self._writer = SegmentWriter(path, fragment=fragment, shard=shard, attempt=attempt, compression=compression)
        self.told: dict[Place, int] = {}

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, traceback)
        if kind is None and not self._writer.runs():
            self._path.unlink(missing_ok=True)

    def outbox(self, channel: int) -> Outbox:
        return _Slot(channel, self._writer.send, self.told)

    def runs(self) -> dict[Place, Any]:
        return {(run.channel, run.receiver): run for run in self._writer.runs()}


class _Slot:
    """One channel's share."""

    def __init__(self, channel: int, send: Any, told: dict[Place, int]) -> None:
        self._channel = channel
        self._send = send
        self._told = told

    def send(self, receivers: Sequence[int], batch: Batch) -> int:
        return int(self._send(self._channel, receivers, batch))

    def tell(self, clocks: Sequence[tuple[Sequence[int], int]]) -> None:
        for receivers, t in clocks:
            for receiver in receivers:
                place = (self._channel, receiver)
                self._told[place] = max(self._told.get(place, MINUS_INFINITY), t)

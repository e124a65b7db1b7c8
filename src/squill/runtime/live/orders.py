"""What a shard is to do in one epoch, and what it reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from squill.engine.batch import Batch
from squill.engine.state.versions import Version
from squill.time import MINUS_INFINITY

__all__ = ["Late", "LiveRead", "Moved", "Origin", "OutputOrder", "RefreshRead", "Seen", "ShardOrder", "ShardReport"]


@dataclass(frozen=True, kw_only=True)
class LiveRead:
    """What a shard reads of a live input.

    ``clock``    the time of the input, of all shards, that was known before the epoch: rows below it are late.
    ``portion``  a stored source, a `PartitionRead` or rows; None when there is nothing for this shard.
    ``reaches``  the time that the input itself says it has come to with this portion, if it does.
    ``is_last``  nothing will follow, ever.
    """

    clock: int
    portion: Any = None
    reaches: int = MINUS_INFINITY
    is_last: bool = False


@dataclass(frozen=True, kw_only=True)
class Moved:
    """What a shard is sent over a channel: a run of each producer that has rows, and the least of their clocks."""

    runs: Sequence[Any]
    clock: int


@dataclass(frozen=True, kw_only=True)
class RefreshRead:
    """What a shard takes of a table that is read again.

    ``clock``    the query's time before the epoch.
    ``portion``  what has changed with a new reading; None when there is none.
    ``is_last``  there will be no other reading.
    """

    clock: int
    portion: Any = None
    is_last: bool = False


@dataclass(frozen=True, kw_only=True)
class OutputOrder:
    """Where a shard of the last fragment writes its rows: a file of `format` in `folder`, under a hidden name."""

    folder: str
    format: str
    stem: str


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The shard whose state is divided, and the version of it that was committed last."""

    shard: int
    version: Version


@dataclass(frozen=True, kw_only=True)
class ShardOrder:
    """The work of one shard of one fragment.

    ``before``    the version of its state that was committed last; None is the beginning.
    ``inputs``    by leaf: what there is to read, to take from other shards, or a stored source (first epoch only).
    ``output``    where the answer's rows are written; None hands them over.
    ``ahead``     whether a copy of the shard is to do it, for an early answer.
    ``origin``    of a shard that is to become a part of another one: that one; its own state is written in any case.
    """

    fragment: int
    shard: int
    epoch: int
    before: Version | None
    inputs: Mapping[int, Any]
    output: OutputOrder | None = None
    ahead: bool = False
    origin: Origin | None = None

    @property
    def place(self) -> tuple[int, int]:
        return self.fragment, self.shard

    @property
    def reads(self) -> bool:
        """Whether there are live inputs, so that others wait to know how far they have come."""
        return any(isinstance(given, LiveRead) for given in self.inputs.values())


@dataclass(frozen=True, kw_only=True)
class Late:
    """Late rows of one live input in an epoch: how many, and the newest of them, as they arrived."""

    count: int
    rows: pl.DataFrame


@dataclass(frozen=True, kw_only=True)
class Seen:
    """How far a live input has come in one shard: its clock, and of partitions the latest starts of this epoch."""

    clock: int
    peaks: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ShardReport:
    """What one shard has done.

    ``runs``      by (channel, receiver): rows for the next waves.
    ``told``      by (channel, receiver): the shard's clock for them.
    ``seen``      by leaf: how far a live input has come in this shard.
    ``offsets``   by leaf: the offsets after what was read, of inputs that say so only then.
    ``rows``      of the answer, when they were not written to a file.
    ``file``      the answer's file and how many rows it has.
    ``state_bytes``  what the files of its state hold, and ``live_bytes`` what of that is not out of date.
    ``was_loaded``  whether its state came from the checkpoint, not from memory.
    ``has_news``  whether anything came to it; else its version is the one before.
    """

    fragment: int
    shard: int
    version: Version | None
    has_news: bool = True
    runs: Mapping[tuple[int, int], Any] = field(default_factory=dict)
    told: Mapping[tuple[int, int], int] = field(default_factory=dict)
    seen: Mapping[int, Seen] = field(default_factory=dict)
    offsets: Mapping[int, Any] = field(default_factory=dict)
    late: Mapping[int, Late] = field(default_factory=dict)
    rows: Batch | None = None
    file: tuple[str, int] | None = None
    rows_read: int = 0
    was_loaded: bool = False
    state_rows: int = 0
    state_bytes: int = 0
    live_bytes: int = 0

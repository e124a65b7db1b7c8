"""What is new in live inputs: one class for each kind.

An input is asked what there is beyond its *offset*, which JSON can say: what is found becomes part of the epoch's
record before any of it is read, so that an epoch that is tried again reads the same.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from squill.engine.batch import Batch
from squill.engine.ingress_push import Feed
from squill.errors import InternalError, PlanError, SourceReadError
from squill.plan.build.files import FORMATS
from squill.plan.build.folder_columns import file_rows
from squill.plan.build.locations import file_size, matching_files
from squill.plan.fragments import Fragment, sources_of
from squill.plan.live import Partitions, PushedRows, StoredRows, WatchedFolder
from squill.plan.nodes import FileSource, FrameSource, Source
from squill.plan.nodes.live import LiveSource
from squill.runtime.live.leaves import PartitionRead, PushedPortion, as_stored
from squill.runtime.splits import splits_of
from squill.time import INFINITY, MINUS_INFINITY

__all__ = [
    "FolderInput",
    "LiveInput",
    "News",
    "PartitionsInput",
    "PushedInput",
    "StoredInput",
    "Wake",
    "as_files",
    "input_for",
    "live_sources",
]

Wake = Callable[[], object]
EPOCH_BYTES = 1 << 30
"""So many bytes of files an epoch takes unless the user says how many files; at least one file."""


@dataclass(frozen=True, kw_only=True)
class News:
    """What an epoch takes of one input.

    ``record``   what it is, as JSON says it.
    ``reaches``  the time that the input itself says it has come to.
    ``is_last``  nothing will follow.
    """

    record: Any
    reaches: int = MINUS_INFINITY
    is_last: bool = False


class LiveInput(Protocol):
    """One live input of a query.

    ``tells_offsets``  whether what an epoch has read is known only after it has been read.
    """

    tells_offsets: bool

    def restore(self, offset: Any) -> None:
        """Go on after this offset, which `offset` gave."""
        ...

    def news(self) -> News | None:
        """Return what there is to take now; None when there is nothing."""
        ...

    def portions(self, record: Any, source: LiveSource, shards: int) -> Sequence[Any]:
        """Return what each shard reads of it, for a leaf's `read`."""
        ...

    def taken(self, record: Any, reached: Mapping[int, Any]) -> None:
        """Take note that an epoch was committed; `reached` are the offsets that its shards have told."""
        ...

    @property
    def offset(self) -> Any:
        """What was committed, as JSON says it: enough to go on from."""
        ...

    def begin(self, wake: Wake, *, every: float, until_now: bool) -> None:
        """Begin to look for what is new, and `wake` the query when there is; with `until_now` what is there is all."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether nothing can follow what `news` has told, when it was begun with `until_now`."""
        ...

    def close(self) -> None:
        """Let go of what it holds."""
        ...


class FolderInput:
    """Files that appear in a folder, in the order in which they were last written.

    A file is taken once, as it is when it is first seen; so it must be whole when it gets its name. Names that begin
    with a dot or an underscore, those of folders too, are of files that are being written.
    """

    tells_offsets = False

    def __init__(self, live: WatchedFolder, source: LiveSource) -> None:
        self._live = live
        self._label = source.label
        self._seen: set[str] = set()
        self._all: list[str] | None = None

    def restore(self, offset: Any) -> None:
        self._seen = set(offset["files"])

    def news(self) -> News | None:
        names = self._listed() if self._all is None else self._all
        fresh = [name for name in names if name not in self._seen]
        if not fresh:
            return None
        return News(record={"files": self._enough(fresh)})

    def _listed(self) -> list[str]:
        root = Path(self._live.path)
        try:
            if not root.is_dir():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            aged = []
            for path in map(Path, matching_files(str(root), FORMATS)):
                with suppress(FileNotFoundError):  # removed since
                    aged.append((path.stat().st_mtime_ns, str(path.relative_to(root))))
        except OSError as error:
            raise SourceReadError(
                f"stream {self._label!r}: the folder {str(root)!r} cannot be listed: {error.strerror or error}",
                "bring it back and start the query again with the same checkpoint: it goes on where it was.",
            ) from error
        names = [name for _, name in sorted(aged)]
        if names:
            # What was removed is not remembered for ever. Where nothing is left the disk may be gone, not the files.
            self._seen.intersection_update(names)
        return names

    def _enough(self, names: list[str]) -> list[str]:
        if self._live.files_per_epoch is not None:
            return names[: self._live.files_per_epoch]
        total, count = 0, 0
        for name in names:
            total += file_size(str(Path(self._live.path) / name))
            if count and total > EPOCH_BYTES:
                break
            count += 1
        return names[:count]

    def portions(self, record: Any, source: LiveSource, shards: int) -> Sequence[Any]:
        root = Path(self._live.path)
        return splits_of(as_files(source, [str(root / name) for name in record["files"]]), shards)

    def taken(self, record: Any, reached: Mapping[int, Any]) -> None:
        self._seen.update(record["files"])

    @property
    def offset(self) -> Any:
        return {"files": sorted(self._seen)}

    def begin(self, wake: Wake, *, every: float, until_now: bool) -> None:
        if until_now:
            self._all = self._listed()

    is_over = True

    def close(self) -> None:
        return None


def as_files(source: LiveSource, paths: Sequence[str], kind: type[FileSource] = FileSource, **other: Any) -> FileSource:
    """Return files that hold rows of a live source as a stored one; `other` says where they differ."""
    shared = {item.name: getattr(source, item.name) for item in fields(FileSource)}
    return kind(**{**shared, "paths": tuple(paths), **other})


class PartitionsInput:
    """A user's own partitions; each is read by one shard, from its own offset on."""

    tells_offsets = True

    def __init__(self, live: Partitions) -> None:
        self._live = live
        self._offsets: dict[int, Any] = dict.fromkeys(range(live.count))

    def restore(self, offset: Any) -> None:
        found = {int(partition): reached for partition, reached in offset["partitions"].items()}
        self._check(len(found))
        self._offsets = found

    def _check(self, found: int) -> None:
        if found != self._live.count:
            raise PlanError(
                f"stream: the checkpoint is of {found} partitions, the source has {self._live.count}",
                "start with the source that was there before, or with a fresh checkpoint.",
            )

    def news(self) -> News:
        return News(record={"from": {str(partition): offset for partition, offset in self._offsets.items()}})

    def portions(self, record: Any, source: LiveSource, shards: int) -> Sequence[Any]:
        offsets = {int(partition): offset for partition, offset in record["from"].items()}
        shares = [{p: offset for p, offset in offsets.items() if p % shards == shard} for shard in range(shards)]
        return [PartitionRead(self._live, share) if share else None for share in shares]

    def taken(self, record: Any, reached: Mapping[int, Any]) -> None:
        self._check(len(record["from"]))
        self._offsets.update(reached)

    @property
    def offset(self) -> Any:
        return {"partitions": {str(partition): offset for partition, offset in self._offsets.items()}}

    def begin(self, wake: Wake, *, every: float, until_now: bool) -> None:
        """There is nothing to begin: a partition that gives no rows is at its end for now."""

    is_over = True

    def close(self) -> None:
        return None


class PushedInput:
    """Rows that the program pushes into a source of this process.

    They are nowhere but in memory: what an uncommitted epoch had taken is taken again while the process lives; after
    a restart the program pushes again what came after `offset` rows.
    """

    tells_offsets = False

    def __init__(self, live: PushedRows) -> None:
        self._feed: Feed = live.feed
        self._waiting: list[Batch] = []
        self._rows = 0
        self._clock = MINUS_INFINITY
        self._told = MINUS_INFINITY
        self._wake: Wake = lambda: None
        self._feed.attach(self)

    # -- what a feed's listener does --------------------------------------------------------------------------

    def push(self, batch: Batch) -> None:
        self._waiting.append(batch)

    def advance(self, t: int) -> None:
        self._clock = max(self._clock, t)

    def settle(self) -> None:
        self._wake()

    # -- what an input does -----------------------------------------------------------------------------------

    def restore(self, offset: Any) -> None:
        self._rows = offset["rows"]

    def news(self) -> News | None:
        self._feed.flush()
        clock = self._clock  # first: what is pushed meanwhile is later than this
        waiting = len(self._waiting)
        if not waiting and clock <= self._told:
            return None
        rows = sum(map(len, self._waiting[:waiting]))
        record = {"batches": waiting, "rows": rows, "clock": clock}
        return News(record=record, reaches=clock, is_last=clock == INFINITY)

    def portions(self, record: Any, source: LiveSource, shards: int) -> Sequence[Any]:
        batches = self._waiting[: record["batches"]]
        return [PushedPortion(batches[shard::shards]) for shard in range(shards)]

    def taken(self, record: Any, reached: Mapping[int, Any]) -> None:
        self._rows += record["rows"]
        del self._waiting[: record["batches"]]
        self._told = record["clock"]

    @property
    def offset(self) -> Any:
        return {"rows": self._rows}

    def begin(self, wake: Wake, *, every: float, until_now: bool) -> None:
        """With no time between epochs, whoever pushes wakes the query up."""
        if not every:
            self._wake = wake

    is_over = True

    def close(self) -> None:
        self._feed.detach(self)


class StoredInput:
    """Rows that are all there, in epochs that follow each other in time: so none is late, however files overlap."""

    tells_offsets = False

    def __init__(self, live: StoredRows) -> None:
        self._source: Source = live.source
        self._taken = 0

    @cached_property
    def _parts(self) -> list[tuple[str, ...]]:
        if not isinstance(self._source, FileSource):
            return [()]
        return _in_turns(self._source) if self._source.paths else []

    def restore(self, offset: Any) -> None:
        self._taken = offset["parts"]

    def news(self) -> News | None:
        return News(record={"part": self._taken}) if self._taken < len(self._parts) else None

    def portions(self, record: Any, source: LiveSource, shards: int) -> Sequence[Any]:
        if isinstance(self._source, FileSource):
            return splits_of(as_files(source, self._parts[record["part"]]), shards)
        assert isinstance(self._source, FrameSource)
        return splits_of(as_stored(source, self._source.frame), shards)

    def taken(self, record: Any, reached: Mapping[int, Any]) -> None:
        self._taken = record["part"] + 1

    @property
    def offset(self) -> Any:
        return {"parts": self._taken}

    def begin(self, wake: Wake, *, every: float, until_now: bool) -> None:
        """There is nothing to look for."""

    is_over = True

    def close(self) -> None:
        return None


def _in_turns(source: FileSource) -> list[tuple[str, ...]]:
    """Return the files in parts of about an epoch's bytes, of which none has rows before those of the part before."""
    assert source.lifetime is not None
    sizes = {path: file_size(path) for path in source.paths}
    column = source.lifetime.start.source_column
    if column is None or sum(sizes.values()) <= EPOCH_BYTES:
        return [source.paths]
    spans = []
    for path in source.paths:
        times = file_rows(source, path).select(
            low=pl.col(column).min(), high=pl.col(column).max(), nulls=pl.col(column).null_count()
        )
        low, high, nulls = times.collect().row(0)
        if nulls:  # from the beginning of time on
            return [source.paths]
        if low is not None:
            spans.append((low, high, path))
    parts: list[list[str]] = [[]]
    total, reached = 0, None
    for low, high, path in sorted(spans):
        if total > EPOCH_BYTES and low >= reached:
            parts.append([])
            total = 0
        parts[-1].append(path)
        total += sizes[path]
        reached = high if reached is None else max(reached, high)
    return [tuple(part) for part in parts]


def input_for(source: LiveSource) -> LiveInput:
    """Return the input of a live source, for a runtime that reads it by itself."""
    match source.live:
        case WatchedFolder():
            return FolderInput(source.live, source)
        case Partitions():
            return PartitionsInput(source.live)
        case PushedRows():
            return PushedInput(source.live)
        case StoredRows():
            return StoredInput(source.live)
    raise InternalError(f"nobody reads {type(source.live).__name__}")


def live_sources(fragments: Sequence[Fragment]) -> dict[int, LiveSource]:
    """Return the live sources of a plan by their `live_id`, in the order in which they are met."""
    found: dict[int, LiveSource] = {}
    for fragment in fragments:
        for source in sources_of(fragment.root):
            if isinstance(source, LiveSource):
                found.setdefault(source.live_id, source)
    return found

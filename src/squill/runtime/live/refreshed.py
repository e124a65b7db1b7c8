"""Stored tables that a live query reads again: when, what has changed since, and how that enters a shard.

A reading is a file in the checkpoint: the table as it was read, with each row's number and the time from which on it
is there, and the rows that are gone with it. So an epoch that is run again has the same changes, whatever has become of
the table since, and the last reading that counted is what the next one is compared with. A row's number names its
shard, so that its end is told to the shard that has it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from squill.engine.batch import Batch
from squill.engine.operator import OperatorState
from squill.errors import CheckpointError, SchemaChangedError
from squill.plan.build.files import read_stored
from squill.plan.build.folder_columns import file_rows
from squill.plan.build.sources import file_source
from squill.plan.fragments import Fragment, sources_of
from squill.plan.live import Refresh
from squill.plan.nodes import FileSource
from squill.plan.nodes.live import RefreshedSource
from squill.plan.schema import Schema
from squill.runtime.live.leaves import EpochInbox, Leaf
from squill.runtime.live.log import READINGS
from squill.runtime.live.orders import RefreshRead
from squill.runtime.stored_answer import sync_to_disk
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["Reading", "RefreshedInput", "RefreshedLeaf", "changed_rows", "refreshed_sources"]

ROW, BEGIN, END, TURN = "__squill_row__", "__squill_begin__", "__squill_end__", "__squill_turn__"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One reading of a table: the how-many-th, at which time of day, and the query's time from which on it counts."""

    number: int
    at: str
    time: int

    def to_json(self) -> Any:
        return asdict(self)

    @classmethod
    def from_json(cls, found: Any) -> Reading:
        return cls(number=found["number"], at=found["at"], time=found["time"])


class RefreshedInput:
    """A table that is read again; readings stand in `folder`, or in memory when there is none."""

    def __init__(self, source: RefreshedSource, number: int, checkpoint: Path | None) -> None:
        self._label = source.label
        self._columns = source.columns
        self._refresh: Refresh = source.live
        self._number = number
        self._folder = None if checkpoint is None else checkpoint / READINGS
        self._looked: dt.datetime | None = None
        self._held: dict[int, pl.DataFrame] = {}
        self.last: Reading | None = None
        """The reading that was committed last."""

    def due(self, now: dt.datetime, time: int) -> Reading | None:
        """Read the table if it is time to; return the reading if anything has changed.

        A change needs a time of its own: while the query's time stands still, there is none.
        """
        if self.last is None:
            rows = self._table().with_columns(pl.lit(MINUS_INFINITY).alias(BEGIN), pl.lit(None, pl.Int64).alias(END))
            return self._keep(rows.with_row_index(ROW).cast({ROW: pl.Int64}), 1, now, MINUS_INFINITY)
        assert self._looked is not None
        # Below zero the clock on the wall was set back: nobody waits until it has caught up.
        if not self.last.time < time < INFINITY or 0 <= (now - self._looked).total_seconds() < self._refresh.seconds:
            return None
        self._looked = now
        changed = changed_rows(self._rows(self.last.number), self._table(), time)
        return None if changed is None else self._keep(changed, self.last.number + 1, now, time)

    def _table(self) -> pl.DataFrame:
        promises: dict[str, Any] = {"sorted_by": None, "packed": None, "duration": None, "unique": None, "trust": False}
        given = self._refresh
        times = (None, None, "point")
        source = file_source(given.paths, *times, None, given.format, keep_time=False, schema=given.schema, **promises)
        assert isinstance(source, FileSource)
        if source.columns != self._columns:
            raise SchemaChangedError(
                f"scan {self._label!r}: the table has other columns now: {source.columns!r}; it had {self._columns!r}",
                "bring the columns back and start again: the query goes on where it was.",
            )
        names = list(self._columns)
        frames = [file_rows(source, path).select(names).collect() for path in source.paths]
        return pl.concat(frames) if frames else self._columns.empty_frame()

    def _keep(self, rows: pl.DataFrame, number: int, now: dt.datetime, time: int) -> Reading:
        self._looked = now
        if self._folder is None:
            self._held[number] = rows
        else:
            self._folder.mkdir(exist_ok=True)
            path = self._path(number)
            part = path.with_suffix(".part")
            rows.write_ipc(part)
            sync_to_disk(part)
            part.replace(path)
        return Reading(number=number, at=now.isoformat(), time=time)

    def _path(self, number: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{self._number}-{number:08}"

    def _rows(self, number: int) -> pl.DataFrame:
        if self._folder is None:
            return self._held[number]
        return _read(self._path(number))

    def portion(self, reading: Reading, shard: int, shards: int) -> RefreshPortion:
        """Return what a shard takes of a reading."""
        rows = self._held[reading.number] if self._folder is None else None
        path = None if self._folder is None else str(self._path(reading.number))
        return RefreshPortion(path=path, rows=rows, time=reading.time, shard=shard, shards=shards)

    def taken(self, reading: Reading) -> None:
        """Take note that a reading was committed; older ones go."""
        self.last = reading
        self._held = {number: rows for number, rows in self._held.items() if number >= reading.number}
        if self._folder is not None:
            for item in self._folder.glob(f"{self._number}-*"):
                if item.name < self._path(reading.number).name:
                    item.unlink(missing_ok=True)

    def restore(self, reading: Reading) -> None:
        """Go on after this reading."""
        self.last, self._looked = reading, dt.datetime.fromisoformat(reading.at)


def changed_rows(before: pl.DataFrame, table: pl.DataFrame, time: int) -> pl.DataFrame | None:
    """Return a reading from the one before and the table as it is now; None when nothing has changed.

    Of equal rows those that came last go first.

    Examples
    --------
    >>> before = pl.DataFrame({"k": [1, 2], ROW: [0, 1], BEGIN: [3, 3], END: pl.Series([None, None], dtype=pl.Int64)})
    >>> changed_rows(before, pl.DataFrame({"k": [2, 4]}), 9).rows()
    [(2, 1, 3, None), (1, 0, 3, 9), (4, 2, 9, None)]
    """
    names = table.columns
    turn = pl.int_range(pl.len()).over(names).alias(TURN) if names else pl.int_range(pl.len()).alias(TURN)
    old = before.filter(pl.col(END).is_null()).sort(BEGIN, ROW).with_columns(turn)
    new = table.with_columns(turn)
    by = [*names, TURN]
    gone = old.join(new, on=by, how="anti", nulls_equal=True, maintain_order="left").with_columns(
        pl.lit(time).alias(END)
    )
    come = new.join(old, on=by, how="anti", nulls_equal=True, maintain_order="left")
    if not gone.height and not come.height:
        return None
    stay = old.join(new, on=by, how="semi", nulls_equal=True, maintain_order="left")
    highest: Any = before[ROW].max()
    come = come.with_columns(
        pl.int_range(pl.len()).cast(pl.Int64).alias(ROW) + (0 if highest is None else highest + 1),
        pl.lit(time, pl.Int64).alias(BEGIN),
        pl.lit(None, pl.Int64).alias(END),
    )
    columns = [*names, ROW, BEGIN, END]
    return pl.concat([item.select(columns) for item in (stay, gone.cast({END: pl.Int64}), come)])


@dataclass(frozen=True, kw_only=True)
class RefreshPortion:
    """The changes of a reading that are a shard's: rows in memory, or in a file."""

    path: str | None
    rows: pl.DataFrame | None
    time: int
    shard: int
    shards: int

    def batches(self, columns: Schema) -> Iterator[Batch]:
        """Yield the ends of rows that are gone and the starts of new ones."""
        rows = self.rows if self.rows is not None else _read(Path(str(self.path)))
        mine = rows.filter(
            pl.col(ROW) % self.shards == self.shard,
            (pl.col(BEGIN) == self.time) | (pl.col(END) == self.time).fill_null(value=False),
        )
        if mine.height:
            ends = mine[END].is_null().to_numpy()
            other = np.where(ends, INFINITY, mine[BEGIN].to_numpy())
            sync = np.full(mine.height, self.time, np.int64)
            yield Batch(sync, other, {name: mine[name] for name in columns})


def _read(path: Path) -> pl.DataFrame:
    try:
        return read_stored(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise CheckpointError(
            f"start: the reading {str(path)!r} of a table is gone or damaged: {error}",
            "restore the checkpoint folder from a copy.",
        ) from error


class RefreshedLeaf(Leaf):
    """Changes of a table; time follows that of the live inputs, so that the table holds nobody back."""

    def __init__(self, source: RefreshedSource) -> None:
        self._columns = source.schema
        self._clock = MINUS_INFINITY
        self._order = RefreshRead(clock=MINUS_INFINITY)

    def read(self, order: RefreshRead) -> None:
        self._order = order

    def _reached(self, until: int | None) -> int:
        if self._order.is_last:
            return INFINITY
        return max(self._clock, self._order.clock, MINUS_INFINITY if until is None else until)

    def has_news(self, until: int | None) -> bool:
        return self._order.portion is not None or self._reached(until) > self._clock

    def inbox(self, until: int | None) -> EpochInbox:
        portion: RefreshPortion | None = self._order.portion
        self._clock = self._reached(until)
        self._order = RefreshRead(clock=self._clock)
        return EpochInbox(iter(()) if portion is None else portion.batches(self._columns), self._clock)

    def save(self) -> OperatorState:
        return {"clock": self._clock}

    def load(self, state: OperatorState) -> None:
        self._clock = state["clock"]


def refreshed_sources(fragments: Sequence[Fragment]) -> dict[int, RefreshedSource]:
    """Return the tables of a plan that are read again by their `live_id`, in the order in which they are met."""
    found: dict[int, RefreshedSource] = {}
    for fragment in fragments:
        for source in sources_of(fragment.root):
            if isinstance(source, RefreshedSource):
                found.setdefault(source.live_id, source)
    return found

"""Disorder policies: arriving rows become rows in time order, and late ones meet the source's policy.

The current time is max(highest sync seen − wait, last punctuation). A row below it is *late*: refused
(`throw`), left out (`drop`) or moved to the current time (`adjust`). A row that is not late waits until the
current time reaches it, and rows leave in sync order.

Late rows leave at once, at the current time, and nothing that has left is above it. So the order in which
rows leave is the order of (effective sync, arrival), however the input is cut into pushes, and everything can
be decided for a whole push at a time: one pass says which rows are late and at what time they met the source,
a sort does the rest.

End edges follow their start edges: of a moved start they carry the moved start, of a dropped one they are
dropped. They are matched when they leave, by original start and payload, first in, first out among equals,
moved and dropped starts before those that were in time. Only sources of single events have edges; for rows
with lifetimes nothing of this is kept.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import polars as pl

from squill.engine.batch import Batch, Int64s
from squill.engine.edges import row_keys
from squill.engine.kernels.disorder import IN_TIME, arrivals
from squill.engine.late_rows import LateRows
from squill.engine.operator import OperatorState
from squill.engine.time_queue import TimeQueue
from squill.errors import InputError, LateEventError
from squill.plan.nodes.sources import KEEP_LATE
from squill.time import INFINITY, MINUS_INFINITY, TimeType

__all__ = ["DisorderBuffer"]

KEY, ARRIVED, MARK = "__squill_key__", "__squill_arrived__", "__squill_mark__"
IN_PLACE, MOVED, DROPPED, RESOLVED = 0, 1, 2, 3


class DisorderBuffer:
    """One source's policy and the rows that wait under it.

    Parameters
    ----------
    policy, wait
        ``"throw"``, ``"drop"`` or ``"adjust"``, and how many ticks stragglers are waited for.
    label, time
        How the source is called and shows its times in errors.
    edges
        Whether end edges may come, so that starts and ends have to be matched.
    keep_late
        How many late rows are kept aside, the newest.
    is_told
        Whether time moves by `punctuate` only, not by the rows; rows of one `push` must then be in order.

    Examples
    --------
    >>> buffer = DisorderBuffer("adjust", 0, "clicks", TimeType.of(pl.Int64()))
    >>> rows = buffer.push(Batch(np.array([5, 9, 4]), np.array([6, 20, 12])))
    >>> rows.sync, rows.other, buffer.clock
    (array([5, 9, 9]), array([ 6, 20, 12]), 9)
    >>> buffer.late.times_met()
    array([9])
    """

    def __init__(
        self,
        policy: str,
        wait: int,
        label: str,
        time: TimeType,
        *,
        edges: bool = False,
        keep_late: int = KEEP_LATE,
        is_told: bool = False,
    ) -> None:
        self._policy = policy
        self._wait = wait
        self._is_told = is_told
        self._label = label
        self._time = time
        self._highest = MINUS_INFINITY
        self._punctuated = MINUS_INFINITY
        self._queue = TimeQueue()
        self._matching = Matching(policy, label, time) if edges else None
        self.late = LateRows(keep_late)

    @property
    def clock(self) -> int:
        """The current time: no row below it will leave any more."""
        if self._highest <= MINUS_INFINITY + self._wait:
            return self._punctuated
        return max(self._highest - self._wait, self._punctuated)

    def __len__(self) -> int:
        return len(self._queue)

    def push(self, batch: Batch) -> Batch | None:
        """Take rows in arrival order; return those that leave, in sync order.

        Raises
        ------
        LateEventError
            Under `throw`; the buffer is then as it was before.
        """
        if not len(batch):
            return None
        met = np.empty(len(batch), np.int64)
        late, highest, ordered = arrivals(batch.sync, self._wait, self._highest, self._punctuated, met)
        if late and self._policy == "throw":
            raise self._late_error(batch, met)
        self._highest = MINUS_INFINITY if self._is_told else highest
        if self._matching is not None:
            return self._leave(self._matching.prepare(batch, met, self.late))
        if late:
            batch = self._meet_policy(batch, met)
            ordered = False
        if ordered and not self._wait and not self._is_told and not len(self._queue):
            return batch
        return self._leave(batch)

    def _late_error(self, batch: Batch, met: Int64s) -> LateEventError:
        row = int(np.argmax(met != IN_TIME))
        shown = {name: series[row] for name, series in batch.columns.items()}
        times = self._time.show(int(batch.sync[row])), self._time.show(int(met[row]))
        return LateEventError(self._label, str(shown), *times)

    def _meet_policy(self, batch: Batch, met: Int64s) -> Batch:
        """Return the rows with lifetimes that stay, late ones moved to the time that they met."""
        late = met != IN_TIME
        rows = np.flatnonzero(late)
        self.late.add(batch.take(rows), met[rows])
        if self._policy == "drop":
            return batch.filter(~late)
        moved = batch.with_times(np.where(late, met, batch.sync), batch.other)
        return moved.filter(moved.other > moved.sync)

    def punctuate(self, t: int) -> Batch | None:
        """Take the promise that nothing below t follows (raised to the current time); return what leaves."""
        self._punctuated = max(self.clock, t)
        return self._leave(None)

    def complete(self) -> Batch | None:
        """Return everything that still waits; time has come to its end."""
        return self.punctuate(INFINITY)

    def _leave(self, batch: Batch | None) -> Batch | None:
        now = self.clock
        due = self._due(batch, now)
        if due is None or self._matching is None:
            return due
        matched = self._matching.match(due)
        self._queue.add(matched.filter(matched.sync > now))
        out = matched.filter(matched.sync <= now).sorted_by_sync()
        return self._matching.without_marks(out) if len(out) else None

    def _due(self, batch: Batch | None, now: int) -> Batch | None:
        if batch is not None and not len(self._queue):
            rows = batch.sorted_by_sync()
            count = int(np.searchsorted(rows.sync, now, side="right"))
            self._queue.add(rows.slice(count, len(rows)))
            return rows.slice(0, count) if count else None
        if batch is not None:
            self._queue.add(batch)
        return self._queue.pop_until(now)

    def clear(self) -> None:
        """Throw out the rows that wait, and those that were late; the time stays as it is."""
        assert self._matching is None
        self._queue = TimeQueue()
        self.late.clear()
        self.late.total = 0

    def save(self) -> OperatorState:
        """Return everything that later answers depend on."""
        return {
            "highest": self._highest,
            "punctuated": self._punctuated,
            "queue": self._queue.save(),
            "matching": None if self._matching is None else self._matching.save(),
            "late": self.late.save(),
        }

    def load(self, state: OperatorState) -> None:
        self._highest, self._punctuated = state["highest"], state["punctuated"]
        self._queue.load(state["queue"])
        if self._matching is not None:
            self._matching.load(state["matching"])
        self.late.load(state["late"])


class Matching:
    """Start edges that have left and whose end edges are still to come.

    `open` counts those that were in time, by original start and payload; `moved` queues the late ones: where
    they were moved to, or None when they were dropped. Rows carry their key, their number in arrival order
    and what became of them in columns of their own until they leave.
    """

    def __init__(self, policy: str, label: str, time: TimeType) -> None:
        self._policy = policy
        self._label = label
        self._time = time
        self._arrived = 0
        self._open: dict[bytes, int] = {}
        self._moved: dict[bytes, deque[int | None]] = {}

    def prepare(self, batch: Batch, met: Int64s, late_rows: LateRows) -> Batch:
        """Return arriving rows with their marks, late ones where the policy puts them."""
        late = met != IN_TIME
        is_start = batch.other == INFINITY
        is_end = batch.other < batch.sync
        mark = np.zeros(len(batch), np.uint8)
        stays = ~late | is_end
        if self._policy == "adjust":
            mark[late & is_start] = MOVED
            stays |= late & (batch.other > met)
        else:
            mark[late & is_start] = DROPPED
            stays |= late & is_start
        if late.any():
            late_rows.add(batch.filter(late), met[late])
        arrived = np.arange(self._arrived, self._arrived + len(batch))
        self._arrived += len(batch)
        marks = {KEY: row_keys(batch), ARRIVED: pl.Series(arrived), MARK: pl.Series(mark)}
        sync = np.where(late, met, batch.sync)
        return Batch(sync, batch.other, {**batch.columns, **marks}).filter(stays)

    def match(self, batch: Batch) -> Batch:
        """Return the rows that leave, end edges with the start that their event really had."""
        batch = batch.take(np.lexsort((batch.columns[ARRIVED].to_numpy(), batch.sync)))
        mark = batch.columns[MARK].to_numpy()
        sync, other = batch.sync.copy(), batch.other.copy()
        keep = mark != DROPPED
        is_edge = (mark != RESOLVED) & ((other == INFINITY) | (other < sync))
        rows = np.flatnonzero(is_edge)
        for row, key in zip(rows.tolist(), batch.columns[KEY].gather(rows).to_list(), strict=True):
            if other[row] == INFINITY:
                self._begin(key, int(mark[row]), int(sync[row]))
            else:
                keep[row] = self._end(key, row, sync, other)
        marks = pl.Series(MARK, np.where(is_edge & (other < sync), RESOLVED, mark).astype(np.uint8))
        return Batch(sync, other, {**batch.columns, MARK: marks}).filter(keep)

    def _begin(self, key: bytes, mark: int, sync: int) -> None:
        if mark == IN_PLACE:
            self._open[key] = self._open.get(key, 0) + 1
        else:
            self._moved.setdefault(key, deque()).append(sync if mark == MOVED else None)

    def _end(self, key: bytes, row: int, sync: Int64s, other: Int64s) -> bool:
        """Give the end edge its start, and say whether it stays."""
        moved = self._moved.get(key)
        if moved:
            begun = moved.popleft()
            if not moved:
                del self._moved[key]
            if begun is None:
                return False
            other[row] = begun
            sync[row] = max(int(sync[row]), begun + 1)
            return True
        count = self._open.pop(key, 0)
        if count > 1:
            self._open[key] = count - 1
        if not count and self._policy == "throw":
            times = self._time.show(int(sync[row])), self._time.show(int(other[row]))
            raise InputError(
                f"source {self._label!r}: the end edge at {times[0]} ends no event: none with its payload "
                f"started at {times[1]}",
                "give the start edge with the same start and payload before it.",
            )
        return count > 0

    def without_marks(self, batch: Batch) -> Batch:
        columns = {name: series for name, series in batch.columns.items() if name not in (KEY, ARRIVED, MARK)}
        return Batch(batch.sync, batch.other, columns)

    def save(self) -> OperatorState:
        moved = {key: list(starts) for key, starts in self._moved.items()}
        return {"arrived": self._arrived, "open": dict(self._open), "moved": moved}

    def load(self, state: OperatorState) -> None:
        self._arrived = state["arrived"]
        self._open = dict(state["open"])
        self._moved = {key: deque(starts) for key, starts in state["moved"].items()}

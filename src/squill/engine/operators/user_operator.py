"""UserOperator: an object of the user's per key, which gets whole instants and returns rows.

Rows are held until their instant is over, put into the order of the rule and cut into groups by instant and
key, so that what an object sees cannot depend on batches, shards or arrival. Where the object wants to know
what ends, the ends of intervals wait in a queue and come back as end edges. Time goes forward over all keys
together: before the rows of an instant, the timers up to it.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.batch import Batch
from squill.engine.codecs import decoded
from squill.engine.columns import framed
from squill.engine.instants import InstantBuffer, in_canonical_order
from squill.engine.keyed import KeyedOperator, KeySlots
from squill.engine.open_answers import OpenAnswers
from squill.engine.operator import EDGES, NUMBERED, STARTS, Belongs, OperatorState, register
from squill.engine.plain_state import NotPlainError, plain_copy
from squill.engine.time_queue import TimeQueue
from squill.engine.times import refuse_beginningless, time_overflow
from squill.engine.user_code import Call, UserCode
from squill.engine.user_rows import UserRows, ticks
from squill.errors import UnboundedResultError, UserFunctionError
from squill.plan.nodes import UserOperator
from squill.plan.nodes.user import INTERVAL, POINT, UNTIL_NEXT
from squill.time import INFINITY

__all__ = ["UserOperatorOperator"]

Array = npt.NDArray[Any]
MOST_WAKES_AFTER_THE_END = 100_000
"""How often one key may be woken after the last row of all, before it is taken to go on for ever."""


@register(UserOperator)
class UserOperatorOperator(KeyedOperator):
    """State: the objects of the keys that are alive, their timers, one instant of rows, and ends that wait."""

    def __init__(self, node: UserOperator) -> None:
        super().__init__(node)
        self._node = node
        self.demands = EDGES if node.takes_ends else STARTS
        self.numbers_rows = node.lifetime == UNTIL_NEXT
        self._keys = KeySlots(node.keys, node.parent.schema)
        self._instant = InstantBuffer()
        self._ends = TimeQueue()
        self._objects: dict[int, Any] = {}
        self._rows_alive: dict[int, int] = {}
        self._timers = Timers()
        self._emptied: list[int] = []
        self._last_instant = 0
        self._code = UserCode(node, self._keys)
        self._rows = UserRows(node, self._code)
        self._row_times: list[int] = []
        self._row_slots: list[int] = []
        self._later = TimeQueue()
        self._answers = OpenAnswers(self._keys.columns, node.own)

    # -- rows and time ------------------------------------------------------------------------------------

    def push(self, batch: Batch, port: int = 0) -> None:
        if not self._node.takes_ends and not self._node.parent.properties.ends_known:
            batch = batch.filter(batch.other > batch.sync)
        if len(batch):
            refuse_beginningless(batch.sync, self.node)
            self._run(self._instant.push(batch), int(batch.sync[-1]))

    def advance(self, t: int, port: int = 0) -> None:
        self._run(self._instant.advance(t), t)
        self.emit_clock(t)

    def _run(self, rows: Batch | None, bound: int) -> None:
        """Work through whole instants of rows and let time come to `bound`."""
        if self._node.takes_ends:
            rows = self._with_ends(rows, bound)
        if rows is not None:
            self._run_rows(in_canonical_order(rows))
        self._fire(bound - 1, is_last=bound == INFINITY)
        self._emit(bound)
        self._release()

    def _with_ends(self, rows: Batch | None, bound: int) -> Batch | None:
        """Return the rows and the ends that are due with them, as end edges."""
        if rows is not None:
            known = rows.filter((rows.other > rows.sync) & (rows.other < INFINITY))
            self._ends.add(Batch(known.other, known.sync, known.columns))
        due = self._ends.pop_until(bound - 1)
        if rows is None or due is None:
            return due if rows is None else rows
        return Batch.concat([Batch(rows.sync, rows.other, rows.columns), due])

    def _run_rows(self, rows: Batch) -> None:
        slots = self._keys.slots(rows)
        is_end = rows.other < rows.sync
        if len(rows) > 1 and (rows.sync[1:] == rows.sync[:-1]).any():
            # Stable, so that the rows of one call stay in the order of the rule.
            order = np.lexsort((is_end, slots, rows.sync))
            rows, slots, is_end = rows.take(order), slots[order], is_end[order]
        first = np.flatnonzero(np.r_[True, (rows.sync[1:] != rows.sync[:-1]) | (slots[1:] != slots[:-1])])
        stop = np.r_[first[1:], len(rows)]
        ends = np.add.reduceat(is_end.astype(np.int64), first)
        columns = list(rows.columns.values())
        payload = framed(columns) if columns else pl.DataFrame(height=len(rows))
        frame = decoded(payload, self._node.parent.codecs)
        groups = (rows.sync[first], slots[first], first, stop - ends, stop)
        for t, slot, low, middle, high in zip(*(array.tolist() for array in groups), strict=True):
            self._fire(t)
            starts = frame.slice(low, middle - low)
            self._on_instant(t, slot, starts, frame.slice(middle, high - middle) if self._node.takes_ends else None)

    def _on_instant(self, t: int, slot: int, starts: pl.DataFrame, ends: pl.DataFrame | None) -> None:
        self._last_instant = t
        call = Call("on_instant", t, slot, starts if ends is None or len(starts) else ends)
        user = self._objects.get(slot)
        if user is None:
            user = self._objects[slot] = self._made(call)
        if ends is None:
            returned = self._code.call(user.on_instant, call, t, starts)
        else:
            self._rows_alive[slot] = self._rows_alive.get(slot, 0) + len(starts) - len(ends)
            returned = self._code.call(user.on_instant, call, t, starts, ends)
        self._finish(user, call, returned)

    def _made(self, call: Call) -> Any:
        try:
            return self._node.make()
        except Exception as error:
            raise self._code.failed(error, call._replace(method="the constructor")) from error

    def _fire(self, until: int, *, is_last: bool = False) -> None:
        """Wake the objects whose time is not after `until`, in time order."""
        wakes: dict[int, int] = {}
        while (timer := self._timers.pop(until)) is not None:
            t, slot = timer
            user = self._objects[slot]
            user.wake_at = None
            call = Call("on_time", t, slot)
            self._finish(user, call, self._code.call(user.on_time, call, t))
            if is_last and t > self._last_instant:
                wakes[slot] = wakes.get(slot, 0) + 1
                if wakes[slot] > MOST_WAKES_AFTER_THE_END:
                    raise self._endless(call)

    def _endless(self, call: Call) -> UnboundedResultError:
        error = self._code.wrong(f"was called {MOST_WAKES_AFTER_THE_END:,} times after the last row", call)
        return UnboundedResultError(error.what, "leave wake_at None once there is nothing more to do.")

    def _finish(self, user: Any, call: Call, returned: Any) -> None:
        """Take what a call returned, and see whether the object wants to be woken and is still alive."""
        slot = call.slot
        if returned is not None:
            count = self._rows.add(returned, call)
            if self._node.lifetime == UNTIL_NEXT:
                self._answers.replace(slot, call.t, count)
            else:
                self._row_times += [call.t] * count
                self._row_slots += [slot] * count
        wake_at = getattr(user, "wake_at", None)
        self._timers.set(slot, None if wake_at is None else self._wake_time(user, wake_at, call))
        if (
            not getattr(user, "alive", True)
            and slot not in self._timers
            and slot not in self._answers
            and not self._rows_alive.get(slot)
        ):
            del self._objects[slot]
            self._rows_alive.pop(slot, None)
            self._emptied.append(slot)

    def _wake_time(self, user: Any, wanted: Any, call: Call) -> int:
        if not hasattr(user, "on_time"):
            raise self._code.wrong("set wake_at, but there is no method on_time(self, t)", call, "write one.")
        t = ticks(wanted, "wake_at", self._node.time, self._code, call)
        if t <= call.t:
            shown = wanted if self._node.time is None else self._node.time.show(t)
            raise self._code.wrong(f"set wake_at to {shown}, which is not after its instant", call, LATER)
        return t

    # -- what leaves --------------------------------------------------------------------------------------

    def _emit(self, bound: int) -> None:
        if self._node.lifetime == UNTIL_NEXT:
            self._emit_answers()
            return
        made = self._made_rows() if len(self._rows) else None
        if self._node.lifetime == INTERVAL:
            if made is not None:
                self._later.add(made)
            made = self._later.pop_until(bound - 1)
        if made is not None:
            self.emit(made)

    def _made_rows(self) -> Batch:
        starts, ends = self._rows.take_times()
        columns = {**self._keys.columns(np.array(self._row_slots, np.int32)), **self._rows.take()}
        times = np.array(self._row_times, np.int64)
        self._row_times, self._row_slots = [], []
        if self._node.lifetime == INTERVAL:
            return Batch(starts, ends, columns)
        assert self._node.lifetime == POINT
        if times[-1] + 1 == INFINITY:
            raise time_overflow(self._node, int(times[-1]))
        return Batch(times, 1, columns)

    def _emit_answers(self) -> None:
        taken = self._answers.take(self._rows.take(), self.demand)
        if taken is not None:
            batch, closed = taken
            self.emit(batch)
            if self.demand == NUMBERED and closed is not None:
                self.close_rows(*closed)

    def _release(self) -> None:
        """Let go of the keys whose objects have left and did not come back."""
        gone = {slot for slot in self._emptied if slot not in self._objects}
        self._keys.release(np.array(sorted(gone), np.int32))
        self._emptied = []

    # -- state --------------------------------------------------------------------------------------------

    def save(self) -> OperatorState:
        return {
            "clock": self.clock,
            "keys": self._keys.save(),
            "instant": self._instant.save(),
            "ends": self._ends.save(),
            "objects": {slot: self._saved(slot, user) for slot, user in self._objects.items()},
            "rows_alive": dict(self._rows_alive),
            "timers": self._timers.save(),
            "last_instant": self._last_instant,
            "later": self._later.save(),
            "answers": self._answers.save(),
        }

    def _saved(self, slot: int, user: Any) -> Any:
        call = Call("save", self.clock, slot)
        try:
            return plain_copy(user.save())
        except NotPlainError as error:
            raise self._code.wrong(f"returned what is not plain data: {error}", call, PLAIN) from error
        except Exception as error:
            raise self._code.failed(error, call) from error

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._keys.load(state["keys"])
        self._instant.load(state["instant"])
        self._ends.load(state["ends"])
        self._rows_alive = dict(state["rows_alive"])
        self._timers.load(state["timers"])
        self._last_instant = state["last_instant"]
        self._later.load(state["later"])
        self._answers.load(state["answers"])
        self._objects = {slot: self._loaded(slot, saved) for slot, saved in state["objects"].items()}

    def _loaded(self, slot: int, saved: Any) -> Any:
        call = Call("load", self.clock, slot)
        user = self._made(call)
        try:
            user.load(plain_copy(saved))
            if hasattr(user, "on_time"):
                user.wake_at = self._timers.time_of(slot)
        except UserFunctionError:
            raise
        except Exception as error:
            raise self._code.failed(error, call) from error
        return user

    def _keep_slots(self, mine: Belongs, kept: Array, number_of: Array) -> None:
        for rows in (self._instant, self._ends, self._later):
            rows.keep(mine)
        slots = dict(enumerate(kept.tolist()))
        self._objects = {i: self._objects[slot] for i, slot in slots.items() if slot in self._objects}
        self._rows_alive = {i: self._rows_alive[slot] for i, slot in slots.items() if slot in self._rows_alive}
        self._timers.keep_slots(kept)
        self._answers.keep_slots(kept)

    @property
    def state_rows(self) -> int:
        held = len(self._instant) + len(self._ends) + len(self._later) + len(self._answers)
        return len(self._objects) + len(self._timers) + held


LATER = "a timer fires after the instant it is set at; to act now, return rows now."
PLAIN = (
    "return None, numbers, text, bytes, dates, lists, tuples, dicts, NumPy arrays or Polars columns, so that a "
    "checkpoint can be read by another process."
)


class Timers:
    """One time per slot, first the earliest; times that were changed stay in the heap until they come up."""

    def __init__(self) -> None:
        self._time_of: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._time_of)

    def __contains__(self, slot: int) -> bool:
        return slot in self._time_of

    def time_of(self, slot: int) -> int | None:
        return self._time_of.get(slot)

    def set(self, slot: int, t: int | None) -> None:
        if t is None:
            self._time_of.pop(slot, None)
        elif self._time_of.get(slot) != t:
            self._time_of[slot] = t
            heapq.heappush(self._heap, (t, slot))
            if len(self._heap) > 2 * len(self._time_of) + 64:
                self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [(t, slot) for slot, t in self._time_of.items()]
        heapq.heapify(self._heap)

    def pop(self, until: int) -> tuple[int, int] | None:
        """Take out the first (time, slot) that is not after `until`."""
        while self._heap and self._heap[0][0] <= until:
            t, slot = heapq.heappop(self._heap)
            if self._time_of.get(slot) == t:
                del self._time_of[slot]
                return t, slot
        return None

    def keep_slots(self, kept: Array) -> None:
        """Forget the times of all but these slots, of which the i-th is slot i from now on."""
        self._time_of = {i: self._time_of[slot] for i, slot in enumerate(kept.tolist()) if slot in self._time_of}
        self._rebuild()

    def save(self) -> OperatorState:
        return {"time_of": dict(self._time_of)}

    def load(self, state: OperatorState) -> None:
        self._time_of = dict(state["time_of"])
        self._rebuild()

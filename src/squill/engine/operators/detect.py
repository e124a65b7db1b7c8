"""Detect: the matches of a pattern, per key."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.batch import Batch
from squill.engine.belongs import along_chains, at_slots, renumbering
from squill.engine.buffers import grown, room_for
from squill.engine.columns import read_only, values_and_valid_of
from squill.engine.detection.automaton import Automaton
from squill.engine.detection.captures import Captures
from squill.engine.detection.functions import Functions
from squill.engine.expressions import Evaluator
from squill.engine.instants import InstantBuffer, in_order
from squill.engine.kernels import detect as kernels
from squill.engine.kernels.pairs import idle_slots
from squill.engine.keyed import KeyedOperator, KeySlots
from squill.engine.operator import STARTS, Belongs, OperatorState, register
from squill.engine.owned import owned
from squill.engine.time_queue import TimeQueue
from squill.engine.times import refuse_beginningless, time_overflow
from squill.errors import SquillError, UserFunctionError
from squill.plan.expressions import Expression
from squill.plan.nodes import Detect
from squill.time import INFINITY

__all__ = ["DetectOperator"]

Array = npt.NDArray[Any]
CHUNK = 65_536
SCOPES = {"one": kernels.ONE, "any": kernels.ANY, "none": kernels.NONE_OF}


@register(Detect)
class DetectOperator(KeyedOperator):
    """Whole instants; state: the instances that can still go on, under their keys, and what their registers hold."""

    demands = STARTS

    def __init__(self, node: Detect) -> None:
        super().__init__(node)
        self._node = node
        self._within = node.within or 0
        self._functions = Functions(node)
        computed = {item.name for item in self._functions.registers}
        self._captures = Captures(node, [item for item in node.registers if item.name not in computed])
        self._conditions = list(dict.fromkeys(item.condition for item in node.elements if item.condition is not None))
        self._evaluator = self._make_evaluator()
        self._tables = self._make_tables()
        self._needs_order = any(item.scope != "one" and item.updates for item in node.elements)
        self._keys = KeySlots(node.keys, node.parent.schema)
        self._instant = InstantBuffer()
        self._ends = TimeQueue()
        self._slots = np.zeros((16, kernels.SLOT_SIZE), np.int64)
        self._state = np.zeros(kernels.STATE_SIZE, np.int64)
        self._make_arena()

    def _make_evaluator(self) -> Evaluator:
        """Everything that needs no register, in one evaluation, under names of its own."""
        schema, functions = self._node.parent.schema, self._functions
        named = [item.renamed(f"?{k}") for k, item in enumerate(self._conditions)]
        named += [item.renamed(str(k)) for k, item in enumerate(self._captures.expressions)]
        named += [item.renamed(f"={k}") for k, item in enumerate(functions.assigned)]
        self._inputs = {name: schema[name] for name in functions.inputs}
        return Evaluator(named, self._node.time, "detect")

    def _make_tables(self) -> tuple[Array, ...]:
        node, captures = self._node, self._captures
        automaton = Automaton(node.tree, len(node.elements))
        offsets = np.cumsum([0, *(len(targets) for targets in automaton.follow)])
        targets = [p for positions in automaton.follow for p in positions]
        accepting = [p in automaton.accepting for p in range(len(automaton.follow))]
        scopes = [0, *(SCOPES[item.scope] for item in node.elements)]
        conditions = [kernels.NONE]
        places = [register.name for register in captures.registers]
        update_offsets, registers, sources = [0, 0], list[int](), list[int]()
        for element in node.elements:
            has_one = element.condition is not None
            conditions.append(self._conditions.index(element.condition) if has_one else kernels.NONE)  # type: ignore[arg-type]
            for name, update in element.updates:
                if name in places and isinstance(update, Expression):
                    registers.append(places.index(name))
                    sources.append(captures.number(update))
            update_offsets.append(len(registers))
        tables = (offsets, targets, accepting, scopes, conditions, update_offsets, registers, sources)
        return tuple(read_only(np.array(table, np.int64)) for table in tables)

    # -- the arena ----------------------------------------------------------------------------------------

    def _make_arena(self, size: int = 16) -> None:
        self._position = np.zeros(size, np.int64)
        self._first = np.zeros(size, np.int64)
        self._after = np.zeros(size, np.int64)
        self._codes = np.full((size, len(self._captures.registers)), kernels.NONE, np.int64)
        self._computed = self._functions.blank(size)
        self._free = np.arange(size, 0, -1, dtype=np.int64) - 1
        self._state[kernels.FREE] = size - 1  # entry 0 is never free

    def _grow_arena(self, more: int) -> None:
        old = len(self._position)
        size = room_for(old + more)
        self._position, self._first, self._after = (
            grown(array, size) for array in (self._position, self._first, self._after)
        )
        self._codes = grown(self._codes, size, kernels.NONE)
        larger = self._functions.blank(size)
        for new, held in zip(larger, self._computed, strict=True):
            new[:old] = held
        self._computed = larger
        free = int(self._state[kernels.FREE])
        self._free = np.concatenate([np.arange(old, size), self._free[:free], np.empty(old - free, np.int64)])
        self._state[kernels.FREE] = free + size - old

    @property
    def _live(self) -> int:
        return len(self._position) - 1 - int(self._state[kernels.FREE])

    def _is_live(self) -> npt.NDArray[np.bool_]:
        live = np.ones(len(self._position), np.bool_)
        live[self._free[: self._state[kernels.FREE]]] = False
        live[0] = False
        return live

    # -- rows ---------------------------------------------------------------------------------------------

    def push(self, batch: Batch, port: int = 0) -> None:
        if not self._node.parent.properties.ends_known:
            batch = batch.filter(batch.other > batch.sync)
        if not len(batch):
            return
        if self._within:
            refuse_beginningless(batch.sync, self._node)
            if int(batch.sync[-1]) + self._within >= INFINITY:
                raise time_overflow(self._node, int(batch.sync[-1]))
        reached = int(batch.sync[-1])
        self._run(self._instant.push(batch))
        self._expire(reached)

    def advance(self, t: int, port: int = 0) -> None:
        self._run(self._instant.advance(t))
        self._expire(t)
        self.emit_clock(t)

    def _run(self, batch: Batch | None) -> None:
        if batch is None:
            return
        if self._node.order_by is not None:
            batch = in_order(batch, self._node.order_by, self._node.parent.time, "detect")
        elif self._needs_order:
            batch = in_order(batch, (), None, "detect")
        slots = self._keys.slots(batch)
        self._slots = grown(self._slots, self._keys.capacity)
        values = self._evaluator(batch)
        base = self._captures.append(values, len(batch))
        rows = (
            read_only(batch.sync), read_only(slots), *self._units(batch, slots), self._flags(values, len(batch)), base,
            self._captures.columns, self._within, self._node.overlap, self._tables,
        )  # fmt: skip
        started = np.empty(len(batch), np.int64), np.empty(len(batch), np.int32)
        columns = {**{name: batch.columns[name] for name in self._inputs}, **values}
        inputs = [np.zeros(1, np.int64), *self._functions.values(columns)] if self._functions.calls else [started[0]]
        self._state[kernels.NEXT_ROW] = self._state[kernels.STARTED] = 0
        while not self._step(batch, rows, inputs, started):
            pass
        self._settle(slots, *started)

    def _units(self, batch: Batch, slots: Array) -> tuple[Array, Array]:
        """Return which row comes after each in its unit, and which rows are not the first."""
        following = np.full(len(batch), kernels.NONE, np.int64)
        is_later = np.zeros(len(batch), np.uint8)
        if self._node.order_by is None:
            kernels.link_simultaneous(read_only(batch.sync), read_only(slots), self._slots, following, is_later)
        return following, is_later

    def _flags(self, values: dict[str, pl.Series], size: int) -> Array:
        flags = np.empty((max(1, len(self._conditions)), size), np.uint8)
        for k in range(len(self._conditions)):
            is_true, valid = values_and_valid_of(values[f"?{k}"])
            np.bitwise_and(is_true, valid, out=flags[k])
        return flags

    def _step(self, batch: Batch, rows: tuple[Any, ...], inputs: list[Array], started: tuple[Array, Array]) -> bool:
        size = max(CHUNK, int(self._state[kernels.NEEDED]))
        times, firsts, slots = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int32)
        codes = np.empty((size, self._codes.shape[1]), np.int64)
        outputs = self._functions.outputs(size)
        try:
            code, count = self._functions.loop(
                *rows, self._state, self._slots, self._position, self._first, self._after, self._codes, self._free,
                times, firsts, slots, codes, *started, (*inputs, *self._computed, *outputs),
            )  # fmt: skip
        except Exception as error:
            if not self._functions.calls:
                raise
            raise self._failed(batch, int(inputs[0][0]), error) from error
        if count:
            other = firsts[:count] + self._within if self._within else INFINITY
            self.emit(Batch(times[:count], other, self._columns(slots[:count], codes[:count], outputs, count)))
        if code == kernels.ARENA_FULL:
            self._grow_arena(int(self._state[kernels.NEEDED]))
        return bool(code == kernels.DONE)

    def _columns(self, slots: Array, codes: Array, outputs: list[Array], count: int) -> dict[str, pl.Series]:
        columns = self._keys.columns(slots)
        captured = {item.name: k for k, item in enumerate(self._captures.registers)}
        computed = {item.name: k for k, item in enumerate(self._functions.registers)}
        for item in self._node.registers:
            if item.name in captured:
                columns[item.name] = self._captures.series(captured[item.name], codes[:, captured[item.name]])
            else:
                columns[item.name] = self._functions.series(computed[item.name], outputs, count)
        return columns

    def _failed(self, batch: Batch, row: int, error: Exception) -> SquillError:
        assert self._node.time is not None, "patterns are over time"
        sample = {name: series[row] for name, series in batch.columns.items()}
        start = self._node.time.show(int(batch.sync[row]))
        return UserFunctionError(
            f"detect: a function of the pattern failed at the event with start {start} and {sample}: "
            f"{type(error).__name__}: {error}",
            "the functions must take every event without nulls that their element may meet.",
        )

    # -- what is no longer alive --------------------------------------------------------------------------

    def _settle(self, slots: Array, start_times: Array, start_slots: Array) -> None:
        """Let go of the keys without instances, and remember when the new instances are over."""
        idle = np.empty(len(slots), np.int32)
        count = idle_slots(read_only(slots), self._slots, idle)
        self._keys.release(idle[:count])
        if self._captures.is_wasteful(self._live):
            self._captures.compact(self._codes, self._is_live())
        begun = int(self._state[kernels.STARTED])
        alive = self._slots[start_slots[:begun], kernels.HEAD] != 0
        self._ends.add(Batch(start_times[:begun][alive] + self._within, start_slots[:begun][alive].astype(np.int64)))

    def _expire(self, reached: int) -> None:
        due = self._ends.pop_until(reached)
        if due is None:
            return
        emptied = np.empty(len(due), np.int32)
        count = kernels.expire(
            read_only(due.other), reached, self._within, self._slots, self._first, self._after, self._free, self._state,
            emptied,
        )  # fmt: skip
        self._keys.release(emptied[:count])

    # -- state --------------------------------------------------------------------------------------------

    def save(self) -> OperatorState:
        return {
            "clock": self.clock,
            "keys": self._keys.save(),
            "instant": self._instant.save(),
            "ends": self._ends.save(),
            "captures": self._captures.save(),
            "state": self._state,
            "arrays": self._arrays(),
            "computed": self._functions.saved(self._computed),
        }

    def _arrays(self) -> list[Array]:
        return [self._slots, self._position, self._first, self._after, self._codes, self._free]

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._keys.load(state["keys"])
        self._instant.load(state["instant"])
        self._ends.load(state["ends"])
        self._captures.load(state["captures"])
        self._state = owned(state["state"])
        self._slots, self._position, self._first, self._after, self._codes, self._free = (
            owned(array) for array in state["arrays"]
        )
        self._computed = self._functions.loaded(state["computed"])

    def _keep_slots(self, mine: Belongs, kept: Array, number_of: Array) -> None:
        self._instant.keep(mine)
        self._ends.keep_numbers(number_of)
        self._slots = at_slots(self._slots, kept)
        self._keep_entries(along_chains(self._slots[:, kernels.HEAD], self._after, 0))

    def _keep_entries(self, entries: Array) -> None:
        """Forget the instances of all but these entries, whose number is their place from now on."""
        entries = np.append(0, entries)  # which ends all chains
        number_of, count = renumbering(entries, len(self._position)), len(entries)
        after, held = number_of[self._after[entries]], [array[entries] for array in self._computed]
        kept = self._position[entries], self._first[entries], after, self._codes[entries]
        self._slots[:, kernels.HEAD] = number_of[self._slots[:, kernels.HEAD]]
        size = room_for(count + 1)
        self._make_arena(size)
        arena = self._position, self._first, self._after, self._codes, *self._computed
        for new, old in zip(arena, (*kept, *held), strict=True):
            new[:count] = old
        self._state[kernels.FREE] = size - count  # the last ones are the first of the stack
        self._captures.compact(self._codes, self._is_live())

    @property
    def state_rows(self) -> int:
        return self._live + len(self._instant)

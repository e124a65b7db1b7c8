"""Groups of relational data, or its distinct rows, that may be more than memory holds.

One operator takes the rows as long as its state is small. Then the state is divided by keys into parts that go to disk,
and so do all later rows. In the end one part after the other is worked off: its state, then its rows. A part that is
too large again is divided again. So memory holds one part's keys, and each row is written once for each division.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from squill.engine.batch import Batch
from squill.engine.machine_memory import state_share
from squill.engine.operator import Belongs, Operator, OperatorState
from squill.engine.parts import (
    MOST_DEPTH,
    PARTS,
    OfPart,
    Parts,
    free_cycles,
    in_place_of,
    rows_bytes,
    stand_in,
    state_bytes,
)
from squill.plan.node import Node
from squill.time import INFINITY

__all__ = ["InParts"]

LEAST_GROWTH = 8
"""A state is looked at when it may have grown by this part of what it may take."""


class InParts(Operator):
    """One operator of `make` for all rows, or one for each part of them by these keys, after the other.

    What the operator says of a key depends on the key's rows alone, and it says nothing before the end.
    """

    def __init__(self, node: Node, keys: Sequence[str], make: Callable[[], Operator], depth: int = 0) -> None:
        super().__init__(node)
        self._keys = tuple(keys)
        self._make = make
        self._depth = depth
        self._whole: Operator | None = None
        self._parts: Parts | None = None
        self._grown = 0
        self._look_at: int | None = None

    def push(self, batch: Batch, port: int = 0) -> None:
        if self._parts is not None:
            self._parts.add(batch, self._keys)
            return
        self._all.push(batch)
        self._grown += rows_bytes(batch)
        if self._look_at is None:
            self._look_at = state_share() // 2
        if self._grown > self._look_at and self._depth < MOST_DEPTH:
            self._look()

    @property
    def _all(self) -> Operator:
        if self._whole is None:
            self._whole = stand_in(self, self._make())
        return self._whole

    def _look(self) -> None:
        """Divide the state if it is too large by now."""
        share, size = state_share(), state_bytes(self._all.save())
        self._grown = 0
        self._look_at = max(share - size, share // LEAST_GROWTH)
        if size > share:
            self._divide(size)

    def _divide(self, size: int) -> None:
        state = self._all.save()
        # Before anything is in them: an error on the way leaves them to `let_go`.
        self._parts = parts = Parts(self._depth)
        for part in range(PARTS):
            one = self._make()
            one.load(state)
            if not one.keep([OfPart(self._keys, part, PARTS, self._depth)]):
                parts.close()
                self._parts = None
                return
            parts.put_state(part, one.save())
            one.let_go()
        self._all.let_go()
        self._whole = None
        free_cycles(size)

    def advance(self, t: int, port: int = 0) -> None:
        if self._parts is None:
            self._all.advance(t)
        elif t == INFINITY:
            self._work_off(self._parts)
        self.emit_clock(t)

    def _work_off(self, parts: Parts) -> None:
        for part in range(PARTS):
            one = InParts(self.node, self._keys, self._make, self._depth + 1)
            with in_place_of(self, one):
                one.load(parts.state(part))
                for batch in parts.rows_of(part):
                    one.push(batch)
                one.advance(INFINITY)
            parts.forget(part)
        parts.close()

    def let_go(self) -> None:
        if self._whole is not None:
            self._whole.let_go()
        if self._parts is not None:
            self._parts.close()
        super().let_go()

    # -- state --------------------------------------------------------------------------------------------

    def save(self) -> OperatorState:
        """Return the state of the one operator; where there are parts, all that is on disk comes back for it."""
        if self._parts is None:
            return {**self._all.save(), "clock": self.clock}
        return {
            "clock": self.clock,
            "states": [self._parts.state(part) for part in range(PARTS)],
            "rows": [list(self._parts.rows_of(part)) for part in range(PARTS)],
        }

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        if "states" not in state:
            self._all.load(state)
            return
        self._parts = Parts(self._depth)
        for part, (of_part, rows) in enumerate(zip(state["states"], state["rows"], strict=True)):
            self._parts.put_state(part, of_part)
            for batch in rows:
                self._parts.add(batch, self._keys)

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        return self._parts is None and self._all.keep(belongs)

    @property
    def state_rows(self) -> int:
        return self._all.state_rows if self._parts is None else self._parts.rows

"""The operator protocol: how every piece of the engine takes rows and time, and keeps its state.

Operators are driven from above and push downwards, on the caller's thread. A runtime only decides who
calls `push` and `advance`; nothing in an operator depends on how rows are cut into batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from squill.engine.batch import Batch, Int64s
from squill.engine.belongs import Belongs
from squill.errors import InternalError
from squill.plan.node import Node
from squill.time import INFINITY, MINUS_INFINITY

__all__ = [
    "EDGES", "NUMBERED", "STARTS", "Belongs", "Operator", "OperatorState", "go_on", "operator_for", "register",
]  # fmt: skip

OperatorState = dict[str, Any]
"""What `save` returns: plain arrays, Series, numbers and dicts of these."""

# How a consumer wants ends to be told. An operator that ends events later than it starts them asks its
# consumer once, when the plan is compiled, and spares what nobody reads.
EDGES = "edges"  # as end edges that carry the payload again
# Start rows carry numbers; ends that are not known then (infinity) come as (number, time) through close_rows.
NUMBERED = "numbered"
STARTS = "starts"  # not at all: the consumer sets lifetimes of its own


def go_on() -> None:
    """The checkpoint of who is never to stop early."""


class Operator:
    """One running node. Subclasses override `push`, `advance` and, where they keep anything, `save`/`load`.

    ``clock``  the time that this operator's output has reached: no row below it will follow.
    """

    demands: str | None = EDGES
    """What it asks of its input; None passes on what its own consumer asks."""
    numbers_rows: bool = False
    """True when it can serve NUMBERED by itself."""
    checkpoint: Callable[[], None] = staticmethod(go_on)
    """Called before rows go on, and raises when the work is in vain: one push may give any number of rows."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.consumers: list[tuple[Operator, int]] = []
        self.demand = EDGES
        self.clock = MINUS_INFINITY

    def demands_on(self, port: int) -> str | None:
        """What it asks of the input at this port: of all the same, unless it says otherwise."""
        return self.demands

    # -- driven from above --------------------------------------------------------------------------------

    def push(self, batch: Batch, port: int = 0) -> None:
        """Take rows; their sync is not below the clock of this port."""
        raise NotImplementedError

    def advance(self, t: int, port: int = 0) -> None:
        """Take the promise that no row with sync < t will follow; infinity ends the stream."""
        self.emit_clock(t)

    def close_rows(self, ids: Int64s, ends: Int64s, port: int = 0) -> None:
        """Take the ends of rows that were pushed with these numbers."""
        for consumer, its_port in self.consumers:
            consumer.close_rows(ids, ends, its_port)

    # -- driving below ------------------------------------------------------------------------------------

    def emit(self, batch: Batch) -> None:
        self.checkpoint()
        if len(batch):
            for consumer, port in self.consumers:
                consumer.push(batch, port)

    def emit_clock(self, t: int) -> None:
        if t > self.clock:
            self.clock = t
            for consumer, port in self.consumers:
                consumer.advance(t, port)

    # -- state --------------------------------------------------------------------------------------------

    def save(self) -> OperatorState:
        """Return everything that later answers depend on, as it stands: valid until the operator is next called.

        Arrays are views of the state, not copies. Who keeps them for longer copies them; `load` copies
        what it is going to change.
        """
        return {"clock": self.clock}

    def load(self, state: OperatorState) -> None:
        """Take the place of the operator that saved `state`."""
        self.clock = state["clock"]

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        """Forget rows that belong to other shards, input by input (None: all stay); return whether it could.

        What is kept goes on as if the others had never been. Who cannot forget changes nothing: what comes of the
        others' rows is sieved out further down.
        """
        return not self.node.keeps_state

    def let_go(self) -> None:
        """Free what is held; nobody calls this operator any more.

        Operators may refer to themselves, so that nobody else's letting go frees it: a join kept 416 MB until Python
        came to look for cycles.
        """
        node = self.node  # by which an error is told where it came from
        vars(self).clear()
        self.node = node

    @property
    def completed(self) -> bool:
        return self.clock == INFINITY

    @property
    def state_rows(self) -> int:
        """How many rows or keys are held: for reports, and to test that state is bounded."""
        return 0


Factory = Callable[[Any], Operator]
F = TypeVar("F", bound=Factory)
_FACTORIES: dict[type[Node], Factory] = {}


def register(*kinds: type[Node]) -> Callable[[F], F]:
    """Name the operator (or the function that chooses one) for kinds of nodes."""

    def enter(factory: F) -> F:
        for kind in kinds:
            _FACTORIES[kind] = factory
        return factory

    return enter


def operator_for(node: Node) -> Operator:
    """Return a fresh operator for the node."""
    factory = _FACTORIES.get(type(node))
    if factory is None:
        raise InternalError(f"no operator is registered for {node.name}")
    return factory(node)

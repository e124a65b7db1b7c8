"""One shard of one fragment, kept from epoch to epoch.

An epoch is two steps. `read` takes what is new, so that afterwards everybody knows how far time has come; `work`
pushes it through the operators, up to that time.
"""

from __future__ import annotations

from collections.abc import Sequence

from squill.engine.batch import Batch
from squill.engine.compile import compile_plan
from squill.engine.egress_changes import ChangesSink
from squill.engine.egress_closed import ClosedSink
from squill.engine.operator import Belongs, Operator, OperatorState
from squill.exchange.routers import router_for
from squill.exchange.scatter import Outbox, ScatterSink
from squill.plan.division import Division
from squill.plan.fragments import Fragment
from squill.plan.nodes.live import RefreshedSource
from squill.runtime.live.leaves import Leaf, LiveLeaf, leaf_for
from squill.runtime.live.orders import Late, LiveRead, Seen, ShardOrder
from squill.runtime.live.parts import Nowhere, Parted, put_sieves, take_part
from squill.runtime.live.postbox import Postbox
from squill.runtime.live.refreshed import RefreshedLeaf
from squill.runtime.machine import one_sink
from squill.runtime.threads import Checkpoint

__all__ = ["LiveShard", "answer_sink"]


def answer_sink(fragment: Fragment, emit: str) -> ClosedSink | ChangesSink:
    """Return what the last fragment's rows go to: closed rows, or changes."""
    return ChangesSink(fragment.root) if emit == "changes" else ClosedSink(fragment.root)


class LiveShard:
    """The operators of a shard, and the rows that wait at its leaves."""

    def __init__(self, fragment: Fragment, shard: int, emit: str, division: Division | None = None) -> None:
        self.fragment = fragment
        self._division = division
        self._holding: list[int] = []
        """Operators, by number, that know of keys of other shards, from before this one was divided off."""
        self.shard = shard
        self._emit = emit
        self._slots = [_Slot() for _ in fragment.outputs]
        self._scatters = [
            ScatterSink(fragment.root, router_for(channel.routing, shard, fragment.root), slot)
            for channel, slot in zip(fragment.outputs, self._slots, strict=True)
        ]
        self._answer = None if fragment.outputs else answer_sink(fragment, emit)
        sinks: list[Operator] = [*self._scatters] if self._answer is None else [self._answer]
        self._pipeline = compile_plan(fragment.root, one_sink(fragment, sinks))
        self._leaves: list[Leaf] = [
            RefreshedLeaf(source) if isinstance(source, RefreshedSource) else leaf_for(source)
            for source, _ in self._pipeline.entries
        ]

    # -- an epoch -------------------------------------------------------------------------------------------

    def read(self, order: ShardOrder) -> None:
        """Take what the order says is new."""
        self.read_live(order)
        self.read_rest(order)

    def read_live(self, order: ShardOrder) -> None:
        """Take what is new of live inputs, so that everybody knows how far these have come."""
        for number, given in order.inputs.items():
            if isinstance(given, LiveRead):
                self._leaves[number].read(given)

    def read_rest(self, order: ShardOrder) -> None:
        """Take all the rest."""
        for number, given in order.inputs.items():
            if not isinstance(given, LiveRead):
                self._leaves[number].read(given)

    @property
    def seen(self) -> dict[int, Seen]:
        """How far each live input has come by what this shard has read of it, by leaf."""
        return {number: Seen(clock=leaf.clock, peaks=leaf.peaks) for number, leaf in self._live()}

    def has_news(self, order: ShardOrder, until: dict[int, int]) -> bool:
        """Whether `work` would do anything."""
        return any(self._leaves[number].has_news(until.get(number)) for number in order.inputs)

    def tell(self, postbox: Postbox) -> None:
        """Send from now on through this postbox; receivers are told the time that they may know already."""
        for channel, slot in zip(self.fragment.outputs, self._slots, strict=True):
            slot.outbox = postbox.outbox(channel.number)
        for scatter in self._scatters:
            scatter.flush()

    def work(self, order: ShardOrder, until: dict[int, int], postbox: Postbox, checkpoint: Checkpoint) -> Batch | None:
        """Push what was read, always the input that is furthest behind; return rows of the answer, if there are any.

        `until` says of live leaves how far all shards together have come, where that is known.
        """
        self.tell(postbox)
        entries = [entry for _, entry in self._pipeline.entries]
        inputs = [(self._leaves[number].inbox(until.get(number)), entries[number]) for number in order.inputs]
        while inputs:
            current = min(inputs, key=lambda item: item[0].clock)
            inbox, entry = current
            checkpoint()
            batch = inbox.take()
            if batch is not None:
                entry.push(batch)
            entry.advance(inbox.clock)
            if inbox.ended:
                inputs.remove(current)
        for scatter in self._scatters:
            scatter.flush()
        return None if self._answer is None else self._answer.take_rows()

    # -- what is told of it ---------------------------------------------------------------------------------

    def _live(self) -> Sequence[tuple[int, LiveLeaf]]:
        return [(number, leaf) for number, leaf in enumerate(self._leaves) if isinstance(leaf, LiveLeaf)]

    @property
    def offsets(self) -> dict[int, object]:
        """The offsets after what was read, by leaf, of inputs that say so only then."""
        return {number: leaf.offsets for number, leaf in self._live() if leaf.offsets is not None}

    @property
    def rows_read(self) -> int:
        """How many live rows were read in this epoch."""
        return sum(leaf.rows_read for _, leaf in self._live())

    def take_late(self) -> dict[int, Late]:
        """Return the late rows of this epoch, by leaf."""
        found = {number: leaf.take_late() for number, leaf in self._live()}
        return {number: late for number, late in found.items() if late is not None}

    @property
    def state_rows(self) -> int:
        return self._pipeline.state_rows

    def copy(self) -> LiveShard:
        """Return a shard in the same state, which may go another way."""
        made = LiveShard(self.fragment, self.shard, self._emit, self._division)
        made.load(self.save())
        return made

    # -- state ------------------------------------------------------------------------------------------------

    def save(self) -> OperatorState:
        names = [operator.node.name for operator in self._pipeline.operators] + ["results"]
        saved = zip(names, self._pipeline.save(), strict=True)
        return {
            "operators": {f"{number}:{name}": state for number, (name, state) in enumerate(saved)},
            "scatters": [scatter.save() for scatter in self._scatters],
            "leaves": [leaf.save() for leaf in self._leaves],
            "holding": self._holding,
        }

    def load(self, state: OperatorState) -> None:
        self._sieve(state.get("holding", []))
        self._pipeline.load(list(state["operators"].values()))
        for scatter, saved in zip(self._scatters, state["scatters"], strict=True):
            scatter.load(saved)
        for leaf, saved in zip(self._leaves, state["leaves"], strict=True):
            leaf.load(saved)

    def load_part(self, state: OperatorState, origin: int) -> None:
        """Take over this shard's part of the state of the shard `origin`, of fewer shards."""
        assert self._division is not None
        shards = Parted(self._pipeline, self._scatters, self._leaves)
        self._sieve(take_part(self._division, shards, state, self._belongs, is_first=self.shard == origin))

    def _belongs(self, keys: tuple[str, ...]) -> Belongs:
        return Belongs(keys, self.shard, self.fragment.layout.shards)

    def _sieve(self, holding: list[int]) -> None:
        """Let rows of this shard's own keys through from now on, and no others."""
        self._holding = holding
        if holding:
            assert self._division is not None
            put_sieves(self._division, self._pipeline, self._belongs, holding)


class _Slot:
    """An outbox that is another one in every epoch."""

    outbox: Outbox = Nowhere()

    def send(self, receivers: Sequence[int], batch: Batch) -> int:
        return self.outbox.send(receivers, batch)

    def tell(self, clocks: Sequence[tuple[Sequence[int], int]]) -> None:
        self.outbox.tell(clocks)

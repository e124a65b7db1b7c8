"""The state of a shard, divided among several: what each part takes over (`plan.division` says why)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from squill.engine.batch import Batch, Int64s
from squill.engine.compile import Entry, Pipeline
from squill.engine.operator import Belongs, Operator, OperatorState
from squill.errors import InternalError
from squill.exchange.scatter import ScatterSink
from squill.plan.division import Division, Lives
from squill.plan.node import Node
from squill.runtime.live.leaves import Leaf
from squill.time import MINUS_INFINITY

__all__ = ["Nowhere", "Parted", "put_sieves", "take_part"]

BelongsBy = Callable[[tuple[str, ...]], Belongs]
"""Says by which key columns rows belong to a shard."""


@dataclass(frozen=True)
class Parted:
    """What a shard is made of; it is new."""

    pipeline: Pipeline
    scatters: Sequence[ScatterSink]
    leaves: Sequence[Leaf]


def take_part(
    division: Division, shard: Parted, state: OperatorState, belongs: BelongsBy, *, is_first: bool
) -> list[int]:
    """Give a shard its part of a state; return the operators, by number, that still know of other shards' keys."""
    saved = list(state["operators"].values())
    operators = [*shard.pipeline.operators, shard.pipeline.sink]
    is_whole = [*division.is_whole, division.answer.is_known]
    inputs = [*division.inputs, (division.answer,)]
    taken: set[int] = set()
    holding: list[int] = []
    for number, (operator, content) in enumerate(zip(operators, saved, strict=True)):
        if not (is_whole[number] or is_first):
            continue
        operator.load(content)
        taken.add(id(operator))
        if is_whole[number] and any(lives.keys for lives in inputs[number]):
            mine = [belongs(lives.keys) if lives.keys else None for lives in inputs[number]]
            if not operator.keep(mine):
                holding.append(number)
    if division.answer.is_known or is_first:
        for scatter, content in zip(shard.scatters, state["scatters"], strict=True):
            scatter.load(content)
            taken.add(id(scatter))
    _take_leaves(division, shard, state["leaves"], belongs, is_first=is_first)
    _tell_the_time(operators, taken)
    return holding


def _take_leaves(
    division: Division, shard: Parted, saved: Sequence[OperatorState], belongs: BelongsBy, *, is_first: bool
) -> None:
    numbers = [number for number, item in enumerate(shard.pipeline.operators) if isinstance(item, Entry)]
    for leaf, content, number in zip(shard.leaves, saved, numbers, strict=True):
        lives = division.outputs[number]
        leaf.load(content)
        if lives.keys:
            leaf.keep(belongs(lives.keys))
        elif lives == Lives() and not is_first:
            leaf.clear()


def _tell_the_time(operators: Sequence[Operator], taken: set[int]) -> None:
    """Bring operators that begin empty to the time that those before them have told."""
    for operator in operators:
        if id(operator) in taken and operator.clock > MINUS_INFINITY:
            for consumer, port in operator.consumers:
                if id(consumer) not in taken:
                    consumer.advance(operator.clock, port)


class Sieve(Operator):
    """Lets a shard's own rows through; an event's rows all pass or none does, as in `Where`."""

    demands = None

    def __init__(self, node: Node, belongs: Belongs, consumer: tuple[Operator, int]) -> None:
        super().__init__(node)
        self._belongs = belongs
        self.consumers = [consumer]

    def push(self, batch: Batch, port: int = 0) -> None:
        if len(batch):
            self.emit(batch.filter(self._belongs(batch.columns)))

    def advance(self, t: int, port: int = 0) -> None:
        ((consumer, its_port),) = self.consumers
        consumer.advance(t, its_port)

    def close_rows(self, ids: Int64s, ends: Int64s, port: int = 0) -> None:
        ((consumer, its_port),) = self.consumers
        consumer.close_rows(ids, ends, its_port)


def put_sieves(division: Division, pipeline: Pipeline, belongs: BelongsBy, holding: Collection[int]) -> None:
    """Let nothing that comes of other shards' keys, of which `holding` know, reach who has forgotten them."""
    numbers = {id(operator): number for number, operator in enumerate(pipeline.operators)}
    may_give = set(holding)
    for number, operator in enumerate(pipeline.operators):
        for consumer, _ in operator.consumers if number in may_give else ():
            other = numbers.get(id(consumer))
            if other is not None and division.is_whole[other] and not consumer.node.keeps_state:
                may_give.add(other)  # it hands on what it is given
    for number in may_give:
        operator, keys = pipeline.operators[number], division.outputs[number].keys
        operator.consumers = [
            way if numbers.get(id(way[0])) in may_give else (Sieve(operator.node, belongs(keys), way), 0)
            for way in operator.consumers
        ]


class Nowhere:
    """Where a shard sends before it is given a postbox: it has no rows then, and nobody asks it for the time."""

    def send(self, receivers: Sequence[int], batch: Batch) -> int:
        raise InternalError("rows are sent before there is a way for them")

    def tell(self, clocks: Sequence[tuple[Sequence[int], int]]) -> None:
        """Receivers are told once there is a postbox."""

"""Plan → running operators: one operator per node, wired from sources to sink.

A node that is used twice becomes one operator with two consumers.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Self

from squill.engine import operators as operator_modules
from squill.engine.operator import EDGES, NUMBERED, Operator, go_on, operator_for
from squill.plan.node import Node, walk
from squill.plan.nodes import Source
from squill.plan.reading_order import reading_order

__all__ = ["Pipeline", "compile_plan"]


@cache
def load_operators() -> None:
    """Import every operator module, which registers its operator."""
    for module in pkgutil.walk_packages(operator_modules.__path__, operator_modules.__name__ + "."):
        importlib.import_module(module.name)


class Entry(Operator):
    """The head of a source: ingress pushes here, consumers hang below."""

    demands = EDGES

    def push(self, batch: object, port: int = 0) -> None:
        self.emit(batch)  # type: ignore[arg-type]

    def keep(self, belongs: object) -> bool:
        return True


class Pipeline:
    """The operators of one plan: `entries` by source node, all `operators` in plan order, and the sink.

    In context its operators are gone in the end; the sink has what they gave.
    """

    def __init__(self, root: Node, sink: Operator, checkpoint: Callable[[], None] = go_on) -> None:
        load_operators()
        self.root = root
        self.sink = sink
        self._checkpoint = checkpoint
        self.entries: list[tuple[Source, Entry]] = []
        self.operators: list[Operator] = []
        self._by_node: dict[int, Operator] = {}
        for node in walk(root):
            self._add(node)
        self._by_node[id(root)].consumers.append((sink, 0))
        self._settle_demands()

    def _add(self, node: Node) -> None:
        operator: Operator
        if isinstance(node, Source):
            operator = Entry(node)
            self.entries.append((node, operator))
        else:
            operator = operator_for(node)
        operator.checkpoint = self._checkpoint
        for port, parent in enumerate(node.inputs):
            self._by_node[id(parent)].consumers.append((operator, port))
        self._by_node[id(node)] = operator
        self.operators.append(operator)

    def _settle_demands(self) -> None:
        """Tell every operator how its consumers want ends; consumers come later in plan order."""
        for operator in reversed(self.operators):
            wishes = {consumer.demands_on(port) or consumer.demand for consumer, port in operator.consumers}
            demand = wishes.pop() if len(wishes) == 1 else EDGES
            if demand == NUMBERED and not (operator.numbers_rows or operator.demands is None):
                demand = EDGES
            operator.demand = demand

    @property
    def in_reading_order(self) -> list[int]:
        """The places of the entries, those first whose rows others wait for."""
        order = {id(source): rank for rank, source in enumerate(reading_order(self.root))}
        return sorted(range(len(self.entries)), key=lambda place: order[id(self.entries[place][0])])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for operator in self.operators:
            operator.let_go()

    def save(self) -> list[object]:
        """Return the state of every operator and the sink, in plan order."""
        return [operator.save() for operator in (*self.operators, self.sink)]

    def load(self, states: list[object]) -> None:
        for operator, state in zip((*self.operators, self.sink), states, strict=True):
            operator.load(state)  # type: ignore[arg-type]

    @property
    def state_rows(self) -> int:
        return sum(operator.state_rows for operator in self.operators)


def compile_plan(root: Node, sink: Operator, checkpoint: Callable[[], None] = go_on) -> Pipeline:
    """Return the plan's operators, wired and ready to be pushed to; `checkpoint` raises when they are to stop."""
    return Pipeline(root, sink, checkpoint)

"""How much memory an operator holds: everything that can be reached from it, dead or alive, used or spare."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from squill.engine.batch import Batch
from squill.engine.compile import Pipeline
from squill.engine.key_table import KeyTable
from squill.engine.operator import Operator
from squill.plan.expressions import Expression
from squill.plan.node import Node
from squill.plan.schema import Schema

__all__ = ["footprint", "tables_of"]

PER_ITEM = 64
"""What an entry of a Python container is taken to cost."""


def footprint(pipeline: Pipeline) -> int:
    """Return the bytes of all arrays and columns below the operators, and of their containers."""
    return sum(_size(item) for item in _reached(pipeline))


def tables_of(pipeline: Pipeline) -> list[KeyTable]:
    """Return every table of keys below the operators."""
    return [item for item in _reached(pipeline) if isinstance(item, KeyTable)]


def _size(item: Any) -> int:
    if isinstance(item, np.ndarray):
        # A view holds the memory of what it looks into.
        base = item
        while isinstance(base.base, np.ndarray):
            base = base.base
        return int(base.nbytes)
    if isinstance(item, pl.Series):
        return int(item.estimated_size())
    if isinstance(item, (dict, list, tuple, set, frozenset, deque, bytes, str)):
        return PER_ITEM * len(item) if not isinstance(item, (bytes, str)) else len(item)
    return 0


def _reached(pipeline: Pipeline) -> Iterator[Any]:
    seen: set[int] = set()
    # The plan is no state, and the sink is the test's.
    stack: list[Any] = [part for operator in pipeline.operators for part in _parts(operator)]
    while stack:
        item = stack.pop()
        if id(item) in seen or _is_no_state(item):
            continue
        seen.add(id(item))
        yield item
        stack.extend(_parts(item))


def _is_no_state(item: object) -> bool:
    return isinstance(item, (Operator, Node, Expression, Schema, type, pl.DataType, pl.Expr)) or callable(item)


def _parts(item: Any) -> list[Any]:
    if isinstance(item, (np.ndarray, pl.Series, str, bytes, int, float)):
        return []
    if isinstance(item, dict):
        return [*item.keys(), *item.values()]
    if isinstance(item, (list, tuple, set, frozenset, deque)):
        return list(item)
    if isinstance(item, Batch):
        return [item.sync, item._other, item.ids, *item.columns.values()]
    names = [name for kind in type(item).__mro__ for name in getattr(kind, "__slots__", ())]
    slots = [getattr(item, name) for name in names if hasattr(item, name)]
    return [*getattr(item, "__dict__", {}).values(), *slots]

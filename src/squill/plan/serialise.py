"""Plans as bytes, for the processes of one cluster.

The bytes are a pickle: they may carry user functions, and are read by the same versions of Squill and Python
that wrote them. A form that outlives versions is for plans without code, and is text.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import fields
from typing import Any

import cloudpickle

from squill.errors import PlanError
from squill.plan.expressions import Expression
from squill.plan.node import Node

__all__ = ["dumps", "loads"]


class _PlanPickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Leaves out what nodes and expressions computed from their fields and remember; ``met`` are nodes come to."""

    def __init__(self, sink: io.BytesIO) -> None:
        super().__init__(sink, protocol=pickle.HIGHEST_PROTOCOL)
        self.met: list[Node] = []

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Node):
            self.met.append(obj)
        if isinstance(obj, (Node, Expression)):
            return _rebuild, (type(obj), {entry.name: getattr(obj, entry.name) for entry in fields(obj)})
        return super().reducer_override(obj)


def _rebuild(kind: type[Any], values: dict[str, Any]) -> Any:
    return kind(**values)


def dumps(value: object) -> bytes:
    """Return a plan, or anything that holds plans, as bytes; functions and lambdas are carried by value.

    What a function of the user's refers to may refuse that in any way; the error names the operator that has it.
    """
    buffer = io.BytesIO()
    pickler = _PlanPickler(buffer)
    try:
        pickler.dump(value)
    except Exception as error:
        for node in reversed(pickler.met):  # what it reads before the node itself
            if not _is_own(node):
                raise PlanError(
                    f"{node.name}({node.details()}): its Python objects cannot be sent to other processes: {error}",
                    "open files, connections, locks and sessions in the function that uses them, not outside.",
                ) from error
        raise
    return buffer.getvalue()


def _is_own(node: Node) -> bool:
    """Whether what a node itself has, without the nodes that it reads, can be bytes."""
    try:
        for entry in fields(node):
            value = getattr(node, entry.name)
            if not isinstance(value, Node):
                _PlanPickler(io.BytesIO()).dump(value)
    except Exception:  # noqa: BLE001  (what refuses to be pickled does so in any way)
        return False
    return True


def loads(data: bytes) -> Any:
    """Return what `dumps` was given. The bytes must come from our own driver: a pickle can run code."""
    return pickle.loads(data)  # noqa: S301  (written by this cluster's driver)

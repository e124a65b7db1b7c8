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
    """Leaves out what nodes and expressions computed from their fields and remember.

    ``nodes``  those that it has met.
    """

    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self.nodes: list[Node] = []

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Node):
            self.nodes.append(obj)
        if isinstance(obj, (Node, Expression)):
            return _rebuild, (type(obj), {entry.name: getattr(obj, entry.name) for entry in fields(obj)})
        return super().reducer_override(obj)


def _rebuild(kind: type[Any], values: dict[str, Any]) -> Any:
    return kind(**values)


def dumps(value: object) -> bytes:
    """Return a plan, or anything that holds plans, as bytes; functions and lambdas are carried by value.

    Raises
    ------
    PlanError
        A function or object of the user's has no such form.
    """
    buffer = io.BytesIO()
    pickler = _PlanPickler(buffer)
    try:
        pickler.dump(value)
    except Exception as error:  # a user's object may refuse to be pickled in any way
        where = next((node.name for node in pickler.nodes if not _has_form(node)), "a function")
        raise PlanError(
            f"{where}: it cannot be sent to other processes: {type(error).__name__}: {error}",
            "a function or object of yours holds what stays in its process, such as a lock, a connection or an open "
            "file: make that inside the function, when it is called.",
        ) from error
    return buffer.getvalue()


def _has_form(node: Node) -> bool:
    """Whether the node can be pickled, whatever it stands on."""
    values = [value for entry in fields(node) if not _holds_node(value := getattr(node, entry.name))]
    try:
        _PlanPickler(io.BytesIO()).dump(values)
    except Exception:  # noqa: BLE001  (as above)
        return False
    return True


def _holds_node(value: object) -> bool:
    return isinstance(value, Node) or (isinstance(value, tuple) and any(isinstance(item, Node) for item in value))


def loads(data: bytes) -> Any:
    """Return what `dumps` was given. The bytes must come from our own driver: a pickle can run code."""
    return pickle.loads(data)  # noqa: S301  (written by this cluster's driver)

"""Plans as bytes, for the processes of one cluster.

The bytes are a pickle: they may carry user functions, and are read by the same versions of Squill and Python
that wrote them. A form that outlives versions is for plans without code, and is text.
"""

from __future__ import annotations

import io
import pickle
import sys
from dataclasses import fields
from types import FunctionType
from typing import Any, NamedTuple

import cloudpickle

from squill.errors import PlanError
from squill.plan.expressions import Expression
from squill.plan.node import Node

__all__ = ["Packed", "dumps", "loads", "packed"]

OURS = frozenset({"squill", "polars", "pyarrow", "numpy"})
"""Packages whose functions and classes are no code of the user's, beside Python's own."""


class Packed(NamedTuple):
    """Something as bytes, and whether functions or classes of the user's are in it."""

    content: bytes
    holds_code: bool


class _PlanPickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Leaves out what nodes and expressions computed from their fields and remember.

    ``nodes``, ``functions``  those that were begun.
    ``holds_code``  whether a function or a class of the user's was among all that was begun.
    """

    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self.nodes: list[Node] = []
        self.functions: list[FunctionType] = []
        self.holds_code = False

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Node):
            self.nodes.append(obj)
        elif isinstance(obj, FunctionType):
            self.functions.append(obj)
        if isinstance(obj, (FunctionType, type)) and not _is_ours(obj):
            self.holds_code = True
        if isinstance(obj, (Node, Expression)):
            return _rebuild, (type(obj), {entry.name: getattr(obj, entry.name) for entry in fields(obj)})
        return super().reducer_override(obj)


def _is_ours(obj: FunctionType | type) -> bool:
    package = str(obj.__module__).partition(".")[0]
    return package in OURS or package in sys.stdlib_module_names


def _rebuild(kind: type[Any], values: dict[str, Any]) -> Any:
    return kind(**values)


def dumps(value: object) -> bytes:
    """Return a plan, or anything that holds plans, as bytes; functions and lambdas are carried by value.

    Raises
    ------
    PlanError
        A function or object of the user's has no such form.
    """
    return packed(value).content


def packed(value: object) -> Packed:
    """Return what `dumps` does, and what it has found."""
    buffer = io.BytesIO()
    pickler = _PlanPickler(buffer)
    try:
        pickler.dump(value)
    except Exception as error:  # a user's object may refuse to be pickled in any way
        raise _refused(pickler, error) from error
    return Packed(buffer.getvalue(), pickler.holds_code)


def _refused(pickler: _PlanPickler, error: Exception) -> PlanError:
    """Return the error for what has no form as bytes, with the first operator and function that have none either."""
    node = next((node for node in pickler.nodes if not _has_form(_own_values(node))), None)
    function = next((function for function in pickler.functions if not _has_form(function)), None)
    what = "an object" if function is None else f"the function {_place_of(function)}"
    where = "" if node is None else f"{node.name}: "
    said = next(iter(str(error).splitlines()), "")
    return PlanError(
        f"{where}{what} cannot be sent to other processes: {type(error).__name__}: {said}",
        "let it hold values only, a number in place of a stream or a cluster; make what stays in its process, such as "
        "a lock, a connection or an open file, inside the function when it is called.",
    )


def _place_of(function: FunctionType) -> str:
    code = function.__code__
    return f"{function.__name__} (line {code.co_firstlineno} of {code.co_filename})"


def _own_values(node: Node) -> list[object]:
    """Return what the node holds beside the nodes that it stands on."""
    return [value for entry in fields(node) if not _holds_node(value := getattr(node, entry.name))]


def _holds_node(value: object) -> bool:
    return isinstance(value, Node) or (isinstance(value, tuple) and any(isinstance(item, Node) for item in value))


def _has_form(value: object) -> bool:
    try:
        _PlanPickler(io.BytesIO()).dump(value)
    except Exception:  # noqa: BLE001  (as above)
        return False
    return True


def loads(data: bytes) -> Any:
    """Return what `dumps` was given. The bytes must come from our own driver: a pickle can run code."""
    return pickle.loads(data)  # noqa: S301  (written by this cluster's driver)

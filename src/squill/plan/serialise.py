"""Plans as bytes, for the processes of one cluster.

The bytes are a pickle: they may carry user functions, and are read by the same versions of Squill and Python
that wrote them. A form that outlives versions is for plans without code, and is text.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import fields
from types import FunctionType
from typing import IO, Any

import cloudpickle

from squill.errors import PlanError
from squill.plan.expressions import Expression
from squill.plan.node import Node

__all__ = ["dumps", "loads"]


class _PlanPickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Leaves out what nodes and expressions computed from their fields and remember.

    ``functions``  those that were begun.
    """

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.functions: list[FunctionType] = []

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, FunctionType):
            self.functions.append(obj)
        if isinstance(obj, (Node, Expression)):
            return _rebuild, (type(obj), {entry.name: getattr(obj, entry.name) for entry in fields(obj)})
        return super().reducer_override(obj)


def _rebuild(kind: type[Any], values: dict[str, Any]) -> Any:
    return kind(**values)


def dumps(value: object) -> bytes:
    """Return a plan, or anything that holds plans, as bytes; functions and lambdas are carried by value."""
    buffer = io.BytesIO()
    pickler = _PlanPickler(buffer)
    try:
        pickler.dump(value)
    except Exception:
        for function in pickler.functions:  # the first one that fails by itself is at fault
            _check_leaves(function)
        raise
    return buffer.getvalue()


def _check_leaves(function: FunctionType) -> None:
    try:
        _PlanPickler(io.BytesIO()).dump(function)
    except Exception as error:
        code = function.__code__
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise PlanError(
            f"the function {function.__name__} (line {code.co_firstlineno} of {code.co_filename}) holds what cannot "
            f"leave this process: {said}",
            "let it hold values only, a number in place of a stream or a cluster, and open by itself what it uses.",
        ) from error


def loads(data: bytes) -> Any:
    """Return what `dumps` was given. The bytes must come from our own driver: a pickle can run code."""
    return pickle.loads(data)  # noqa: S301  (written by this cluster's driver)

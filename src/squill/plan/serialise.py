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

from squill.plan.expressions import Expression
from squill.plan.node import Node

__all__ = ["dumps", "loads"]


class _PlanPickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Leaves out what nodes and expressions computed from their fields and remember."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (Node, Expression)):
            return _rebuild, (type(obj), {entry.name: getattr(obj, entry.name) for entry in fields(obj)})
        return super().reducer_override(obj)


def _rebuild(kind: type[Any], values: dict[str, Any]) -> Any:
    return kind(**values)


def dumps(value: object) -> bytes:
    """Return a plan, or anything that holds plans, as bytes; functions and lambdas are carried by value."""
    buffer = io.BytesIO()
    _PlanPickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


def loads(data: bytes) -> Any:
    """Return what `dumps` was given. The bytes must come from our own driver: a pickle can run code."""
    return pickle.loads(data)  # noqa: S301  (written by this cluster's driver)

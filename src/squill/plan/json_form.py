"""Plans as text: a form that can be read, kept and sent, and that runs nothing when it is read.

A plan is the list of its nodes, inputs first, each its kind and its fields. Data of the plan itself (a frame, single
events) is in the text; files are named. A user's function is code, which is a pickle: it is neither written nor read
unless that is asked for, since who reads it runs it. Expressions are checked as those that a user writes, before
Polars sees them, because they too could hold code.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import io
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import polars as pl

from squill.errors import NotRowWiseError, PlanError
from squill.plan import events, nodes, serialise
from squill.plan.aggregates import BoundAggregate
from squill.plan.assignment import KINDS as ASSIGNMENTS
from squill.plan.confidence import Estimated
from squill.plan.expression_text import LostLiteralError, deserialise, dump_tree, load_tree
from squill.plan.expressions import Expression
from squill.plan.matching import Matching
from squill.plan.node import Node, walk
from squill.plan.nodes import patterns
from squill.plan.nodes.live import LiveSource, RefreshedSource
from squill.plan.nodes.tables import CachedSource, ElsewhereSource, TableSource
from squill.plan.properties import Properties, WindowShape
from squill.plan.row_wise import first_offence
from squill.plan.schema import Schema
from squill.time import TimeType

__all__ = ["from_json", "to_json"]

FORM = 1
"""The version of the form; raised when a text of before could be read wrongly."""
Json = Any

VALUES: tuple[type, ...] = (
    BoundAggregate, Estimated, Expression, Matching, Properties, TimeType, WindowShape,
    nodes.Disorder, nodes.FilePart, nodes.Lifetime, nodes.Promises, nodes.Stored,
    patterns.Element, patterns.PatternTree, patterns.Register,
    events.EndEdge, events.Interval, events.Point, events.Punctuation, events.StartEdge,
    *ASSIGNMENTS.values(),
)  # fmt: skip
"""What fields of nodes are made of, beside plain values."""
_NODES: list[type[Any]] = [getattr(nodes, name) for name in nodes.__all__]
KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (*_NODES, *VALUES) if kind not in (nodes.PushSource, nodes.Source, nodes.TwoInputs)
}
OF_A_PROCESS: dict[type[Node], str] = {
    nodes.PushSource: "a pushed source belongs to the program that pushes",
    TableSource: "a Spark DataFrame belongs to its session",
    CachedSource: "rows in Spark's cache belong to its session",
    ElsewhereSource: "rows of another cluster belong to that cluster",
    LiveSource: "a live source belongs to the cluster that follows it",
    RefreshedSource: "a table that is read again belongs to the cluster that reads it",
}
IDENTITIES = {"frame_id": ("frame",), "events_id": ("events",), "function_id": ("function", "make")}
"""Fields that tell objects apart: the address of one of these fields, so never written."""

PLAIN = (bool, int, str)
SPECIAL_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json(root: Node, *, allow_code: bool = False) -> str:
    """Return the plan as text; with `allow_code` a user's functions are in it, else they are refused."""
    listed = list(walk(root))
    writer = _Writer({id(node): number for number, node in enumerate(listed)}, allow_code=allow_code)
    return json.dumps({"squill_plan": FORM, "nodes": [writer.node(node) for node in listed]}, allow_nan=False)


def from_json(text: str, *, allow_code: bool = False) -> Node:
    """Return the plan that `to_json` was given; code in it is refused unless `allow_code` says that it is trusted."""
    try:
        content = json.loads(text)
    except (ValueError, TypeError) as error:
        raise _no_plan(str(error)) from error
    if not isinstance(content, dict) or "squill_plan" not in content:
        raise _no_plan("it has no entry 'squill_plan'")
    if content["squill_plan"] != FORM:
        raise PlanError(
            f"from_json: the plan is in form {content['squill_plan']!r}, this version of Squill reads form {FORM}",
            "read it with the version of Squill that wrote it.",
        )
    reader = _Reader(allow_code=allow_code)
    try:
        for item in content["nodes"]:
            reader.node(item)
        root = reader.nodes[-1]
        for node in walk(root):
            _ = node.schema, node.time, node.properties
    except PlanError:
        raise
    except (
        KeyError, IndexError, TypeError, ValueError, AttributeError, AssertionError, InvalidOperation,
        binascii.Error, pl.exceptions.PolarsError, LostLiteralError, OSError,
    ) as error:  # fmt: skip
        raise _no_plan(f"{type(error).__name__}: {error}") from error
    return root


def _no_plan(reason: str) -> PlanError:
    return PlanError(f"from_json: the text is no plan: {reason}", "give what stream.to_json() returned.")


class _Writer:
    def __init__(self, numbers: Mapping[int, int], *, allow_code: bool) -> None:
        self._numbers = numbers
        self._allow_code = allow_code

    def node(self, node: Node) -> Json:
        if type(node) in OF_A_PROCESS:
            raise PlanError(
                f"to_json: {node.name}({node.details()}) cannot be written: {OF_A_PROCESS[type(node)]}",
                "write the plan over a file or a frame.",
            )
        return {"kind": type(node).__name__, **self._fields(node, node)}

    def _fields(self, value: Any, node: Node) -> Json:
        return {
            entry.name: self._value(getattr(value, entry.name), node)
            for entry in fields(value)
            if entry.name not in IDENTITIES
        }

    def _value(self, value: Any, node: Node) -> Json:
        if value is None or type(value) in PLAIN:
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"$float": json.dumps(value)}
        if isinstance(value, (tuple, list)):
            return [self._value(item, node) for item in value]
        if isinstance(value, Node):
            return {"$node": self._numbers[id(value)]}
        if isinstance(value, Expression):
            # JSON itself has no NaN and no infinities, which a literal may be.
            shown = load_tree(value.serialised) if _is_finite(value.serialised) else value.serialised
            return {"$expression": shown, "name": value.name, "dtype": _dtype_tree(value.dtype), "roots": value.roots}
        if isinstance(value, pl.DataType):
            return {"$dtype": _dtype_tree(value)}
        if isinstance(value, (Schema, Mapping)):
            pairs = [[self._value(key, node), self._value(item, node)] for key, item in value.items()]
            return {"$schema" if isinstance(value, Schema) else "$map": pairs}
        if type(value).__name__ in KINDS and is_dataclass(value):
            return {"$kind": type(value).__name__, **self._fields(value, node)}
        return self._packed(value, node)

    def _packed(self, value: Any, node: Node) -> Json:
        for kind, (name, write, _) in PACKED.items():
            if type(value) is kind:
                return {name: write(value)}
        if not self._allow_code:
            raise PlanError(
                f"to_json: {node.name}({node.details()}) holds Python code, which text cannot show",
                "to_json(allow_code=True) adds it as a pickle; from_json must allow it too.",
            )
        return {"$code": _as_text(serialise.dumps(value))}


class _Reader:
    def __init__(self, *, allow_code: bool) -> None:
        self._allow_code = allow_code
        self.nodes: list[Node] = []

    def node(self, item: Json) -> None:
        kind = _kind_of(item.pop("kind"))
        if not issubclass(kind, Node):
            raise PlanError(f"from_json: {kind.__name__} is no node of a plan", "give what stream.to_json() returned.")
        self.nodes.append(self._made(kind, item))

    def _made(self, kind: type[Any], item: dict[str, Json]) -> Any:
        values = {name: self._value(value) for name, value in item.items()}
        for entry in fields(kind):
            if entry.name in IDENTITIES:
                values[entry.name] = id(next(values[name] for name in IDENTITIES[entry.name] if name in values))
        return kind(**values)

    def _value(self, value: Json) -> Any:
        if isinstance(value, list):
            return tuple(self._value(item) for item in value)
        if not isinstance(value, dict):
            return value
        match value:
            case {"$node": number}:
                return self.nodes[number]
            case {"$expression": given, "name": name, "dtype": dtype, "roots": roots}:
                return _expression(given, name, _dtype(dtype), tuple(roots))
            case {"$dtype": tree}:
                return _dtype(tree)
            case {"$schema": pairs}:
                return Schema((name, self._value(dtype)) for name, dtype in pairs)
            case {"$map": pairs}:
                return {self._value(key): self._value(item) for key, item in pairs}
            case {"$float": text}:
                return SPECIAL_FLOATS[text]
            case {"$kind": name, **rest}:
                return self._made(_kind_of(name), rest)
            case {"$code": text}:
                return self._code(text)
        (name, content), *others = value.items()
        if others or name not in READERS:
            raise ValueError(f"unknown value {list(value)}")
        return READERS[name](content)

    def _code(self, text: str) -> Any:
        if not self._allow_code:
            raise PlanError(
                "from_json: the plan carries Python code, which would be run",
                "from_json(text, allow_code=True), if you trust where the text comes from.",
            )
        return serialise.loads(base64.b64decode(text))


def _kind_of(name: Json) -> type[Any]:
    kind = KINDS.get(name)
    if kind is None:
        raise PlanError(f"from_json: there is no node or value {name!r}", "read it with the version that wrote it.")
    return kind


def _is_finite(text: str) -> bool:
    return "NaN" not in text and "Infinity" not in text


def _expression(given: Json, name: str, dtype: pl.DataType, roots: tuple[str, ...]) -> Expression:
    tree = load_tree(given) if isinstance(given, str) else given
    offence = first_offence(tree)
    if offence is not None:
        raise NotRowWiseError("from_json", offence, name)
    text = dump_tree(tree)
    if set(deserialise(text).meta.root_names()) != set(roots):
        raise ValueError(f"the columns of expression {name!r} are not {list(roots)}")
    return Expression(text, name, dtype, roots)


def _dtype_tree(dtype: pl.DataType) -> Json:
    """Return a type as Polars writes it; types alone have no such form, but a cast has."""
    return json.loads(pl.lit(None).cast(dtype).meta.serialize(format="json"))["Cast"]["dtype"]["Literal"]


def _dtype(tree: Json) -> pl.DataType:
    cast = {"expr": {"Literal": {"Scalar": {"Null": "Null"}}}, "dtype": {"Literal": tree}, "options": "Strict"}
    return pl.select(pl.Expr.deserialize(io.StringIO(json.dumps({"Cast": cast})), format="json")).dtypes[0]


def _as_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _frame_text(frame: pl.DataFrame) -> str:
    buffer = io.BytesIO()
    frame.write_ipc(buffer, compression="zstd")
    return _as_text(buffer.getvalue())


Pack = tuple[str, Callable[[Any], Json], Callable[[Any], Any]]
PACKED: dict[type, Pack] = {
    pl.DataFrame: ("$frame", _frame_text, lambda text: pl.read_ipc(base64.b64decode(text))),
    bytes: ("$bytes", _as_text, base64.b64decode),
    Decimal: ("$decimal", str, Decimal),
    dt.date: ("$date", dt.date.isoformat, dt.date.fromisoformat),
    dt.datetime: ("$datetime", dt.datetime.isoformat, dt.datetime.fromisoformat),
    dt.time: ("$time", dt.time.isoformat, dt.time.fromisoformat),
    dt.timedelta: (
        "$duration",
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda parts: dt.timedelta(*parts),
    ),
}
"""How values that JSON lacks are written and read, by type."""
READERS: dict[str, Callable[[Any], Any]] = {name: read for name, _, read in PACKED.values()}

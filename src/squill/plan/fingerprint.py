"""What a plan is, as data: enough to tell whether saved state belongs to it, and where two plans part.

A node is described by its kind and its fields. Data is not part of a plan (the rows of a frame have been read by
the time that state is saved), code is: a function counts by its bytecode, constants, names, defaults, the values
it closes over and the globals it uses, a class by its methods.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import json
import sys
import sysconfig
import types
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from typing import Any

import polars as pl

from squill.plan.explain import node_line
from squill.plan.node import Node, walk

__all__ = ["difference", "fingerprint"]

Json = Any
DATA = ("frame", "blocks", "events", "parts", "source", "live")
PLAIN = (bool, int, float, complex, str, bytes)


def fingerprint(root: Node) -> list[Json]:
    """Return the plan's nodes in order: what each says of itself, its inputs, and a hash of what it is.

    Examples
    --------
    >>> import squill as sq
    >>> stream = sq.from_frame({"t": [1], "x": [2]}, start="t")
    >>> fingerprint(stream.count().plan) == fingerprint(stream.count().plan)
    True
    >>> difference(fingerprint(stream.count().plan), fingerprint(stream.sum("x").plan))[0][:28]
    'aggregate(count=count())  ->'
    """
    nodes = list(walk(root))
    number = {id(node): i for i, node in enumerate(nodes)}
    return [
        {"node": node_line(node), "inputs": [number[id(parent)] for parent in node.inputs], "hash": _hash(node)}
        for node in nodes
    ]


def difference(stored: list[Json], current: list[Json]) -> tuple[str, str] | None:
    """Return the first node in which two plans differ, as each of them says it; None when they are the same."""
    for there, here in zip(stored, current, strict=False):
        if (there["hash"], there["inputs"]) != (here["hash"], here["inputs"]):
            return there["node"], here["node"]
    if len(stored) != len(current):
        longer = stored if len(stored) > len(current) else current
        extra = longer[min(len(stored), len(current))]["node"]
        return (extra, "nothing") if longer is stored else ("nothing", extra)
    return None


def _hash(node: Node) -> str:
    described = {
        entry.name: _describe(getattr(node, entry.name), ())
        for entry in fields(node)
        if entry.name not in (*DATA, *node.may_change)
        and not entry.name.endswith("_id")
        and not _is_input(getattr(node, entry.name))
    }
    whole = [type(node).__name__, described, _describe(node.schema, ()), _describe(node.time, ())]
    text = json.dumps(whole, sort_keys=True)
    # The name of a user aggregate's column comes from where the aggregate lies in memory.
    for i, call in enumerate(getattr(node, "calls", ())):
        text = text.replace(call.placeholder, f"#{i}")
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _is_input(value: object) -> bool:
    return isinstance(value, Node) or (isinstance(value, tuple) and len(value) > 0 and isinstance(value[0], Node))


def _describe(value: Any, above: tuple[int, ...]) -> Json:
    """Return JSON that is the same in every process for values that do the same."""
    if value is None or isinstance(value, PLAIN):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, pl.DataType):
        return [repr(value), value.categories.to_list() if isinstance(value, pl.Enum) else None]
    if isinstance(value, pl.Expr):
        return value.meta.serialize(format="json")
    if isinstance(value, Mapping):
        return [[_describe(key, above), _describe(item, above)] for key, item in value.items()]
    if isinstance(value, AbstractSet):
        return sorted(json.dumps(_describe(item, above), sort_keys=True) for item in value)
    if isinstance(value, (tuple, list, range)):
        return [_describe(item, above) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {entry.name: _describe(getattr(value, entry.name), above) for entry in fields(value)}
    if isinstance(value, types.ModuleType):
        return value.__name__
    if id(value) in above:
        return "itself"
    return _describe_code_of(value, (*above, id(value)))


def _describe_code_of(value: Any, above: tuple[int, ...]) -> Json:
    value = getattr(value, "py_func", value)
    if isinstance(value, functools.partial):
        return [_describe(item, above) for item in (value.func, value.args, value.keywords)]
    if isinstance(value, types.MethodType):
        return [_describe(value.__func__, above), _kind(type(value.__self__))]
    if isinstance(value, types.FunctionType):
        return _describe_function(value, above)
    if isinstance(value, type):
        return [_kind(value), _methods(value, above)]
    if isinstance(value, types.BuiltinFunctionType):
        return _kind(value)
    # Of other objects only the kind is known: their text may hold an address.
    return _kind(type(value))


def _kind(value: Any) -> str:
    return f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', None)}"


def _methods(kind: type, above: tuple[int, ...]) -> Json:
    """Return the code of a class; its other attributes may be caches, and what the plan uses of them it holds."""
    found: list[Json] = []
    for base in kind.__mro__:
        if _is_of_a_library(base):
            continue
        for name, item in sorted(vars(base).items()):
            if isinstance(item, property):
                parts: tuple[Any, ...] = (item.fget, item.fset)
            else:
                parts = (item.__func__ if isinstance(item, (staticmethod, classmethod)) else item,)
            found += [[name, _describe(part, above)] for part in parts if isinstance(part, types.FunctionType)]
    return found


def _describe_function(function: types.FunctionType, above: tuple[int, ...]) -> Json:
    if _is_of_a_library(function):
        return _kind(function)
    used = sorted(_global_names(function.__code__) & function.__globals__.keys())
    cells = [_cell(cell) for cell in function.__closure__ or ()]
    return [
        _describe_code(function.__code__),
        _describe(function.__defaults__, above),
        _describe(function.__kwdefaults__, above),
        [[name, _describe(function.__globals__[name], above)] for name in used],
        [_describe(value, above) for value in cells],
    ]


def _is_of_a_library(item: types.FunctionType | type) -> bool:
    """Say whether it is an importable function or class of an installed package; its code is not the program's."""
    module = sys.modules.get(item.__module__)
    file = getattr(module, "__file__", None) or ""
    return "site-packages" in file or file.startswith(sysconfig.get_path("stdlib"))


def _cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _describe_code(code: types.CodeType) -> Json:
    constants = [
        _describe_code(item) if isinstance(item, types.CodeType) else _describe(item, ()) for item in code.co_consts
    ]
    shape = [code.co_argcount, code.co_kwonlyargcount, code.co_flags, code.co_names, code.co_varnames, code.co_freevars]
    return [code.co_code.hex(), constants, shape]


def _global_names(code: types.CodeType) -> set[str]:
    names = {item.argval for item in dis.get_instructions(code) if item.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names

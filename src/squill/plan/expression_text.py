"""Polars expressions as text and back, with the literals that Polars' own JSON form loses.

JSON has no NaN and no infinities: Polars writes null in their place, and refuses to read it. The text here
has them, as Python's own JSON does. Their values are found in Polars' binary form, which keeps every bit: the
lost places are filled with numbers that occur nowhere else, and what the real form has where such a number
stands is the literal. Nothing is assumed of the binary form but what is checked: filled in again, it must be the
real one byte by byte.
"""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl

from squill.plan.row_wise import is_byte_string

__all__ = ["LostLiteralError", "conditions_of", "deserialise", "dump_tree", "load_tree", "serialise"]

Tree = Any
FLOAT_PLACES = frozenset({"Float", "Float32", "Float64", "breaks", "abs_tol", "rel_tol"})
"""What stands under these names is a float, or a list of floats."""
WIDTHS = {"Float32": (b"\xca", ">f")}
WIDE = (b"\xcb", ">d")
"""How MessagePack writes a float: its mark, then its bits."""
FIRST_NUMBERS = (5_000_000, 9_000_000, 13_000_000)
"""Stand-ins are whole numbers, exact in 32 bits too; a later row of them when an earlier one is in use."""


class LostLiteralError(ValueError):
    """A literal of the expression has no form that can be kept."""


def serialise(expr: pl.Expr) -> str:
    """Return the expression as text; equal expressions have equal texts.

    Examples
    --------
    >>> serialise(pl.col("x") < float("inf"))
    '{"BinaryExpr":{"left":{"Column":"x"},"op":"Lt","right":{"Literal":{"Dyn":{"Float":Infinity}}}}}'
    """
    tree = load_tree(expr.meta.serialize(format="json"))
    return dump_tree(_recovered(tree, expr) if _places(tree, _is_lost) else tree)


def deserialise(text: str) -> pl.Expr:
    """Return the expression that `serialise` was given."""
    if "NaN" not in text and "Infinity" not in text:
        return _read(text)
    tree = load_tree(text)
    values = _places(tree, _is_not_finite)
    if not values:
        return _read(text)
    form, offsets = _with_stand_ins(tree, _is_not_finite)
    return pl.Expr.deserialize(io.BytesIO(_patched(form, offsets, values)), format="binary")


def load_tree(text: str) -> Tree:
    """Return the text as nested dicts and lists."""
    return json.loads(text)


def conditions_of(tree: Tree) -> Iterator[Tree]:
    """Yield the conditions that all must hold where a filter does.

    Examples
    --------
    >>> [str(deserialise(dump_tree(tree))) for tree in conditions_of(load_tree(serialise(pl.col("x") & pl.col("y"))))]
    ['col("x")', 'col("y")']
    """
    match tree:
        case {"Alias": [inner, _]}:
            yield from conditions_of(inner)
        case {"BinaryExpr": {"left": left, "op": "And", "right": right}}:
            yield from conditions_of(left)
            yield from conditions_of(right)
        case _:
            yield tree


def dump_tree(tree: Tree) -> str:
    """Return the one text of a tree."""
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False)


def _read(text: str) -> pl.Expr:
    return pl.Expr.deserialize(io.StringIO(text), format="json")


def _is_lost(value: object) -> bool:
    return value is None


def _is_not_finite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _places(tree: Tree, wanted: Callable[[object], bool]) -> list[Any]:
    """Return the wanted values at places of floats, in the order in which `_filled` fills them."""
    found: list[Any] = []

    def look(value: object, _name: str) -> object:
        found.append(value)
        return value

    _filled(tree, wanted, look)
    return found


def _filled(tree: Tree, wanted: Callable[[object], bool], fill: Callable[[Any, str], Any], name: str = "") -> Tree:
    """Return the tree with every wanted value at a float's place replaced by ``fill(value, name of the place)``."""
    if isinstance(tree, dict):
        return {key: _filled(value, wanted, fill, key) for key, value in tree.items()}
    if isinstance(tree, list):
        return tree if is_byte_string(tree) else [_filled(value, wanted, fill, name) for value in tree]
    return fill(tree, name) if name in FLOAT_PLACES and wanted(tree) else tree


Offsets = list[tuple[int, str]]
"""Where in a binary form each stand-in's bits begin, and how they are packed."""


def _with_stand_ins(tree: Tree, wanted: Callable[[object], bool]) -> tuple[bytes, Offsets]:
    """Return the binary form of the tree with stand-ins at the wanted places, and where they are in it."""
    for first in FIRST_NUMBERS:
        patterns: list[tuple[bytes, str]] = []

        def fill(_value: object, name: str, first: int = first, patterns: list[Any] = patterns) -> float:
            number = float(first + len(patterns))
            mark, packing = WIDTHS.get(name, WIDE)
            patterns.append((mark + struct.pack(packing, number), packing))
            return number

        text = dump_tree(_filled(tree, wanted, fill))
        try:
            form = _read(text).meta.serialize(format="binary")
        except pl.exceptions.PolarsError as error:
            raise LostLiteralError(str(error)) from error
        if all(form.count(pattern) == 1 for pattern, _ in patterns):
            return form, [(form.index(pattern) + 1, packing) for pattern, packing in patterns]
    raise LostLiteralError("its literals cannot be told apart")


def _patched(form: bytes, offsets: Offsets, values: list[float]) -> bytes:
    patched = bytearray(form)
    for (offset, packing), value in zip(offsets, values, strict=True):
        struct.pack_into(packing, patched, offset, value)
    return bytes(patched)


def _recovered(tree: Tree, expr: pl.Expr) -> Tree:
    """Return the tree with the lost literals' values."""
    real = expr.meta.serialize(format="binary")
    form, offsets = _with_stand_ins(tree, _is_lost)
    copy = bytearray(form)
    values: list[float] = []
    for offset, packing in offsets if len(form) == len(real) else ():
        size = struct.calcsize(packing)
        copy[offset : offset + size] = real[offset : offset + size]
        values.append(*struct.unpack_from(packing, real, offset))
    if bytes(copy) != real or any(map(math.isfinite, values)):
        raise LostLiteralError("its binary form is not the one that is known")
    found = iter(values)
    return _filled(tree, _is_lost, lambda _value, _name: next(found))

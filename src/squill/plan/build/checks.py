"""Checks that several families of nodes share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl
from polars.datatypes import DataType, DataTypeClass

from squill.errors import PlanError, TimeTypeError
from squill.plan.codec import Codec
from squill.plan.expressions import Expression
from squill.plan.node import Node

__all__ = ["check_key_type", "check_same_time", "refuse_lost_codecs", "refuse_object_order", "refuse_objects"]

KEY_TYPES = "integers up to 64 bits, floats, text, binary, Booleans, dates and times, Decimals, Categoricals and Enums"
NO_KEY_TYPES = (pl.List, pl.Array, pl.Struct, pl.Map, pl.Object, pl.Int128, pl.UInt128)


def check_key_type(operator: str, name: str, dtype: pl.DataType) -> None:
    """Raise when columns of this type cannot be keys."""
    if isinstance(dtype, NO_KEY_TYPES):
        raise PlanError(f"{operator}: the key {name!r} is {dtype}", f"keys may be {KEY_TYPES}.")


def check_same_time(operator: str, nodes: Sequence[Node]) -> None:
    """Raise when temporal inputs count time differently; relational ones fit any."""
    times = dict.fromkeys(node.time for node in nodes if node.time is not None)
    if len(times) > 1:
        first, second, *_ = times
        raise TimeTypeError(
            f"{operator}: the inputs have different time types: {first} and {second}",
            "bring them together with cast_time(…).",
        )


def refuse_objects(operator: str, *nodes: Node) -> None:
    """Raise where rows are kept or told apart, and a column holds Python objects of which nobody knows the bytes."""
    for node in nodes:
        for name, dtype in node.schema.items():
            if isinstance(dtype, pl.Object):
                raise PlanError(
                    f"{operator}: rows are kept and compared, but column {name!r} holds Python objects",
                    "leave it out with .drop(…) before, or say how they become bytes: make it in map_batches(…, "
                    f"schema={{{name!r}: sq.codec(…)}}).",
                )


def refuse_object_order(operator: str, codecs: Mapping[str, Codec], ordered: Iterable[Expression]) -> None:
    """Raise where Python objects would be ordered: the order of their bytes is none of theirs."""
    for item in ordered:
        if item.source_column in codecs:
            raise PlanError(
                f"{operator}: column {item.source_column!r} holds Python objects, which have no order as bytes",
                "order by what map_batches(fn, schema=…) computes from them, a number or text.",
            )


def refuse_lost_codecs(operator: str, codecs: Mapping[str, Codec], computed: Iterable[Expression]) -> None:
    """Raise where an expression computes bytes from Python objects: nobody would know what they stand for."""
    for item in computed:
        roots = [name for name in item.roots if name in codecs]
        if roots and item.source_column is None and _has_bytes(item.dtype):
            raise PlanError(
                f"{operator}: {item} is computed from {roots[0]!r}, which holds Python objects: expressions see only "
                "their bytes",
                "compute it in map_batches(fn, schema={…: sq.codec(…)}), where they are objects.",
            )


def _has_bytes(dtype: DataType | DataTypeClass) -> bool:
    if isinstance(dtype, pl.Struct):
        return any(map(_has_bytes, dtype.to_schema().values()))
    if isinstance(dtype, (pl.List, pl.Array)):
        return _has_bytes(dtype.inner)
    return dtype == pl.Binary

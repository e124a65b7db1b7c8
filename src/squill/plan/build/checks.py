"""Checks that several families of nodes share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl
from polars.datatypes import DataType, DataTypeClass

from squill.errors import PlanError, TimeTypeError
from squill.plan.codec import Codec
from squill.plan.expressions import Expression
from squill.plan.node import Node
from squill.time import TimeType

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
            _how_to_agree(first, second),
        )


def _how_to_agree(first: TimeType, second: TimeType) -> str:
    """Return what gives two inputs one time type; units alone can be changed once the rows are there."""
    if first.is_integer and second.is_integer:
        wider = max(first.dtype, second.dtype, key=lambda dtype: int(str(dtype).removeprefix("U").removeprefix("Int")))
        return f"give both one type where they are read: start=sq.col(…).cast(pl.{wider})."
    if first.is_integer or second.is_integer:
        other = second if first.is_integer else first
        return (
            f"integers have no unit; if they count as the other does, from 1970 in ticks of 1{other.unit}, say so "
            f"where they are read: start=sq.col(…).cast(pl.{other})."
        )
    zones = [getattr(time.dtype, "time_zone", None) for time in (first, second)]
    if zones[0] == zones[1]:
        finer, coarser = sorted((first, second), key=lambda time: time.tick_nanoseconds)
        return f'count both in the finer ticks: .cast_time("{finer.unit}") on the input of {coarser}.'
    if None not in zones:
        return (
            f"give both one time zone where they are read: start=sq.col(…).dt.convert_time_zone({zones[0]!r})"
            f"{_and_one_unit(first, second)}."
        )
    zone, plain = (zones[0], second) if zones[1] is None else (zones[1], first)
    if isinstance(plain.dtype, pl.Date):
        return (
            'count both in days, .cast_time("d"), or say where the dates are read in which time zone they are: '
            f'start=sq.col(…).cast(pl.Datetime("us")).dt.replace_time_zone({zone!r}).'
        )
    return (
        "say in which time zone the times without one are, where they are read: "
        f"start=sq.col(…).dt.replace_time_zone({zone!r}){_and_one_unit(first, second)}."
    )


def _and_one_unit(first: TimeType, second: TimeType) -> str:
    if first.unit == second.unit:
        return ""
    finer, coarser = sorted((first, second), key=lambda time: time.tick_nanoseconds)
    return f', and .cast_time("{finer.unit}") on the input whose ticks are 1{coarser.unit}'


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
    """Raise where an expression computes bytes or text from Python objects: nobody would know what they stand for."""
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
    return dtype in (pl.Binary, pl.String)

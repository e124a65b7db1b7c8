"""Checks that several families of nodes share."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from squill.errors import PlanError, TimeTypeError
from squill.plan.node import Node

__all__ = ["check_key_type", "check_same_time", "refuse_objects"]

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

"""Python objects to bytes and back, for the columns that have a codec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from squill.errors import UserFunctionError
from squill.plan.codec import Codec
from squill.wording import articled, kind_of, shortened

__all__ = ["decoded", "encode_value", "encoded"]


def decoded(frame: pl.DataFrame, codecs: Mapping[str, Codec]) -> pl.DataFrame:
    """Return the frame with encoded columns as Python objects, or lists of them; null stays null."""
    for name, codec in codecs.items():
        values = [_decoded(value, codec) for value in frame[name].to_list()]
        frame = frame.with_columns(pl.Series(name, values, pl.Object))
    return frame


def _decoded(value: Any, codec: Codec) -> Any:
    if isinstance(value, list):
        return [_decoded(item, codec) for item in value]
    return None if value is None else _call(codec.decode, value, codec)


def encoded(series: pl.Series, codec: Codec) -> pl.Series:
    """Return a column of Python objects as bytes."""
    return pl.Series(series.name, [encode_value(value, codec) for value in series], pl.Binary)


def encode_value(value: Any, codec: Codec | None) -> Any:
    if codec is None or value is None:
        return value
    if not isinstance(value, codec.type):
        raise UserFunctionError(
            f"{codec}: {shortened(value)} is {articled(type(value).__name__)}, not {articled(codec.type.__name__)}",
            "the column may hold values of the codec's type and None.",
        )
    result = _call(codec.encode, value, codec)
    if not isinstance(result, bytes):
        raise UserFunctionError(f"{codec}: encode returned {kind_of(result)}, not bytes", "return bytes.")
    return result


def _call(function: Any, value: Any, codec: Codec) -> Any:
    try:
        return function(value)
    except Exception as error:
        name = getattr(function, "__name__", repr(function))
        raise UserFunctionError(
            f"{codec}: {name} raised {type(error).__name__}: {error} for {shortened(value)}"
        ) from error

"""What a user's object may hand to a checkpoint: plain data, which any process of any day can read."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np
import polars as pl

from squill.wording import kind_of

__all__ = ["NotPlainError", "plain_copy"]

SCALARS = frozenset({
    type(None), bool, int, float, str, bytes, dt.date, dt.datetime, dt.time, dt.timedelta, decimal.Decimal,
})  # fmt: skip


class NotPlainError(Exception):
    """A value that is not plain data; the text says where it was found."""


def plain_copy(value: Any, where: str = "") -> Any:
    """Return a copy that shares nothing that can change, or raise `NotPlainError`.

    Types are exact: a subclass would come back as itself in one run and as its base in another.

    Examples
    --------
    >>> plain_copy({"n": 3, "w": [1.5, None]})
    {'n': 3, 'w': [1.5, None]}
    >>> plain_copy({"n": [3, {4}]})
    Traceback (most recent call last):
        ...
    squill.engine.plain_state.NotPlainError: ['n'][1] is a set
    """
    kind = type(value)
    if kind in SCALARS:
        return value
    if kind is list or kind is tuple:
        return kind(plain_copy(item, f"{where}[{i}]") for i, item in enumerate(value))
    if kind is dict:
        return {
            plain_copy(name, f"{where} key {name!r}"): plain_copy(item, f"{where}[{name!r}]")
            for name, item in value.items()
        }
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        return value.copy()
    if kind is pl.Series or kind is pl.DataFrame:
        types = [value.dtype] if kind is pl.Series else value.dtypes
        if pl.Object in types:
            raise NotPlainError(f"{where or 'it'} is {kind_of(value)} of Python objects")
        return value.clone()
    raise NotPlainError(f"{where or 'it'} is {kind_of(value)}")

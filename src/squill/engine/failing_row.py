"""The row at which expressions fail, to be shown in the error: whoever reads it has the value that was not expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

__all__ = ["first_failing"]


def first_failing(frame: pl.DataFrame, evaluate: Callable[[pl.DataFrame], Any]) -> tuple[int, str] | None:
    """Return the first row at which `evaluate` raises, and the first line of what it says of that row alone.

    Of expressions that see one row at a time: rows that are computed together fail where one of them does, so the row
    is found by halves. None when no row fails by itself.
    """
    low, high = 0, frame.height
    while high - low > 1:
        middle = (low + high) // 2
        if _fault(frame.slice(low, middle - low), evaluate) is None:
            low = middle
        else:
            high = middle
    fault = _fault(frame.slice(low, 1), evaluate) if frame.height else None
    return None if fault is None else (low, fault)


def _fault(frame: pl.DataFrame, evaluate: Callable[[pl.DataFrame], Any]) -> str | None:
    try:
        evaluate(frame)
    except pl.exceptions.PolarsError as error:
        return str(error).splitlines()[0]
    return None

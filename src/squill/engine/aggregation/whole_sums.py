"""Sums of a whole column, for what needs no snapshots."""

from __future__ import annotations

import polars as pl

from squill.engine.columns import values_and_valid_of, values_of
from squill.engine.kernels.lifetimes import bounds
from squill.engine.kernels.whole_sums import sum_words, sum_words_valid

__all__ = ["exact_sum", "largest_magnitude"]

HALF = 2**32
WORD = 2**64


def exact_sum(column: pl.Series) -> int:
    """Return the sum of an Int64 column as the number it is, however large; nulls are skipped.

    Examples
    --------
    >>> exact_sum(pl.Series([2**63 - 1, 2, None]))
    9223372036854775809
    """
    return sum(_chunk_sum(chunk) for chunk in column.get_chunks())


def _chunk_sum(chunk: pl.Series) -> int:
    values, valid = values_and_valid_of(chunk)
    low, upper = sum_words_valid(values, valid) if chunk.null_count() else sum_words(values)
    # What is missing are the lower halves: of up to 2^32 rows they sum to less than 2^64.
    return int(upper) * HALF + (int(low) - int(upper) * HALF) % WORD


def largest_magnitude(column: pl.Series) -> int:
    """Return the largest absolute value of an Int64 column; 0 when there is none.

    Examples
    --------
    >>> largest_magnitude(pl.Series([-(2**63), 5, None]))
    9223372036854775808
    """
    if column.null_count():
        extremes = [column.min(), column.max()]
    else:
        # Both in one pass; where values are missing, what lies there is anything.
        extremes = [found for chunk in column.get_chunks() if len(chunk) for found in bounds(values_of(chunk))]
    return max((abs(int(found)) for found in extremes if found is not None), default=0)  # type: ignore[arg-type]

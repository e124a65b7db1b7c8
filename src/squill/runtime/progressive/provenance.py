"""The input rows behind an early answer, or behind one row of it.

Behind an answer are all rows that are there at its progress point. Behind one of its rows are those that take part in
its derivation (`derivation`): the query is run again over the rows that are there, and the row is looked for in what
comes out. Where an operator does not say which rows it made its rows of, the question is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import Any

import polars as pl

from squill.engine.codecs import decoded
from squill.engine.progress.ingress import pieces_of_progress, ready_to_read
from squill.engine.progress.points import points_of
from squill.plan.build.progress import ProgressInput
from squill.plan.node import Node
from squill.plan.nodes import FileSource, FrameSource
from squill.runtime.progressive.derivation import Derivation, refused

__all__ = ["ProvenanceOf", "rows_like"]

Values = Mapping[str, Any]

NEAR = 1e-9
"""How far a float that is computed again may be from what it was, for its size: sums depend on the order of rows."""


class ProvenanceOf:
    """What is behind the answers of one query; `root` has been rewritten, and its sources are those of `inputs`."""

    def __init__(self, root: Node, inputs: list[ProgressInput], coarsen: int) -> None:
        self._root = root
        self._inputs = inputs
        self._coarsen = coarsen

    def all_rows(self, progress: int) -> dict[str, pl.DataFrame]:
        """Return the input rows behind the answer at a progress point, by input name."""
        return {item.name: _alive(item, self._coarsen, progress) for item in self._inputs}

    def behind(self, progress: int, answer: pl.DataFrame, row: Values) -> dict[str, pl.DataFrame]:
        """Return the input rows behind those rows of the answer that have these values, by input name."""
        if any(item.source.lifetime is not None for item in self._inputs):
            raise refused("the query is over time, where rows also meet by their lifetimes")
        alive = self.all_rows(progress)
        by_source = {id(item.source): alive[item.name] for item in self._inputs}
        again = Derivation(self._root, by_source, progress)
        chosen = _found_again(decoded(again.answer, self._root.codecs), answer, row)
        behind = again.behind(chosen)
        return {item.name: alive[item.name][behind[id(item.source)]] for item in self._inputs}


def _alive(item: ProgressInput, coarsen: int, progress: int) -> pl.DataFrame:
    """Return the rows of an input that are there, with all its columns."""
    source = item.source
    assert isinstance(source, (FrameSource, FileSource))
    whole = replace(source, predicate=None) if isinstance(source, FrameSource) else replace(source, read=None)
    reading = item.over_progress(whole, coarsen)
    frames = [source.columns.empty_frame()]
    for piece in pieces_of_progress(ready_to_read(reading)):
        starts, ends = points_of(piece)
        there = starts <= progress if ends is None else (starts <= progress) & (progress < ends)
        frames.append(pl.DataFrame([piece.columns[name] for name in source.columns]).filter(there))
    return pl.concat(frames)


def _found_again(again: pl.DataFrame, answer: pl.DataFrame, row: Values) -> pl.Series:
    """Return of each row that was computed again whether it has the values that some rows of the answer have.

    There must be as many as in the answer. Else floats are compared nearly, if that tells the answer's rows apart too.
    """
    wanted = rows_like(answer, row).sum()
    found = rows_like(again, row)
    if found.sum() != wanted:
        found = rows_like(again, row, nearly=True)
        if found.sum() != wanted or rows_like(answer, row, nearly=True).sum() != wanted:
            raise refused("the query, computed again over the rows that are there, gives other rows of these values")
    return found


def rows_like(frame: pl.DataFrame, values: Values, *, nearly: bool = False) -> pl.Series:
    """Return of each row whether it has these values; null is equal to null."""
    like = pl.repeat(True, frame.height, eager=True)
    for name, value in values.items():
        like &= frame.select(_is_like(pl.col(name), frame.schema[name], value, nearly=nearly)).to_series()
    return like


def _is_like(of: pl.Expr, dtype: pl.DataType, value: Any, *, nearly: bool) -> pl.Expr:
    equal = of.eq_missing(pl.lit(value, dtype))
    if not nearly or value is None:
        return equal
    if isinstance(dtype, pl.Struct):
        fields = [
            (of.struct.field(field.name), pl.Series(dtype=field.dtype).dtype, value[field.name])
            for field in dtype.fields
        ]
        return reduce(and_, (_is_like(*field, nearly=True) for field in fields), of.is_not_null())
    return equal | ((of - value).abs() <= NEAR * abs(value)).fill_null(value=False) if dtype.is_float() else equal

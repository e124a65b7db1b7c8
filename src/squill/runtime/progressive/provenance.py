"""The input rows behind an early answer, or behind one row of it.

Behind an answer are all rows that are there at its progress point. Behind one of its rows are those that its values
lead to: from the answer downwards every operator says which values its input rows must have. A grouped row leads to
the rows of its key; where the values do not say which input rows they came from, the question is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from squill.engine.progress.ingress import pieces_of_progress, ready_to_read
from squill.engine.progress.points import points_of
from squill.errors import UnsupportedOperatorError
from squill.plan.build.progress import ProgressInput
from squill.plan.expressions import Expression
from squill.plan.node import Node
from squill.plan.nodes import (
    Aggregate,
    Chop,
    Distinct,
    Exists,
    FileSource,
    FrameSource,
    Join,
    Select,
    SnapshotApply,
    Source,
    Union,
    Where,
)
from squill.plan.nodes.movement import Move, Split

__all__ = ["ProvenanceOf", "rows_like"]

Values = Mapping[str, Any]


class ProvenanceOf:
    """What is behind the answers of one query; `root` has been rewritten, and its sources are those of `inputs`."""

    def __init__(self, root: Node, inputs: list[ProgressInput], coarsen: int) -> None:
        self._root = root
        self._inputs = inputs
        self._coarsen = coarsen

    def __call__(self, progress: int, row: Values | None) -> dict[str, pl.DataFrame]:
        """Return the input rows, by input name."""
        alive = {id(item.source): _alive(item, self._coarsen, progress) for item in self._inputs}
        if row is None:
            return {item.name: alive[id(item.source)] for item in self._inputs}
        if any(item.source.lifetime is not None for item in self._inputs):
            raise _refused("the query is over time, where rows also meet by their lifetimes")
        search = _Search(alive)
        search.behind(self._root, row)
        return {item.name: search.found(item.source) for item in self._inputs}


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


def rows_like(frame: pl.DataFrame, values: Values) -> pl.Series:
    """Return of each row whether it has these values; null is equal to null."""
    like = pl.repeat(True, frame.height, eager=True)
    for name, value in values.items():
        like &= frame.select(pl.col(name).eq_missing(pl.lit(value, frame.schema[name]))).to_series()
    return like


@dataclass(frozen=True)
class _Rows:
    """What becomes of rows of one source, each by itself: `numbers` are their places in it, beside the frame."""

    source: Source
    frame: pl.DataFrame
    numbers: pl.Series

    def where(self, predicate: Expression) -> _Rows:
        # One value may stand for all rows.
        return self.only(rows_like(self.frame, {}) & self.frame.select(predicate.expr).to_series())

    def only(self, kept: pl.Series) -> _Rows:
        return replace(self, frame=self.frame.filter(kept), numbers=self.numbers.filter(kept))


class _Search:
    """Goes down a plan from one row of its answer, and notes the rows of sources that it comes to."""

    def __init__(self, alive: Mapping[int, pl.DataFrame]) -> None:
        self._alive = alive
        self._rows: dict[int, set[int]] = {source: set() for source in alive}

    def found(self, source: Source) -> pl.DataFrame:
        frame = self._alive[id(source)]
        return frame[sorted(self._rows[id(source)])]

    def behind(self, node: Node, values: Values, *, is_exact: bool = False) -> None:
        """Note the rows behind those rows of the node that have these values.

        `is_exact` says that all rows of these values are meant, so that of a finer group the key need not be known.
        """
        plain = self._row_by_row(node)
        if plain is not None:
            like = rows_like(plain.frame, values)
            self._rows[id(plain.source)].update(plain.only(like).numbers.to_list())
            return
        match node:
            case Where() | Distinct() | Split() | Move() | Chop():
                self.behind(node.parent, values, is_exact=is_exact)
            case Select():
                copies = {item.name: item.source_column for item in node.columns if item.source_column is not None}
                kept = {copies[name]: value for name, value in values.items() if name in copies}
                self.behind(node.parent, kept, is_exact=is_exact and len(kept) == len(values))
            case Aggregate() | SnapshotApply():
                is_group = is_exact and values.keys() <= set(node.keys)
                known = values if is_group else _known(node, node.keys, values)
                self.behind(node.parent, known, is_exact=True)
            case Union():
                for parent in node.parents:
                    self.behind(parent, values, is_exact=is_exact)
            case Join() | Exists():
                self._behind_pairs(node, values)
            case _:
                raise _refused(f"{node.name} does not say which of its input rows a row came from")

    def _behind_pairs(self, node: Join | Exists, values: Values) -> None:
        matching = node.matching
        if matching.where is not None:
            raise _refused(f"{node.name} matches rows by the condition {matching.where.text}")
        left = {name: value for name, value in values.items() if name in node.left.schema}
        right: dict[str, Any] = {}
        if isinstance(node, Join):
            right = {source: values[name] for name, source in matching.right_as if name in values}
        for one, other in zip(matching.left_keys, matching.right_keys, strict=True):
            known = left if one in left else {one: right[other]} if other in right else {}
            key = _known(node, (one,), known)
            left[one] = right[other] = key[one]
        self.behind(node.left, left)
        if not (isinstance(node, Exists) and node.negated):
            self.behind(node.right, right)

    def _row_by_row(self, node: Node) -> _Rows | None:
        """Return what a node that handles each row of one source by itself makes of it."""
        if isinstance(node, Source):
            frame = self._alive[id(node)]
            rows = _Rows(node, frame, pl.int_range(frame.height, eager=True))
            predicate = node.predicate if isinstance(node, (FrameSource, FileSource)) else None
            return rows if predicate is None else rows.where(predicate)
        if not isinstance(node, (Where, Select, Split, Move)):
            return None
        before = self._row_by_row(node.parent)
        if before is None or isinstance(node, (Split, Move)):
            return before
        if isinstance(node, Where):
            return before.where(node.predicate)
        # Beside a column that is there, so that what names none has as many rows.
        named = [item.expr.alias(item.name) for item in node.columns]
        return replace(before, frame=before.frame.with_columns(named).select(item.name for item in node.columns))


def _known(node: Node, keys: tuple[str, ...], values: Values) -> dict[str, Any]:
    """Return the values of the keys, all of which must be known."""
    for key in keys:
        if key not in values:
            raise _refused(f"the row does not say which {key!r} it belongs to, the key of {node.name}")
    return {key: values[key] for key in keys}


def _refused(why: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        f"provenance: the rows behind one row cannot be told exactly: {why}",
        "provenance() without a row gives all input rows behind the answer; or keep the keys as columns of the answer.",
    )

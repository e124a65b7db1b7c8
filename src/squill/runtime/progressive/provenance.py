"""The input rows behind an early answer, or behind one row of it.

Behind an answer are all rows that are there at its progress point. Behind one of its rows are those that take part in
its derivation (`derivation`): the query is run again over the rows that are there, and the row is looked for in what
comes out. Where an operator does not say which rows it made its rows of, the question is refused. Files are read again
too: where their size or time tells that they are not as they were, the rows behind an answer are gone.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from squill.engine.columns import framed
from squill.engine.progress.ingress import pieces_of_progress, ready_to_read
from squill.engine.progress.points import points_of
from squill.errors import InputError
from squill.plan.build.progress import ProgressInput
from squill.plan.node import Node
from squill.plan.nodes import FileSource, FrameSource
from squill.runtime.progressive.asked import rows_like
from squill.runtime.progressive.derivation import Derivation, refused
from squill.runtime.run_folder import stamp_of

__all__ = ["ProvenanceOf"]


class ProvenanceOf:
    """What is behind the answers of one query; `root` has been rewritten, and its sources are those of `inputs`."""

    def __init__(self, root: Node, inputs: list[ProgressInput], coarsen: int) -> None:
        self._root = root
        self._inputs = inputs
        self._coarsen = coarsen
        self._stamps: dict[str, tuple[int, int]] = {}

    def begin(self) -> None:
        """Note how the files are that the query is about to read."""
        paths = [path for item in self._inputs if isinstance(item.source, FileSource) for path in item.source.paths]
        found = {path: stamp_of(path) for path in paths}
        self._stamps = {path: stamp for path, stamp in found.items() if stamp is not None}

    def all_rows(self, progress: int) -> dict[str, pl.DataFrame]:
        """Return the input rows behind the answer at a progress point, by input name."""
        self._check_files()
        alive = {item.name: _alive(item, self._coarsen, progress) for item in self._inputs}
        self._check_files()  # which may change while they are read
        return alive

    def behind(self, progress: int, answer: pl.DataFrame, row: pl.DataFrame) -> dict[str, pl.DataFrame]:
        """Return the input rows behind those rows of the answer that have the values of this one, by input name."""
        if any(item.source.lifetime is not None for item in self._inputs):
            raise refused("the query is over time, where rows also meet by their lifetimes")
        alive = self.all_rows(progress)
        by_source = {id(item.source): alive[item.name] for item in self._inputs}
        again = Derivation(self._root, by_source, progress)
        chosen = _found_again(again.answer, answer, row)
        behind = again.behind(chosen)
        return {item.name: alive[item.name][behind[id(item.source)]] for item in self._inputs}

    def _check_files(self) -> None:
        for path, before in self._stamps.items():
            if stamp_of(path) != before:
                raise InputError(
                    f"provenance: {path!r} has changed since the query began, and with it the rows behind its answers",
                    "run the query again, and leave its files as they are while you ask.",
                )


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
        frames.append(framed([piece.columns[name] for name in source.columns]).filter(there))
    return pl.concat(frames)


def _found_again(again: pl.DataFrame, answer: pl.DataFrame, row: pl.DataFrame) -> pl.Series:
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

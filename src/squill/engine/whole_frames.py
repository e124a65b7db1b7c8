"""The rows of a Polars query as they come, with a word when some do not.

`LazyFrame.collect_batches` runs the query on a thread of its own. When that panics, as it does over some files that are
damaged, the rows just end: nobody is told. Where it is known how many rows there are, they are counted. Otherwise a
row that only marks the end follows them, and is missed when it does not come. That costs 0.3 to 0.5 ms a
file, and frames that would be handed on as the file has them may come in halves.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from squill.plan.schema import Schema

__all__ = ["whole_frames"]


def whole_frames(
    lazy: pl.LazyFrame, schema: Schema, chunk_size: int | None = None, rows: int | None = None
) -> Iterator[pl.DataFrame]:
    """Begin to run a query with columns of this schema; yield its rows, or raise an OSError if some are missing.

    `rows` is how many there are, where that is known.

    Examples
    --------
    >>> frames = whole_frames(pl.LazyFrame({"x": [1, 2]}), Schema({"x": pl.Int64()}))
    >>> pl.concat(frames).rows()
    [(1,), (2,)]
    """
    if rows is not None:
        return _counted(lazy.collect_batches(chunk_size=chunk_size, maintain_order=True), rows)
    mark = _free_name(schema)
    end = (
        pl.DataFrame({mark: [True]})
        .lazy()
        .select(*(pl.lit(None, dtype).alias(name) for name, dtype in schema.items()), mark)
    )
    marked = pl.concat([lazy.with_columns(pl.lit(value=False).alias(mark)), end])
    return _without_mark(marked.collect_batches(chunk_size=chunk_size, maintain_order=True), mark)


def _counted(frames: Iterator[pl.DataFrame], expected: int) -> Iterator[pl.DataFrame]:
    rows = 0
    for frame in frames:
        rows += frame.height
        yield frame
    if rows != expected:
        raise OSError(f"{rows:,} rows came of it instead of {expected:,}")


def _free_name(schema: Schema) -> str:
    name = "end of rows"
    while name in schema:
        name += "_"
    return name


def _without_mark(frames: Iterator[pl.DataFrame], mark: str) -> Iterator[pl.DataFrame]:
    is_whole = False
    for frame in frames:
        marks = frame.drop_in_place(mark)
        is_whole = bool(marks.len()) and bool(marks[-1])
        rows = frame.head(frame.height - 1) if is_whole else frame
        if rows.height:
            yield rows
    if not is_whole:
        raise OSError("its rows ended before all had come")

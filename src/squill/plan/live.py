"""Where live rows come from: what a `LiveSource` says of its input. What reads them is the runtime's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from squill.errors import PlanError
from squill.wording import shortened

__all__ = ["Partitions", "PushedRows", "Refresh", "StoredRows", "StreamingTable", "WatchedFolder", "partitions"]

Offset = Any
"""Whatever JSON can say: a number, a text, a list or a dict of these."""

Open = Callable[[int, Offset], Iterable[tuple[Any, Offset]]]

ROWS_PER_EPOCH = 1_000_000


@dataclass(frozen=True, kw_only=True)
class WatchedFolder:
    """Files that appear in a folder; at most `files_per_epoch` of them are taken at a time."""

    path: str
    files_per_epoch: int | None = None


@dataclass(frozen=True, kw_only=True)
class Partitions:
    """A source of the user's own; made by `sq.partitions`."""

    count: int
    open: Open = field(compare=False)
    rows_per_epoch: int = ROWS_PER_EPOCH


@dataclass(frozen=True, kw_only=True)
class PushedRows:
    """Rows that the program pushes into a source of this process."""

    feed: Any = field(compare=False)


@dataclass(frozen=True, kw_only=True)
class StreamingTable:
    """A streaming table of the runtime's own, such as a streaming DataFrame of Spark."""

    table: Any = field(compare=False)


@dataclass(frozen=True, kw_only=True)
class Refresh:
    """That a stored table is read again every so many `seconds`; the other fields are as the user gave them."""

    seconds: float
    paths: Any
    format: str | None = None
    schema: Any = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class StoredRows:
    """Rows that are all there, of a stored `source`, taken as those of an input that will go on."""

    source: Any = field(compare=False)


def partitions(n: int, open: Open, *, rows_per_epoch: int = ROWS_PER_EPOCH) -> Partitions:  # noqa: A002  (the public name)
    """Return a live source of your own, in `n` partitions, for `cluster.stream`.

    ``open(p, offset)`` is called where the partition is read, once per epoch. It yields pairs: rows (a frame, or an
    Arrow table or batch) and the offset after them; `offset` is the last one that was committed, None at the
    beginning. It returns when there is nothing more for now. Every row is used once: what was read but not committed is
    asked for again from the same offset. Of each partition an epoch takes about `rows_per_epoch` rows.

    Examples
    --------
    >>> import polars as pl, squill as sq
    >>> rows = [pl.DataFrame({"t": [1, 2]}), pl.DataFrame({"t": [12]})]
    >>> def open_log(p, offset):
    ...     for number in range(offset or 0, len(rows)):
    ...         yield rows[number], number + 1
    >>> with sq.local(cores=1) as cluster:
    ...     clicks = cluster.stream(sq.partitions(1, open_log), start="t")
    ...     counted = clicks.query(lambda s: s.tumbling_window(10).count())
    ...     query = counted.start(lambda frame: print(frame.rows()), until_now=True)
    ...     _ = query.wait()
    [(10, 20, 2), (20, 30, 1)]
    """
    if type(n) is not int or n < 1:
        raise PlanError(f"partitions: n is {shortened(n)}", "give how many partitions there are, at least 1.")
    if not callable(open):
        raise PlanError(
            f"partitions: {shortened(open)} cannot be called", "give a function of a partition and an offset."
        )
    if type(rows_per_epoch) is not int or rows_per_epoch < 1:
        raise PlanError(
            f"partitions: rows_per_epoch is {shortened(rows_per_epoch)}", "give a whole number of at least 1."
        )
    return Partitions(count=n, open=open, rows_per_epoch=rows_per_epoch)

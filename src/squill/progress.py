"""When the rows of an input take part in early answers: `sq.progress`, for `Stream.progressive`.

Progress counts in steps from 0 on. Rows are numbered round robin over the input's splits (the row groups of parquet
files, else the files; a frame is one), so that every split feeds every step; the numbers depend on nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from squill.arguments import checked_flag
from squill.errors import PlanError
from squill.plan.assignment import (
    MOST_STEPS,
    Assignment,
    AtStart,
    Columns,
    Exponential,
    Fractions,
    Hashed,
    Rows,
    Stratified,
    names_of,
    whole,
)
from squill.wording import shortened

__all__ = ["Assignment", "at_start", "columns", "exponential", "fractions", "hashed", "rows", "stratified"]


def rows(k: int) -> Assignment:
    """Let every step add `k` rows."""
    return Rows(whole(k, 1, "progress.rows: k", ""))


def fractions(n: int) -> Assignment:
    """Let every one of `n` steps add an n-th of the rows."""
    return Fractions(whole(n, 1, "progress.fractions: n", "", MOST_STEPS))


def exponential(first: int, ratio: float) -> Assignment:
    """Let the first step add `first` rows and every other one `ratio` times as many as the one before.

    >>> import squill as sq
    >>> numbers = sq.from_frame({"x": range(70)}).aggregate(n=sq.count())
    >>> [early.frame.item() for early in numbers.progressive(sq.progress.exponential(10, 2))]
    [10, 30, 70]
    """
    whole(first, 1, "progress.exponential: first", "")
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 1 <= ratio <= sys.float_info.max:
        raise PlanError(f"progress.exponential: ratio is {shortened(ratio)}", "give a number of at least 1, such as 2.")
    return Exponential(first, float(ratio))


def hashed(
    columns: str | Sequence[str], steps: int, *, together: str | Sequence[str] | None = None, trust: bool = False
) -> Assignment:
    """Let the hash of columns choose one of `steps` steps: rows of equal values come together, in every input.

    It is the engine's own stable hash, so that a user's clicks and impressions come at the same step, in every run
    and in every table. The order is as good as random. `together` promises that the rows of other columns come
    together too, as in `columns`: an order's rows where customers are hashed.
    """
    names = names_of(columns, "progress.hashed")
    number = whole(steps, 1, "progress.hashed: steps", "", MOST_STEPS)
    return Hashed(names, number, together=_together(together, "progress.hashed", trust), trust=trust)


def stratified(key: str | Sequence[str], k: int) -> Assignment:
    """Let every step add `k` rows of each key, so that rare ones are there from the beginning."""
    return Stratified(names_of(key, "progress.stratified"), whole(k, 1, "progress.stratified: k", ""))


def at_start() -> Assignment:
    """Let all rows be there from the first step on: for small tables that others are joined with."""
    return AtStart()


def columns(
    start: str, end: str | None = None, *, together: str | Sequence[str] | None = None, trust: bool = False
) -> Assignment:
    """Take the progress points from columns: a row is there from `start` on, and no more from `end` on.

    Points are whole numbers from 0 on; a null end is none. A row that comes again is one more row. There is an answer
    for every point at which a row comes or goes.

    `together` names columns by whose values the points were given: rows of equal values come at one point, in this
    input and in all others that promise it, as an order and its lines do. Operators by such keys then keep the rows
    of one point only. It is checked before the first answer, by a scan of these columns, unless you `trust` it.

    >>> import squill as sq
    >>> lines = sq.from_frame({"step": [0, 0, 1], "order": [7, 7, 9]}).group_aggregate("order", n=sq.count())
    >>> [early.frame.rows() for early in lines.progressive(sq.progress.columns("step", together="order"))]
    [[(7, 2)], [(7, 2), (9, 1)]]
    """
    if not isinstance(start, str):
        raise PlanError(f"progress.columns: start={shortened(start)} does not name a column", "give a name.")
    if start == end:
        raise PlanError(
            f"progress.columns: {start!r} is both the start and the end, so that no row is ever there",
            "leave the end out for rows that stay, or name another column.",
        )
    if end is not None and not isinstance(end, str):
        raise PlanError(
            f"progress.columns: end={shortened(end)} does not name a column", "give a name, or leave it out."
        )
    if end is not None and together is not None:
        raise PlanError(
            f"progress.columns: together={shortened(together)} beside end={shortened(end)}",
            "rows that leave again are needed until they do: leave one of the two out.",
        )
    return Columns(start, end, together=_together(together, "progress.columns", trust), trust=trust)


def _together(given: object, operator: str, trust: object) -> tuple[str, ...]:
    checked_flag(trust, f"{operator}: trust")
    return () if given is None else names_of(given, f"{operator}: together")

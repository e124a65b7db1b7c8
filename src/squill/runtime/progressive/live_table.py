"""Early answers in the terminal: one table that refines as they come."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from squill.errors import PlanError
from squill.runtime.progressive.early import EarlyAnswer

__all__ = ["show", "table_of"]


def show(answers: Iterable[EarlyAnswer], rows: int, console: Console | None = None) -> EarlyAnswer | None:
    """Show each answer where the one before stood; return the last, None when there is none."""
    if not isinstance(rows, int) or rows < 1:
        raise PlanError(f"show: rows is {rows!r}", "give a whole number of at least 1.")
    last: EarlyAnswer | None = None
    with Live(console=console, auto_refresh=False) as live:
        for early in answers:
            live.update(table_of(early, rows), refresh=True)
            last = early
    return last


def table_of(early: EarlyAnswer, rows: int) -> Table:
    """Return the first rows of an answer under what is known of it."""
    frame = early.frame
    state = "final" if early.is_final else f"{early.fraction:.0%} of the rows"
    title = f"progress {early.progress}: {state}, {early.elapsed:.1f} s"
    table = Table(
        title=title,
        min_width=len(title),
        caption=None if frame.height <= rows else f"{frame.height - rows} more rows",
    )
    for name, dtype in frame.schema.items():
        table.add_column(Text(name), justify="right" if dtype.is_numeric() else "left")
    for row in frame.head(rows).rows():
        # Values are text, not markup: they may hold brackets.
        table.add_row(*(Text("" if value is None else str(value)) for value in row))
    return table

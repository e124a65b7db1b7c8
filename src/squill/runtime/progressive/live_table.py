"""Early answers in the terminal: one table that refines as they come, with bars beside one of its columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from squill.plan.confidence import FIELDS, is_interval_type
from squill.runtime.progressive.charted import Bar, Chosen, bars_of, charted_column
from squill.runtime.progressive.early import EarlyAnswer

__all__ = ["bar_text", "show_in_terminal", "table_of", "title_of"]

BAR_WIDTH = 32


def show_in_terminal(
    answers: Iterable[EarlyAnswer], rows: int, chart: Chosen, console: Console | None
) -> EarlyAnswer | None:
    """Show each answer where the one before stood; return the last, None when there is none."""
    last: EarlyAnswer | None = None
    with Live(console=console, auto_refresh=False) as live:
        for early in answers:
            live.update(table_of(early, rows, chart), refresh=True)
            last = early
    return last


def title_of(early: EarlyAnswer) -> str:
    state = "final" if early.is_final else f"{early.fraction:.0%} of the rows"
    return f"progress {early.progress}: {state}, {early.elapsed:.1f} s"


def table_of(early: EarlyAnswer, rows: int, chart: Chosen) -> Table:
    """Return the first rows of an answer under what is known of it."""
    frame = early.frame
    first = frame.head(rows)
    table = Table(
        title=title_of(early),
        min_width=len(title_of(early)),
        caption=None if frame.height <= rows else f"{frame.height - rows} more rows",
    )
    for name, dtype in frame.schema.items():
        is_number = dtype.is_numeric() or is_interval_type(dtype)
        table.add_column(Text(name), justify="right" if is_number else "left")
    charted = charted_column(frame.schema, chart)
    drawn = [[] for _ in range(first.height)] if charted is None else [[bar] for bar in _drawn(first, charted)]
    if charted is not None:
        table.add_column(Text(f"{charted}, drawn"), min_width=BAR_WIDTH, no_wrap=True)
    for row, bars in zip(first.rows(), drawn, strict=True):
        # Values are text, not markup: they may hold brackets.
        cells = [Text(_shown(value, dtype)) for value, dtype in zip(row, frame.dtypes, strict=True)]
        table.add_row(*cells, *bars)
    return table


def _shown(value: Any, dtype: pl.DataType) -> str:
    if value is None:
        return ""
    if not is_interval_type(dtype):
        return str(value)
    estimate, low, high = ("?" if value[name] is None else f"{value[name]:.4g}" for name in FIELDS)
    return estimate if estimate == low == high else f"{estimate} ({low} to {high})"


def _drawn(rows: pl.DataFrame, column: str) -> list[Text]:
    bars = bars_of(rows, column)
    ends = [end for bar in bars if bar is not None for end in (bar.value, bar.low, bar.high) if end is not None]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    return [Text() if bar is None else bar_text(bar, low, high) for bar in bars]


def bar_text(bar: Bar, low: float, high: float) -> Text:
    """Return the bar between `low` and `high`, which hold 0: as far as its value, with its interval over it.

    >>> bar_text(Bar("", 3, 1, 4), 0, 4).plain
    '████████├──────────────┼───────┤'
    """
    last = BAR_WIDTH - 1

    def place(value: float) -> int:
        return round((value - low) / (high - low) * last) if high > low else 0

    cells = [" "] * BAR_WIDTH
    begin, end = sorted((place(0), place(bar.value)))
    cells[begin : end + 1] = "█" * (end + 1 - begin)
    if bar.low is not None and bar.high is not None and place(bar.low) < place(bar.high):
        first, final = place(bar.low), place(bar.high)
        cells[first : final + 1] = ["├", *"─" * (final - first - 1), "┤"]
        cells[place(bar.value)] = "┼" if first < place(bar.value) < final else cells[place(bar.value)]
    return Text("".join(cells), style="cyan")

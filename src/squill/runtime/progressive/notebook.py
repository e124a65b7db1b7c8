"""Early answers in a notebook: a table and a chart, in one place each, that refine as they come."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from typing import Any

from squill.errors import PlanError
from squill.runtime.progressive.charted import Chosen, bars_of, charted_column
from squill.runtime.progressive.early import EarlyAnswer
from squill.runtime.progressive.live_table import title_of

__all__ = ["chart_of", "is_notebook", "show_in_notebook"]


def is_notebook() -> bool:
    """Whether this process shows what it displays in a notebook; IPython in a terminal does not."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")


def show_in_notebook(answers: Iterable[EarlyAnswer], rows: int, chart: Chosen) -> EarlyAnswer | None:
    """Show each answer where the one before stood; return the last, None when there is none."""
    display: Any = importlib.import_module("IPython.display").display
    altair = None if chart is False else _altair()
    handles: dict[str, Any] = {}
    last: EarlyAnswer | None = None
    for early in answers:
        shown = {"table": early.frame.head(rows)}
        column = charted_column(early.frame.schema, chart)
        if column is not None:
            shown["chart"] = chart_of(early, rows, column, altair)
        for kind, what in shown.items():
            if kind in handles:
                handles[kind].update(what)
            else:
                handles[kind] = display(what, display_id=True)
        last = early
    return last


def _altair() -> Any:
    try:
        return importlib.import_module("altair")
    except ImportError:
        raise PlanError(
            "show: charts in a notebook are drawn by altair, which is not installed",
            "pip install 'squill[notebook]', or say chart=False for the table alone.",
        ) from None


def chart_of(early: EarlyAnswer, rows: int, column: str, altair: Any) -> Any:
    """Return bars of one column of an answer, with their intervals where it has them."""
    bars = [bar for bar in bars_of(early.frame.head(rows), column) if bar is not None]
    values = [{"row": bar.label, "value": bar.value, "low": bar.low, "high": bar.high} for bar in bars]
    base = altair.Chart(altair.Data(values=values), title=title_of(early)).encode(
        y=altair.Y("row:N", sort=None, title=None)
    )
    drawn = base.mark_bar().encode(x=altair.X("value:Q", title=column))
    if all(bar.low is None and bar.high is None for bar in bars):
        return drawn
    bounded = base.transform_filter("datum.low !== null && datum.high !== null")
    return drawn + bounded.mark_errorbar(ticks=True).encode(x=altair.X("low:Q", title=column), x2="high:Q")

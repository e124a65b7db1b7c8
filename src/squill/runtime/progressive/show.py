"""Show early answers as they come, where the user looks."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from squill.errors import PlanError
from squill.runtime.progressive.early import EarlyAnswer
from squill.runtime.progressive.live_table import show_in_terminal
from squill.runtime.progressive.notebook import is_notebook, show_in_notebook
from squill.wording import shortened

__all__ = ["show"]


def show(
    answers: Iterable[EarlyAnswer], rows: int, *, chart: str | bool = True, console: Console | None = None
) -> EarlyAnswer | None:
    """Show each answer where the one before stood, in a notebook or in the terminal; return the last."""
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise PlanError(f"show: rows is {shortened(rows)}", "give a whole number of at least 1.")
    if not isinstance(chart, (str, bool)):
        raise PlanError(f"show: chart is {shortened(chart)}", "name a column of numbers, or say True or False.")
    if console is not None and not isinstance(console, Console):
        raise PlanError(f"show: console is {shortened(console)}", "give rich.console.Console(…), or leave it out.")
    if console is None and is_notebook():
        return show_in_notebook(answers, rows, chart)
    return show_in_terminal(answers, rows, chart, console)

"""Early answers on a terminal and in a notebook: a table that refines, and bars of one of its columns."""

from __future__ import annotations

import io
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import polars as pl
import pytest
from rich.console import Console

import squill as sq
from squill.errors import PlanError
from squill.plan.confidence import FIELDS
from squill.runtime.progressive.answers import EarlyAnswers
from squill.runtime.progressive.charted import Bar, bars_of, charted_column
from squill.runtime.progressive.live_table import BAR_WIDTH, bar_text

INTERVAL = pl.Struct(dict.fromkeys(FIELDS, pl.Float64))


def answers(**named: Any) -> EarlyAnswers:
    rows = {"user": list(range(60)), "ad": ["[a]", "b", "c"] * 20, "x": [float(n % 7) for n in range(60)]}
    return sq.from_frame(rows).group_aggregate("ad", **named).progressive(sq.progress.hashed("user", 4))


def printed(shown: EarlyAnswers, **options: Any) -> str:
    out = io.StringIO()
    shown.show(console=Console(file=out, width=120, force_terminal=False), **options)
    return out.getvalue()


# -- what is drawn --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("types", "chosen", "column"),
    [
        ({"ad": pl.Int64, "n": pl.Int64}, True, "n"),
        ({"ad": pl.String, "m": INTERVAL, "n": pl.Int64}, True, "m"),
        ({"ad": pl.String, "m": INTERVAL, "n": pl.Int64}, "n", "n"),
        ({"ad": pl.String, "n": pl.Int64}, False, None),
        ({"ad": pl.String}, True, None),
    ],
)
def test_the_column_that_is_drawn(types: dict[str, Any], chosen: str | bool, column: str | None) -> None:
    assert charted_column(pl.Schema(types), chosen) == column


@pytest.mark.parametrize(("chosen", "found"), [("ad", "is String"), ("m", "is not there")])
def test_a_column_that_cannot_be_drawn_is_refused(chosen: str, found: str) -> None:
    with pytest.raises(PlanError, match=f"show: chart='{chosen}' {found}; the columns of numbers are: n"):
        charted_column(pl.Schema({"ad": pl.String(), "n": pl.Int64()}), chosen)


def test_rows_are_told_apart_by_what_is_no_number_or_by_the_first_column() -> None:
    named = pl.DataFrame({"n": [1, 2], "ad": ["a", None], "on": [True, False]})
    assert bars_of(named, "n") == [Bar("a, True", 1.0), Bar(", False", 2.0)]
    numbered = pl.DataFrame({"ad": [7, 8], "x": [1.5, float("inf")]})
    assert bars_of(numbered, "x") == [Bar("7", 1.5), None]
    assert bars_of(numbered.select("x"), "x") == [Bar("1", 1.5), None]


def test_bounds_are_drawn_where_they_are_known() -> None:
    values = [{"estimate": 2.0, "low": 1.0, "high": 3.0}, {"estimate": 2.0, "low": None, "high": None}, None]
    rows = pl.DataFrame({"m": pl.Series(values, dtype=INTERVAL)})
    assert bars_of(rows, "m") == [Bar("1", 2.0, 1.0, 3.0), Bar("2", 2.0), None]


@pytest.mark.parametrize(
    ("bar", "low", "high", "drawn"),
    [
        (Bar("", 31.0), 0.0, 31.0, "█" * 32),
        (Bar("", 1.0), 0.0, 31.0, "██" + " " * 30),
        (Bar("", -1.0), -1.0, 30.0, "██" + " " * 30),
        (Bar("", 4.0, 2.0, 6.0), 0.0, 31.0, "██├─┼─┤" + " " * 25),
        (Bar("", 4.0, 4.0, 4.0), 0.0, 31.0, "█████" + " " * 27),
        (Bar("", 0.0), 0.0, 0.0, "█" + " " * 31),
    ],
)
def test_a_bar_reaches_from_zero_to_its_value_with_its_interval_over_it(
    bar: Bar, low: float, high: float, drawn: str
) -> None:
    assert BAR_WIDTH == 32
    assert bar_text(bar, low, high).plain == drawn


# -- in the terminal ------------------------------------------------------------------------------------------


def test_the_table_has_values_bounds_and_bars() -> None:
    text = printed(answers(n=sq.count(), m=sq.ci.mean("x")))
    assert "progress 3: final" in text
    assert "m, drawn" in text
    assert "[a]" in text
    assert text.count("█") > 10


def test_an_early_table_has_intervals() -> None:
    out = io.StringIO()
    rows = {"user": list(range(60)), "x": [float(n % 7) for n in range(60)]}
    stopped = sq.from_frame(rows).aggregate(m=sq.ci.mean("x")).progressive(sq.progress.hashed("user", 4), until=1e-9)
    stopped.show(console=Console(file=out, width=120, force_terminal=False))
    assert " to " in out.getvalue()
    assert "├" in out.getvalue()


def test_without_a_chart_there_is_only_the_table() -> None:
    text = printed(answers(n=sq.count()), chart=False)
    assert "drawn" not in text
    assert "█" not in text


@pytest.mark.parametrize(("options", "what"), [({"rows": 0}, "rows is 0"), ({"chart": 3}, "chart is 3")])
def test_what_cannot_be_shown_is_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(PlanError, match=f"show: {what}"):
        answers(n=sq.count()).show(**options)


# -- in a notebook --------------------------------------------------------------------------------------------


class Display:
    """Stands for a notebook: remembers what was displayed, by the place where it stands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, has_kernel: bool = True) -> None:
        self.places: list[list[Any]] = []
        shell = SimpleNamespace(kernel=object()) if has_kernel else SimpleNamespace()
        ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
        ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
        display.display = self.display  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, what: Any, *, display_id: bool) -> Any:
        assert display_id
        shown = [what]
        self.places.append(shown)
        return SimpleNamespace(update=shown.append)


def test_a_notebook_refines_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Display(monkeypatch)
    last = answers(n=sq.count()).show(rows=2, chart=False)
    assert last is not None
    assert last.is_final
    (tables,) = notebook.places
    assert [table.height for table in tables] == [2] * 4


def test_a_notebook_without_altair_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    Display(monkeypatch)
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(
        PlanError, match=r"drawn by altair, which is not installed\nHint: pip install 'squill\[notebook\]'"
    ):
        answers(n=sq.count()).show()


def test_ipython_in_a_terminal_is_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = Display(monkeypatch, has_kernel=False)
    answers(n=sq.count()).show()
    assert not notebook.places
    assert "progress 3: final" in capsys.readouterr().out


def test_a_notebook_refines_one_chart_with_error_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("altair")
    notebook = Display(monkeypatch)
    answers(n=sq.count(), m=sq.ci.mean("x")).show()
    _tables, charts = notebook.places
    first, *_, last = (chart.to_dict() for chart in charts)
    assert len(charts) == 4
    bars, errors = first["layer"]
    assert bars["mark"]["type"] == "bar"
    assert errors["mark"]["type"] == "errorbar"
    assert [row["low"] == row["value"] == row["high"] for row in last["data"]["values"]] == [True] * 3
    assert "final" in str(last["layer"][0]["title"])


def test_a_chart_of_plain_numbers_has_bars_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("altair")
    notebook = Display(monkeypatch)
    answers(n=sq.count()).show()
    _tables, charts = notebook.places
    drawn = charts[-1].to_dict()
    assert drawn["mark"]["type"] == "bar"
    assert {row["row"]: row["value"] for row in drawn["data"]["values"]} == {"[a]": 20.0, "b": 20.0, "c": 20.0}

"""`sq.source`: what may be pushed, what is refused, when rows go on."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import squill as sq
from squill.errors import PlanError, SquillError
from squill.pushed import PushedSource

SCHEMA = {"t": pl.Int64, "x": pl.Int64}


def connected(**arguments: Any) -> tuple[PushedSource, list[tuple[Any, ...]]]:
    """Return a source and the list that its closed rows go to."""
    source = sq.source(arguments.pop("schema", SCHEMA), start="t", **arguments)
    rows: list[tuple[Any, ...]] = []
    source.subscribe(lambda frame: rows.extend(frame.rows()), emit="closed")
    return source, rows


@pytest.mark.parametrize(
    "data",
    [
        [{"t": 1, "x": 5}, {"x": 6, "t": 2}],
        {"t": [1, 2], "x": [5, 6]},
        {"x": np.array([5, 6]), "t": np.array([1, 2])},
        {"t": pl.Series([1, 2]), "x": pl.Series([5, 6])},
        pl.DataFrame({"t": [1, 2], "x": [5, 6]}),
        pl.DataFrame({"x": [5, 6], "t": [1, 2]}),
        pl.concat([pl.DataFrame({"t": [1], "x": [5]}), pl.DataFrame({"t": [2], "x": [6]})], rechunk=False),
        pa.table({"t": [1, 2], "x": [5, 6]}),
        pa.RecordBatch.from_pydict({"t": [1, 2], "x": [5, 6]}),
    ],
)
def test_rows_come_in_many_forms(data: Any) -> None:
    source, rows = connected()
    source.push(data)
    source.complete()
    assert rows == [(1, 2, 5), (2, 3, 6)]


def test_one_row_is_a_dict_of_values() -> None:
    source, rows = connected(schema={"t": pl.Int64, "l": pl.List(pl.Int64)})
    source.push({"t": 1, "l": [5, 6]})
    source.complete()
    assert rows == [(1, 2, [5, 6])]


def test_nulls_take_the_type_of_their_column() -> None:
    source, rows = connected()
    source.push(pl.DataFrame({"t": [1], "x": [None]}))
    source.push({"t": 2, "x": None})
    source.complete()
    assert rows == [(1, 2, None), (2, 3, None)]


def test_an_empty_push_is_fine() -> None:
    source, rows = connected()
    source.push([])
    source.push(pl.DataFrame(schema=SCHEMA))
    source.complete()
    assert rows == []


@pytest.mark.parametrize(
    "bad",
    [
        {"t": [7, 3], "x": [1, 2]},
        {"t": [7, None], "x": [1, 2]},
        {"t": [7], "x": ["a"]},
        {"t": 7},
    ],
)
def test_a_refused_push_leaves_the_source_as_it_was(bad: Any) -> None:
    source, rows = connected()
    source.push({"t": 5, "x": 1})
    with pytest.raises(SquillError):
        source.push(bad)
    source.push({"t": 6, "x": 2})
    source.complete()
    assert rows == [(5, 6, 1), (6, 7, 2)]
    assert source.counts == {"late": 0, "empty": 0, "waiting": 0}


def test_late_rows_stand_aside_with_how_late_they_were() -> None:
    source, _ = connected(disorder=sq.drop())
    source.push({"t": [9, 4, 7], "x": [1, 2, 3]})
    assert source.late.to_dict(as_series=False) == {"start": [4, 7], "end": [5, 8], "x": [2, 3], "late_by": [5, 2]}
    assert source.take_late().height == 2
    assert source.late.is_empty()
    assert source.counts["late"] == 2


def test_only_the_newest_late_rows_are_kept_and_all_are_counted() -> None:
    source, _ = connected(disorder=sq.drop(), keep_late=3)
    source.push({"t": [9, *range(5)], "x": [1, *range(5)]})
    assert source.late["x"].to_list() == [2, 3, 4]
    source.push({"t": 7, "x": 7})
    assert source.take_late()["x"].to_list() == [3, 4, 7]
    source.push({"t": 8, "x": 8})
    assert source.late["x"].to_list() == [8]
    assert source.counts["late"] == 7


def test_late_rows_may_be_counted_only() -> None:
    source, _ = connected(disorder=sq.adjust(), keep_late=0)
    source.push({"t": [9, 4, 7], "x": [1, 2, 3]})
    assert source.late.to_dict(as_series=False) == {"start": [], "end": [], "x": [], "late_by": []}
    assert source.counts["late"] == 2


@pytest.mark.parametrize("keep", [-1, 1.5, True, None, "9"])
def test_keep_late_is_a_whole_number(keep: Any) -> None:
    with pytest.raises(PlanError, match=r"source: keep_late is .*(.|\n)*at least 0"):
        sq.source(SCHEMA, start="t", keep_late=keep)


def test_a_payload_column_called_late_by_stays_what_it_is() -> None:
    source, _ = connected(schema={"t": pl.Int64, "late_by": pl.String}, disorder=sq.drop())
    source.push({"t": [9, 4], "late_by": ["no", "yes"]})
    assert source.late.to_dicts() == [{"start": 4, "end": 5, "late_by": "yes", "late_by_": 5}]


def test_late_by_is_a_duration_where_times_are_dates_or_datetimes() -> None:
    day, _ = connected(schema={"t": pl.Date}, disorder=sq.adjust())
    day.push({"t": [dt.date(2020, 1, 5), dt.date(2020, 1, 2)]})
    assert day.late["late_by"].to_list() == [dt.timedelta(days=3)]
    moment, _ = connected(schema={"t": pl.Datetime("us")}, disorder=sq.adjust())
    moment.push({"t": [dt.datetime(2020, 1, 5), dt.datetime(2020, 1, 4, 23)]})
    assert moment.late["late_by"].to_list() == [dt.timedelta(hours=1)]


def test_stragglers_are_waited_for() -> None:
    source, rows = connected(disorder=sq.drop(wait=5))
    for t in (10, 7, 13, 9, 20, 11):
        source.push({"t": t, "x": t})
    source.complete()
    assert [row[0] for row in rows] == [7, 9, 10, 13, 20]
    assert source.late["x"].to_list() == [11]


def test_empty_lifetimes_are_counted() -> None:
    source, _ = connected(schema={"t": pl.Int64, "u": pl.Int64}, end="u")
    source.push({"t": [1, 2], "u": [1, 5]})
    assert source.counts["empty"] == 1


def test_without_max_delay_every_push_goes_on_at_once() -> None:
    source, rows = connected()
    source.push({"t": 1, "x": 1})
    source.push({"t": 2, "x": 2})
    assert rows == [(1, 2, 1)]


def coalescing(clock: list[float]) -> tuple[PushedSource, list[tuple[Any, ...]]]:
    source, rows = connected(max_delay="5ms")
    source._feed._now = lambda: clock[0]
    return source, rows


def test_with_max_delay_rows_wait_for_company() -> None:
    clock = [0.0]
    source, rows = coalescing(clock)
    source.push({"t": 1, "x": 1})
    source.push({"t": 3, "x": 2})
    assert rows == []
    clock[0] = 0.005
    source.push({"t": 4, "x": 3})
    assert rows == [(1, 2, 1), (3, 4, 2)]


@pytest.mark.parametrize("act", ["flush", "punctuate", "complete", "many"])
def test_waiting_rows_go_on_when_asked(act: str) -> None:
    source, rows = coalescing([0.0])
    source.push({"t": [1, 1], "x": [1, 2]})
    match act:
        case "flush":
            source.push({"t": 2, "x": 3})
            source.flush()
        case "punctuate":
            source.punctuate(2)
        case "complete":
            source.complete()
        case _:
            source.push({"t": np.full(65_536, 2), "x": np.zeros(65_536, np.int64)})
    assert rows == [(1, 2, 1), (1, 2, 2)]


class Clocks:
    """Remembers rows and punctuations in the order in which they come."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def push(self, batch: Any, port: int = 0) -> None:
        self.seen += [f"row {t}" for t in batch.sync.tolist()]

    def advance(self, t: int, port: int = 0) -> None:
        self.seen.append(f"punctuation {t}")

    def settle(self) -> None:
        """Nothing to hand out."""


def test_punctuations_are_generated_before_the_row_that_passes_a_multiple() -> None:
    source = sq.source({"t": pl.Int64}, start="t", punctuate_every=2)
    clocks = Clocks()
    source._feed.attach(clocks)
    source.push({"t": [1, 2, 4, 7, 20, 22, 34, 35]})
    assert clocks.seen == [
        "row 1", "punctuation 2", "row 2", "punctuation 4", "row 4", "punctuation 6", "row 7", "punctuation 20",
        "row 20", "punctuation 22", "row 22", "punctuation 34", "row 34", "row 35", "punctuation 35",
    ]  # fmt: skip


def test_given_and_generated_punctuations_stand_together() -> None:
    source = sq.source({"t": pl.Int64}, start="t", punctuate_every=100)
    clocks = Clocks()
    source._feed.attach(clocks)
    source.push({"t": [90]})
    source.punctuate(80)
    source.push({"t": [110, 195, 200]})
    source.punctuate(300)
    source.push({"t": [300]})
    generated = [item for item in dict.fromkeys(clocks.seen) if item.startswith("punctuation")]
    assert generated == ["punctuation 90", "punctuation 100", "punctuation 200", "punctuation 300"]


def test_a_feed_goes_on_where_a_saved_one_stood() -> None:
    first, _ = connected(disorder=sq.drop(wait=5))
    first.push({"t": [10, 12, 6], "x": [1, 2, 9]})
    second, rows = connected(disorder=sq.drop(wait=5))
    second._feed.load(first._feed.save())
    assert second.late.equals(first.late)
    assert second.counts == first.counts
    second.push({"t": 9, "x": 3})
    second.complete()
    assert [row[0] for row in rows] == [9, 10, 12]

"""Worked cases of a source that makes punctuations itself: their events are pushed one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.testing import Row, assert_same_events
from tests.conformance.cases import CASES, PUSHED
from tests.conformance.cases import columns_of as payload_of

TYPES: dict[type, Any] = {int: pl.Int64, str: pl.String}


def rows_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events in order; a pushed row knows its end, so a start edge is given that of its end edge."""
    ends = {(event["start"], event["payload"]): event["end"] for event in events if event["kind"] == "end_edge"}
    known = []
    for event in events:
        if event["kind"] == "start_edge":
            known.append({**event, "end": ends.get((event["start"], event["payload"]))})
        elif event["kind"] != "end_edge":
            known.append(event)
    return known


def schema_of(case: Mapping[str, Any]) -> dict[str, Any]:
    payload = payload_of(case["expected_lifetimes"][0]["payload"])
    return {"start": pl.Int64, "end": pl.Int64, **{name: TYPES[type(value)] for name, value in payload.items()}}


@pytest.mark.parametrize("name", PUSHED)
@pytest.mark.parametrize("one_by_one", [True, False])
def test_pushed_events_give_the_expected_rows(name: str, one_by_one: bool) -> None:
    case = CASES[name]
    max_delay = None if one_by_one else "1h"
    source = sq.source(
        schema_of(case), start="start", end="end", punctuate_every=PUSHED[name].punctuate_every, max_delay=max_delay
    )
    frames: list[pl.DataFrame] = []
    source.subscribe(frames.append, emit="closed", timer=False)
    clocks = Clocks()
    source._feed.attach(clocks)
    for event in rows_of(case["input"]["in"]):
        if event["kind"] != "punctuation":
            source.push({"start": event["start"], "end": event["end"], **payload_of(event["payload"])})
        elif event["start"] is not None:
            source.punctuate(event["start"])
    source.complete()
    expected = [Row(row["start"], row["end"], payload_of(row["payload"])) for row in case["expected_lifetimes"]]
    assert_same_events(pl.concat(frames), expected)
    assert PUSHED[name].generated <= set(clocks.seen)


class Clocks:
    """Remembers the times that a source tells."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def push(self, batch: Any) -> None:
        """Rows are looked at elsewhere."""

    def advance(self, t: int) -> None:
        self.seen.append(t)

    def settle(self) -> None:
        """Nothing to hand out."""

"""Bytewax: one Python object per event; a hopping window holds each event size / hop times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import polars as pl

from benchmarks.harness import Side
from benchmarks.hopping import Hopping

__all__ = ["BYTEWAX", "bytewax_hopping", "bytewax_module", "bytewax_side"]

BYTEWAX = "bytewax"
MISSING = None if find_spec("bytewax") else "not installed (make bench installs it)"
COPIED_EVENTS = 100_000
ORIGIN = datetime(2023, 1, 1, tzinfo=UTC)
BATCH = 1_000

Row = dict[str, Any]


def bytewax_side(step: Callable[[Any], Any], rows: Callable[[list[Row]], pl.DataFrame]) -> Side:
    """Return a flow of one step over events as dicts; `step` is given the stream and returns it."""
    return Side(
        name=BYTEWAX,
        prepare=lambda frame: _flow(frame.to_dicts(), step),
        rows=rows,
        most_events=100_000,
        missing=MISSING,
    )


def bytewax_hopping(query: Hopping) -> Side | None:
    """Return a sliding window of Bytewax, or None when so few events would fit that nothing is learnt."""
    most = min(10_000, COPIED_EVENTS // query.copies)
    if most < 500:
        return None
    return Side(
        name=BYTEWAX,
        prepare=lambda frame: _flow(_keyed(query, frame), lambda stream: _windows(query, stream)),
        rows=lambda items: _per_window(query, items),
        form=query.per_window,
        most_events=most,
        missing=MISSING,
    )


def _flow(items: list[Any], step: Callable[[Any], Any]) -> Callable[[], list[Any]]:
    op, testing = bytewax_module("operators"), bytewax_module("testing")

    def run() -> list[Any]:
        found: list[Any] = []
        flow = bytewax_module("dataflow").Dataflow("benchmark")
        op.output("out", step(op.input("in", flow, testing.TestingSource(items, BATCH))), testing.TestingSink(found))
        testing.run_main(flow)
        return found

    return run


def bytewax_module(name: str) -> Any:
    """Import a module of Bytewax when it is needed, as it may not be installed."""
    return import_module(f"bytewax.{name}")


def _keyed(query: Hopping, frame: pl.DataFrame) -> list[tuple[str, tuple[datetime, Any]]]:
    times = frame["ts"].dt.replace_time_zone("UTC").to_list()
    keys = frame[query.key].cast(pl.String).to_list() if query.key is not None else [""] * len(times)
    values = frame[query.value].to_list() if query.value is not None else [1] * len(times)
    return list(zip(keys, zip(times, values, strict=True), strict=True))


def _windows(query: Hopping, stream: Any) -> Any:
    windowing = bytewax_module("operators.windowing")
    # The data is in order, so waiting changes no answer; without it an event could be late by the machine's clock.
    clock = windowing.EventClock(lambda item: item[0], wait_for_system_duration=timedelta(days=1))
    windower = windowing.SlidingWindower(length=query.size, offset=query.hop, align_to=ORIGIN)
    folded = windowing.fold_window(
        "fold", stream, clock, windower, lambda: 0, lambda total, item: total + item[1], lambda a, b: a + b, False
    )
    return folded.down


def _per_window(query: Hopping, items: list[Any]) -> pl.DataFrame:
    end = [(ORIGIN + query.hop * window + query.size).replace(tzinfo=None) for _, (window, _) in items]
    columns: dict[str, Any] = {name: [key for key, _ in items] for name in query.keys}
    columns |= {query.result: [value for _, (_, value) in items], "window_end": end}
    return pl.DataFrame(columns)

"""Builders of streams for tests."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

import squill as sq
from squill.plan.events import Event
from squill.plan.schema import Schema
from squill.stream import Stream
from squill.testing.reference.rows import Row, typed_frame
from squill.time import INFINITY

__all__ = ["from_rows", "random_stream"]

KINDS = ("points", "intervals", "endless", "edges", "mixed")


def from_rows(rows: Iterable[Row], schema: Mapping[str, Any]) -> Stream:
    """Return a stream of exactly these rows, in integer time.

    Examples
    --------
    >>> from squill.testing import Row, reference
    >>> reference.run(from_rows([Row(1, 5, {"x": 1})], {"x": pl.Int64}))
    [Row(1, 5, x=1)]
    """
    listed = list(rows)
    times = pl.DataFrame(
        {
            "start": [row.start for row in listed],
            "end": [None if row.end == INFINITY else row.end for row in listed],
        },
        schema={"start": pl.Int64, "end": pl.Int64},
    )
    payload = typed_frame([row.payload for row in listed], Schema(schema))
    return sq.from_frame(pl.DataFrame([*times.get_columns(), *payload.get_columns()]), start="start", end="end")


def random_stream(
    seed: int,
    *,
    rows: int = 100,
    kind: str = "mixed",
    keys: int = 5,
    span: int = 100,
    longest: int = 20,
    nulls: float = 0.1,
) -> Stream:
    """Return a stream that is the same for equal arguments, with the columns key, n, x, name and flag.

    Times lie in [−span/2, span), so simultaneous events and negative times occur; low keys are frequent
    (key k about 2^k times rarer than key 0); every column but `key` is null with probability `nulls`.

    Parameters
    ----------
    kind
        "points", "intervals", "endless", "edges" (start and end edges, some never ended), or "mixed".
    longest
        The longest lifetime of an interval.
    """
    if kind not in KINDS:
        raise ValueError(f"random_stream: kind is {kind!r}; use one of {', '.join(KINDS)}")
    chance = random.Random(seed)
    timed: list[tuple[int, int, Event]] = []
    for _ in range(rows):
        chosen = chance.choice(KINDS[:-1]) if kind == "mixed" else kind
        start = chance.randrange(-span // 2, span)
        payload = _payload(chance, keys, nulls)
        timed.extend(_event(chosen, start, start + chance.randint(1, longest), payload, chance))
    timed.sort(key=lambda item: item[:2])
    return sq.from_events([event for _, _, event in timed], schema=SCHEMA)


SCHEMA: dict[str, Any] = {
    "key": pl.Int64, "n": pl.Int64, "x": pl.Float64, "name": pl.String, "flag": pl.Boolean,
}  # fmt: skip


def _payload(chance: random.Random, keys: int, nulls: float) -> dict[str, Any]:
    key = 0
    while key < keys - 1 and chance.random() < 0.5:
        key += 1
    values = {
        "n": chance.randint(-9, 9),
        "x": chance.randint(-40, 40) / 4,
        "name": chance.choice(["a", "b", "ab", ""]),
        "flag": chance.random() < 0.5,
    }
    return {
        "key": key,
        **{name: None if chance.random() < nulls else value for name, value in values.items()},
    }


def _event(
    kind: str, start: int, end: int, payload: dict[str, Any], chance: random.Random
) -> list[tuple[int, int, Event]]:
    """Return (sync, starts before ends, event) of what one event is made of."""
    if kind == "points":
        return [(start, 0, sq.point(start, **payload))]
    if kind == "intervals":
        return [(start, 0, sq.interval(start, end, **payload))]
    begun: tuple[int, int, Event] = (start, 0, sq.start_edge(start, **payload))
    if kind == "endless" or chance.random() < 0.2:
        return [begun]
    return [begun, (end, 1, sq.end_edge(end, start, **payload))]

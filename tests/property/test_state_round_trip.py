"""Every operator is saved and loaded into a fresh one after every batch: the answer stays the same.

The state goes through a pickle, or through the files of a checkpoint, a new version after every batch.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from squill.engine.compile import compile_plan
from squill.engine.egress import CollectSink
from squill.engine.ingress import Arrival
from squill.engine.run import source_arrivals
from squill.engine.state.folder import StoredState
from squill.engine.state.journal import Journal
from squill.errors import SquillError
from squill.plan.node import Node
from squill.plan.nodes import Chop
from squill.plan.rewrite import rewrite
from squill.stream import Stream
from squill.testing import assert_same_events
from squill.time import INFINITY
from tests.dividing import divide_early
from tests.property.test_engine_equals_reference import ENABLED, HAS_EVENTS_SOURCE, asked, thorough
from tests.strategies import describe, relations, streams


def arrivals_in_order(node: Node, batch_rows: int) -> Iterator[tuple[int, Arrival | None]]:
    """Yield (entry, arrival) as the runner would push them; None completes the entry."""
    sources = compile_plan(node, CollectSink(node)).entries
    everything: list[tuple[int, int, Arrival]] = []
    for number, (source, _) in enumerate(sources):
        for arrival in source_arrivals(source, batch_rows):
            has_rows = arrival.batch is not None and len(arrival.batch)
            first = int(arrival.batch.sync[0]) if has_rows and arrival.batch is not None else arrival.clock
            if first is not None:
                everything.append((first, number, arrival))
    for _, number, arrival in sorted(everything, key=lambda item: item[0]):
        yield number, arrival
    for number in range(len(sources)):
        yield number, None


Passing = Callable[[Any], Any]


def through_pickle(state: Any) -> Any:
    return pickle.loads(pickle.dumps(state))


class ThroughFiles:
    """Writes every state as a version on the one before, and goes on from what it reads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stored: StoredState | None = None

    def __call__(self, state: Any) -> Any:
        journal = Journal("any plan")
        if self._stored is not None:
            self._stored.go_on(journal)
        # What the disk has when the power fails is not asked here.
        with patch("os.fsync"):
            journal.checkpoint(self._folder, state)
            journal.wait()
        self._stored = StoredState(self._folder)
        return self._stored.read()


def collect_with_restarts(query: Stream, batch_rows: int, pass_on: Passing = through_pickle) -> pl.DataFrame:
    node = rewrite(query.plan)
    pipeline = compile_plan(node, CollectSink(node))
    for number, arrival in arrivals_in_order(node, batch_rows):
        entry = pipeline.entries[number][1]
        if arrival is None:
            entry.advance(INFINITY)
        else:
            if arrival.batch is not None and len(arrival.batch):
                entry.push(arrival.batch)
            if arrival.clock is not None:
                entry.advance(arrival.clock)
        saved = pass_on(pipeline.save())
        pipeline = compile_plan(node, CollectSink(node))
        pipeline.load(saved)
    sink = pipeline.sink
    assert isinstance(sink, CollectSink)
    return sink.frame()


def assert_restarts_change_nothing(query: Stream) -> None:
    note(describe(query))
    try:
        expected = query.collect()
    except SquillError:
        return
    for batch_rows in (1, 3):
        assert_same_events(collect_with_restarts(query, batch_rows), expected, scale=1e3)


def assert_checkpoints_change_nothing(query: Stream) -> None:
    note(describe(query))
    try:
        expected = query.collect()
    except SquillError:
        return
    with tempfile.TemporaryDirectory() as folder:
        assert_same_events(collect_with_restarts(query, 2, ThroughFiles(Path(folder))), expected, scale=1e3)


@thorough
@given(asked(ENABLED, streams(edges=HAS_EVENTS_SOURCE)))
def test_chains_survive_a_restart_at_every_batch(query: Stream) -> None:
    assert_restarts_change_nothing(query)


def test_groups_that_are_more_than_memory_holds_survive_a_restart_at_every_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    divide_early(monkeypatch)

    @settings(thorough, max_examples=40)
    @given(asked(("group_aggregate", "aggregate", "distinct", "where"), relations()))
    def agree(query: Stream) -> None:
        assert_restarts_change_nothing(query)

    agree()


@pytest.mark.parametrize("step", ENABLED)
def test_each_step_survives_a_restart_at_every_batch(step: str) -> None:
    @settings(thorough, max_examples=15)
    @given(asked([step], streams(edges=HAS_EVENTS_SOURCE, max_rows=15), most=1))
    def survives(query: Stream) -> None:
        assert_restarts_change_nothing(query)

    survives()


@pytest.mark.parametrize("step", ENABLED)
def test_each_step_survives_checkpoints(step: str) -> None:
    @settings(thorough, max_examples=6)
    @given(asked([step], streams(edges=HAS_EVENTS_SOURCE, max_rows=12), most=2))
    def survives(query: Stream) -> None:
        assert_checkpoints_change_nothing(query)

    survives()


@settings(thorough, max_examples=15)
@given(streams(edges=HAS_EVENTS_SOURCE, max_rows=15), st.integers(1, 4), st.integers(0, 20))
def test_chops_that_end_survive_a_restart_at_every_batch(stream: Stream, period: int, until: int) -> None:
    assert_restarts_change_nothing(Stream(Chop(parent=stream.plan, period=period, offset=0, until=until)))

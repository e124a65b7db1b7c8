"""Operators over two inputs give the reference's answer, for every batch size and with a restart at every batch."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from squill.stream import Stream
from tests.dividing import divide_early
from tests.property.test_engine_equals_reference import assert_engine_agrees, thorough
from tests.property.test_state_round_trip import assert_restarts_change_nothing
from tests.strategies_two_inputs import asof_joins, lookups, narrowed, relational_joins

restarts = settings(thorough, max_examples=60)


@thorough
@given(asof_joins())
def test_asof_joins(query: Stream) -> None:
    assert_engine_agrees(query)


@restarts
@given(asof_joins())
def test_asof_joins_survive_a_restart_at_every_batch(query: Stream) -> None:
    assert_restarts_change_nothing(query)


@thorough
@given(lookups())
def test_lookups(query: Stream) -> None:
    assert_engine_agrees(query)


@restarts
@given(lookups())
def test_lookups_survive_a_restart_at_every_batch(query: Stream) -> None:
    assert_restarts_change_nothing(query)


@thorough
@given(relational_joins())
def test_relational_joins(query: Stream) -> None:
    assert_engine_agrees(query)


@restarts
@given(relational_joins())
def test_relational_joins_survive_a_restart_at_every_batch(query: Stream) -> None:
    assert_restarts_change_nothing(query)


def test_relational_joins_whose_tables_are_more_than_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    divide_early(monkeypatch)

    @restarts
    @given(relational_joins())
    def agree(query: Stream) -> None:
        assert_engine_agrees(query)
        assert_restarts_change_nothing(query)

    agree()


@thorough
@given(narrowed())
def test_operators_of_which_little_is_used(query: Stream) -> None:
    assert_engine_agrees(query)


@restarts
@given(narrowed())
def test_operators_of_which_little_is_used_survive_a_restart_at_every_batch(query: Stream) -> None:
    assert_restarts_change_nothing(query)

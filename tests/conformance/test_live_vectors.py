"""Every worked case as a stream in random epochs, with shards divided in between: the answer of one run."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest

from tests.conformance.cases import CASES, QUERIES
from tests.live_plans import EMITS, Cut, assert_live_gives

ALL = [
    Cut(seed=1, restarts=True),
    Cut(seed=2, shards=2, restarts=True, grows=2),
    Cut(seed=3, waits=True, restarts=True),
    Cut(seed=4, shards=2, waits=True, restarts=True, grows=2),
]
CUTS = {"closed": ALL[1:3], "changes": [ALL[0], ALL[3]]}
"""All of them, and others, for both forms are tried where there is time: see `SQUILL_RANDOM`."""


def cuts(emit: str) -> list[Cut]:
    if not os.environ.get("SQUILL_RANDOM"):
        return CUTS[emit]
    return [replace(cut, seed=random.randrange(1 << 30)) for cut in ALL for _ in range(3)]


@pytest.mark.filterwarnings("ignore:detect. the functions of the pattern run as plain Python")
@pytest.mark.parametrize("emit", EMITS)
@pytest.mark.parametrize("name", QUERIES)
def test_epochs_give_the_answer_of_one_run(name: str, emit: str) -> None:
    stream = QUERIES[name].stream(CASES[name])
    expected = stream.collect()
    for cut in cuts(emit):
        assert_live_gives(stream, emit, cut, expected)


@pytest.mark.faults
@pytest.mark.filterwarnings("ignore:detect. the functions of the pattern run as plain Python")
@pytest.mark.parametrize("name", QUERIES)
def test_a_query_that_begins_from_stored_rows_gives_the_answer_of_one_run(name: str) -> None:
    stream = QUERIES[name].stream(CASES[name])
    expected = stream.collect()
    for cut in (Cut(seed=5, begins=True), Cut(seed=6, shards=3, begins=True, restarts=True)):
        assert_live_gives(stream, "closed", cut, expected)

"""Every operator: a run that is saved and goes on in another process gives the rows of one that was not."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from squill.engine import operator
from squill.engine.compile import load_operators
from squill.plan.node import walk
from squill.plan.nodes.progress import EachStep
from squill.plan.rewrite import rewrite
from tests.unit.engine.state.queries import CASES, pieces, source_of, started

SEED = 5
IN_NO_QUERY = {EachStep}
"""What progressive queries over time are made into; `test_each_step` saves it."""
# Aggregates without deaccumulate, and such as Numba cannot compile, warn.
pytestmark = pytest.mark.filterwarnings("ignore")


class OtherProcess:
    """A process that restores; it is started once and has seen nothing but the files."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.unit.engine.state.worker"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def rows(self, *task: Any) -> list[str]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        print(json.dumps(task), file=stdin, flush=True)
        found = json.loads(stdout.readline())
        assert isinstance(found, list), found
        return found

    def close(self) -> None:
        # Its end of the pipes too: what is left open fails whichever test runs when it is collected.
        self._process.communicate()


@pytest.fixture(scope="module")
def other() -> Iterator[OtherProcess]:
    process = OtherProcess()
    yield process
    process.close()


def uninterrupted(name: str) -> list[str]:
    rows: list[str] = []
    source, _ = started(name, lambda frame: rows.extend(map(repr, frame.rows())))
    for piece in pieces(name, SEED):
        source.push(piece)
    source.complete()
    return rows


@pytest.mark.parametrize("name", CASES)
def test_a_restart_in_another_process_changes_nothing(name: str, tmp_path: Path, other: OtherProcess) -> None:
    expected = uninterrupted(name)
    assert expected
    given = pieces(name, SEED)
    cut = random.Random(name).randrange(1, len(given))
    rows: list[str] = []
    source, subscription = started(name, lambda frame: rows.extend(map(repr, frame.rows())))
    for piece in given[:cut]:
        source.push(piece)
        # Every version but the first is a log on the one before.
        subscription.checkpoint(tmp_path / "state")
    rest = other.rows(name, str(tmp_path / "state"), SEED, cut)
    together = rows + rest
    if name == "company":  # a checkpoint sends waiting rows on early
        assert sorted(together) == sorted(expected)
    else:
        assert together == expected


def test_there_is_a_case_for_every_operator() -> None:
    load_operators()
    found = {type(node) for case in CASES.values() for node in walk(rewrite(case.query(source_of(case)).plan))}
    missing = {kind for kind in operator._FACTORIES if kind not in found}
    assert missing == IN_NO_QUERY

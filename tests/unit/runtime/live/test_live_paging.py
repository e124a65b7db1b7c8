"""States that do not fit into memory: they come and go, and the answers stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.engine import machine_memory
from squill.errors import PlanError
from squill.runtime.live import share
from squill.testing import LiveTest, scripted
from tests.unit.runtime.live.keyed import KEYED
from tests.unit.runtime.live.test_live_division import SCHEMA, by_key, rows

WHOLE = 1 << 30


def run(name: str, memory: int | None, *, shards: int = 4) -> tuple[list[Any], int]:
    """Return what each step gives, and how often states were read."""
    clicks = scripted(SCHEMA, start="t", end="u")
    found = []
    with LiveTest(by_key(KEYED[name]), {"clicks": clicks}, shards=shards, memory=memory) as test:
        for step in range(4):
            test.push("clicks", rows(step))
            found.append(sorted(test.step().rows()))
        found.append(sorted(test.complete().rows()))
        return found, test.progress.loads


@pytest.mark.parametrize("name", ["windows", "with itself"])
def test_with_hardly_any_memory_the_answers_are_the_same(name: str) -> None:
    expected, loads = run(name, WHOLE)
    found, more_loads = run(name, 1)
    assert found == expected
    # Four shards at least in four epochs after the first; those that read the source have nothing to keep.
    assert loads == 0
    assert more_loads >= 16


def test_what_fits_stays() -> None:
    clicks = scripted(SCHEMA, start="t", end="u")
    with LiveTest(by_key(KEYED["running"]), {"clicks": clicks}, shards=4, memory=WHOLE) as test:
        test.push("clicks", rows(0))
        test.step()
        size = sum(test.progress.state_bytes.values())
    _, loads = run("running", 2 * size // 3)
    assert 0 < loads < 24


def grown(name: str, memory: int, keys: int) -> tuple[list[Any], list[int]]:
    """Return the answer, and how many shards there were after each step."""
    clicks = scripted(SCHEMA, start="t", end="u")
    with LiveTest(by_key(KEYED[name]), {"clicks": clicks}, shards=2, memory=memory) as test:
        shards = []
        for step in range(5):
            many = {"t": [5 * step] * keys, "u": [5 * step + 9] * keys, "k": list(range(keys)), "x": [step] * keys}
            test.push("clicks", many)
            test.step()
            shards.append(test.progress.shards)
            if step == 3:
                test.restart()  # it has as many as it had
        test.complete()
        return sorted(test.answer().rows()), shards


def test_shards_whose_states_outgrow_the_memory_are_divided() -> None:
    expected, shards = grown("windows", WHOLE, 5_000)
    assert shards == [2] * 5
    found, shards = grown("windows", 100_000, 5_000)
    assert found == expected
    assert shards[:2] == [2, 4]
    assert shards[-1] >= 8


def test_what_does_not_get_smaller_is_not_divided_for_ever() -> None:
    expected, _ = grown("windows", WHOLE, 1)
    found, shards = grown("windows", 1, 1)
    assert found == expected
    assert shards[-1] <= 4


def test_early_answers_and_threads_with_hardly_any_memory(tmp_path: Path) -> None:
    answers = []
    for memory in (WHOLE, 1):
        folder = tmp_path / str(memory)
        (folder / "in").mkdir(parents=True)
        for step in range(3):
            pl.DataFrame(rows(step), schema=SCHEMA).write_parquet(folder / "in" / f"{step}.parquet")
        taken: list[pl.DataFrame] = []
        with sq.local(cores=3) as cluster:
            clicks = cluster.stream(folder / "in", start="t", end="u", files_per_epoch=1)
            query = by_key(KEYED["sessions"])(clicks).start(
                taken.append, emit="changes", speculate=True, until_now=True, memory=memory
            )
            query.wait()
        answers.append([sorted(frame.rows()) for frame in taken])
    assert answers[0] == answers[1]


def test_memory_that_is_no_number_is_refused() -> None:
    with pytest.raises(PlanError, match=r"start: memory is '2GB'\n.*give a number of bytes"):
        LiveTest(by_key(KEYED["windows"]), {"clicks": scripted(SCHEMA, start="t", end="u")}, memory="2GB")  # type: ignore[arg-type]


def test_processes_of_a_machine_share_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "limit"
    monkeypatch.setattr(machine_memory, "LIMITS", (str(limit),))
    whole = share.default_memory()
    assert share.default_memory(4) == whole // 4
    limit.write_text("8000000\n")
    assert share.default_memory(2) == 2_000_000
    limit.write_text("max\n")
    assert share.default_memory() == whole

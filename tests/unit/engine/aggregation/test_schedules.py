"""All schedules tell the same changes, whatever the batches and however little they may tell at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from squill.engine.aggregation import schedule as schedule_module
from squill.engine.aggregation.heap_schedule import GeneralSchedule
from squill.engine.aggregation.queue_schedules import CountSchedule, FifoSchedule
from squill.engine.aggregation.schedule import Column, Deltas, Schedule
from squill.engine.batch import Batch, Int64s
from squill.time import INFINITY

Cells = list[tuple[int, int, int]]
SLOTS = 40
INT64 = np.dtype(np.int64)


def variants() -> dict[str, Schedule]:
    made: dict[str, Schedule] = {
        "counts": CountSchedule(),
        "first in, first out": FifoSchedule([INT64]),
        "any order": GeneralSchedule([INT64]),
    }
    for item in made.values():
        item.ensure_slots(SLOTS)
    return made


def expected(starts: Int64s, slots: Sequence[int], duration: int) -> Cells:
    """The cells of all instants at which something starts or ends: (time, slot, how many are alive then)."""
    alive: Counter[int] = Counter()
    changes: dict[int, Counter[int]] = {}
    for start, slot in zip(starts.tolist(), slots, strict=True):
        changes.setdefault(start, Counter())[slot] += 1
        changes.setdefault(start + duration, Counter())[slot] -= 1
    cells: Cells = []
    for time in sorted(changes):
        for slot in sorted(changes[time]):
            alive[slot] += changes[time][slot]
            cells.append((time, slot, alive[slot]))
    return cells


def told(schedule: Schedule, batch: Batch | None, slots: Int64s, bound: int) -> Cells:
    columns: list[Column] = [(slots.astype(np.int64), np.ones(len(slots), np.uint8)) for _ in schedule.column_types]
    return finished(schedule.run(batch, slots.astype(np.int32), columns, bound))


def told_by_slot(schedule: Schedule, batch: Batch, slots: Int64s, bound: int) -> Cells:
    """As `told`, of rows of one start; some slots come twice."""
    half = len(slots) // 2
    counted = [np.unique(part, return_counts=True) for part in (slots[:half], slots[half:])]
    found, counts = (np.concatenate(parts) for parts in zip(*counted, strict=True))
    return finished(schedule.run_tally(batch, found.astype(np.int32), counts, bound))


def finished(changes: Iterator[Deltas]) -> Cells:
    cells: Cells = []
    for deltas in changes:
        parts = (deltas.cell_time, deltas.cell_slot, deltas.cell_alive)
        cells += zip(*(part[: deltas.cells].tolist() for part in parts), strict=True)
    return cells


@pytest.mark.parametrize("name", list(variants()))
@pytest.mark.parametrize("is_duration_said", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_cells_are_those_of_a_model(
    name: str, is_duration_said: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_module, "CHUNK", 16)
    random = np.random.default_rng(seed)
    rows, instants, duration = 300, int(random.choice([3, 30, 300])), int(random.choice([1, 7, 100]))
    starts = np.sort(random.integers(0, instants, rows))
    slots = random.integers(0, SLOTS, rows)
    schedule = variants()[name]
    cells: Cells = []
    begin = 0
    while begin < rows:
        end = min(rows, begin + int(random.integers(1, 90)))
        part = starts[begin:end]
        batch = Batch(part, duration if is_duration_said else part + duration, {})
        cells += told(schedule, batch, slots[begin:end], int(part[0]))
        if end < rows and random.random() < 0.4:
            cells += told(schedule, None, np.empty(0, np.int64), int(starts[end]))
        begin = end
    cells += told(schedule, None, np.empty(0, np.int64), INFINITY)
    times = [time for time, _, _ in cells]
    assert times == sorted(times)
    assert sorted(cells) == sorted(expected(starts, slots.tolist(), duration))
    assert schedule.rows_held == 0


@pytest.mark.parametrize("seed", range(24))
def test_cells_of_rows_that_are_counted_before_are_those_of_a_model(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_module, "CHUNK", 16)
    random = np.random.default_rng(seed)
    instants, duration = int(random.choice([3, 30])), int(random.choice([1, 2, 7, 100]))
    starts = np.sort(random.integers(0, instants, 400))
    slots = random.integers(0, SLOTS, 400)
    schedule = variants()["counts"]
    cells: Cells = []
    for start in np.unique(starts):
        for part in np.array_split(np.flatnonzero(starts == start), 2):
            batch = Batch(starts[part], duration, {})
            tell = told_by_slot if len(part) and random.random() < 0.7 else told
            cells += tell(schedule, batch, slots[part], int(start))
        if random.random() < 0.5:
            cells += told(schedule, None, np.empty(0, np.int64), int(start) + 1)
    cells += told(schedule, None, np.empty(0, np.int64), INFINITY)
    assert [time for time, _, _ in cells] == sorted(time for time, _, _ in cells)
    assert sorted(cells) == sorted(expected(starts, slots.tolist(), duration))
    assert schedule.rows_held == 0


def test_counts_hold_one_entry_for_what_came_together() -> None:
    schedule = CountSchedule()
    schedule.ensure_slots(2)
    starts = np.repeat(np.arange(5), 1000)
    told(schedule, Batch(starts, 100, {}), np.tile([0, 1], 2500), 0)
    assert schedule.rows_held == 10

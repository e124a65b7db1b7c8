from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from squill.engine.batch import Batch
from squill.engine.disorder import DisorderBuffer
from squill.errors import InputError, LateEventError
from squill.time import INFINITY, TimeType

TIME = TimeType.of(pl.Int64())
Pair = tuple[int, int]


def batch(*rows: Pair, x: str = "a") -> Batch:
    sync, other = np.array([s for s, _ in rows], np.int64), np.array([o for _, o in rows], np.int64)
    return Batch(sync, other, {"x": pl.Series("x", [x] * len(rows), pl.String)})


def pairs(rows: Batch | None) -> list[Pair]:
    return [] if rows is None else list(zip(rows.sync.tolist(), rows.other.tolist(), strict=True))


def buffer(policy: str = "throw", wait: int = 0, *, edges: bool = False) -> DisorderBuffer:
    return DisorderBuffer(policy, wait, "clicks", TIME, edges=edges)


def test_ordered_rows_pass_as_the_same_object() -> None:
    rows = batch((1, 2), (1, 5), (7, 8))
    assert buffer().push(rows) is rows


def test_an_equal_time_is_not_late() -> None:
    ingress = buffer()
    ingress.push(batch((5, 6)))
    assert pairs(ingress.push(batch((5, 9)))) == [(5, 9)]


def test_throw_names_the_event_and_both_times_and_changes_nothing() -> None:
    ingress = buffer()
    ingress.push(batch((5, 6)))
    before = ingress.save()
    with pytest.raises(LateEventError, match=r"event \{'x': 'a'\} has time 4, before the current time 8"):
        ingress.push(batch((8, 9), (4, 5)))
    assert ingress.save() == before


def test_drop_leaves_late_rows_out_and_keeps_them_aside() -> None:
    ingress = buffer("drop")
    assert pairs(ingress.push(batch((5, 6), (3, 9), (8, 9)))) == [(5, 6), (8, 9)]
    assert pairs(ingress.late.rows()) == [(3, 9)]
    assert ingress.late.times_met().tolist() == [5]


def test_adjust_moves_late_starts_to_the_current_time() -> None:
    assert pairs(buffer("adjust").push(batch((5, 6), (3, 9)))) == [(5, 6), (5, 9)]


@pytest.mark.parametrize("end", [4, 5])
def test_adjust_drops_an_interval_that_is_over(end: int) -> None:
    assert pairs(buffer("adjust").push(batch((5, 6), (3, end)))) == [(5, 6)]


def test_waiting_rows_leave_in_sync_order_once_the_clock_reaches_them() -> None:
    ingress = buffer("drop", wait=10)
    assert ingress.push(batch((20, 21), (12, 13), (15, 16))) is None
    assert pairs(ingress.push(batch((25, 26)))) == [(12, 13), (15, 16)]
    assert ingress.clock == 15
    assert pairs(ingress.complete()) == [(20, 21), (25, 26)]


def test_a_punctuation_releases_everything_up_to_it() -> None:
    ingress = buffer("drop", wait=100)
    ingress.push(batch((20, 21), (12, 13)))
    assert pairs(ingress.punctuate(20)) == [(12, 13), (20, 21)]
    assert ingress.clock == 20


def test_a_punctuation_in_the_past_is_raised_to_the_current_time() -> None:
    ingress = buffer()
    ingress.push(batch((9, 10)))
    ingress.punctuate(4)
    assert ingress.clock == 9


def test_times_near_minus_infinity_do_not_wrap_around() -> None:
    ingress = buffer("drop", wait=100)
    ingress.push(batch((-(2**63) + 2, 0)))
    assert len(ingress) == 1
    assert pairs(ingress.push(batch((0, 1)))) == [(-(2**63) + 2, 0)]


def test_end_edge_follows_its_moved_start() -> None:
    ingress = buffer("adjust", edges=True)
    assert pairs(ingress.push(batch((9, INFINITY)))) == [(9, INFINITY)]
    assert pairs(ingress.push(batch((5, INFINITY), x="b"))) == [(9, INFINITY)]
    assert pairs(ingress.push(batch((20, 5), x="b"))) == [(20, 9)]


def test_end_edge_not_after_its_moved_start_waits_one_tick() -> None:
    ingress = buffer("adjust", edges=True)
    ingress.push(batch((9, INFINITY)))
    ingress.push(batch((5, INFINITY), x="b"))
    assert ingress.push(batch((7, 5), x="b")) is None
    assert pairs(ingress.punctuate(10)) == [(10, 9)]


def test_end_edge_of_a_dropped_start_is_dropped() -> None:
    ingress = buffer("drop", edges=True)
    ingress.push(batch((9, INFINITY)))
    assert ingress.push(batch((5, INFINITY), x="b")) is None
    assert ingress.push(batch((20, 5), x="b")) is None
    assert pairs(ingress.push(batch((22, 9)))) == [(22, 9)]


def test_late_end_edge_of_a_start_in_time_moves_to_the_current_time() -> None:
    ingress = buffer("drop", edges=True)
    ingress.push(batch((1, INFINITY), (9, 10)))
    assert pairs(ingress.push(batch((4, 1)))) == [(9, 1)]


def test_end_edge_without_a_start_is_an_error_under_throw() -> None:
    with pytest.raises(InputError, match="the end edge at 5 ends no event: none with its payload started at 2"):
        buffer(edges=True).push(batch((5, 2)))


@pytest.mark.parametrize("edges", [False, True])
def test_a_loaded_buffer_goes_on_like_the_saved_one(edges: bool) -> None:
    first, second = buffer("adjust", 5, edges=edges), buffer("adjust", 5, edges=edges)
    first.push(batch((10, 30), (3, 20), (12, INFINITY)))
    second.load(first.save())
    for ingress in (first, second):
        assert pairs(ingress.push(batch((16, 17)))) == [(10, 30)]
        assert pairs(ingress.complete()) == [(12, INFINITY), (16, 17)]
        assert len(ingress.late) == 1


ARRIVING: list[Pair] = [
    (5, INFINITY), (9, 12), (3, INFINITY), (7, 3), (8, 30), (11, 5), (2, 4), (10, INFINITY), (14, 10), (20, 21),
    (13, 2),
]  # fmt: skip


@pytest.mark.parametrize("wait", [0, 4])
@pytest.mark.parametrize("policy", ["drop", "adjust"])
def test_a_restart_after_every_row_changes_nothing(policy: str, wait: int) -> None:
    whole = buffer(policy, wait, edges=True)
    expected = pairs(whole.push(batch(*ARRIVING))) + pairs(whole.complete())
    current, found = buffer(policy, wait, edges=True), []
    for row in ARRIVING:
        found += pairs(current.push(batch(row)))
        saved = current.save()
        current.push(batch((1, 2)))  # what happens to the first afterwards is not seen
        current = buffer(policy, wait, edges=True)
        current.load(saved)
    assert current.clock == 20 - wait
    found += pairs(current.complete())
    assert found == expected
    assert current.late.total == whole.late.total > 0
    assert pairs(current.late.rows()) == pairs(whole.late.rows())

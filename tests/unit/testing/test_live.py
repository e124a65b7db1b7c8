"""`LiveTest`: epochs, the time of day, failures and restarts happen when the test says so."""

from __future__ import annotations

import datetime as dt
import threading
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import LateEventError, PlanError, UserFunctionError
from squill.sharded import ShardedStream
from squill.testing import LiveTest, ScriptedFailure, scripted

SCHEMA = {"t": pl.Int64, "k": pl.Int64}


def counted(clicks: ShardedStream) -> ShardedStream:
    return clicks.rekey("k").redistribute().query(lambda s: s.tumbling_window(10).count())


def clicks_test(*, partitions: int = 1, **options: Any) -> LiveTest:
    return LiveTest(counted, {"clicks": scripted(SCHEMA, start="t", partitions=partitions)}, **options)


def test_an_epoch_takes_what_was_pushed_before_it() -> None:
    with clicks_test(shards=2, partitions=2) as test:
        test.push("clicks", {"t": [1, 2], "k": [1, 1]})
        test.push("clicks", [{"t": 3, "k": 2}], partition=1)
        assert test.step().is_empty()
        test.push("clicks", {"t": 25, "k": 1})
        assert test.step().is_empty()  # the other partition may still have earlier rows
        test.push("clicks", {"t": 26, "k": 1}, partition=1)
        assert sorted(test.step().rows()) == [(10, 20, 1, 2), (10, 20, 2, 1)]
        assert test.progress.rows == 5
        assert test.step().is_empty()
        assert test.complete().rows() == [(30, 40, 1, 2)]
        assert test.answer().height == 3


@pytest.mark.parametrize("moment", ["begin", "read", "work", "commit", "deliver"])
def test_a_failure_at_any_moment_loses_and_doubles_nothing(moment: str) -> None:
    with clicks_test(shards=2) as test:
        test.push("clicks", {"t": [1, 2], "k": [1, 2]})
        test.step()
        test.push("clicks", {"t": [3, 15], "k": [1, 2]})
        test.fail(moment)
        with pytest.raises(ScriptedFailure, match=f"^about to {moment}$"):
            test.step()
        test.restart()
        test.step()
        test.complete()
        assert sorted(test.answer().rows()) == [(10, 20, 1, 2), (10, 20, 2, 1), (20, 30, 2, 1)]


def test_a_failed_query_does_nothing_before_its_restart() -> None:
    with clicks_test() as test:
        test.push("clicks", {"t": 1, "k": 1})
        test.fail("work", error=OSError("no such thing"))
        with pytest.raises(OSError, match="no such thing"):
            test.step()
        with pytest.raises(PlanError, match=r"^LiveTest: the query has failed or was closed\n.*restart\(\) to go on"):
            test.step()


def test_a_sink_that_fails_once_is_called_again_and_nobody_sleeps() -> None:
    with clicks_test() as test:
        begin, then = time.monotonic(), test.now
        test.push("clicks", {"t": [1, 25], "k": [1, 1]})
        test.fail("sink", times=2)
        assert test.step().rows() == [(10, 20, 1, 1)]
        assert test.now > then
        assert time.monotonic() - begin < 60
        test.fail("sink", times=3)
        test.push("clicks", {"t": [45], "k": [1]})
        with pytest.raises(UserFunctionError, match="the sink fails; the first of the 1 rows of epoch 2"):
            test.step()
        assert test.answer().height == 1
        test.restart()
        assert test.answer().rows() == [(10, 20, 1, 1), (30, 40, 1, 1)]


def joined(clicks: ShardedStream, ads: ShardedStream) -> ShardedStream:
    return clicks.query(ads, lambda left, right: left.with_duration(10).join(right.with_duration(10), on="k"))


def test_an_idle_input_is_carried_along_as_the_time_of_day_passes() -> None:
    inputs = {name: scripted(SCHEMA, start="t", disorder=sq.drop(), idle_after="1m") for name in ("clicks", "ads")}
    with LiveTest(joined, inputs) as test:
        test.push("clicks", {"t": [1], "k": [1]})
        test.push("ads", {"t": [2], "k": [1]})
        test.step()
        test.push("clicks", {"t": [100], "k": [1]})
        assert test.step().is_empty()
        assert test.progress.clock == 2
        test.advance("61s")
        test.push("clicks", {"t": [101], "k": [1]})
        assert test.step().is_empty()  # only now it is known that clicks are awake, and ads are not
        assert test.step().rows() == [(2, 11, 1)]
        assert test.progress.clock == 101
        test.push("ads", {"t": [50], "k": [1]})
        test.step()
        assert test.late.select("start", "late_by").rows() == [(50, 51)]


def test_an_input_may_end_before_the_others() -> None:
    inputs = {name: scripted(SCHEMA, start="t", disorder=sq.drop(), idle_after="1m") for name in ("clicks", "ads")}
    with LiveTest(joined, inputs, shards=2) as test:
        test.push("clicks", {"t": [1], "k": [1]})
        test.push("ads", {"t": [2, 5], "k": [1, 2]})
        assert test.step().is_empty()
        test.advance("2m")
        test.push("ads", {"t": [6], "k": [2]})
        assert test.complete("ads").is_empty()
        test.step()
        assert test.progress.clock == 1  # clicks are idle, but nobody carries them to the end of time
        test.restart()
        with pytest.raises(PlanError, match=r"^LiveTest: the input 'ads' has ended\nHint: nothing follows"):
            test.push("ads", {"t": [9], "k": [1]})
        test.push("clicks", {"t": [50], "k": [1]})
        assert test.step().rows() == [(2, 11, 1)]
        test.push("clicks", {"t": [51], "k": [1]})
        test.complete("clicks")
        assert test.step().is_empty()
        assert test.answer().rows() == [(2, 11, 1)]
        assert test.late.is_empty()
        test.restart()
        assert test.complete().is_empty()


def test_early_answers_are_made_good_across_a_restart() -> None:
    with clicks_test(shards=2, emit="changes", speculate=True) as test:
        test.push("clicks", {"t": [1, 2], "k": [1, 1]})
        assert sorted(test.step().rows()) == [(10, 1, 1, 2), (20, -1, 1, 2)]
        test.restart()
        test.push("clicks", {"t": [3], "k": [1]})
        test.fail("commit")
        with pytest.raises(ScriptedFailure):
            test.step()
        test.restart()
        assert sorted(test.step().rows()) == [(10, -1, 1, 2), (10, 1, 1, 3), (20, -1, 1, 3), (20, 1, 1, 2)]
        assert test.complete().is_empty()
        with pytest.raises(PlanError, match="a closed row is final, an early answer is not"):
            clicks_test(speculate=True)


def test_delay_goes_by_the_time_of_day() -> None:
    now = dt.datetime(2020, 1, 1, 12)
    seen = scripted({"t": pl.Datetime("us"), "k": pl.Int64}, start="t")
    with LiveTest(lambda s: s.query(lambda g: g.tumbling_window("1h").count()), {"seen": seen}, now=now) as test:
        test.push("seen", {"t": [dt.datetime(2020, 1, 1, 11, 30)], "k": [1]})
        test.advance("10m")
        test.step()
        assert test.progress.delay == dt.timedelta(minutes=40)
        assert test.now == dt.datetime(2020, 1, 1, 12, 10)


def test_late_rows_fail_the_query_under_throw() -> None:
    with clicks_test() as test:
        test.push("clicks", {"t": [20], "k": [1]})
        test.step()
        test.push("clicks", {"t": [3], "k": [1]})
        with pytest.raises(LateEventError, match="has time 3, before the current time 20"):
            test.step()


def test_nothing_is_left_behind() -> None:
    threads = threading.active_count()
    with clicks_test() as test:
        test.push("clicks", {"t": [1], "k": [1]})
        test.step()
        folder = Path(test.checkpoint)
        assert folder.is_dir()
        assert threading.active_count() == threads
    assert not folder.exists()
    assert not folder.parent.exists()


def test_what_cannot_be_is_refused() -> None:
    with clicks_test(partitions=2) as test:
        with pytest.raises(PlanError, match=r"^LiveTest: there is no input 'ads'\nHint: there are: clicks"):
            test.push("ads", {"t": 1, "k": 1})
        with pytest.raises(PlanError, match=r"^LiveTest: nothing can fail at 'lunch'\nHint: use one of begin, read"):
            test.fail("lunch")
        with pytest.raises(PlanError, match=r"^LiveTest: 'clicks' has no partition 2\nHint: it has 2, from 0 on"):
            test.push("clicks", {"t": 1, "k": 1}, partition=2)

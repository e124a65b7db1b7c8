"""Shards that are divided: nothing is late, lost or doubled, and what cannot be divided stays as it is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.sharded import ShardedStream
from squill.stream import Stream
from squill.testing import LiveTest, ScriptedFailure, scripted
from tests.unit.runtime.live.keyed import KEYED

pytestmark = pytest.mark.filterwarnings("ignore:(aggregate aggregate_fn|sq.aggregate_fn without)")
SCHEMA = {"t": pl.Int64, "u": pl.Int64, "k": pl.Int64, "x": pl.Int64}


def rows(step: int) -> list[dict[str, int]]:
    """Return rows of 14 keys; some events go on over several steps."""
    return [
        {"t": 10 * step + n // 2, "u": 10 * step + n + 9, "k": (3 * n + step) % 14, "x": (5 * n + step) % 7}
        for n in range(20)
    ]


def by_key(query: Callable[[Stream], Stream]) -> Callable[[ShardedStream], ShardedStream]:
    return lambda clicks: clicks.rekey("k").redistribute().query(query)


def given(query: Callable[[ShardedStream], ShardedStream], shards: list[int]) -> list[list[Any]]:
    """Return what each step gives, when it runs on these shards."""
    clicks = scripted(SCHEMA, start="t", end="u", partitions=3)
    with LiveTest(query, {"clicks": clicks}, shards=shards[0]) as test:
        found = []
        for step, count in enumerate(shards):
            if step:
                test.restart(shards=count)
            for partition in range(3):
                test.push("clicks", rows(step), partition=partition)
            found.append(sorted(test.step().rows()))
        assert test.progress.shards == shards[-1]
        return [*found, sorted(test.complete().rows())]


@pytest.mark.parametrize("name", KEYED)
def test_each_epoch_gives_what_it_would_give_undivided(name: str) -> None:
    query = by_key(KEYED[name])
    assert given(query, [2, 4, 4, 8]) == given(query, [2, 2, 2, 2])


def held(query: Callable[[Stream], Stream], shards: list[int]) -> tuple[int, int]:
    """Return how many rows or keys are held after a step on each of these numbers of shards, and in how many bytes."""
    clicks = scripted(SCHEMA, start="t", end="u")
    with LiveTest(by_key(query), {"clicks": clicks}, shards=shards[0]) as test:
        for step, count in enumerate(shards):
            if step:
                test.restart(shards=count)
            keys = list(range(8_000))
            many = {"t": [5 * step] * 8_000, "u": [5 * step + 90] * 8_000, "k": keys, "x": keys}
            test.push("clicks", many)
            test.step()
        return test.progress.state_rows, sum(test.progress.state_bytes.values())


@pytest.mark.parametrize("name", KEYED)
def test_parts_hold_together_what_the_whole_did(name: str) -> None:
    rows, size = held(KEYED[name], [2, 2])
    parts_rows, parts_size = held(KEYED[name], [2, 8])
    assert parts_rows <= 1.1 * rows
    assert parts_size < 1.3 * size + 100_000


def test_no_event_whose_end_goes_elsewhere_holds_time_back() -> None:
    query = by_key(lambda s: s.session_window(6).wait_for_ends())
    divided, whole = given(query, [2, 4, 4, 4]), given(query, [2, 2, 2, 2])
    assert sorted(chain(*divided)) == sorted(chain(*whole))
    # With fewer keys on a shard fewer have to wait.
    assert all(sum(map(len, divided[:n])) >= sum(map(len, whole[:n])) > 0 for n in (2, 3, 4))


def test_rows_of_a_shard_that_begins_empty_meet_nothing_old() -> None:
    def partial(clicks: ShardedStream) -> ShardedStream:
        counts = clicks.rekey("k").query(lambda s: s.tumbling_window(25).aggregate(n=sq.count()))
        return counts.redistribute().query(lambda s: s.sum("n"))

    assert given(partial, [2, 4, 4, 4]) == given(partial, [2, 2, 2, 2])


def test_an_epoch_that_fails_while_shards_are_divided_is_run_again() -> None:
    clicks = scripted(SCHEMA, start="t", end="u")
    with LiveTest(by_key(KEYED["windows"]), {"clicks": clicks}, shards=2) as test:
        test.push("clicks", rows(0))
        test.step()
        for moment in ("begin", "read", "work", "commit"):
            test.restart(shards=4)
            test.push("clicks", rows(1) if moment == "begin" else [])
            test.fail(moment)
            with pytest.raises(ScriptedFailure):
                test.step()
        # Nothing of it counted, so that it may also go on as it was.
        test.restart(shards=2)
        assert test.progress.shards == 2
        test.step()
        test.restart(shards=4)
        test.push("clicks", rows(2))
        test.step()
        test.restart(shards=2)
        assert test.progress.shards == 4
        test.complete()
        found = sorted(test.answer().rows())
    with LiveTest(by_key(KEYED["windows"]), {"clicks": scripted(SCHEMA, start="t", end="u")}) as test:
        for step in range(3):
            test.push("clicks", rows(step))
        test.complete()
        assert found == sorted(test.answer().rows())


def test_early_answers_go_on_over_it(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    taken: list[pl.DataFrame] = []
    for step, cores in enumerate((2, 4)):
        pl.DataFrame(rows(step), schema=SCHEMA).write_parquet(folder / f"{step}.parquet")
        with sq.local(cores=cores) as cluster:
            clicks = cluster.stream(folder, start="t", end="u")
            by_key(KEYED["windows"])(clicks).start(
                taken.append, checkpoint=tmp_path / "ck", emit="changes", speculate=True, until_now=True,
                complete=bool(step),
            ).wait()  # fmt: skip
    changes = pl.concat(taken).group_by(pl.exclude("diff")).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
    frame = pl.DataFrame(rows(0) + rows(1), schema=SCHEMA)
    with sq.local(cores=1) as cluster:
        whole = by_key(KEYED["windows"])(cluster.from_frame(frame, start="t", end="u")).collect()
    assert changes.filter(pl.col("diff") > 0)["diff"].sum() == whole.height
    payload = [name for name in whole.columns if name not in ("start", "end")]
    begun = changes.filter(pl.col("diff") > 0).select("time", *payload)
    assert sorted(begun.rows()) == sorted(whole.select("start", *payload).rows())


def placed_by_number(clicks: ShardedStream) -> ShardedStream:
    return clicks.multicast(sq.col("k") % 2).query(lambda s: s.tumbling_window(10).count())


def beside_copies(clicks: ShardedStream) -> ShardedStream:
    table = clicks.query(lambda s: s.select(y=sq.col("x"), j=sq.col("k"))).broadcast()
    return clicks.query(table, lambda a, b: a.join(b, left_on="k", right_on="j"))


def with_open_ends(clicks: ShardedStream) -> ShardedStream:
    return by_key(KEYED["running"])(clicks).rekey("n").query(lambda s: s.aggregate(m=sq.count())).redistribute(to=1)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (placed_by_number, "multicast names its shards by number"),
        (beside_copies, "join has copied rows beside those of its own shard"),
        (with_open_ends, "the events that aggregate is given have no ends when they begin"),
    ],
)
def test_what_cannot_be_divided_keeps_its_shards(
    query: Callable[[ShardedStream], ShardedStream], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "squill")
    with LiveTest(query, {"clicks": scripted(SCHEMA, start="t", end="u")}, shards=2) as test:
        test.push("clicks", rows(0))
        test.step()
        test.restart(shards=4)
        assert test.progress.shards == 2
        test.push("clicks", rows(1))
        test.complete()
    assert f"keeps its 2 shards: {reason}" in caplog.text

"""Rows that moved and were kept: a query that is run again goes on from them, and no answer changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.engine.batch import Batch
from squill.engine.progress import arrivals
from squill.plan.assignment import Assignment
from squill.plan.fragments import ShardedPlan, fragments_of
from squill.plan.schema import Schema
from squill.runtime.shard import read_split
from squill.runtime.spark.pipes.job import PipeJob
from squill.runtime.spark.pipes.kept import KeptInbox, KeptLog, kept_fragments, kept_of
from squill.runtime.spark.pipes.member import _MemberPorts
from squill.stream import Stream
from squill.time import INFINITY, MINUS_INFINITY
from tests.unit.runtime.pipes.piped import PipedRuntime

SCHEMAS = {1: Schema({"x": pl.Int64()})}


def batch_of(*intervals: tuple[int, int]) -> Batch:
    starts = np.array([start for start, _ in intervals])
    return Batch(starts, np.array([end for _, end in intervals]), {"x": pl.Series("x", starts * 10)})


class Sent:
    """An outbox that remembers."""

    def __init__(self) -> None:
        self.rows: list[tuple[tuple[int, ...], list[int], list[int]]] = []

    def send(self, receivers: object, batch: Batch) -> int:
        self.rows.append((tuple(receivers), batch.sync.tolist(), batch.columns["x"].to_list()))  # type: ignore[arg-type]
        return 0

    def tell(self, clocks: object) -> None:
        """Nothing to remember."""


def written(path: Path) -> None:
    """Two receivers, the first of which is ahead of the other; time 5 has come to both."""
    log = KeptLog(path, [1], MINUS_INFINITY)
    outbox = log.outbox(1, Sent())
    outbox.send([0], batch_of((1, 9), (2, 3), (6, 9)))
    outbox.tell([([0], 7), ([1], 2)])
    outbox.send([1], batch_of((2, INFINITY), (4, INFINITY)))
    outbox.tell([([0], 7), ([1], 5)])
    log.close()


def replayed(paths: list[Path], since: int) -> tuple[int, list[tuple[tuple[int, ...], list[int], list[int]]]]:
    found, sent = kept_of(paths), Sent()
    inbox = KeptInbox(found, SCHEMAS, {1: sent}, since, [], brief=False)
    clocks = []
    while inbox.clock < INFINITY:
        assert inbox.take() == []
        clocks.append(inbox.clock)
    assert clocks == sorted(clocks)
    return found.reached, sent.rows


def test_kept_rows_come_in_order_as_far_as_they_are_all_there(tmp_path: Path) -> None:
    written(tmp_path / "0")
    reached, rows = replayed([tmp_path / "0"], 0)
    assert reached == 5
    assert rows == [((0,), [1, 2], [10, 20]), ((1,), [2, 4], [20, 40])]


def test_dead_rows_are_left_out_and_starts_raised(tmp_path: Path) -> None:
    written(tmp_path / "0")
    assert replayed([tmp_path / "0"], 3) == (5, [((0,), [3], [10]), ((1,), [3, 4], [20, 40])])


def test_an_attempt_goes_on_where_the_one_before_has_ended(tmp_path: Path) -> None:
    written(tmp_path / "0")
    log = KeptLog(tmp_path / "2", [1], 5)
    log.add(1, [0], batch_of((6, 9), (8, 9)))
    log.tell(1, 8)
    log.close()
    reached, rows = replayed([tmp_path / "0", tmp_path / "1", tmp_path / "2"], 0)
    assert reached == 8
    assert rows == [((0,), [1, 2], [10, 20]), ((1,), [2, 4], [20, 40]), ((0,), [6], [60])]


def test_an_attempt_from_the_beginning_begins_anew(tmp_path: Path) -> None:
    written(tmp_path / "0")
    KeptLog(tmp_path / "1", [1], MINUS_INFINITY).close()
    assert replayed([tmp_path / "0", tmp_path / "1"], 0) == (MINUS_INFINITY, [])


def test_a_file_that_ends_anywhere_is_read_as_far_as_it_is_whole(tmp_path: Path) -> None:
    written(tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    cut = tmp_path / "cut"
    seen = set()
    for size in range(0, len(content) + 1, 8):
        cut.write_bytes(content[:size])
        reached, rows = replayed([cut], 0)
        assert all(time < reached for _, times, _ in rows for time in times)
        seen.add((reached, len(rows)))
    assert seen == {(MINUS_INFINITY, 0), (2, 1), (5, 2)}


def test_a_damaged_record_is_the_end(tmp_path: Path) -> None:
    written(tmp_path / "0")
    content = bytearray((tmp_path / "0").read_bytes())
    content[-200] ^= 1  # in the second batch
    (tmp_path / "0").write_bytes(content)
    assert replayed([tmp_path / "0"], 0)[0] == 2


def rows_of(size: int = 6_000) -> Stream:
    numbers = np.arange(size)
    frame = pl.DataFrame({"user": numbers * 7919 % 997, "x": 1 / (numbers % 89 + 1), "from": numbers % 40})
    return sq.from_frame(frame.with_columns(to=pl.when(numbers % 5 == 0).then(pl.col("from") + 4)), name="rows")


def sums(rows: Stream) -> Stream:
    by_user = rows.where(sq.col("x") < 0.9).group_aggregate("user", s=sq.sum("x"), n=sq.count())
    return by_user.group_aggregate(g=sq.col("user") % 10, total=sq.sum("s"), n=sq.sum("n"), most=sq.max("s"))


def test_channels_of_rows_that_were_only_read_are_kept() -> None:
    runtime = PipedRuntime(2, 2)
    with sq.Cluster(runtime) as cluster:
        node = cluster.sharded(sums(rows_of())).plan
    assert kept_fragments(fragments_of(node)) == {1}


GIVEN = {
    "hashed": sq.progress.hashed("user", 40),
    "rows that end": sq.progress.columns("from", "to"),
    "rows": sq.progress.rows(150),
}


@pytest.mark.parametrize("ha", [False, True])
@pytest.mark.parametrize("given", GIVEN.values(), ids=list(GIVEN))
def test_a_query_that_is_broken_off_gives_every_answer_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Assignment, ha: bool
) -> None:
    monkeypatch.setattr(arrivals, "SMALL_STEP", 1)
    monkeypatch.setattr("squill.runtime.machine.LEAST_ROWS", 16)
    monkeypatch.setattr("squill.runtime.machine.MAILBOX_ROWS", 16)
    query = sums(rows_of())
    runtime = PipedRuntime(2, 2)
    runtime.folder = tmp_path
    found = []
    with sq.Cluster(runtime) as cluster:
        answers = query.progressive(given, on=cluster, ha=ha)
        for early in answers:
            found.append(early)
            if early.progress in (3, 11):
                runtime.break_off.set()
    assert len(runtime.jobs) >= 1
    assert answers.status().restarts == len(runtime.jobs)
    expected = list(query.progressive(given))
    assert [early.progress for early in found] == [early.progress for early in expected]
    for early, other in zip(found, expected, strict=True):
        assert early.fraction == other.fraction
        assert early.frame.drop("total", "most").equals(other.frame.drop("total", "most"))
        for name in ("total", "most"):
            assert early.frame[name].to_list() == pytest.approx(other.frame[name].to_list(), rel=1e-9)


def test_rows_stored_in_order_are_read_on_from_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "SMALL_STEP", 1)
    monkeypatch.setattr("squill.engine.egress_progress.LEAST_ROWS", 20)
    monkeypatch.setattr("squill.runtime.machine.LEAST_ROWS", 16)
    monkeypatch.setattr("squill.runtime.machine.MAILBOX_ROWS", 16)
    wanted: list[int] = []

    def read(split: Any, rows: int) -> Iterator[Batch]:
        wanted.append(split.wanted)
        return read_split(split, rows)

    monkeypatch.setattr("squill.runtime.spark.pipes.member.read_split", read)
    with sq.local(cores=2) as local:
        local.from_frame(rows_of().collect()).to_storage(tmp_path / "rows", progress=GIVEN["hashed"])
    query = sums(sq.scan(str(tmp_path / "rows")))
    runtime = PipedRuntime(2, 2)
    runtime.folder = tmp_path
    found = []
    with sq.Cluster(runtime) as cluster:
        for early in query.progressive(on=cluster, ha=True):
            found.append(early.frame.select("g", "n").rows())
            if early.progress == 5:
                runtime.break_off.set()
    assert found == [early.frame.select("g", "n").rows() for early in query.progressive()]
    assert wanted[:2] == [0, 0]
    assert all(point > 5 for point in wanted[2:])


def test_what_is_kept_is_not_read_again(tmp_path: Path) -> None:
    """Where all rows have moved, the input is not opened, and may be gone."""
    with sq.Cluster(PipedRuntime(2, 2)) as cluster:
        (fragment, _) = fragments_of(
            cluster.sharded(sq.from_frame({"x": [1]}).group_aggregate("x", n=sq.count())).plan
        ).fragments
    (channel,) = fragment.outputs
    log = KeptLog(tmp_path / "f1-s0-a0.rows", [channel.number], MINUS_INFINITY)
    log.add(channel.number, [1], batch_of((1, 9)))
    log.tell(channel.number, INFINITY)
    log.close()
    job = PipeJob(
        plan=ShardedPlan(fragments=(fragment,)), splits={}, frames={}, tasks=1, cores=1,
        since=4, attempt=1, kept=frozenset({1}), folder=str(tmp_path),
    )  # fmt: skip
    sent = Sent()
    # There is nothing that could read the input: `split` is missing.
    member: Any = SimpleNamespace(job=job, schemas=SCHEMAS, outbox=lambda channel, shard: sent)
    with _MemberPorts(member, fragment, 0) as ports:
        ports.outbox(channel)
        inbox = ports.inbox(0)
        while inbox.clock < INFINITY:
            assert inbox.take() == []
    assert sent.rows == [((1,), [4], [10])]
    assert kept_of([tmp_path / f"f1-s0-a{attempt}.rows" for attempt in range(2)]).reached == INFINITY

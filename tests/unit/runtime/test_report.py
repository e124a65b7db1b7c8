from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.engine.batch import Batch
from squill.errors import PlanError
from squill.exchange.segments import SegmentWriter
from squill.runtime.report import MeteredOutbox, RunReport, Work, own_seconds

FRAME = pl.DataFrame({"t": list(range(1_000)), "k": [number % 7 for number in range(1_000)]})


def counted(cluster: sq.Cluster) -> sq.ShardedStream:
    return cluster.from_frame(FRAME, start="t").rekey("k").redistribute(3).query(lambda g: g.with_duration(5).count())


def test_report_counts_the_rows_of_every_shard() -> None:
    with sq.local(cores=2) as cluster:
        plan = counted(cluster)
        run = plan.run()
        assert run.frame.equals(plan.collect())
    report = run.report()
    assert [(work.fragment, work.shard) for work in report.works] == [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    by_fragment = report.by_fragment
    assert by_fragment["rows_in"].to_list() == [1_000, 1_000]
    assert by_fragment["rows_out"].to_list() == [1_000, run.frame.height]
    assert {work.encode for work in report.works} == {0.0}
    assert all(work.memory > 1e6 for work in report.works)
    assert all(work.seconds <= report.seconds + 0.1 for work in report.works)
    assert str(report).splitlines()[-1].endswith(report.binding)


def test_report_says_what_binds() -> None:
    slow = Work(fragment=1, shard=0, rows_in=900, read=1.0, compute=5.0, move=0.5, wait=9.0)
    quick = Work(fragment=1, shard=1, rows_in=100, read=1.0, compute=1.0)
    report = RunReport([quick, slow], 16.0)
    assert report.binding == (
        "compute binds, with 77% of the slowest shards' time; "
        "fragment 1 is uneven, its largest shard has 1.8 times the average's rows"
    )
    assert RunReport([], 0.0).binding == "nothing ran"


def test_time_that_is_not_reading_moving_or_waiting_is_computing() -> None:
    work = Work(fragment=1, shard=0)
    with work.measured():
        work.read += 0.01
        time.sleep(0.05)
    assert 0.03 < work.compute < 1
    assert work.cpu < 0.05


def test_encoding_counts_apart_from_sending(tmp_path: Path) -> None:
    work = Work(fragment=1, shard=0)
    batch = Batch(np.arange(50_000), np.arange(50_000) + 1, {"s": pl.Series(map(str, range(50_000)))})
    with SegmentWriter(tmp_path / "a", fragment=1, shard=0, attempt=0) as writer, work.measured():
        outbox = MeteredOutbox(writer.outbox(1), work)
        begin = time.perf_counter()
        outbox.send([0], batch)
        taken = time.perf_counter() - begin
    assert work.encode > 0
    assert work.move > 0
    assert work.encode + work.move <= taken
    assert work.rows_out == 50_000
    assert " encode s " in str(RunReport([work], 1.0))


def test_subscriber_gets_the_frames_of_shards() -> None:
    frames: list[pl.DataFrame] = []
    with sq.local(cores=2) as cluster:
        counted(cluster).subscribe(frames.append)
        assert pl.concat(frames).height == counted(cluster).collect().height
        with pytest.raises(PlanError, match="subscribe: 3 is not a function"):
            counted(cluster).subscribe(3)  # type: ignore[arg-type]


def test_time_of_a_shard_that_another_one_does_steps_of_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "thread_time", lambda: now[0] / 2)
    waiting, helped = Work(fragment=2, shard=0), Work(fragment=1, shard=0)
    with waiting.measured():
        now[0] += 1
        begin = own_seconds()
        with helped.measured():
            now[0] += 8
        now[0] += 2
        waiting.wait += own_seconds() - begin
        with helped.measured():
            now[0] += 16
    assert (helped.compute, helped.wait, helped.cpu) == (24, 0, 12)
    assert (waiting.compute, waiting.wait, waiting.cpu) == (1, 2, 1.5)

"""A folder that files appear in, on threads: the answer of all epochs is that of one run over all files."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.plan.build.locations import matching_files
from squill.runtime.live import inputs
from squill.runtime.live.handle import LiveQuery
from squill.runtime.live.inputs import FolderInput
from squill.runtime.live.sinks import FolderSink
from squill.sharded import ShardedStream

HOUR = 100


def _files(folder: Path, count: int) -> pl.DataFrame:
    """Write files of one hour each; return all their rows."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(7)
    frames = []
    for number in range(count):
        times = rng.integers(number * HOUR, (number + 1) * HOUR, 40)
        frames.append(pl.DataFrame({"t": times, "k": rng.integers(0, 5, 40), "x": rng.integers(0, 9, 40)}))
        frames[-1].write_parquet(folder / f"{number:03}.parquet")
    return pl.concat(frames)


def _windows(clicks: ShardedStream) -> ShardedStream:
    windows = clicks.rekey("k").redistribute().query(lambda s: s.hopping_window(50, 10).aggregate(n=sq.count()))
    return windows.query(lambda s: s.where(sq.col("n") > 1))


def _sorted(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.sort(frame.columns)


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("files_per_epoch", [1, 3, None])
def test_the_answer_of_all_epochs_is_that_of_one_run(tmp_path: Path, shards: int, files_per_epoch: int | None) -> None:
    rows = _files(tmp_path / "in", 6)
    with sq.local(cores=shards) as cluster:
        wanted = _windows(cluster.from_frame(rows, start="t")).collect(sort=True)
        clicks = cluster.stream(tmp_path / "in", start="t", files_per_epoch=files_per_epoch)
        query = _windows(clicks).start(str(tmp_path / "out"), checkpoint=tmp_path / "ck", until_now=True)
        assert query.wait()
    assert query.status() == "completed"
    assert _sorted(query.stable().frame).equals(wanted)
    assert query.progress().rows == rows.height


def test_a_query_goes_on_from_its_checkpoint_with_windows_open(tmp_path: Path) -> None:
    rows = _files(tmp_path / "in", 4)
    with sq.local(cores=2) as cluster:

        def start(*, complete: bool) -> pl.DataFrame:
            clicks = cluster.stream(tmp_path / "in", start="t", files_per_epoch=2)
            query = _windows(clicks).start(
                str(tmp_path / "out"), checkpoint=tmp_path / "ck", until_now=True, complete=complete
            )
            query.wait()
            return query.stable().frame

        first = start(complete=False)
        late = rows.with_columns(pl.col("t") + 4 * HOUR)
        late.write_parquet(tmp_path / "in" / "later.parquet")
        whole = start(complete=True)
        wanted = _windows(cluster.from_frame(pl.concat([rows, late]), start="t")).collect(sort=True)
    assert 0 < first.height < whole.height
    assert _sorted(whole).equals(wanted)


def test_a_function_is_given_the_rows_of_each_epoch_in_order(tmp_path: Path) -> None:
    rows = _files(tmp_path / "in", 3)
    given: list[tuple[int, pl.DataFrame]] = []
    with sq.local(cores=2) as cluster:
        clicks = cluster.stream(tmp_path / "in", start="t", files_per_epoch=1)
        query = _windows(clicks).start(lambda frame, epoch: given.append((epoch, frame)), until_now=True)
        query.wait()
        wanted = _windows(cluster.from_frame(rows, start="t")).collect(sort=True)
    epochs = [epoch for epoch, _ in given]
    assert epochs == sorted(set(epochs))
    together = pl.concat([frame for _, frame in given])
    assert together.get_column("end").is_sorted()
    assert _sorted(together).equals(wanted)


def test_late_rows_go_by_the_policy_and_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pl.DataFrame({"t": [5, 30]}).write_parquet(folder / "a.parquet")
    with sq.local(cores=1) as cluster:
        clicks = cluster.stream(folder, start="t", disorder=sq.drop(wait=10), files_per_epoch=1)
        counted = clicks.query(lambda s: s.tumbling_window(10).count())
        query = counted.start(str(tmp_path / "out"), checkpoint=tmp_path / "ck", until_now=True, complete=False)
        query.wait()
        pl.DataFrame({"t": [3, 22, 41]}).write_parquet(folder / "b.parquet")
        query = counted.start(str(tmp_path / "out"), checkpoint=tmp_path / "ck", until_now=True)
        query.wait()
    assert query.late.rows() == [(3, 4, 17)]
    assert query.progress().late == {"in": 1}
    assert _sorted(query.stable().frame).rows() == [(10, 20, 1), (30, 40, 1), (40, 50, 1), (50, 60, 1)]


def test_a_live_source_cannot_be_collected(tmp_path: Path) -> None:
    _files(tmp_path / "in", 1)
    with sq.local(cores=1) as cluster, pytest.raises(sq.errors.PlanError, match="is live: it has no end"):
        cluster.stream(tmp_path / "in", start="t").collect()


def test_pushed_rows_run_through_the_same_plan(tmp_path: Path) -> None:
    clicks = sq.source({"t": pl.Int64, "k": pl.Int64}, start="t")
    frame = pl.DataFrame({"t": range(0, 200, 2), "k": [n % 3 for n in range(100)]})
    given: list[pl.DataFrame] = []
    with sq.local(cores=2) as cluster:
        query = _windows(cluster.stream(clicks)).start(given.append, every="1ms")
        for part in frame.iter_slices(7):
            clicks.push(part)
        clicks.complete()
        assert query.wait(30)
        wanted = _windows(cluster.from_frame(frame, start="t")).collect(sort=True)
    assert query.status() == "completed"
    assert _sorted(pl.concat(given)).equals(wanted)


@pytest.mark.parametrize(("before", "after", "shards"), [(1, 3, 1), (3, 1, 3), (2, 4, 4), (2, 3, 4)])
def test_a_query_goes_on_with_a_multiple_of_its_shards_on_a_cluster_of_another_size(
    tmp_path: Path, before: int, after: int, shards: int
) -> None:
    rows = _files(tmp_path / "in", 4)
    for cores, complete in ((before, False), (after, True)):
        with sq.local(cores=cores) as cluster:
            clicks = cluster.stream(tmp_path / "in", start="t", files_per_epoch=2)
            query = _windows(clicks).start(
                str(tmp_path / "out"), checkpoint=tmp_path / "ck", until_now=True, complete=complete
            )
            query.wait()
            wanted = _windows(cluster.from_frame(rows, start="t")).collect(sort=True)
    assert _sorted(query.stable().frame).equals(wanted)
    states = {item.name for item in (tmp_path / "ck" / "state").iterdir()}
    assert len([name for name in states if name.startswith("1-")]) == shards
    assert query.progress().shards == shards


def test_a_completed_query_is_not_gone_on_with(tmp_path: Path) -> None:
    _files(tmp_path / "in", 2)
    with sq.local(cores=1) as cluster:

        def start() -> LiveQuery:
            clicks = cluster.stream(tmp_path / "in", start="t")
            query = _windows(clicks).start(str(tmp_path / "out"), checkpoint=tmp_path / "ck", until_now=True)
            query.wait()
            return query

        whole = start().stable().frame
        again = start()
        assert again.status() == "completed"
        assert again.stable().frame.equals(whole)
        pl.DataFrame({"t": [900], "k": [1], "x": [1]}).write_parquet(tmp_path / "in" / "more.parquet")
        with pytest.raises(sq.errors.CheckpointError, match="was completed, and 'in' has more rows"):
            start()
    assert _sorted(pl.read_parquet(tmp_path / "out" / "*.parquet")).equals(_sorted(whole))


def test_a_folder_holds_the_answer_of_one_query(tmp_path: Path) -> None:
    _files(tmp_path / "in", 2)
    with sq.local(cores=1) as cluster:
        plan = _windows(cluster.stream(tmp_path / "in", start="t"))
        plan.start(str(tmp_path / "out"), until_now=True).wait()
        before = pl.read_parquet(tmp_path / "out" / "*.parquet")
        with pytest.raises(sq.errors.PlanError, match=r"holds an answer already, such as 0000000\d-0000.parquet"):
            plan.start(str(tmp_path / "out"), checkpoint=tmp_path / "ck", until_now=True)
    assert pl.read_parquet(tmp_path / "out" / "*.parquet").equals(before)


def test_a_query_goes_on_once_the_row_that_it_failed_at_is_repaired(tmp_path: Path) -> None:
    rows = _files(tmp_path / "in", 3)
    bad = tmp_path / "in" / "002.parquet"
    good = pl.read_parquet(bad)
    good.with_columns(
        pl.when(pl.col("x") == pl.col("x").first()).then(None).otherwise(pl.col("t")).alias("t")
    ).write_parquet(bad)
    with sq.local(cores=2) as cluster:

        def start() -> LiveQuery:
            clicks = cluster.stream(tmp_path / "in", start="t", files_per_epoch=1)
            return _windows(clicks).start(str(tmp_path / "out"), checkpoint=tmp_path / "ck", until_now=True)

        query = start()
        with pytest.raises(sq.errors.InputError, match=r"the start time 't' is null in row"):
            query.wait()
        assert query.status() == "failed"
        good.write_parquet(bad)
        again = start()
        again.wait()
        wanted = _windows(cluster.from_frame(rows, start="t")).collect(sort=True)
    assert _sorted(again.stable().frame).equals(wanted)


def test_rows_that_are_removed_before_they_have_their_name_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _files(tmp_path / "in", 2)
    publish = FolderSink.publish

    def robbed(sink: FolderSink, files: list[tuple[str, int]], *, again: bool) -> None:
        for path, _ in files:
            Path(path).unlink()
        publish(sink, files, again=again)

    monkeypatch.setattr(FolderSink, "publish", robbed)
    with sq.local(cores=1) as cluster:
        plan = _windows(cluster.stream(tmp_path / "in", start="t"))
        query = plan.start(str(tmp_path / "out"), checkpoint=tmp_path / "ck", until_now=True)
        with pytest.raises(sq.errors.ClusterError, match=r"rows of the answer are lost: .* was removed before"):
            query.wait()


def test_an_input_forgets_nothing_before_the_commit_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = _files(tmp_path / "in", 3)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    taken: list[object] = []
    real = FolderInput.taken

    def noted(item: FolderInput, record: object, reached: dict[int, object]) -> None:
        taken.append(record)
        real(item, record, reached)

    monkeypatch.setattr(FolderInput, "taken", noted)
    with sq.local(cores=1) as cluster:

        def start() -> LiveQuery:
            clicks = cluster.stream(tmp_path / "in", start="t", files_per_epoch=1)
            return _windows(clicks).start(str(tmp_path / "out"), checkpoint=tmp_path / "ck", until_now=True)

        with monkeypatch.context() as broken:
            broken.setattr("squill.runtime.live.log.EpochLog.commit", full)
            with pytest.raises(OSError, match="No space left"):
                start().wait()
        assert taken == []
        query = start()
        query.wait()
        wanted = _windows(cluster.from_frame(rows, start="t")).collect(sort=True)
    assert _sorted(query.stable().frame).equals(wanted)


def test_files_that_somebody_is_still_writing_are_left_alone(tmp_path: Path) -> None:
    rows = _files(tmp_path / "in", 1)
    for name in ("_temporary/0/part", ".staging/part", "_part"):
        unfinished = tmp_path / "in" / f"{name}.parquet"
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(b"PAR1")
    with sq.local(cores=1) as cluster:
        clicks = cluster.stream(tmp_path / "in", start="t")
        query = _windows(clicks).start(print, checkpoint=tmp_path / "ck", until_now=True, complete=False)
        query.wait()
    assert query.progress().rows == rows.height


def test_a_file_that_is_removed_while_the_folder_is_listed_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = _files(tmp_path / "in", 2)
    with sq.local(cores=1) as cluster:
        clicks = cluster.stream(tmp_path / "in", start="t")
        gone = str(tmp_path / "in" / "gone.parquet")
        monkeypatch.setattr(inputs, "matching_files", lambda *given: [*matching_files(*given), gone])
        query = _windows(clicks).start(print, checkpoint=tmp_path / "ck", until_now=True, complete=False)
        query.wait()
    assert query.progress().rows == rows.height


def test_answers_in_the_folder_of_an_input_are_refused(tmp_path: Path) -> None:
    _files(tmp_path / "in", 1)
    with sq.local(cores=1) as cluster:
        clicks = cluster.stream(tmp_path / "in", start="t")
        for place in ("in", "in/out"):
            with pytest.raises(sq.errors.PlanError, match=r"where the input 'in' takes its rows from\n.*beside it"):
                _windows(clicks).start(sq.folder(str(tmp_path / place), format="ipc"), checkpoint=tmp_path / "ck")
        assert not (tmp_path / "ck").exists()


def test_what_becomes_of_late_rows_may_change_when_a_query_goes_on(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    out = str(tmp_path / "out")

    def run(times: list[int], disorder: Any, *, complete: bool = False) -> LiveQuery:
        file = tmp_path / "in" / f"{min(times)}.parquet"
        pl.DataFrame({"t": times}).write_parquet(file)
        clicks = cluster.stream(tmp_path / "in", start="t", disorder=disorder)
        counted = clicks.query(lambda s: s.tumbling_window(10).count())
        query = counted.start(out, checkpoint=tmp_path / "ck", until_now=True, complete=complete)
        query.wait()
        return query

    with sq.local(cores=1) as cluster:
        run([1, 40], sq.throw())
        with pytest.raises(sq.errors.LateEventError):
            run([20, 60], sq.throw())
        assert run([20, 60], sq.drop()).late["start"].to_list() == [20]
        # More patience brings back nothing that was let go before: the time is 60 and stays.
        assert run([55, 61, 70], sq.drop(wait=30)).late["start"].to_list() == [55]
        query = run([65, 99], sq.drop(wait=30), complete=True)
    found = sorted(query.stable().frame.rows())
    assert found == [(10, 20, 1), (50, 60, 1), (70, 80, 3), (80, 90, 1), (100, 110, 1)]


def test_a_folder_of_answers_that_vanishes_is_named_and_the_query_goes_on(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    out, kept = tmp_path / "out", tmp_path / "kept"

    def more(*times: int) -> None:
        pl.DataFrame({"t": times}).write_parquet(tmp_path / "in" / f"{times[0]}.parquet")

    more(1, 40)
    with sq.local(cores=1) as cluster:
        counted = cluster.stream(tmp_path / "in", start="t").query(lambda s: s.tumbling_window(10).count())
        query = counted._prepared(
            str(out), checkpoint=tmp_path / "ck", every=None, emit="closed", until_now=False, complete=True,
            speculate=False, bootstrap=None, memory=None,
        )  # fmt: skip
        query.step()
        out.rename(kept)
        more(60)
        with pytest.raises(sq.errors.ClusterError, match=r"out', to which the answer is written, is gone\n.*goes on"):
            query.step()
        query.leave()
        kept.rename(out)
        again = counted.start(str(out), checkpoint=tmp_path / "ck", until_now=True)
        again.wait()
    assert again.stable().frame.rows() == [(10, 20, 1), (50, 60, 1), (70, 80, 1)]

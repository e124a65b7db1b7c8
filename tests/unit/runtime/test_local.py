from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.engine import lookup_table, run
from squill.engine.operators import interval_join
from squill.engine.pair_columns import PairColumns
from squill.errors import ClusterError, InputError, NumericOverflowError, PlanError
from squill.exchange.flow import Halted
from squill.plan.fragments import fragments_of
from squill.runtime import progress, shard
from squill.runtime.answer import CollectAnswer
from squill.runtime.machine import MAILBOX_ROWS, Machine
from squill.runtime.progress import Progress
from squill.runtime.shard_task import ShardTask
from squill.testing import assert_same_events
from tests.small_batches import read_in_batches_of
from tests.unit.runtime.cases import CASES, Case


@pytest.fixture
def cluster() -> Iterator[sq.Cluster]:
    with sq.local(cores=2) as started:
        yield started


@pytest.mark.parametrize("shards", [1, 2, 7])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_answer_does_not_depend_on_the_number_of_shards(cluster: sq.Cluster, case: Case, shards: int) -> None:
    assert_same_events(case.sharded(cluster, splits=shards, to=shards).collect(), case.in_process(), scale=1e4)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_answer_does_not_depend_on_the_batch_size(
    cluster: sq.Cluster, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_in_batches_of(monkeypatch, 97, sent=31)
    assert_same_events(case.sharded(cluster, splits=3, to=4).collect(), case.in_process(), scale=1e4)


def test_answer_is_ordered_by_start(cluster: sq.Cluster) -> None:
    case = CASES["integer keys, microseconds in a zone"]
    assert case.sharded(cluster, to=5).collect()["start"].is_sorted()


def test_sorted_answer_is_the_same_frame(cluster: sq.Cluster) -> None:
    case = CASES["composite keys with nulls, dates"]
    expected = case.in_process()
    found = case.sharded(cluster, to=3).collect(sort=True)
    assert found.equals(expected.sort(expected.columns))


def test_empty_frame_gives_an_empty_answer_with_its_types(cluster: sq.Cluster) -> None:
    empty = pl.DataFrame(schema={"t": pl.Date(), "k": pl.String()})
    counts = cluster.from_frame(empty, start="t").rekey("k").redistribute().query(lambda g: g.count())
    assert counts.collect().schema == {"start": pl.Date(), "end": pl.Date(), "k": pl.String(), "count": pl.Int64()}


def test_more_shards_than_rows_leave_some_idle(cluster: sq.Cluster) -> None:
    source = cluster.from_frame({"t": [1, 2], "k": ["a", "b"]}, start="t", shards=9)
    assert source.collect().rows() == [(1, 2, "a"), (2, 3, "b")]


def test_query_without_a_key_runs_per_shard(cluster: sq.Cluster) -> None:
    source = cluster.from_frame({"t": [1, 1, 1, 1]}, start="t", shards=2).query(lambda s: s.count())
    assert source.collect().rows() == [(1, 2, 2), (1, 2, 2)]


def test_key_made_by_an_expression_is_a_column(cluster: sq.Cluster) -> None:
    source = cluster.from_frame({"t": [1, 1, 1], "x": [1, 2, 3]}, start="t")
    counts = source.rekey(odd=sq.col("x") % 2 == 1).redistribute().query(lambda g: g.count())
    assert counts.collect(sort=True).rows() == [(1, 2, False, 1), (1, 2, True, 2)]


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_edges_cross_an_exchange(cluster: sq.Cluster, shards: int) -> None:
    """Counts per shard are summed per key: what moves are start and end edges."""
    case = CASES["integer keys, microseconds in a zone"]
    source = cluster.from_frame(case.frame, start="t", shards=shards).query(case.before).rekey("k")
    counts = source.query(case.query).redistribute(shards).query(lambda g: g.sum("n"))
    assert_same_events(counts.collect(), case.in_process())


def test_relational_rows_move_too(cluster: sq.Cluster) -> None:
    source = cluster.from_frame({"k": ["a", "b", "a", "c"]}, shards=2)
    assert sorted(source.rekey("k").redistribute().collect()["k"]) == ["a", "a", "b", "c"]


def test_failing_shard_is_named_and_leaves_no_thread(cluster: sq.Cluster) -> None:
    before = threading.active_count()
    # Only the first half fails: of two shards that fail, the one that is named is the one that came first.
    frame = {"t": list(range(100)), "x": [2**62] * 50 + [1] * 50}
    total = cluster.from_frame(frame, start="t", shards=2).query(lambda s: s.with_duration(50).sum("x"))
    with pytest.raises(NumericOverflowError, match=r"^fragment 1, shard 0 of 2, aggregate: "):
        total.collect()
    assert threading.active_count() == before


def test_bad_row_is_reported_with_its_shard(cluster: sq.Cluster) -> None:
    source = cluster.from_frame({"t": [1, 2, 3, None]}, start="t", shards=2)
    with pytest.raises(InputError, match=r"^fragment 1, shard 1 of 2: .*null"):
        source.collect()


def test_closed_cluster_refuses_to_run(cluster: sq.Cluster) -> None:
    source = cluster.from_frame({"t": [1]}, start="t")
    cluster.close()
    with pytest.raises(ClusterError, match="this cluster is closed"):
        source.collect()


@pytest.mark.parametrize("cores", [0, -1, 1.5, "2", True])
def test_cluster_of_no_cores_is_refused(cores: Any) -> None:
    with pytest.raises(PlanError, match=f"local: cores is {cores!r}\nHint: give a whole number"):
        sq.local(cores=cores)


def test_progress_counts_shards_of_each_fragment(cluster: sq.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "POLL_SECONDS", 600)  # or a slow run is told of in between
    seen: list[Progress] = []
    plan = CASES["integer keys, microseconds in a zone"].sharded(cluster, splits=2, to=3).plan
    cluster.runtime.run(fragments_of(plan), CollectAnswer(), seen.append)
    assert [(item.stage, item.done, item.shards) for item in seen] == [(1, done, 5) for done in range(1, 6)]


def test_files_are_read_by_their_shards_with_pushed_down_filters(cluster: sq.Cluster, tmp_path: Path) -> None:
    case = CASES["integer keys, microseconds in a zone"]
    for number, part in enumerate(case.frame.iter_slices(700)):
        part.write_parquet(tmp_path / f"{number}.parquet")
    source = cluster.scan(tmp_path, start="t").query(case.before)
    counts = source.rekey("k").redistribute(3).query(case.query)
    assert "where(" not in counts.explain(), "the scan was to take the filter"
    assert_same_events(counts.collect(), case.in_process())


def test_more_shards_than_files_leave_some_idle(cluster: sq.Cluster, tmp_path: Path) -> None:
    pl.DataFrame({"t": [1, 2]}).write_parquet(tmp_path / "a.parquet")
    assert cluster.scan(tmp_path, start="t", shards=3).collect().rows() == [(1, 2), (2, 3)]


@pytest.mark.parametrize("reads", [lambda g: g, lambda g: g.with_duration(5).aggregate(n=sq.count())])
def test_small_batches_are_what_shards_read(
    cluster: sq.Cluster, monkeypatch: pytest.MonkeyPatch, reads: Callable[[sq.Stream], sq.Stream]
) -> None:
    """What tests of any batch size rest on."""
    seen: list[int] = []
    real = run.source_arrivals

    def counting(split: Any, rows: int) -> Any:
        for arrival in real(split, rows):
            seen.append(0 if arrival.batch is None else len(arrival.batch))
            yield arrival

    monkeypatch.setattr(shard, "source_arrivals", counting)
    read_in_batches_of(monkeypatch, 4, sent=2)
    frame = pl.DataFrame({"t": range(50), "k": [n % 5 for n in range(50)]})
    stream = cluster.from_frame(frame, start="t").rekey("k")
    stream.query(reads).redistribute().query(lambda g: g.where(sq.col("k") >= 0)).collect()
    assert max(seen) == 4


@pytest.fixture
def on_step(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """What it is given is called before each step that somebody does for another shard."""

    def watch(call: Callable[[], object]) -> None:
        step = ShardTask.step

        def watched(self: ShardTask) -> bool:
            call()
            return step(self)

        monkeypatch.setattr(ShardTask, "step", watched)

    return watch


def test_rows_are_brought_by_who_waits_for_them(
    cluster: sq.Cluster, on_step: Callable[[Callable[[], object]], None]
) -> None:
    workers: set[str] = set()
    on_step(lambda: workers.add(threading.current_thread().name))
    source = cluster.from_frame({"t": list(range(9_000)), "k": list(range(9_000))}, start="t")
    moved = source.query(lambda s: s.where(sq.col("k") >= 0)).rekey("k").redistribute(3)
    assert moved.query(lambda g: g.count()).run().report().frame["rows_in"].sum() == 18_000
    assert workers
    assert {name.rpartition("_")[2] for name in workers} <= {"0", "1", "2"}, "there are three threads"


def test_fragments_that_may_give_many_rows_at_once_have_threads_of_their_own() -> None:
    """Who is on such a step could not take what fills its own mailbox, and room would be made for all of it."""
    asked = pl.DataFrame({"k": [number % 100 for number in range(4_000)], "x": range(4_000)})
    asking = pl.DataFrame({"k": [number % 100 for number in range(40_000)]})
    rooms: list[int] = []
    run = Machine.run

    def noted(self: Machine, *given: Any, **named: Any) -> list[Any]:
        results = run(self, *given, **named)
        rooms.append(self.flow.room)
        return results

    with pytest.MonkeyPatch.context() as patch, sq.local(cores=2) as cluster:
        patch.setattr(Machine, "run", noted)
        left, right = (cluster.from_frame(frame, start=None, shards=1) for frame in (asking, asked))
        placed = left.query(right, lambda s, t: s.join(t, on="k")).rekey("x").redistribute(2)
        assert placed.query(lambda g: g.aggregate(n=sq.count())).collect()["n"].sum() == 1_600_000
    assert rooms == [MAILBOX_ROWS // 2]


def test_where_fewer_wait_than_there_are_cores_others_help_to_bring_rows(
    cluster: sq.Cluster, on_step: Callable[[Callable[[], object]], None]
) -> None:
    """Two sources are read at once, though a single shard waits for them: each waits until the other one has begun."""
    met = threading.Barrier(2)
    first = iter(range(2))
    on_step(lambda: met.wait(20) if next(first, None) is not None else None)
    source = cluster.from_frame({"t": [1, 2], "k": [1, 2]}, start="t", shards=2)
    assert source.rekey("k").redistribute(1).query(lambda s: s.where(sq.col("k") > 0)).collect().height == 2


def test_error_while_rows_are_brought_is_told_where_they_are_read(cluster: sq.Cluster) -> None:
    source = cluster.from_frame({"t": [1, 2, 3, None], "k": [1, 2, 3, 4]}, start="t", shards=2)
    moved = source.rekey("k").redistribute(3).query(lambda s: s.with_duration(3).count())
    for _ in range(5):
        with pytest.raises(InputError, match=r"^fragment 1, shard 1 of 2: input .* is null in row 3"):
            moved.collect()


def test_stop_ends_a_run_that_only_brings_rows_which_nobody_gets(
    cluster: sq.Cluster, on_step: Callable[[Callable[[], object]], None]
) -> None:
    """No row comes, nor does time: who waits goes on bringing, and must look whether it is in vain."""
    stop, steps = threading.Event(), [0]

    def note() -> None:
        stop.set()
        steps[0] += 1

    on_step(note)
    table = cluster.from_frame({"k": list(range(4_000_000))}, start=None)
    kept = table.query(lambda s: s.where(sq.col("k") < 0)).rekey("k").redistribute(2)
    plan = fragments_of(kept.query(lambda s: s.where(sq.col("k") > 0)).plan)
    with pytest.raises(Halted):
        cluster.runtime.run(plan, CollectAnswer(), stop=stop)
    assert 0 < steps[0] <= 4


NEVER = sq.col("x") > sq.col("x_right")
MANY_PARTNERS: dict[str, Callable[[sq.Stream, sq.Stream], sq.Stream]] = {
    "relations": lambda a, b: a.join(b, on="k"),
    "a condition that holds for none": lambda a, b: a.where_exists(b, on="k", where=NEVER),
    "times": lambda a, b: a.with_duration(9).join(b.with_duration(9), on="k"),
}


@pytest.mark.parametrize("name", MANY_PARTNERS)
def test_stop_ends_a_run_amid_the_pairs_of_a_few_rows(
    cluster: sq.Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch of either side makes them all: who waited for its end waited for minutes."""
    stop, pieces = threading.Event(), [0]
    matching = PairColumns.matching

    def noted(*arguments: Any) -> Any:
        stop.set()
        pieces[0] += 1
        return matching(*arguments)

    monkeypatch.setattr(PairColumns, "matching", noted)
    monkeypatch.setattr(lookup_table, "MOST_PAIRS", 1_000)
    monkeypatch.setattr(interval_join, "CHUNK", 1_000)
    rows = pl.DataFrame({"t": [1] * 300, "k": [1] * 300, "x": [0] * 300})
    start = "t" if name == "times" else None
    sides = [cluster.from_frame(rows, start=start, shards=1) for _ in range(2)]
    plan = fragments_of(sides[0].query(sides[1], MANY_PARTNERS[name]).plan)
    with pytest.raises(Halted):
        cluster.runtime.run(plan, CollectAnswer(), stop=stop)
    assert pieces[0] == 1

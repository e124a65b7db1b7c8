"""Datasets in the order of progress: the same answers, of which no more is read than they need."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

import squill as sq
from squill.engine import egress_progress, time_sorter
from squill.engine.batch import Batch, Instant
from squill.engine.progress import arrivals, stored
from squill.errors import InputError, PlanError, SourceReadError, SquillError
from squill.plan.assignment import STEP, Assignment
from squill.plan.build.progress import inputs_of
from squill.plan.dataset import MANIFEST, read_dataset
from squill.plan.node import walk
from squill.plan.nodes import FileSource
from squill.plan.nodes.progress import NumberedPart
from squill.runtime.progressive.answers import EarlyAnswers
from squill.stream import Stream
from tests.small_batches import read_in_batches_of

ROWS = 600
CLICKS = {
    "user": [n * 7919 % 97 for n in range(ROWS)],
    "ad": [f"ad {n % 5}" for n in range(ROWS)],
    "x": [None if n % 11 == 0 else n % 13 for n in range(ROWS)],
    "from": [n * 31 % 6 for n in range(ROWS)],
    "to": [None if n % 3 else n * 31 % 6 + n % 4 for n in range(ROWS)],
}
BY_USER = sq.progress.hashed("user", 10)


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress_progress, "LEAST_ROWS", 20)
    monkeypatch.setattr(egress_progress, "MOST_ROWS", 50)


def store(folder: Path, progress: Assignment, shards: int = 2, data: Any = CLICKS, **times: Any) -> str:
    with sq.local(cores=shards) as cluster:
        cluster.from_frame(data, **times).to_storage(folder, progress=progress, mode="overwrite")
    return str(folder)


def per_ad(clicks: Stream) -> Stream:
    return clicks.where(sq.col("x").is_null() | (sq.col("x") > 2)).group_aggregate("ad", n=sq.count(), x=sq.sum("x"))


def shown(answers: EarlyAnswers) -> list[tuple[int, float, bool, list[tuple[Any, ...]]]]:
    return [(early.progress, early.fraction, early.is_final, early.frame.rows()) for early in answers]


def groups_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    read: list[int] = []
    plain = stored.read_rows

    def counted(source: FileSource, part: NumberedPart, *, ahead: bool) -> Iterator[pl.DataFrame]:
        metadata = pq.read_metadata(part.path)
        first = 0
        for number in range(metadata.num_row_groups):
            if part.offset <= first < part.offset + (part.rows or 0):
                read.append(number)
            first += metadata.row_group(number).num_rows
        return plain(source, part, ahead=ahead)

    monkeypatch.setattr(stored, "read_rows", counted)
    return read


@pytest.mark.parametrize("coarsen", [None, 3])
@pytest.mark.parametrize("progress", [BY_USER, sq.progress.columns("from"), sq.progress.columns("from", "to")], ids=str)
def test_answers_are_those_over_rows_in_any_order(tmp_path: Path, progress: Assignment, coarsen: int | None) -> None:
    query = per_ad(sq.scan(store(tmp_path / "clicks", progress)))
    expected = shown(per_ad(sq.from_frame(CLICKS)).progressive(progress, coarsen=coarsen))
    assert shown(query.progressive(coarsen=coarsen)) == expected
    for shards in (1, 2, 3):
        with sq.local(cores=shards) as cluster:
            assert shown(query.progressive(progress, coarsen=coarsen, on=cluster)) == expected


@pytest.mark.parametrize("batch_rows", [7, 10_000])
@pytest.mark.parametrize("progress", [BY_USER, sq.progress.columns("from", "to")], ids=str)
def test_large_steps_are_cut_where_they_end_and_answers_stay_the_same(
    tmp_path: Path, progress: Assignment, batch_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "SMALL_STEP", 1)
    read_in_batches_of(monkeypatch, batch_rows, sent=2)
    query = per_ad(sq.scan(store(tmp_path / "clicks", progress)))
    source = next(node for node in walk(query.plan) if isinstance(node, FileSource))
    end = stored._FileEnd(source, source.paths[0])
    cuts = list(end.cuts(0, int(end.come[:, 1].sum()), batch_rows))
    assert [high for _, high in cuts[:-1]] == [low for low, _ in cuts[1:]]
    assert all(isinstance(end.steps(low, high - low), Instant) and high - low <= batch_rows for low, high in cuts)
    expected = shown(per_ad(sq.from_frame(CLICKS)).progressive(progress))
    assert shown(query.progressive()) == expected
    with sq.local(cores=2) as cluster:
        assert shown(query.progressive(on=cluster)) == expected


@pytest.mark.parametrize("shards", [1, 3])
def test_numbered_rows_are_numbered_in_turn_over_the_shards_that_wrote_them(tmp_path: Path, shards: int) -> None:
    rows = sq.scan(store(tmp_path / "rows", sq.progress.rows(50), shards))
    heights = [early.frame.height for early in rows.progressive()]
    assert heights == [min(50 * step, ROWS) for step in range(1, 13)]
    fractions = sq.scan(store(tmp_path / "fractions", sq.progress.fractions(4), shards))
    assert [early.fraction for early in fractions.progressive()] == [0.25, 0.5, 0.75, 1.0]
    growing = sq.scan(store(tmp_path / "growing", sq.progress.exponential(10, 2), shards))
    assert [early.frame.height for early in growing.progressive()] == [10, 30, 70, 150, 310, 600]


def test_strata_are_counted_where_all_rows_of_a_key_are(tmp_path: Path) -> None:
    with sq.local(cores=2) as cluster:
        together = cluster.from_frame(CLICKS).rekey("ad").redistribute()
        together.to_storage(tmp_path / "strata", progress=sq.progress.stratified("ad", 40))
    answers = sq.scan(tmp_path / "strata").group_aggregate("ad", n=sq.count()).progressive()
    assert [set(early.frame["n"]) for early in answers] == [{40}, {80}, {120}]


def test_row_groups_end_where_steps_do(tmp_path: Path) -> None:
    folder = Path(store(tmp_path / "clicks", BY_USER))
    for path in folder.glob("*.parquet"):
        steps = pl.read_parquet(path)[STEP]
        assert steps.is_sorted()
        file = pq.ParquetFile(path)
        sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        assert len(sizes) > 4
        ends = np.cumsum(sizes)[:-1]
        assert all(steps[int(end)] != steps[int(end) - 1] for end in ends)


def test_a_large_step_has_several_row_groups(tmp_path: Path) -> None:
    folder = Path(store(tmp_path / "clicks", sq.progress.fractions(2), 1))
    (path,) = folder.glob("*.parquet")
    metadata = pq.read_metadata(path)
    assert max(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)) <= 50
    assert shown(sq.scan(str(folder)).aggregate(n=sq.count()).progressive()) == [
        (0, 0.5, False, [(300,)]),
        (1, 1.0, True, [(600,)]),
    ]


def test_who_stops_early_saves_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = store(tmp_path / "clicks", BY_USER)
    total = sum(pq.read_metadata(path).num_row_groups for path in Path(folder).glob("*.parquet"))
    read = groups_read(monkeypatch)
    for early in per_ad(sq.scan(folder)).progressive():
        assert early.fraction == early.provenance()["clicks"].height / ROWS
        break
    # What is there of the first step in either file, and the next ones, which were being read.
    assert len(read) <= 4 < total
    read.clear()
    list(per_ad(sq.scan(folder)).progressive())
    assert len(read) == total


def test_no_row_is_read_before_somebody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = store(tmp_path / "clicks", BY_USER)
    read = groups_read(monkeypatch)
    answers = per_ad(sq.scan(folder)).progressive()
    assert "stored in this order" in answers.explain()
    assert "an answer costs the reading of what it adds" in answers.explain()
    assert not read


def test_provenance_of_stored_rows(tmp_path: Path) -> None:
    query = per_ad(sq.scan(store(tmp_path / "clicks", BY_USER), name="clicks"))
    plain = per_ad(sq.from_frame(CLICKS, name="clicks"))
    for early, other in zip(query.progressive(), plain.progressive(BY_USER), strict=True):
        found, expected = early.provenance({"ad": "ad 1"})["clicks"], other.provenance({"ad": "ad 1"})["clicks"]
        assert found.columns == expected.columns
        assert found.sort(pl.all()).equals(expected.sort(pl.all()))


def test_a_promise_is_no_part_of_the_order_of_files(tmp_path: Path) -> None:
    with sq.local(cores=2) as cluster:
        by_user = sq.progress.hashed("user", 10, together="ad")
        assert cluster.from_frame(CLICKS).to_storage(tmp_path / "clicks", progress=by_user).progress == BY_USER


def test_another_assignment_than_that_of_the_files_costs_a_scan(tmp_path: Path) -> None:
    query = per_ad(sq.scan(store(tmp_path / "clicks", BY_USER)))
    other = sq.progress.hashed("user", 5)
    answers = query.progressive(other)
    assert "costs one scan" in answers.explain()
    assert shown(answers) == shown(per_ad(sq.from_frame(CLICKS)).progressive(other))


def test_stored_and_other_inputs_of_one_query(tmp_path: Path) -> None:
    def ctr(impressions: Stream) -> Stream:
        clicks = sq.from_frame(CLICKS, name="clicks").where(sq.col("x") > 5).group_aggregate("ad", c=sq.count())
        return clicks.join(impressions.group_aggregate("ad", i=sq.count()), on="ad")

    query = ctr(sq.scan(store(tmp_path / "shown", BY_USER), name="shown"))
    answers = query.progressive({"clicks": BY_USER})
    assert "costs one scan of clicks" in answers.explain()
    assert shown(answers) == shown(ctr(sq.from_frame(CLICKS, name="shown")).progressive(BY_USER))


def test_an_input_that_is_not_stored_in_order_needs_an_assignment() -> None:
    with pytest.raises(PlanError, match="the input 'frame' has no assignment"):
        sq.from_frame(CLICKS).progressive()


def test_rows_are_sorted_on_disk_where_memory_does_not_hold_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = shown(per_ad(sq.scan(store(tmp_path / "memory", BY_USER))).progressive())
    monkeypatch.setattr(time_sorter.TimeSorter.__init__, "__defaults__", (1_000, 7))
    monkeypatch.setattr("squill.engine.egress_file.DEFAULT_BATCH_ROWS", 16)
    assert shown(per_ad(sq.scan(store(tmp_path / "disk", BY_USER))).progressive()) == expected


def test_events_with_lifetimes_by_the_hash_of_their_key(tmp_path: Path) -> None:
    def sessions(clicks: Stream) -> Stream:
        return clicks.group_apply("user", lambda user: user.session_window(40).count())

    data = {"t": list(range(ROWS)), "user": CLICKS["user"]}
    query = sessions(sq.scan(store(tmp_path / "clicks", BY_USER, data=data, start="t")))
    assert shown(query.progressive()) == shown(sessions(sq.from_frame(data, start="t")).progressive(BY_USER))


def test_rows_stay_on_the_shard_where_they_are_stored(tmp_path: Path) -> None:
    with sq.local(cores=2) as cluster:
        by_ad = cluster.from_frame(CLICKS).rekey("ad").redistribute()
        by_ad.to_storage(tmp_path / "clicks", progress=BY_USER)
        query = cluster.scan(tmp_path / "clicks").query(lambda ad: ad.aggregate(n=sq.count()))
        answers = query.progressive()
        assert "redistribute" not in answers.explain()
        expected = sq.from_frame(CLICKS).group_aggregate("ad", n=sq.count()).progressive(BY_USER)
        assert shown(answers) == shown(expected)


def test_the_manifest_says_which_order_it_is(tmp_path: Path) -> None:
    for progress in (BY_USER, sq.progress.exponential(3, 1.5), sq.progress.columns("from", "to")):
        dataset = read_dataset(Path(store(tmp_path / "clicks", progress)))
        assert dataset.progress == progress
        assert f"in the order of {progress}" in str(dataset)
    assert sq.scan(tmp_path / "clicks").collect().columns == list(CLICKS)


def test_steps_of_another_hash_are_not_taken_for_those_of_this_one(tmp_path: Path) -> None:
    folder = Path(store(tmp_path / "clicks", BY_USER))
    manifest = folder / MANIFEST
    values = json.loads(manifest.read_text())
    values["sharding"]["hash_version"] += 1
    manifest.write_text(json.dumps(values))
    assert read_dataset(folder).progress is None
    query = per_ad(sq.scan(str(folder)))
    assert "costs one scan" in query.progressive(BY_USER).explain()


def test_plans_over_such_datasets_have_a_json_form(tmp_path: Path) -> None:
    query = per_ad(sq.scan(store(tmp_path / "clicks", BY_USER)))
    assert shown(sq.from_json(query.to_json()).progressive()) == shown(query.progressive())


def test_an_empty_dataset_has_one_answer(tmp_path: Path) -> None:
    data = {"user": pl.Series([], dtype=pl.Int64)}
    answers = sq.scan(store(tmp_path / "none", sq.progress.rows(3), data=data)).progressive()
    assert [(early.progress, early.is_final, early.frame.height) for early in answers] == [(0, True, 0)]


def test_a_dataset_whose_files_have_no_steps_is_refused(tmp_path: Path) -> None:
    folder = Path(store(tmp_path / "clicks", BY_USER, 1))
    (path,) = folder.glob("*.parquet")
    pl.read_parquet(path).drop(STEP).write_parquet(path)
    with pytest.raises(SourceReadError, match="does not say which rows come when"):
        list(sq.scan(str(folder)).progressive())


@pytest.mark.parametrize("coarsen", [1, 4])
def test_rows_before_those_that_are_wanted_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coarsen: int
) -> None:
    node = sq.scan(store(tmp_path / "d", BY_USER)).plan
    (item,) = inputs_of(node, None)
    source = item.over_progress(item.source, coarsen)

    def given(batch: Batch) -> tuple[list[int], list[int]]:
        return batch.sync.tolist(), batch.columns["user"].to_list()

    def read(wanted: int) -> tuple[int, list[tuple[Any, ...]]]:
        groups = groups_read(monkeypatch)
        batches = [arrival.batch for arrival in stored.stored_batches(replace(source, wanted=wanted), 1000)]
        rows = [row for batch in batches if batch is not None for row in zip(*given(batch), strict=True)]
        return len(groups), sorted(row for row in rows if row[0] >= wanted)

    pieces, rows = read(0)
    fewer, later = read(8)
    assert later == [row for row in rows if row[0] >= 8]
    assert 0 < fewer < pieces
    assert read(99) == (0, [])


def test_of_many_files_none_is_read_ahead_and_answers_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = per_ad(sq.scan(store(tmp_path / "clicks", BY_USER, shards=3)))
    expected = shown(query.progressive())
    flags: list[bool] = []
    plain = stored.read_rows

    def noted(source: FileSource, part: NumberedPart, *, ahead: bool) -> Iterator[pl.DataFrame]:
        flags.append(ahead)
        return plain(source, part, ahead=ahead)

    monkeypatch.setattr(stored, "read_rows", noted)
    for most, is_ahead in ((3, True), (2, False)):
        monkeypatch.setattr(stored, "FILES_AHEAD", most)
        assert shown(query.progressive()) == expected
        assert set(flags) == {is_ahead}
        flags.clear()


def test_neighbouring_row_groups_are_read_as_one_few_at_first() -> None:
    groups = [NumberedPart(n, 0, 10, path="a", offset=10 * n, length=10) for n in range(12)]
    pieces = stored._pieces([*groups[:9], *groups[10:]])
    assert [(piece.offset, piece.rows) for piece in pieces] == [
        (0, 10),
        (10, 20),
        (30, 40),
        (70, 20),
        (100, 10),
        (110, 10),
    ]


@pytest.mark.parametrize("where", [None, sq.col("x") > 2], ids=["as they are", "filtered"])
def test_a_file_that_gets_lost_is_named_and_no_thread_stays(tmp_path: Path, where: pl.Expr | None) -> None:
    folder = Path(store(tmp_path / "clicks", BY_USER))
    clicks = sq.scan(str(folder))
    query = (clicks if where is None else clicks.where(where)).group_aggregate("ad", n=sq.count())
    answers = query.progressive()
    lost = sorted(folder.glob("*.parquet"))[1]
    content = lost.read_bytes()
    # The footer is there, and says what is in the file; the rows are not.
    lost.write_bytes(b"PAR1" + bytes(len(content) // 2) + content[4 + len(content) // 2 :])
    with pytest.raises(SourceReadError, match=lost.name):
        list(answers)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("squill-read")]


def test_who_stops_early_leaves_no_thread(tmp_path: Path) -> None:
    for _ in per_ad(sq.scan(store(tmp_path / "clicks", BY_USER))).progressive():
        break
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("squill-read")]


def test_errors_on_shards_leave_no_thread_even_while_somebody_has_them(tmp_path: Path) -> None:
    def fail(_: pl.DataFrame) -> pl.DataFrame:
        raise ValueError("no")

    clicks = sq.scan(store(tmp_path / "clicks", BY_USER))
    failing = per_ad(clicks.map_batches(fail))
    held: list[BaseException] = []
    with sq.local(cores=2) as cluster:
        for answers in (
            per_ad(clicks).progressive(on=cluster, until=lambda _: 1 // 0),
            failing.progressive(on=cluster),
        ):
            try:
                list(answers)
            except (ZeroDivisionError, SquillError) as error:
                held.append(error)
    assert [type(error).__name__ for error in held] == ["ZeroDivisionError", "UserFunctionError"]
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("squill-read")]


def test_columns_are_compressed_where_that_is_worth_reading_longer(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    numbers = rng.integers(0, 1 << 50, 2_000)
    data = {"user": numbers, "text": [f"{n}, and the same words as in every row" for n in numbers]}
    (path,) = Path(store(tmp_path / "d", sq.progress.hashed("user", 1), 1, data)).glob("*.parquet")
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    assert {column.path_in_schema: column.compression for column in columns} == {
        "user": "UNCOMPRESSED",
        "text": "SNAPPY",
        STEP: "UNCOMPRESSED",
    }


def test_of_large_steps_no_small_row_group_is_left_over(tmp_path: Path) -> None:
    data = {"user": [1] * 120}
    (path,) = Path(store(tmp_path / "d", sq.progress.hashed("user", 1), 1, data)).glob("*.parquet")
    metadata = pq.read_metadata(path)
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [50, 35, 35]


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_rows_that_get_their_times_when_they_are_read_come_in_the_stored_order(tmp_path: Path, cores: int) -> None:
    data = {**CLICKS, "t": [n * 31 % ROWS for n in range(ROWS)]}
    folder = store(tmp_path / "clicks", BY_USER, data=data)

    def sessions(rows: Stream) -> Stream:
        return rows.group_apply("user", lambda user: user.session_window(20).count())

    scanned = sq.scan(folder, start="t")
    assert STEP not in scanned.plan.schema
    held = sq.from_frame(data, start="t", name="clicks")
    expected = shown(sessions(held).progressive(BY_USER))
    answers = sessions(scanned).progressive()
    assert "stored in the order of progress" in answers.explain()
    assert shown(answers) == expected
    with sq.local(cores=cores) as cluster:
        assert shown(sessions(scanned).progressive(on=cluster)) == expected
        placed = cluster.scan(folder, start="t").rekey("user").redistribute()
        assert shown(placed.query(lambda user: user.session_window(20).count()).progressive()) == expected
    assert scanned.collect(sort=True).equals(held.collect(sort=True))


def test_a_row_without_its_point_is_named_by_its_input(tmp_path: Path) -> None:
    with sq.local(2) as cluster:
        clicks = cluster.from_frame({"u": [1, 2], "at": [0, None]}, name="clicks").rekey("u").redistribute()
        users = cluster.from_frame({"u": [1, 2]}, name="users").rekey("u").redistribute()
        with pytest.raises(InputError, match=r": input 'clicks': the progress 'at' is null in row 0: {'u': 2"):
            clicks.to_storage(tmp_path / "a", progress=sq.progress.columns("at"))
        both = clicks.query(users, lambda one, other: one.join(other))
        with pytest.raises(InputError, match=r": the answer from 'clicks' and 'users': the progress 'at' is null"):
            both.to_storage(tmp_path / "a", progress=sq.progress.columns("at"))

"""What live inputs do when the world is not as they left it: folders, pushed rows, partitions, sinks."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import InputError, LateEventError, PlanError, SchemaChangedError, SourceReadError, UserFunctionError
from squill.runtime.live.handle import LiveQuery
from squill.sharded import ShardedStream

SCHEMA = {"t": pl.Int64, "x": pl.Int64}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    return made


@pytest.fixture
def cluster() -> Iterator[sq.Cluster]:
    with sq.local(cores=1) as made:
        yield made


def write(path: Path, *times: int, **columns: Any) -> None:
    pl.DataFrame({"t": list(times), "x": [0] * len(times), **columns}, schema_overrides=SCHEMA).write_parquet(path)


def stream(cluster: sq.Cluster, folder: Path, **options: Any) -> ShardedStream:
    return cluster.stream(folder, start="t", schema=SCHEMA, format="parquet", files_per_epoch=1, **options)


def until_now(query: ShardedStream, tmp_path: Path, *, complete: bool = False, sink: Any = None) -> LiveQuery:
    """Run a query over what is there, with the checkpoint of this test."""
    started = query.start(
        str(tmp_path / "out") if sink is None else sink,
        checkpoint=tmp_path / "ck",
        until_now=True,
        complete=complete,
    )
    started.wait()
    return started


def starts(query: LiveQuery) -> list[int]:
    return sorted(query.stable().frame.get_column("start").to_list())


# -- folders ----------------------------------------------------------------------------------------------------


def test_hidden_and_unfinished_files_are_not_read(cluster: sq.Cluster, folder: Path, tmp_path: Path) -> None:
    write(folder / "a.parquet", 1, 2)
    write(folder / ".hidden.parquet", 100)
    write(folder / "_being_written.parquet", 100)
    write(folder / "b.parquet.part", 100)
    (folder / "notes.txt").write_text("not rows")
    assert starts(until_now(stream(cluster, folder), tmp_path, complete=True)) == [1, 2]


def test_a_folder_that_vanishes_is_named_and_the_query_goes_on_when_it_is_back(
    cluster: sq.Cluster, folder: Path, tmp_path: Path
) -> None:
    write(folder / "a.parquet", 1)
    query = stream(cluster, folder)
    until_now(query, tmp_path)
    folder.rename(tmp_path / "gone")
    with pytest.raises(SourceReadError, match=r"^stream 'in': the folder '.*/in' cannot be listed: .*\n.*bring it"):
        until_now(query, tmp_path)
    (tmp_path / "gone").rename(folder)
    write(folder / "b.parquet", 5)
    assert starts(until_now(query, tmp_path, complete=True)) == [1, 5]


def test_a_folder_that_is_empty_for_a_while_is_not_read_twice(
    cluster: sq.Cluster, folder: Path, tmp_path: Path
) -> None:
    """As where a disk is not mounted: the folder is there, its files are not."""
    write(folder / "a.parquet", 1)
    query = stream(cluster, folder, disorder=sq.drop(wait=100))
    until_now(query, tmp_path)
    (folder / "a.parquet").rename(tmp_path / "a.parquet")
    until_now(query, tmp_path)
    (tmp_path / "a.parquet").rename(folder / "a.parquet")
    assert starts(until_now(query, tmp_path, complete=True)) == [1]


def test_files_that_were_removed_are_forgotten(cluster: sq.Cluster, folder: Path, tmp_path: Path) -> None:
    query = stream(cluster, folder)
    for number in range(3):
        write(folder / f"{number}.parquet", number)
        done = until_now(query, tmp_path)
        (folder / f"{number - 1}.parquet").unlink(missing_ok=True)
    assert len(done.stable().offsets["in"]["files"]) == 2


def test_a_file_that_cannot_be_read_may_be_replaced_or_removed(
    cluster: sq.Cluster, folder: Path, tmp_path: Path
) -> None:
    write(folder / "a.parquet", 1)
    query = stream(cluster, folder)
    until_now(query, tmp_path)
    for repair in (True, False):
        bad = folder / f"bad{repair}.parquet"
        bad.write_bytes(b"no parquet")
        with pytest.raises(SourceReadError, match=bad.name):
            until_now(query, tmp_path)
        if repair:
            write(bad, 2)
        else:
            bad.unlink()
    write(folder / "c.parquet", 9)
    assert starts(until_now(query, tmp_path, complete=True)) == [1, 2, 9]


def test_a_row_without_a_start_names_the_input_and_may_be_repaired(
    cluster: sq.Cluster, folder: Path, tmp_path: Path
) -> None:
    write(folder / "a.parquet", 1)
    query = stream(cluster, folder)
    until_now(query, tmp_path)
    pl.DataFrame({"t": [3, None], "x": [1, 2]}, schema=SCHEMA).write_parquet(folder / "b.parquet")
    with pytest.raises(InputError, match=r"shard 0 of 1: .*'t'.*null"):
        until_now(query, tmp_path)
    write(folder / "b.parquet", 3, 4)
    assert starts(until_now(query, tmp_path, complete=True)) == [1, 3, 4]


def test_a_function_that_raises_names_the_operator_and_the_query_goes_on(
    cluster: sq.Cluster, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "poison").write_text("7")

    def check(row: dict[str, Any]) -> list[dict[str, Any]]:
        if str(row["x"]) in (tmp_path / "poison").read_text():
            raise ValueError(f"{row['x']} is poison")
        return [row]

    query = stream(cluster, folder).query(lambda s: s.select_many(check, schema={"x": pl.Int64}))
    write(folder / "a.parquet", 1, 2, x=[5, 7])
    with pytest.raises(UserFunctionError, match=r"select_many.*7 is poison"):
        until_now(query, tmp_path)
    (tmp_path / "poison").write_text("")
    assert starts(until_now(query, tmp_path, complete=True)) == [1, 2]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"t": [5], "x": ["text"]}, "column 'x' is String in '.*b.parquet'; in this input it is Int64"),
        ({"t": [5]}, "column 'x' is not there in '.*b.parquet'; in this input it is Int64"),
        ({"t": [5], "x": [1], "y": [1]}, "column 'y' is Int64 in '.*b.parquet'; in this input it is not there"),
        ({"t": pl.Series([5], dtype=pl.Int32), "x": [1]}, "column 't' is Int32 in '.*b.parquet'; in this input it is"),
    ],
)
def test_another_schema_in_a_later_file_is_an_error(
    columns: Any, text: str, cluster: sq.Cluster, folder: Path, tmp_path: Path
) -> None:
    write(folder / "a.parquet", 1)
    query = stream(cluster, folder)
    until_now(query, tmp_path)
    pl.DataFrame(columns).write_parquet(folder / "b.parquet")
    with pytest.raises(SchemaChangedError, match=f"^fragment 1, shard 0 of 1: stream 'in': {text}"):
        until_now(query, tmp_path)
    write(folder / "b.parquet", 5)
    assert starts(until_now(query, tmp_path, complete=True)) == [1, 5]


@pytest.mark.parametrize(("format_", "good", "bad"), [("csv", "t,x\n1,2\n", "t,x\n5,text\n"),
    ("ndjson", '{"t":1,"x":2}\n', '{"t":5,"x":"text"}\n')])  # fmt: skip
def test_values_of_another_type_in_text_are_an_error(
    format_: str, good: str, bad: str, cluster: sq.Cluster, folder: Path, tmp_path: Path
) -> None:
    (folder / f"a.{format_}").write_text(good)
    query = cluster.stream(folder, start="t", schema=SCHEMA, format=format_, files_per_epoch=1)
    until_now(query, tmp_path)
    (folder / f"b.{format_}").write_text(bad)
    with pytest.raises(sq.errors.SquillError, match=rf"b\.{format_}"):
        until_now(query, tmp_path)
    (folder / f"b.{format_}").write_text(good.replace("1", "5"))
    assert starts(until_now(query, tmp_path, complete=True)) == [1, 5]


@pytest.mark.parametrize(("format_", "first", "later"), [("csv", "t,x\n1,2\n", "t,x,y\n5,3,9\n"),
    ("ndjson", '{"t":1,"x":2}\n', '{"t":5,"x":3}\n' * 150 + '{"t":5,"y":9}\n')])  # fmt: skip
def test_a_column_more_in_text_is_an_error_unless_the_columns_are_said(
    format_: str, first: str, later: str, cluster: sq.Cluster, folder: Path, tmp_path: Path
) -> None:
    (folder / f"a.{format_}").write_text("")
    (folder / f"b.{format_}").write_text(first)
    until_now(cluster.stream(folder, start="t"), tmp_path)
    (folder / f"c.{format_}").write_text(later)
    more = rf"column 'y' is Int64 in '.*c\.{format_}'; in this input it is not there\nHint: .*schema="
    with pytest.raises(SchemaChangedError, match=more):
        until_now(cluster.stream(folder, start="t"), tmp_path)
    said = cluster.stream(folder, start="t", schema=SCHEMA, format=format_)
    assert set(starts(until_now(said, tmp_path, complete=True))) == {1, 5}


def test_time_that_goes_back_is_an_error_under_throw(cluster: sq.Cluster, folder: Path, tmp_path: Path) -> None:
    write(folder / "a.parquet", 20)
    query = stream(cluster, folder)
    until_now(query, tmp_path)
    write(folder / "b.parquet", 3)
    with pytest.raises(LateEventError, match=r"source 'in': event .* has time 3, before the current time 20"):
        until_now(query, tmp_path)
    (folder / "b.parquet").unlink()
    assert starts(until_now(query, tmp_path, complete=True)) == [20]


# -- pushed rows ------------------------------------------------------------------------------------------------


def test_the_checkpoint_says_how_many_pushed_rows_it_has(cluster: sq.Cluster, tmp_path: Path) -> None:
    for first in (0, 3):
        source = sq.source({"t": pl.Int64}, start="t")
        query = cluster.stream(source).start(str(tmp_path / "out"), checkpoint=tmp_path / "ck", every="1ms")
        assert query.stable().offsets == {"source": {"rows": first}}
        for t in range(first, first + 3):
            source.push({"t": t})
        while query.progress().rows < 3:
            assert not query.wait(0.01)
        query.stop()
    assert starts(query) == list(range(5))


def test_pushed_rows_of_an_epoch_that_was_not_committed_are_pushed_again(cluster: sq.Cluster, tmp_path: Path) -> None:
    def prepared() -> tuple[Any, LiveQuery]:
        source = sq.source({"t": pl.Int64}, start="t")
        return source, cluster.stream(source)._prepared(
            str(tmp_path / "out"), checkpoint=tmp_path / "ck", every=None, emit="closed", until_now=False,
            complete=True, speculate=False, bootstrap=None, outside=world,
        )  # fmt: skip

    world = Dying()
    source, query = prepared()
    source.push({"t": [1, 50]})
    with pytest.raises(OSError, match="the power is gone"):
        query.step()
    query.leave()
    world.dies = False
    source, query = prepared()
    source.push({"t": [1, 50]})
    source.complete()
    query.step()
    query.leave()
    assert starts(query) == [1, 50]


class Dying:
    """A world in which the power goes before the commit."""

    dies = True

    def elapsed(self) -> float:
        return 0.0

    def now(self) -> dt.datetime:
        return dt.datetime(2020, 1, 1)

    def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    def about_to(self, moment: str) -> None:
        if moment == "commit" and self.dies:
            raise OSError("the power is gone")


# -- partitions -------------------------------------------------------------------------------------------------


def give(*items: Any) -> Any:
    def read(_partition: int, offset: int | None) -> Any:
        for number in range(offset or 0, len(items)):
            yield items[number] if not isinstance(items[number], pl.DataFrame) else (items[number], number + 1)

    return read


GOOD = pl.DataFrame({"t": [1], "x": [1]}, schema=SCHEMA)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (5, r"partitions: partition 0 gave 5\n.*yield pairs: rows, and the offset after them"),
        ((5, 1), r"partitions: partition 0"),
        (GOOD.select("t"), r"partition 0 gave the columns t; the source's are t, x\n.*yield the same columns"),
        (GOOD.with_columns(x=pl.lit("a")), r"partition 0: column 'x' is String, it was Int64\n.*yield the same types"),
    ],
)
def test_partitions_that_give_something_else(bad: Any, text: str, cluster: sq.Cluster, tmp_path: Path) -> None:
    query = cluster.stream(sq.partitions(1, give(GOOD, bad)), start="t", schema=SCHEMA)
    with pytest.raises(sq.errors.SquillError, match=text):
        until_now(query, tmp_path)


def test_a_partition_that_raises_is_named_and_read_again(cluster: sq.Cluster, tmp_path: Path) -> None:
    broken = [True]

    def read(partition: int, offset: int | None) -> Any:
        if broken[0]:
            raise ConnectionError("nobody answers")
        yield from give(GOOD)(partition, offset)

    query = cluster.stream(sq.partitions(2, read), start="t", schema=SCHEMA)
    with pytest.raises(UserFunctionError, match=r"partitions: partition 0 from None raised ConnectionError: nobody"):
        until_now(query, tmp_path)
    broken.clear()
    broken.append(False)
    assert starts(until_now(query, tmp_path, complete=True)) == [1, 1]


def test_offsets_that_json_cannot_say_are_refused(cluster: sq.Cluster, tmp_path: Path) -> None:
    query = cluster.stream(sq.partitions(1, give((GOOD, {1, 2}))), start="t", schema=SCHEMA)
    with pytest.raises(InputError, match=r"partition 0 gave the offset \{1, 2\}\n.*numbers, text, lists and dicts"):
        until_now(query, tmp_path)


def test_another_number_of_partitions_is_another_source(cluster: sq.Cluster, tmp_path: Path) -> None:
    until_now(cluster.stream(sq.partitions(2, give(GOOD)), start="t"), tmp_path)
    with pytest.raises(PlanError, match="the checkpoint is of 2 partitions, the source has 3"):
        until_now(cluster.stream(sq.partitions(3, give(GOOD)), start="t"), tmp_path)


# -- sinks ------------------------------------------------------------------------------------------------------


def test_a_sink_that_always_fails_is_an_error_and_is_given_the_epoch_after_a_restart(
    cluster: sq.Cluster, folder: Path, tmp_path: Path
) -> None:
    write(folder / "a.parquet", 1, 5)

    def broken(frame: pl.DataFrame) -> None:
        raise ConnectionError("the bell is broken")

    with pytest.raises(UserFunctionError, match=r"broken.*: it raised ConnectionError: the bell is broken.*of epoch 1"):
        until_now(stream(cluster, folder), tmp_path, sink=broken)
    given: list[Any] = []
    until_now(stream(cluster, folder), tmp_path, complete=True, sink=lambda frame, epoch: given.append((epoch, frame)))
    assert [(epoch, frame.rows()) for epoch, frame in given] == [(1, [(1, 2, 0)]), (2, [(5, 6, 0)])]


def test_nothing_is_left_of_a_query_that_failed(cluster: sq.Cluster, folder: Path, tmp_path: Path) -> None:
    before = {item.ident for item in threading.enumerate()}
    (folder / "a.parquet").write_bytes(b"no parquet")
    query = stream(cluster, folder).start(str(tmp_path / "out"), every="1ms")
    with pytest.raises(SourceReadError):
        query.wait(60)
    assert query.status() == "failed"
    assert isinstance(query.error, SourceReadError)
    query.stop()
    assert {item.ident for item in threading.enumerate()} <= before
    assert list((tmp_path / "out").iterdir()) == []
    assert not (tmp_path / "ck").exists()


def test_a_query_is_completed_when_its_inputs_have_ended_one_after_the_other() -> None:
    left, right = (sq.source({"t": pl.Int64, "k": pl.Int64}, start="t") for _ in range(2))
    given: list[pl.DataFrame] = []
    with sq.local(cores=1) as cluster:
        streams = [cluster.stream(item).query(lambda s: s.with_duration(5)) for item in (left, right)]
        joined = streams[0].query(streams[1], lambda one, other: one.join(other, on="k"))
        with joined.start(given.append, every="1ms") as query:
            left.push({"t": [1], "k": [1]})
            left.complete()
            while query.progress().epoch == 0:
                time.sleep(0.001)
            right.push({"t": [3], "k": [1]})
            right.complete()
            assert query.wait(60)
    assert query.status() == "completed"
    assert pl.concat(given).rows() == [(3, 6, 1)]

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from squill.engine.batch import Batch
from squill.errors import InternalError
from squill.exchange.segments import MANIFEST, Run, SegmentWriter, read_run, runs_for
from squill.plan.schema import Schema

SCHEMA = Schema({"x": pl.String()})


def rows(*times: int) -> Batch:
    sync = np.array(times)
    return Batch(sync, sync * 2, {"x": pl.Series("x", [str(time) for time in times])})


def write(path: Path, *sent: tuple[int, Batch]) -> list[Run]:
    with SegmentWriter(path, fragment=1, shard=4, attempt=9) as writer:
        for receiver, batch in sent:
            writer.send(7, [receiver], batch)
    return writer.runs()


def test_receiver_reads_its_own_batches_in_order(tmp_path: Path) -> None:
    runs = write(tmp_path / "a.arrow", (0, rows(1, 2)), (2, rows(3)), (0, rows(5, 9)))
    assert [run.receiver for run in runs] == [0, 2]
    found = [(batch.sync.tolist(), batch.columns["x"].to_list()) for batch in read_run(runs[0], SCHEMA)]
    assert found == [([1, 2], ["1", "2"]), ([5, 9], ["5", "9"])]


def test_manifest_line_says_what_is_in_the_file(tmp_path: Path) -> None:
    (run,) = write(tmp_path / "a.arrow", (3, rows(1, 2)), (3, rows(5, 9)))
    assert (run.fragment, run.shard, run.attempt, run.channel, run.receiver) == (1, 4, 9, 7, 3)
    assert (run.rows, run.min_sync, run.max_sync) == (4, 1, 9)
    assert run.path == str(tmp_path / "a.arrow")


def test_receiver_finds_its_runs_in_the_order_of_the_producers(tmp_path: Path) -> None:
    runs = write(tmp_path / "a.arrow", (0, rows(1, 2)), (2, rows(3)))
    earlier = [replace(run, shard=1) for run in runs]
    manifest = pa.Table.from_pylist([vars(run) for run in runs + earlier], schema=MANIFEST)
    assert runs_for(7, 2, manifest) == [earlier[1], runs[1]]
    assert runs_for(7, 1, manifest) == []
    assert runs_for(8, 2, manifest) == []


def test_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    with SegmentWriter(tmp_path / "a.arrow", fragment=1, shard=0, attempt=0) as writer:
        writer.send(7, [0], rows(1))
        assert [path.name for path in tmp_path.iterdir()] == ["a.arrow.part"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.arrow"]


def test_error_leaves_no_file(tmp_path: Path) -> None:
    def write_and_fail() -> None:
        with SegmentWriter(tmp_path / "a.arrow", fragment=1, shard=0, attempt=0) as writer:
            writer.send(7, [0], rows(1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    assert list(tmp_path.iterdir()) == []


def test_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    (run,) = write(path, (0, rows(1, 2)))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(InternalError, match="the segment at 0 is not what fragment 1 wrote"):
        list(read_run(run, SCHEMA))


def test_cut_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    (run,) = write(path, (0, rows(1, 2)))
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(InternalError, match="the segment at 0 is not what fragment 1 wrote"):
        list(read_run(run, SCHEMA))


def test_batches_outlive_the_file(tmp_path: Path) -> None:
    (run,) = write(tmp_path / "a.arrow", (0, rows(1, 2)))
    (batch,) = read_run(run, SCHEMA)
    Path(run.path).unlink()
    assert batch.sync.tolist() == [1, 2]


def test_what_several_receivers_get_is_written_once(tmp_path: Path) -> None:
    with SegmentWriter(tmp_path / "a.arrow", fragment=1, shard=0, attempt=0) as writer:
        writer.outbox(7).send([0, 1, 2], rows(1, 2))
    assert len({run.segments for run in writer.runs()}) == 1
    for run in writer.runs():
        (batch,) = read_run(run, SCHEMA)
        assert batch.sync.tolist() == [1, 2]

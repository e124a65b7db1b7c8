"""Room that is asked for ahead: files are as long as what was written, whether it was given or not."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from squill.engine.batch import Batch
from squill.exchange import reservation
from squill.exchange.reservation import FROM_BYTES, MOST_BYTES, Reservation
from squill.exchange.segments import ALIGNMENT, SegmentWriter, read_run
from squill.plan.schema import Schema

SCHEMA = Schema({"x": pl.Float64()})
ROWS = 300_000


def no_room(*_: int) -> int:
    return -1


@pytest.mark.parametrize("call", ["given", "refused", "unknown"])
def test_file_has_what_was_sent_and_no_byte_more(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if call != "given":
        monkeypatch.setattr(reservation, "_system_call", lambda: no_room if call == "refused" else None)
    values = np.random.default_rng(1).random(ROWS)
    with SegmentWriter(tmp_path / "a.arrow", fragment=1, shard=0, attempt=0) as writer:
        for _ in range(5):
            written = writer.send(7, [0], Batch.relational({"x": pl.Series("x", values)}, ROWS))
    state = (tmp_path / "a.arrow").stat()
    assert 5 * written > FROM_BYTES
    assert 5 * written <= state.st_size < 5 * (written + ALIGNMENT)
    assert state.st_blocks * 512 < state.st_size + (1 << 20)  # nothing stays reserved
    (run,) = writer.runs()
    found = [batch.columns["x"].to_numpy() for batch in read_run(run, SCHEMA)]
    assert len(found) == 5
    assert all((part == values).all() for part in found)


def test_more_is_reserved_than_asked_for_but_never_more_than_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    def noted(_descriptor: int, _mode: int, begin: int, size: int) -> int:
        asked.append((begin, begin + size))
        return 0

    monkeypatch.setattr(reservation, "_system_call", lambda: noted)
    monkeypatch.setattr(reservation, "_free_bytes", lambda _: 1 << 40)
    with (tmp_path / "file").open("wb") as file:
        room = Reservation(file.fileno())
        for size in (FROM_BYTES - 1, FROM_BYTES, 2 * FROM_BYTES, 2 * FROM_BYTES + 1, 10 * MOST_BYTES):
            room.expect(size)
    longer = 2 * FROM_BYTES + 1
    assert asked == [(0, 2 * FROM_BYTES), (2 * FROM_BYTES, 2 * longer), (2 * longer, 11 * MOST_BYTES)]


def test_what_a_failed_reservation_has_found_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that runs out of room in the middle leaves the file what it had found, for nobody else to use."""
    found = reservation._system_call()
    if found is None:
        pytest.skip("this system reserves nothing")

    held: list[int] = []

    def runs_out(descriptor: int, mode: int, begin: int, size: int) -> int:
        found(descriptor, mode, begin, size // 2)
        held.append(os.fstat(descriptor).st_blocks)
        return -1

    monkeypatch.setattr(reservation, "_system_call", lambda: runs_out)
    monkeypatch.setattr(reservation, "_free_bytes", lambda _: 1 << 40)
    with (tmp_path / "file").open("wb", buffering=0) as file:
        room = Reservation(file.fileno())
        file.write(bytes(1_000))
        room.expect(FROM_BYTES)
        state = os.fstat(file.fileno())
    assert (state.st_size, state.st_blocks * 512 < 1 << 20) == (1_000, True)
    assert len(held) == 1
    assert held[0] > state.st_blocks


def test_little_free_room_is_left_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservation, "_free_bytes", lambda _: 20 * FROM_BYTES)
    with (tmp_path / "file").open("wb") as file:
        Reservation(file.fileno()).expect(FROM_BYTES)
        assert os.fstat(file.fileno()).st_blocks == 0


def test_disk_that_is_full_at_the_end_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: Reservation, _size: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Reservation, "end", full)
    with (
        pytest.raises(OSError, match="no space"),
        SegmentWriter(tmp_path / "a.arrow", fragment=1, shard=0, attempt=0) as writer,
    ):
        writer.send(7, [0], Batch.relational({"x": pl.Series("x", [1.0])}, 1))
    assert not list(tmp_path.iterdir())

"""Room that is asked for ahead: files are as long as what was written, whether it was given or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from squill.engine.batch import Batch
from squill.exchange import reservation
from squill.exchange.reservation import FROM_BYTES, MOST_BYTES, Reservation
from squill.exchange.segments import SegmentWriter, read_run
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
    assert 5 * written <= state.st_size < 5 * written + 5 * 64 > FROM_BYTES
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
    with (tmp_path / "file").open("wb") as file:
        room = Reservation(file.fileno())
        for size in (FROM_BYTES - 1, FROM_BYTES, 2 * FROM_BYTES, 2 * FROM_BYTES + 1, 10 * MOST_BYTES):
            room.expect(size)
    longer = 2 * FROM_BYTES + 1
    assert asked == [(0, 2 * FROM_BYTES), (2 * FROM_BYTES, 2 * longer), (2 * longer, 11 * MOST_BYTES)]


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

"""A stream that goes on for thousands of epochs: what it holds, in memory and on disk, does not grow."""

from __future__ import annotations

from pathlib import Path

import polars as pl

import squill as sq
from squill.runtime.live.log import BASE_EVERY, KEPT
from squill.sharded import ShardedStream
from squill.testing import LiveTest, scripted
from tests.resident import resident_bytes

SCHEMA = {"t": pl.Int64, "k": pl.Int64}
WARM, ROUNDS, EPOCHS = 80, 3, 50
MEGABYTE = 1 << 20


def windows(clicks: ShardedStream) -> ShardedStream:
    return clicks.rekey("k").redistribute().query(lambda s: s.hopping_window(50, 10).aggregate(n=sq.count()))


def size_of(folder: Path) -> tuple[int, int]:
    """Return how many files there are, and how many bytes."""
    sizes = [item.stat().st_size for item in folder.rglob("*") if item.is_file()]
    return len(sizes), sum(sizes)


def test_state_and_memory_stay_flat() -> None:
    epochs = 0

    def run(test: LiveTest, count: int) -> tuple[int, int, int]:
        nonlocal epochs
        for _ in range(count):
            epochs += 1
            test.push("clicks", {"t": [10 * epochs, 10 * epochs + 5], "k": [epochs % 7, epochs % 3]})
            test.step()
        return (*size_of(Path(test.checkpoint)), resident_bytes())

    with LiveTest(windows, {"clicks": scripted(SCHEMA, start="t")}, shards=2) as test:
        run(test, WARM)
        files, sizes, held = zip(*(run(test, EPOCHS) for _ in range(ROUNDS)), strict=True)
        checkpoint = Path(test.checkpoint)
        assert test.progress.epoch == epochs
        assert test.progress.state_rows < 100
        for name in ("epochs", "commits"):
            assert len(list((checkpoint / name).iterdir())) <= KEPT + BASE_EVERY + 2
        assert list((checkpoint / "answers").iterdir()) == []
        test.restart()
        test.push("clicks", {"t": 10 * epochs + 100, "k": 1})
        assert test.step().height > 0
    assert max(files) - min(files) <= 60  # between two prunings
    assert max(sizes) < 400_000  # it goes up and down, as states are merged
    assert held[-1] - held[0] < 30 * MEGABYTE  # the test itself keeps what it pushed and was given

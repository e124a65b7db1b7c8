"""Early answers of live queries: what was given so far, folded, is the answer as if the inputs had ended there."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import squill as sq

ROWS = pl.DataFrame({"t": [1, 4, 12, 13, 31, 33, 58], "k": [1, 2, 1, 1, 2, 1, 2]})


def _counts(clicks: sq.ShardedStream) -> sq.ShardedStream:
    return clicks.rekey("k").redistribute().query(lambda s: s.hopping_window(20, 10).aggregate(n=sq.count()))


def _folded(frames: list[pl.DataFrame]) -> list[tuple[object, ...]]:
    """Return the sum of all changes."""
    changes = pl.concat(frames)
    keys = [name for name in changes.columns if name != "diff"]
    return sorted(changes.group_by(keys).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0).rows())


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("keeps", [False, True])
def test_every_epoch_gives_the_answer_as_if_the_input_ended_there(tmp_path: Path, shards: int, keeps: bool) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    given: list[pl.DataFrame] = []
    with sq.local(cores=shards) as cluster:
        for number in range(ROWS.height):
            ROWS[number : number + 1].write_parquet(folder / f"{number}.parquet")
            if not keeps and number < ROWS.height - 1:
                continue
            clicks = cluster.stream(folder, start="t", files_per_epoch=1)
            last = number == ROWS.height - 1
            query = _counts(clicks).start(
                given.append,
                checkpoint=tmp_path / "ck" if keeps else None,
                emit="changes",
                speculate=True,
                until_now=True,
                complete=last,
            )
            query.wait()
            stored: list[pl.DataFrame] = []
            known = tmp_path / f"known-{number}"
            known.mkdir()
            ROWS[: number + 1].write_parquet(known / "all.parquet")
            whole = _counts(cluster.stream(known, start="t"))
            whole.start(stored.append, emit="changes", until_now=True).wait()
            assert _folded(given) == _folded(stored)


def test_early_answers_are_changes() -> None:
    source = sq.source({"t": pl.Int64}, start="t")
    with sq.local(cores=1) as cluster, pytest.raises(sq.errors.PlanError, match="a closed row is final"):
        cluster.stream(source).query(lambda s: s.count()).start(print, speculate=True)

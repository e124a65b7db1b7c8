"""Keys that are promised to stand together, and are on two shards all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import InputError
from squill.exchange import routers

ROWS = 300


def counts(rows: sq.ShardedStream) -> list[tuple[Any, ...]]:
    """Count the rows of each key without a redistribute: right only where a key is on one shard."""
    return sorted(rows.rekey("k").query(lambda s: s.aggregate(n=sq.count())).collect().rows())


def written(folder: Path, *keys: list[int | None], suffix: str = "parquet") -> Path:
    for number, values in enumerate(keys):
        frame = pl.DataFrame({"k": values, "x": range(len(values))}, schema_overrides={"k": pl.Int64})
        path = folder / f"{number}.{suffix}"
        frame.write_parquet(path) if suffix == "parquet" else frame.write_csv(path)
    return folder


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_key_in_files_of_two_shards_is_an_error(tmp_path: Path, suffix: str) -> None:
    written(tmp_path, [1, 7, 2], [3, 4], [5, 7, 6], suffix=suffix)
    broken = (
        r"^input '.*': the key {'k': 7} is in '.*0\.\w+' and, after others, in '.*2\.\w+', but packed=\[k\] promises"
    )
    with sq.local(cores=3) as cluster:
        with pytest.raises(InputError, match=broken):
            counts(cluster.scan(tmp_path, packed="k"))
        # Who says that it need not be looked at gets what each shard sees.
        assert counts(cluster.scan(tmp_path, packed="k", trust=True)).count((7, 1)) == 2


@pytest.mark.parametrize("name", ["first", "last"])
def test_a_key_may_have_any_name(tmp_path: Path, name: str) -> None:
    for number, keys in enumerate([[1, 7], [3, 4], [7, 6]]):
        pl.DataFrame({name: keys}).write_parquet(tmp_path / f"{number}.parquet")
    with (
        sq.local(cores=3) as cluster,
        pytest.raises(InputError, match=rf"the key {{'{name}': 7}} is in '.*0\.parquet'"),
    ):
        cluster.scan(tmp_path, packed=name).collect()


def test_a_promise_that_holds_gives_whole_answers(tmp_path: Path) -> None:
    written(tmp_path, [1, None, None], [None, 2], [], [2, 3], [4])
    with sq.local(cores=3) as cluster:
        found = counts(cluster.scan(tmp_path, packed="k").query(lambda s: s.where(sq.col("k").is_not_null())))
        assert found == [(1, 1), (2, 2), (3, 1), (4, 1)]


def test_rows_that_a_filter_drops_break_no_promise(tmp_path: Path) -> None:
    written(tmp_path, [1, 7, 2], [3, 4], [5, 7, 6])
    with sq.local(cores=3) as cluster:
        rows = cluster.scan(tmp_path, packed="k").query(lambda s: s.where(sq.col("k") != 7))
        assert len(counts(rows)) == 6


def test_a_key_on_two_shards_of_a_frame_is_an_error() -> None:
    frame = pl.DataFrame({"k": [*range(ROWS), 5], "x": 1})
    with sq.local(cores=4) as cluster:
        with pytest.raises(
            InputError, match=r"row 300 takes up a key again that packed=\[k\] had left: {'k': 5, 'x': 1}"
        ):
            counts(cluster.from_frame(frame, packed="k"))
        assert len(counts(cluster.from_frame(frame[:ROWS], packed="k"))) == ROWS


def test_a_key_on_two_shards_of_a_dataset_is_an_error(tmp_path: Path) -> None:
    with sq.local(cores=2) as cluster:
        rows = cluster.from_frame({"k": [1, 7, 2, 3, 7, 4], "x": [0] * 6})
        rows.to_storage(tmp_path / "d")
        with pytest.raises(InputError, match=r"the key {'k': 7} is in"):
            counts(cluster.scan(tmp_path / "d", packed="k"))


@pytest.mark.parametrize("promise", [{"sorted_by": "t"}, {"unique": "x"}])
def test_no_answer_rests_on_what_shards_do_not_check(tmp_path: Path, promise: Any) -> None:
    frame = pl.DataFrame({"t": [5, 6, 1, 2], "k": [1, 1, 1, 1], "x": [1, 2, 2, 1]})
    frame[:2].write_csv(tmp_path / "a.csv")  # between parts of which nobody looks, unlike those of parquet
    frame[2:].write_csv(tmp_path / "b.csv")
    expected = sq.from_frame(frame, start="t").group_apply("k", lambda s: s.sliding_window(3).count())
    with sq.local(cores=2) as cluster:
        rows = cluster.scan(tmp_path, start="t", **promise).rekey("k").redistribute()
        found = rows.query(lambda s: s.sliding_window(3).count()).collect(sort=True)
    assert found.equals(expected.collect(sort=True))


@pytest.mark.parametrize("start", [None, "t"])
def test_rows_of_a_key_stay_together_also_where_others_are_between_them(
    monkeypatch: pytest.MonkeyPatch, start: str | None
) -> None:
    monkeypatch.setattr(routers, "BLOCK_ROWS", 2)
    frame = pl.DataFrame({"k": [key for key in range(6) for _ in range(4)], "t": [*range(4)] * 6})
    with sq.local(cores=2) as cluster:
        rows = cluster.from_frame(frame, start=start, packed="k", shards=1).reshard(to=2)
        alive = rows.rekey("k").query(lambda s: s if start is None else s.alter_lifetime(start=sq.start() // 9 * 9))
        found = alive.query(lambda s: s.aggregate(n=sq.count())).collect()
        assert sorted(found.select("k", "n").rows()) == [(key, 4) for key in range(6)]

"""Keys are dealt out evenly on threads, where nobody relies on the plain hash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.engine.batch import Batch
from squill.engine.hashing import hash_columns
from squill.errors import InputError
from squill.plan.fragments import fragments_of
from squill.plan.nodes import FileSource, Source
from squill.plan.routing import HashRouting
from squill.runtime.local import dealing
from squill.runtime.local.dealing import deals_of
from squill.runtime.shard import read_split
from squill.runtime.splits import splits_of_fragment
from squill.testing import assert_same_events

ROWS = 20_000


@pytest.fixture
def cluster() -> Iterator[sq.Cluster]:
    with sq.local(cores=2) as started:
        yield started


def skewed(seed: int = 0, rows: int = ROWS, heavy: int = 8) -> pl.DataFrame:
    """A quarter of the rows has one key, a quarter a few others: of two shards the plain hash puts all on the first."""
    random = np.random.default_rng(seed)
    keys = np.arange(10 * heavy) + 1_000 * seed
    together = keys[hash_columns([pl.Series(keys)]) % np.uint64(2) == 0][: heavy + 1]
    chosen = random.random(rows)
    key = np.where(chosen < 0.25, together[0], random.integers(0, 5_000, rows))
    key = np.where((chosen >= 0.25) & (chosen < 0.5), random.choice(together[1:], rows), key)
    return pl.DataFrame({"t": np.sort(random.integers(0, 100_000, rows)), "k": key, "x": random.integers(0, 99, rows)})


def summed(stream: sq.Stream) -> sq.Stream:
    return stream.hopping_window(1_000, 250).aggregate(s=sq.sum("x"))


def largest_share(run: object, fragment: int) -> float:
    frame = run.report().frame.filter(pl.col("fragment") == fragment)  # type: ignore[attr-defined]
    return float(frame["rows_in"].max() / frame["rows_in"].sum())


def deals_in(stream: sq.ShardedStream) -> int:
    plan = fragments_of(stream.plan)
    splits = {place: parts for fragment in plan.fragments for place, parts in splits_of_fragment(fragment)}
    return len(deals_of(plan, splits))


@pytest.mark.parametrize("kind", ["frame", "parquet"])
def test_shards_of_a_skewed_stream_get_about_as_many_rows(cluster: sq.Cluster, tmp_path: Path, kind: str) -> None:
    frame = skewed()
    plain = hash_columns([frame["k"]]) % np.uint64(2)
    assert np.count_nonzero(plain == 0) > 0.7 * ROWS, "or there is nothing to show"
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=ROWS // 8)
    source = (
        cluster.from_frame(frame, start="t") if kind == "frame" else cluster.scan(tmp_path / "a.parquet", start="t")
    )
    run = source.rekey("k").redistribute().query(summed).run()
    assert largest_share(run, 2) < 0.52
    expected = sq.from_frame(frame, start="t").group_apply("k", summed).collect()
    assert_same_events(run.frame, expected)


@pytest.mark.parametrize("kind", ["frame", "parquet"])
def test_shards_get_about_as_many_rows_of_a_stream_that_lies_by_key(
    cluster: sq.Cluster, tmp_path: Path, kind: str
) -> None:
    frame = pl.DataFrame({"t": range(300_500), "k": [place // 1_000 for place in range(300_500)]})
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=50_000)
    source = (
        cluster.from_frame(frame, start="t") if kind == "frame" else cluster.scan(tmp_path / "a.parquet", start="t")
    )
    shares = [largest_share(source.rekey("k").redistribute(to=shards).run(), 2) for shards in (2, 4)]
    assert shares[0] < 0.6
    assert shares[1] < 0.35


@pytest.mark.parametrize(("cores", "machines"), [(4, 1), (2, 2), (3, 1)])
def test_answers_do_not_depend_on_the_deal(cores: int, machines: int) -> None:
    frame = skewed(1)
    with sq.local(cores=cores, machines=machines) as cluster:
        keyed = cluster.from_frame(frame, start="t").rekey("k")
        runs = [keyed.redistribute().query(summed).run()]
        if machines > 1:
            runs.append(keyed.redistribute(scope="local").redistribute(scope="global").query(summed).run())
    expected = sq.from_frame(frame, start="t").group_apply("k", summed).collect()
    for run in runs:
        assert_same_events(run.frame, expected)
    # The heaviest key alone has a quarter of the rows.
    assert largest_share(runs[0], 2) < 1.05 * max(0.25, 1 / (cores * machines))


@pytest.mark.parametrize("sizes", [(ROWS, ROWS), (ROWS, 5_000), (ROWS, 100)])
def test_inputs_that_meet_are_dealt_alike_whatever_their_skews(cluster: sq.Cluster, sizes: tuple[int, int]) -> None:
    frames = [skewed(2, sizes[0]), skewed(3, sizes[1]).rename({"x": "y"})]
    left, right = (cluster.from_frame(frame, start="t").rekey("k").redistribute() for frame in frames)
    run = left.query(right, lambda a, b: a.with_duration(2_000).join(b)).run()
    one, other = (sq.from_frame(frame, start="t") for frame in frames)
    assert_same_events(run.frame, one.with_duration(2_000).join(other, on="k").collect())
    assert len(run.frame) > 0


@pytest.mark.parametrize("sizes", [(ROWS, ROWS), (ROWS, 100), (1_000, ROWS)])
def test_inputs_that_meet_by_keys_of_different_names_are_dealt_alike(
    cluster: sq.Cluster, sizes: tuple[int, int]
) -> None:
    frames = [skewed(2, sizes[0]), skewed(3, sizes[1]).rename({"k": "l", "x": "y"}), skewed(4).rename({"k": "m"})]
    one, other, third = (sq.from_frame(frame, start="t") for frame in frames)
    joined = one.with_duration(2_000).join(other, left_on="k", right_on="l")
    for query in (joined, joined.where_not_exists(third.with_duration(50), left_on="k", right_on="m")):
        expected = query.collect()
        assert len(expected) > 0
        assert_same_events(query.collect(on=cluster), expected)


def test_inputs_are_weighed_by_their_rows(cluster: sq.Cluster) -> None:
    """The samples are equally large; that of a source ten times as long counts ten times."""
    long, short = skewed(4, 120_000), skewed(5, 12_000).rename({"x": "y"})
    left, right = (cluster.from_frame(frame, start="t").rekey("k").redistribute() for frame in (long, short))
    run = left.query(right, lambda a, b: a.join(b)).run()
    assert largest_share(run, 3) < 0.52


def test_a_movement_that_is_left_out_relies_on_the_same_deal(cluster: sq.Cluster) -> None:
    frame = skewed(6)
    counts = cluster.from_frame(frame, start="t").rekey("k").redistribute().query(summed)
    again = counts.redistribute().query(lambda g: g.aggregate(n=sq.count()))
    assert len(fragments_of(again.plan).fragments) == 2
    expected = sq.from_frame(frame, start="t").group_apply("k", lambda g: summed(g).aggregate(n=sq.count()))
    assert_same_events(again.collect(), expected.collect())


@pytest.mark.parametrize("place", ["storage", "memory"])
def test_what_is_kept_lies_where_the_plain_hash_says(cluster: sq.Cluster, tmp_path: Path, place: str) -> None:
    frame = skewed(7)
    placed = cluster.from_frame(frame, start="t").rekey("k").redistribute()
    assert deals_in(placed) == 1
    if place == "storage":
        placed.to_storage(tmp_path / "kept")
        kept = cluster.scan(tmp_path / "kept")
        for file in (tmp_path / "kept").glob("part-*"):
            shard = int(file.name.split("-")[1])
            assert set((hash_columns([pl.read_parquet(file)["k"]]) % np.uint64(2)).tolist()) == {shard}
    else:
        placed.to_memory(f"kept {tmp_path}")
        kept = cluster.dataset(f"kept {tmp_path}")
    # It meets rows that are moved now: they must go where the kept ones are.
    other = skewed(7, 6_000).rename({"x": "y"})
    moved = cluster.from_frame(other, start="t").rekey("k").redistribute()
    both = kept.rekey("k").query(moved, lambda a, b: a.with_duration(50).join(b))
    assert deals_in(both) == 0
    expected = sq.from_frame(frame, start="t").with_duration(50).join(sq.from_frame(other, start="t"), on="k")
    assert_same_events(both.collect(), expected.collect())


def test_rows_that_only_a_run_can_tell_are_dealt_plainly(cluster: sq.Cluster) -> None:
    source = cluster.from_frame(skewed(8), start="t").rekey("k")
    assert deals_in(source.redistribute()) == 1
    assert deals_in(source.query(lambda g: g.count()).redistribute().query(lambda g: g.sum("count"))) == 0
    seen: list[int] = []

    def counted(frame: pl.DataFrame) -> pl.DataFrame:
        seen.append(frame.height)
        return frame

    mapped = source.query(lambda g: g.map_batches(counted, schema={"k": pl.Int64, "x": pl.Int64})).redistribute()
    assert mapped.collect().height == ROWS
    assert sum(seen) == ROWS


def test_only_what_keys_and_filters_need_is_read_of_files_that_are_looked_at(
    cluster: sq.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = skewed(12).with_columns(y=pl.col("x") + 1, z=pl.lit("text"))
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=ROWS // 8)
    read: list[tuple[str, ...] | None] = []

    def noted(sample: FileSource) -> Iterator[Batch]:
        read.append(sample.read)
        return read_split(sample)

    monkeypatch.setattr(dealing, "read_split", noted)
    source = cluster.scan(tmp_path / "a.parquet", start="t").query(lambda s: s.where(sq.col("y") > 0))
    moved = source.rekey(key=sq.col("k") % 1_000).redistribute()
    assert deals_in(moved) == 1
    assert read == [("k",)] * dealing.SAMPLES  # the filter is Polars', which reads what it needs for it
    assert moved.query(lambda g: g.aggregate(z=sq.last("z"))).collect()["z"].unique().to_list() == ["text"]


def test_few_rows_are_dealt_plainly(cluster: sq.Cluster) -> None:
    few = cluster.from_frame(skewed(9, dealing.FEW_ROWS - 1), start="t").rekey("k").redistribute()
    enough = cluster.from_frame(skewed(9, 2 * dealing.FEW_ROWS), start="t").rekey("k").redistribute()
    assert (deals_in(few), deals_in(enough)) == (0, 1)


def test_a_bad_row_among_those_that_are_looked_at_is_reported_with_its_shard(cluster: sq.Cluster) -> None:
    frame = skewed(10).with_columns(t=pl.when(pl.int_range(pl.len()) == 3).then(None).otherwise("t"))
    with pytest.raises(InputError, match=r"^fragment 1, shard 0 of 2: .*null in row 3"):
        cluster.from_frame(frame, start="t").rekey("k").redistribute().collect()


def test_the_transparent_rewrite_is_balanced_too(cluster: sq.Cluster) -> None:
    frame = skewed(11)
    query = sq.from_frame(frame, start="t").group_apply("k", summed)
    sharded = cluster.sharded(query)
    (routing,) = (channel.routing for channel in fragments_of(sharded.plan).channels.values())
    assert isinstance(routing, HashRouting)
    run = sharded.run()
    assert largest_share(run, 2) < 0.52
    assert_same_events(run.frame, query.collect())


@pytest.mark.parametrize(
    ("condition", "samples", "deals"),
    [
        (sq.col("x") < 99, dealing.SAMPLES, 1),
        (sq.col("x") < 5, 1, 0),
        (sq.col("x") + 1 < 0, dealing.SAMPLES, 0),
        (sq.col("t") > 50_000, dealing.SAMPLES, 1),  # the later half of the file
    ],
)
def test_where_a_filter_keeps_few_rows_no_second_sample_is_looked_at(
    cluster: sq.Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    condition: pl.Expr,
    samples: int,
    deals: int,
) -> None:
    skewed(9, 100_000).write_parquet(tmp_path / "a.parquet", row_group_size=10_000)
    looked_at: list[Source] = []

    def look(sample: Source) -> Iterator[Batch]:
        looked_at.append(sample)
        return read_split(sample)

    monkeypatch.setattr(dealing, "read_split", look)
    some = cluster.scan(tmp_path / "a.parquet").query(lambda s: s.where(condition))
    assert deals_in(some.rekey("k").redistribute()) == deals
    assert len(looked_at) == samples

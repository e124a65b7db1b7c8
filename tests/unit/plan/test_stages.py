from __future__ import annotations

from collections.abc import Iterator

import pytest

import squill as sq
from squill.plan.fragments import fragments_of
from squill.plan.stages import Stage, stages_of, waves_of


@pytest.fixture
def rows() -> Iterator[sq.ShardedStream]:
    with sq.local(cores=2, machines=2) as cluster:
        yield cluster.from_frame({"t": [1, 2], "k": [5, 6], "x": [1, 2]}, start="t").rekey("k")


def stages(stream: sq.ShardedStream) -> tuple[Stage, ...]:
    return stages_of(fragments_of(stream.plan))


def fragments(stream: sq.ShardedStream) -> list[list[int]]:
    return [[fragment.number for fragment in stage.fragments] for stage in stages(stream)]


def joined(left: sq.ShardedStream, right: sq.ShardedStream) -> sq.ShardedStream:
    return left.query(right, lambda one, other: one.join(other))


def test_local_movements_stay_inside_a_stage(rows: sq.ShardedStream) -> None:
    counted = rows.query(lambda g: g.count()).redistribute(scope="local").query(lambda g: g.sum("count"))
    assert fragments(counted) == [[1, 2]]
    assert fragments(counted.redistribute().query(lambda g: g.sum("count"))) == [[1, 2], [3]]
    first, second = stages(counted.redistribute())
    assert (first.inner, first.outputs, second.inputs) == ((1,), (2,), (2,))


def test_fragment_waits_for_the_latest_stage_it_needs(rows: sq.ShardedStream) -> None:
    copies = rows.broadcast(scope="global").redistribute(scope="local")
    plan = joined(rows.query(lambda g: g.count()).redistribute(scope="local"), copies)
    for stage in stages(plan):
        assert stage.layout.shards == 4
    assert_each_stage_can_run(plan)


def assert_each_stage_can_run(stream: sq.ShardedStream) -> None:
    """What a stage reads was sent by an earlier one, and what it keeps to itself it sends and reads itself."""
    sent: set[int] = set()
    for stage in stages(stream):
        assert set(stage.inputs) <= sent
        own = {channel.number for fragment in stage.fragments for channel in fragment.outputs}
        assert set(stage.inner) <= own
        sent |= set(stage.outputs)


def test_stream_that_comes_back_on_a_longer_way_does_not_wait_for_itself(rows: sq.ShardedStream) -> None:
    """The local way alone would put both ends into one stage, which the flat way leads out of and back into."""
    near = rows.redistribute(scope="local")
    far = rows.query(lambda g: g.count()).broadcast(scope="global").redistribute(scope="local")
    plan = joined(near, far)
    assert_each_stage_can_run(plan)
    expected = sq.from_frame({"t": [1, 2], "k": [5, 6], "x": [1, 2]}, start="t")
    counts = expected.group_apply("k", lambda g: g.count())
    assert plan.collect(sort=True).rows() == expected.join(counts, on="k").collect(sort=True).rows()


def test_channel_read_inside_and_outside_its_stage(rows: sq.ShardedStream) -> None:
    near = rows.redistribute(scope="local")
    summed = near.query(lambda g: g.count()).redistribute()
    plan = summed.query(near.redistribute(), lambda one, other: one.join(other))
    assert_each_stage_can_run(plan)
    assert len(waves_of(fragments_of(plan.plan))) == 2


def test_stages_that_need_nothing_of_each_other_run_side_by_side(rows: sq.ShardedStream) -> None:
    other = rows.query(lambda g: g.select(y=sq.col("x"))).redistribute()
    waves = waves_of(fragments_of(joined(rows.redistribute(), other).plan))
    assert [len(wave) for wave in waves] == [2, 1]

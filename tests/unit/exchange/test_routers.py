from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.engine.batch import Batch
from squill.engine.hashing import HASH_VERSION, hash_columns
from squill.errors import InputError, InternalError, UserFunctionError
from squill.exchange import routers
from squill.exchange.deal import Deal
from squill.exchange.routers import HashRouter, router_for
from squill.plan.build.movement import Target, multicast
from squill.plan.layout import Layout
from squill.plan.nodes.movement import Move
from squill.plan.routing import KEY_HASH_VERSION, BroadcastRouting, HashRouting, RoundRobinRouting, Routing

KEYS = pl.Series("k", [f"key {number % 37}" if number % 5 else None for number in range(1_000)])
ROWS = Batch(np.arange(1_000), np.arange(1_000) + 1, {"k": KEYS, "row": pl.Series("row", range(1_000))})
NODE = sq.from_frame({"t": [1], "k": ["a"], "row": [1]}, start="t").plan
GRID = Layout(shards=6, cores=2)


def received(routing: Routing, shard: int, batches: Sequence[Batch], deal: Deal | None = None) -> dict[int, list[int]]:
    """The rows that each shard gets, by their numbers."""
    router = router_for(routing, shard, NODE, deal)
    got: dict[int, list[int]] = {}
    for batch in batches:
        for lane, part in router(batch):
            for receiver in router.lanes[lane]:
                got.setdefault(receiver, []).extend(part.columns["row"].to_list())
    return got


def hashed(shards: int, batch: Batch = ROWS) -> dict[int, Batch]:
    return dict(router_for(HashRouting(keys=("k",), layout=Layout(shards=shards)), 0, NODE)(batch))


def test_plan_and_engine_speak_of_the_same_hash() -> None:
    assert KEY_HASH_VERSION == HASH_VERSION


@pytest.mark.parametrize("shards", [1, 2, 7, 64])
def test_row_goes_where_its_hash_says(shards: int) -> None:
    expected = hash_columns([KEYS]) % np.uint64(shards)
    for lane, part in hashed(shards).items():
        assert part.columns["row"].to_list() == np.flatnonzero(expected == lane).tolist()


def test_a_deal_says_where_each_bucket_goes() -> None:
    deal = np.array([1, 1, 0, 1, 0], np.int32)
    routing = HashRouting(keys=("k",), layout=Layout(shards=2))
    expected = deal[hash_columns([KEYS]) % np.uint64(5)]
    found = received(routing, 0, [ROWS], deal)
    assert found == {shard: np.flatnonzero(expected == shard).tolist() for shard in (0, 1)}


def test_the_hash_goes_along_with_text_and_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = hashed(3)
    for part in parts.values():
        known = part.hash_of(["k"])
        assert known is not None
        assert known.tolist() == hash_columns([part.columns["k"]]).tolist()
        assert part.hash_of(["row"]) is None
    assert ROWS.hash is None, "others may look at the batch too"
    monkeypatch.setattr(routers, "hash_columns", lambda _: pytest.fail("it is known"))
    again = hashed(2, parts[1])
    assert sum(map(len, again.values())) == len(parts[1])


def test_the_hash_of_a_word_stays_behind_because_moving_it_costs_more() -> None:
    routing = HashRouting(keys=("row",), layout=Layout(shards=2))
    assert [part.hash for _, part in router_for(routing, 0, NODE)(ROWS)] == [None, None]


@pytest.mark.parametrize("shards", [1, 2, 7])
def test_no_row_is_lost_and_no_key_is_on_two_shards(shards: int) -> None:
    parts = hashed(shards).values()
    assert sum(map(len, parts)) == len(ROWS)
    assert sum(part.columns["k"].n_unique() for part in parts) == KEYS.n_unique()


def test_times_stay_with_their_rows_and_in_order() -> None:
    for part in hashed(5).values():
        assert part.sync.tolist() == part.columns["row"].to_list()
        assert (part.other == part.sync + 1).all()


def test_receivers_without_rows_get_no_batch() -> None:
    assert len(hashed(64, ROWS.slice(0, 1))) == 1


def test_routing_of_another_hash_is_refused() -> None:
    routing = HashRouting(keys=("k",), layout=Layout(shards=2), hash_version=HASH_VERSION + 1)
    with pytest.raises(InternalError, match="is not of hash version"):
        HashRouter(routing, routing.targets(0))


@pytest.mark.parametrize("deal", [None, np.arange(23, -1, -1, dtype=np.int32) // 4], ids=["plain", "dealt"])
def test_a_local_then_a_global_movement_ends_where_a_flat_one_does(deal: Deal | None) -> None:
    flat = received(HashRouting(keys=("k",), layout=GRID), 0, [ROWS], deal)
    assert sorted(flat) == list(range(6))
    twice: dict[int, list[int]] = {}
    local = router_for(HashRouting(keys=("k",), layout=GRID, scope="local"), 3, NODE, deal)
    for lane, part in local(ROWS):
        ((middle,)) = local.lanes[lane]
        assert middle in (2, 3), "machine 1 has shards 2 and 3"
        across = HashRouting(keys=("k",), layout=GRID, scope="global")
        for receiver, rows in received(across, middle, [part], deal).items():
            assert receiver % 2 == middle % 2, "the local index stays"
            twice.setdefault(receiver, []).extend(rows)
    assert twice == flat


@pytest.mark.parametrize(
    ("scope", "expected"), [("flat", [0, 1, 2, 3, 4, 5]), ("local", [2, 3]), ("global", [1, 3, 5])]
)
def test_broadcast_reaches_every_shard_in_scope_with_one_batch(scope: str, expected: list[int]) -> None:
    router = router_for(BroadcastRouting(layout=GRID, scope=scope), 3, NODE)
    ((lane, part),) = router(ROWS)
    assert list(router.lanes[lane]) == expected
    assert part is ROWS


@pytest.mark.parametrize("sizes", [[1_000], [1] * 1_000, [64, 128, 7, 801], [100] * 10])
def test_round_robin_depends_on_row_numbers_alone(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "BLOCK_ROWS", 64)
    bounds = np.cumsum([0, *sizes])
    batches = [ROWS.slice(int(low), int(high)) for low, high in itertools.pairwise(bounds)]
    got = received(RoundRobinRouting(layout=Layout(shards=3)), 2, batches)
    expected: dict[int, list[int]] = {}
    for row in range(1_000):
        expected.setdefault((2 + row // 64) % 3, []).append(row)
    assert got == expected


@pytest.mark.parametrize("sizes", [[300], [1] * 300, [10, 63, 64, 63, 100]])
def test_round_robin_keeps_packed_keys_together(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "BLOCK_ROWS", 64)
    # Runs shorter and longer than a block, beginning at and inside blocks.
    keys = np.repeat(np.arange(9), [60, 10, 1, 150, 1, 1, 33, 43, 1])
    rows = Batch(np.arange(300), np.arange(300) + 1, {"k": pl.Series(keys), "row": pl.Series(range(300))})
    bounds = np.cumsum([0, *sizes])
    batches = [rows.slice(int(low), int(high)) for low, high in itertools.pairwise(bounds)]
    got = received(RoundRobinRouting(layout=Layout(shards=4), packed=("k",)), 0, batches)
    assert sorted(row for part in got.values() for row in part) == list(range(300))
    shards_of_key = {int(key): {shard for shard in got for row in got[shard] if keys[row] == key} for key in keys}
    assert all(len(shards) == 1 for shards in shards_of_key.values())
    assert len(got) > 1


def multicast_routing(shards: Any, layout: Layout = Layout(shards=4)) -> Routing:  # noqa: B008  (immutable)
    node = multicast(NODE, shards, Target(layout, layout, None, None, "multicast"))
    assert isinstance(node, Move)
    return node.routing


CHOICES: dict[str, Callable[[], Any]] = {
    "list expression": lambda: pl.concat_list(pl.col("row") % 4, (pl.col("row") + 1) % 4),
    "function": lambda: lambda row: [row["row"] % 4, (row["row"] + 1) % 4],
}


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_multicast_sends_each_row_to_the_shards_it_names(choice: Callable[[], Any]) -> None:
    got = received(multicast_routing(choice()), 0, [ROWS.slice(0, 400), ROWS.slice(400, 1_000)])
    for shard in range(4):
        assert got[shard] == [row for row in range(1_000) if shard in (row % 4, (row + 1) % 4)]


def test_multicast_to_nobody_and_to_one_shard_twice() -> None:
    none = received(multicast_routing(pl.when(pl.col("row") == 3).then(2)), 0, [ROWS])
    assert none == {2: [3]}
    twice = received(multicast_routing(lambda row: [1, 1] if row["row"] == 3 else None), 0, [ROWS])
    assert twice == {1: [3]}


def test_multicast_function_returns_whole_numbers_only() -> None:
    for strange in (1.0, [0.5], "1", ["1"], True, [0, True]):
        with pytest.raises(UserFunctionError, match=r"multicast: the function raised TypeError: .*for the row"):
            received(multicast_routing(lambda row, strange=strange: strange), 0, [ROWS])
    with pytest.raises(InputError, match=f"multicast: shard {2**70} does not exist, for the row"):
        received(multicast_routing(lambda row: 2**70), 0, [ROWS])
    both = received(multicast_routing(lambda row: np.array([0, 1])), 0, [ROWS])
    assert sorted(both) == [0, 1]


def test_multicast_to_a_shard_that_does_not_exist_shows_the_row() -> None:
    with pytest.raises(InputError, match=r"multicast: shard 4 does not exist, for the row .*'row': 4"):
        received(multicast_routing(pl.col("row")), 0, [ROWS])
    for wrong, dtype in ((-1, pl.Int8), (99, pl.UInt8), (2**63, pl.UInt64), (2**100, pl.Int128)):
        with pytest.raises(InputError, match=rf"multicast: shard {wrong} does not exist, for the row .*'row': 0"):
            received(multicast_routing(pl.lit(wrong, dtype)), 0, [ROWS])
        with pytest.raises(InputError, match=rf"multicast: shard {wrong} does not exist, for the row .*'row': 0"):
            received(multicast_routing(pl.concat_list(pl.lit(0, dtype), pl.lit(wrong, dtype))), 0, [ROWS])


def test_error_in_a_multicast_function_shows_the_row() -> None:
    with pytest.raises(UserFunctionError, match=r"the function raised KeyError: 'nope', for the row .*'row': 0"):
        received(multicast_routing(lambda row: row["nope"]), 0, [ROWS])

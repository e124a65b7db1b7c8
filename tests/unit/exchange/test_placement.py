from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from squill.engine.batch import Batch
from squill.engine.hashing import HASH_VERSION, hash_columns
from squill.errors import InternalError
from squill.exchange.placement import HashPartitioner
from squill.plan.placement import KEY_HASH_VERSION, Placement

KEYS = pl.Series("k", [f"key {number % 37}" if number % 5 else None for number in range(1_000)])
ROWS = Batch(np.arange(1_000), np.arange(1_000) + 1, {"k": KEYS, "row": pl.Series("row", range(1_000))})


def partition(shards: int, rows: Batch = ROWS) -> dict[int, Batch]:
    return dict(HashPartitioner(Placement(keys=("k",), shards=shards))(rows))


def test_plan_and_engine_speak_of_the_same_hash() -> None:
    assert KEY_HASH_VERSION == HASH_VERSION


@pytest.mark.parametrize("shards", [1, 2, 7, 64])
def test_row_goes_where_its_hash_says(shards: int) -> None:
    receivers = hash_columns([KEYS]) % np.uint64(shards)
    for receiver, part in partition(shards).items():
        assert part.columns["row"].to_list() == np.flatnonzero(receivers == receiver).tolist()


@pytest.mark.parametrize("shards", [1, 2, 7])
def test_no_row_is_lost_and_no_key_is_on_two_shards(shards: int) -> None:
    parts = partition(shards).values()
    assert sum(map(len, parts)) == len(ROWS)
    assert sum(part.columns["k"].n_unique() for part in parts) == KEYS.n_unique()


def test_times_stay_with_their_rows_and_in_order() -> None:
    for part in partition(5).values():
        assert part.sync.tolist() == part.columns["row"].to_list()
        assert (part.other == part.sync + 1).all()


def test_receivers_without_rows_get_no_batch() -> None:
    assert len(partition(64, ROWS.slice(0, 1))) == 1


def test_placement_of_another_hash_is_refused() -> None:
    with pytest.raises(InternalError, match="is not of hash version"):
        HashPartitioner(Placement(keys=("k",), shards=2, hash_version=HASH_VERSION + 1))

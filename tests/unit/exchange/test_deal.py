from __future__ import annotations

import numpy as np
import pytest

from squill.exchange.deal import bucket_count, even_deal, plain_deal


@pytest.mark.parametrize("shards", [2, 3, 4, 7, 64, 1_000, 5_000])
def test_buckets_are_a_multiple_of_the_shards(shards: int) -> None:
    """So that without weights, or with equal ones, every shard has as many buckets."""
    count = bucket_count(shards)
    assert count % shards == 0
    assert np.bincount(even_deal(np.ones(count), shards)).tolist() == [count // shards] * shards


def test_plain_deal_is_the_hash_modulo_the_shards() -> None:
    hashes = np.random.default_rng(1).integers(0, 2**64, 100, np.uint64)
    deal = plain_deal(7)
    assert deal[hashes % np.uint64(len(deal))].tolist() == (hashes % np.uint64(7)).tolist()


@pytest.mark.parametrize("shards", [2, 3, 8])
def test_loads_differ_by_no_more_than_a_light_bucket(shards: int) -> None:
    weights = np.random.default_rng(shards).zipf(1.5, bucket_count(shards)).clip(max=100_000)
    loads = np.bincount(even_deal(weights, shards), weights)
    fair = weights.sum() / shards
    assert loads.max() <= max(fair, weights.max()) * 1.01
    plain = np.bincount(np.arange(len(weights)) % shards, weights)
    assert loads.max() < plain.max()


def test_a_key_heavier_than_its_share_is_alone_as_far_as_can_be() -> None:
    weights = np.ones(1_024)
    weights[5] = 10_000
    deal = even_deal(weights, 2)
    assert np.count_nonzero(deal == deal[5]) == 1


def test_buckets_of_which_nothing_is_known_go_to_all() -> None:
    weights = np.zeros(1_024)
    weights[:2] = 500
    assert np.bincount(even_deal(weights, 2)).tolist() == [512, 512]

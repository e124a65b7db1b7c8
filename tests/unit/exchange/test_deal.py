from __future__ import annotations

import numpy as np
import pytest

from squill.exchange.deal import bucket_count, even_deal, plain_deal, weights_of


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


def test_samples_that_agree_are_taken_at_their_word() -> None:
    samples = np.random.default_rng(1).zipf(1.5, (2, 64))
    assert np.array_equal(weights_of(list(samples)), samples.sum(axis=0))
    assert weights_of([np.array([5, 0])]).tolist() == [5, 0], "alone it has nobody to agree with"
    assert weights_of([np.zeros(4), np.zeros(4)]).tolist() == [0, 0, 0, 0]


def test_samples_of_other_keys_leave_each_shard_as_many_buckets() -> None:
    first, second = np.zeros(1_024), np.zeros(1_024)
    first[:7], second[7:14] = 1_000, 1_000
    assert np.bincount(even_deal(weights_of([first, second]), 4)).tolist() == [256] * 4


def test_a_bucket_that_two_samples_have_weighs_what_they_have_of_it() -> None:
    first, second = np.zeros(1_024), np.zeros(1_024)
    first[[0, 1]], second[[0, 2]] = 500, 500
    weights = weights_of([first, second])
    assert weights[0] == 1_000
    assert weights[1:].tolist() == pytest.approx([1_000 / 1_023] * 1_023)

"""64-bit integers come back from the bytes that their range needs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squill.exchange import narrow

LEAST, MOST = -(2**63), 2**63 - 1


@settings(deadline=None)  # the first call compiles
@given(st.integers(LEAST, MOST), st.integers(0, 64), st.integers(1, 40), st.integers(0, 2**31))
def test_values_of_any_range_come_back(base: int, bits: int, rows: int, seed: int) -> None:
    distances = np.random.default_rng(seed).integers(0, 2**bits, rows, dtype=np.uint64, endpoint=False) if bits else 0
    values = np.minimum(np.uint64(base - LEAST) + distances, np.uint64(MOST - LEAST)) + np.zeros(rows, np.uint64)
    given_values = (values + np.uint64(2**63)).view(np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(narrow, "LEAST_ROWS", 1)
        patch.setattr(narrow, "SAMPLES", 1)
        found = narrow.narrowed(given_values)
    spread = int(given_values.max()) - int(given_values.min())
    if spread >= 2**32:
        assert found is None
        return
    assert found is not None
    assert found[0].itemsize == (1 if spread < 2**8 else 2 if spread < 2**16 else 4)
    assert (narrow.widened(*found) == given_values).all()


@settings(deadline=None)
@given(
    st.integers(LEAST, MOST - 2**60),
    st.integers(1, 2**40),
    st.lists(st.integers(0, 2**20 - 1), min_size=1, max_size=40),
    st.one_of(st.none(), st.integers(0, 2**40)),
)
def test_multiples_of_anything_come_back(base: int, step: int, counts: list[int], odd: int | None) -> None:
    values = np.array([base + step * count for count in counts] + ([] if odd is None else [base + odd]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(narrow, "LEAST_ROWS", 1)
        patch.setattr(narrow, "SAMPLES", len(values) // 2 or 1)
        found = narrow.narrowed(values)
    if found is not None:
        assert (narrow.widened(*found) == values).all()


@pytest.mark.parametrize(("step", "counts", "width"), [(3_600_000_000, 888, 2), (1_000_000, 200, 1), (10**9, 10**6, 4)])
def test_times_on_a_grid_take_the_bytes_of_their_counts(step: int, counts: int, width: int) -> None:
    values = 1_700_000_000_000_000 + step * (np.random.default_rng(5).permutation(100_000) % counts)
    found = narrow.narrowed(values)
    assert found is not None
    assert found.counts.itemsize == width
    assert (narrow.widened(*found) == values).all()


def test_a_value_between_two_steps_is_found() -> None:
    values = 1_000 * np.arange(100_000, dtype=np.int64)
    values[77_777] += 250
    found = narrow.narrowed(values)
    assert found is not None
    assert (found.counts.itemsize, found.step) == (4, 1)
    values *= 2**20
    found = narrow.narrowed(values)
    assert found is not None
    assert found.step == 250 * 2**20
    assert (narrow.widened(*found) == values).all()


def test_few_rows_are_sent_as_they_are() -> None:
    assert narrow.narrowed(np.zeros(narrow.LEAST_ROWS - 1, np.int64)) is None
    assert narrow.narrowed(np.zeros(narrow.LEAST_ROWS, np.int64)) is not None

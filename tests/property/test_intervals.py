"""An estimate always lies within its interval, and is the exact value once all rows are there."""

from __future__ import annotations

import math

import polars as pl
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import squill as sq

thorough = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate],
)

NUMBERS = st.one_of(
    st.lists(st.integers(-2, 2), max_size=25),  # many of them equal
    st.lists(st.floats(-1e9, 1e9), max_size=25),
)
SHARES = st.one_of(st.floats(0.01, 0.99), st.sampled_from([1e-6, 0.25, 0.5, 0.9, 1 - 1e-6]))


@thorough
@given(
    numbers=NUMBERS,
    p=SHARES,
    level=st.sampled_from([0.5, 0.95]),
    uniform=st.booleans(),
    steps=st.sampled_from([2, 7, 60]),
    users=st.sampled_from([3, 1000]),
)
def test_quantiles_lie_within_their_bounds(
    numbers: list[float], p: float, level: float, uniform: bool, steps: int, users: int
) -> None:
    frame = pl.DataFrame(
        {"u": [n % users for n in range(len(numbers))], "g": [n % 2 for n in range(len(numbers))], "x": numbers},
        schema_overrides={"u": pl.Int64, "g": pl.Int64, "x": pl.Float64},
    )
    asked = sq.ci.quantile("x", p, level=level, uniform=uniform)
    rows = sq.from_frame(frame)
    for query in (rows.aggregate(z=asked), rows.group_aggregate("g", z=asked)):
        *before, last = query.progressive(sq.progress.hashed("u", steps))
        for early in before:
            for interval in early.frame["z"]:
                low, high = interval["low"], interval["high"]
                assert (-math.inf if low is None else low) <= interval["estimate"]
                assert interval["estimate"] <= (math.inf if high is None else high)
        exact = query.collect(sort=True)["z"].struct.field("estimate").to_list()
        assert [tuple(interval.values()) for interval in last.frame["z"]] == [(value,) * 3 for value in exact]

"""Confidence intervals: what they are at each step, that they are exact at the end, and that they cover."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.plan.aggregates import AggregateExpr
from squill.runtime.progressive import start
from squill.stream import Stream
from squill.testing import assert_same_events
from tests.small_batches import read_in_batches_of

Array = np.ndarray[Any, Any]
STEPS = 8
BY_USER = sq.progress.hashed("user", STEPS)


def visits(users: int = 120, seed: int = 3) -> pl.DataFrame:
    """Return rows of users who have few or many, and whose values are alike; some keys and values are null."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), rng.integers(1, 6, users))
    x = np.round(rng.normal(0, 1, users)[user] + rng.normal(3, 0.5, len(user)), 3)
    return pl.DataFrame(
        {
            "user": user,
            "ad": pl.Series(rng.integers(0, 3, len(user))).replace({2: None}),
            "x": pl.Series(x).set(pl.Series(rng.random(len(user)) < 0.1), None),
            "clicked": rng.random(len(user)) < 0.3,
        }
    )


def query(**named: AggregateExpr) -> Stream:
    return sq.from_frame(visits(), name="visits").group_aggregate("ad", **named)


EVERYTHING = {
    "n": sq.count(),
    "listed": sq.collect_list("x"),
    "mean": sq.ci.mean("x"),
    "total": sq.ci.sum("x", uniform=True),
    "count": sq.ci.count(where=sq.col("clicked")),
    "rate": sq.ci.ratio("clicked", "x", level=0.9),
    "median": sq.ci.quantile("x"),
}


def widths(frame: pl.DataFrame) -> list[float]:
    structs = [series.struct.unnest() for series in frame if isinstance(series.dtype, pl.Struct)]
    return [width for fields in structs for width in fields["high"] - fields["low"]]


# -- over all rows --------------------------------------------------------------------------------------------


def test_collect_is_exact() -> None:
    frame = query(
        m=sq.ci.mean("x"), plain=sq.mean("x"), q=sq.ci.quantile("x", 0.2), p=sq.percentile("x", 0.2)
    ).collect()
    for interval, plain in (("m", "plain"), ("q", "p")):
        fields = frame[interval].struct.unnest()
        for name in ("estimate", "low", "high"):
            assert fields[name].to_list() == pytest.approx(frame[plain].to_list(), rel=1e-12)


def test_a_group_without_values_has_none() -> None:
    rows = sq.from_frame({"u": [1, 2], "x": pl.Series([None, None], dtype=pl.Float64)})
    asked = rows.aggregate(m=sq.ci.mean("x"), s=sq.ci.sum("x"), q=sq.ci.quantile("x"))
    *_, last = asked.progressive(sq.progress.hashed("u", 4))
    for frame in (asked.collect(), last.frame):
        assert frame["m"].item() == dict.fromkeys(("estimate", "low", "high"))
        assert frame["s"].item() == dict.fromkeys(("estimate", "low", "high"), 0.0)
        assert frame["q"].item() == dict.fromkeys(("estimate", "low", "high"))


def test_what_is_left_of_a_plan_can_be_shown(tmp_path: Path) -> None:
    visits().write_parquet(tmp_path / "visits.parquet")
    asked = sq.scan(tmp_path / "visits.parquet").group_aggregate("ad", q=sq.ci.quantile("x"), n=sq.count())
    assert "percentile(x" in asked.select("q").explain(stage="rewritten")


def test_shards_answer_exactly_and_the_run_is_recorded(tmp_path: Path) -> None:
    asked = query(m=sq.ci.mean("x"), n=sq.ci.count())
    with sq.local(cores=2, warehouse=tmp_path) as cluster:
        assert "ci.mean" in asked.explain(on=cluster)
        assert_same_events(asked.collect(on=cluster), asked.collect())


def test_a_plan_that_is_on_shards_already_has_intervals() -> None:
    asked = query(m=sq.ci.mean("x"), n=sq.ci.count())
    with sq.local(cores=2) as cluster:
        pairs = zip(cluster.sharded(asked).progressive(BY_USER), asked.progressive(BY_USER), strict=True)
        for found, wanted in pairs:
            assert_same_events(found.frame, wanted.frame)


def test_the_last_answer_is_the_exact_one_of_width_zero() -> None:
    asked = query(**EVERYTHING)
    *before, last = asked.progressive(BY_USER)
    assert set(widths(last.frame)) == {0.0}
    assert min(widths(before[-1].frame)) > 0
    exact = asked.collect().sort("ad")
    for name in EVERYTHING:
        found, wanted = last.frame[name], exact[name]
        if isinstance(found.dtype, pl.Struct):
            found, wanted = found.struct.field("estimate"), wanted.struct.field("estimate")
        if found.dtype == pl.Float64:
            assert found.to_list() == pytest.approx(wanted.to_list(), rel=1e-12), name
        else:
            assert found.to_list() == wanted.to_list()


def test_after_the_last_step_of_the_hash_nothing_changes_any_more() -> None:
    other = sq.from_frame({"ad": [0] * 20}, name="others").group_aggregate("ad", others=sq.count())
    asked = query(m=sq.ci.mean("x")).join(other, on="ad", how="left")
    answers = list(asked.progressive({"visits": BY_USER, "others": sq.progress.rows(1)}))
    assert len(answers) == 20
    assert all(width == 0 for early in answers[STEPS - 1 :] for width in widths(early.frame))
    assert all(width > 0 for early in answers[1 : STEPS - 1] for width in widths(early.frame))


# -- over a sample --------------------------------------------------------------------------------------------


def totals(rows: pl.DataFrame, x: pl.Expr, y: pl.Expr) -> tuple[Array, Array]:
    clusters = rows.group_by("user").agg(x.sum().cast(pl.Float64).alias("x"), y.sum().cast(pl.Float64).alias("y"))
    return clusters["x"].to_numpy(), clusters["y"].to_numpy()


def student(level: float, free: int) -> float:
    """Return the quantile of Student's t for many degrees of freedom (Abramowitz and Stegun 26.7.5)."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + sum(term / free ** (place + 1) for place, term in enumerate(terms))


@pytest.mark.parametrize("coarsen", [1, 3])
def test_intervals_are_those_of_a_sample_of_users(coarsen: int) -> None:
    asked = query(m=sq.ci.mean("x"), t=sq.ci.sum("x", level=0.8), r=sq.ci.ratio("clicked", "x"))
    values, ones, clicks = pl.col("x"), pl.col("x").is_not_null(), pl.col("clicked")
    for early in asked.progressive(BY_USER, coarsen=coarsen):
        share = min(early.progress + coarsen, STEPS) / STEPS
        there = early.provenance()["visits"]
        for row in early.frame.rows(named=True):
            rows = there.filter(pl.col("ad").eq_missing(row["ad"]))
            x, _ = totals(rows, values, ones)
            n = int(np.count_nonzero(x))
            half = student(0.8, n - 1) * math.sqrt((1 - share) * (x * x).sum()) / share
            assert_interval(row["t"], x.sum() / share, half)
            for name, pair in (("m", (values, ones)), ("r", (clicks, values))):
                x, y = totals(rows, *pair)
                n = int(np.count_nonzero(y))
                rate = x.sum() / y.sum()
                spread = ((x - rate * y) ** 2).sum() * n / (n - 1)
                assert_interval(row[name], rate, student(0.95, n - 1) * math.sqrt((1 - share) * spread) / y.sum())


def assert_interval(found: dict[str, float], estimate: float, half: float) -> None:
    assert found["estimate"] == pytest.approx(estimate, rel=1e-9)
    assert found["high"] - found["estimate"] == pytest.approx(half, rel=1e-6, abs=1e-12)
    assert found["estimate"] - found["low"] == pytest.approx(half, rel=1e-6, abs=1e-12)


def test_rows_of_a_user_that_are_all_alike_tell_no_more_than_one() -> None:
    frame = visits().drop_nulls()
    once = sq.from_frame(frame).aggregate(m=sq.ci.mean("x"), q=sq.ci.quantile("x"))
    often = sq.from_frame(pl.concat([frame] * 9)).aggregate(m=sq.ci.mean("x"), q=sq.ci.quantile("x"))
    for one, many in zip(once.progressive(BY_USER), often.progressive(BY_USER), strict=True):
        assert widths(one.frame)[0] == pytest.approx(widths(many.frame)[0])
        if not one.is_final:
            assert widths(one.frame)[1] == pytest.approx(widths(many.frame)[1], rel=0.2)


def test_of_one_user_nothing_is_known_but_an_estimate() -> None:
    rows = sq.from_frame({"user": [7] * 3, "x": [1.0, 2.0, 3.0]}).aggregate(m=sq.ci.mean("x"), q=sq.ci.quantile("x"))
    found = [early.frame for early in rows.progressive(BY_USER) if early.frame.height]
    assert len(found) > 1
    for frame in found[:-1]:
        assert frame["m"].item() == {"estimate": 2.0, "low": None, "high": None}
        assert frame["q"].item() == {"estimate": 2.0, "low": None, "high": None}
    assert found[-1]["m"].item() == {"estimate": 2.0, "low": 2.0, "high": 2.0}


def test_rows_that_were_counted_bound_a_count_from_below() -> None:
    rows = sq.from_frame({"user": [0] * 1000 + list(range(1, 40))}, name="rows").aggregate(n=sq.ci.count())
    for early in rows.progressive(BY_USER):
        there = early.provenance()["rows"].height
        if there > 1:
            assert early.frame["n"].item()["low"] >= there


@pytest.mark.parametrize("p", [0.001, 0.05, 0.5, 0.95, 0.999])
def test_a_quantile_lies_within_its_bounds_also_where_all_rows_are_there_early(p: float) -> None:
    rows = sq.from_frame({"u": range(30), "x": range(30)}).aggregate(z=sq.ci.quantile("x", p))
    answers = [early for early in rows.progressive(sq.progress.hashed("u", 200)) if early.frame.height]
    found = [(early.fraction, early.frame["z"].item()) for early in answers]
    assert sum(fraction == 1 for fraction, _ in found) > 1
    for _, interval in found:
        estimate, low, high = interval.values()
        assert low is None or low <= estimate
        assert high is None or estimate <= high
    assert list(found[-1][1].values()) == pytest.approx([29 * p] * 3)


def test_a_group_by_the_hashed_columns_is_exact_as_soon_as_it_is_there() -> None:
    per_user = sq.from_frame(visits()).group_aggregate("user", m=sq.ci.sum("x"), plain=sq.sum("x"))
    for early in per_user.progressive(BY_USER):
        for field in ("estimate", "low", "high"):
            assert early.frame["m"].struct.field(field).to_list() == early.frame["plain"].to_list()


def test_users_that_are_summed_up_first_are_a_sample_too() -> None:
    per_user = sq.from_frame(visits()).group_aggregate("user", n=sq.count())
    over_rows = sq.from_frame(visits()).aggregate(total=sq.ci.count())
    over_users = per_user.aggregate(total=sq.ci.sum("n"))
    for one, other in zip(over_users.progressive(BY_USER), over_rows.progressive(BY_USER), strict=True):
        first, second = one.frame.item(), other.frame.item()
        assert (first["estimate"], first["high"]) == (second["estimate"], second["high"])


def test_a_dimension_may_stand_beside() -> None:
    brands = sq.from_frame({"ad": [0, 1], "brand": ["a", "b"]}, name="brands")
    asked = sq.from_frame(visits(), name="visits").join(brands, on="ad").group_aggregate("brand", m=sq.ci.mean("x"))
    answers = list(asked.progressive({"visits": BY_USER, "brands": sq.progress.at_start()}))
    assert min(widths(answers[3].frame)) > 0
    assert set(widths(answers[-1].frame)) == {0.0}
    everything = list(asked.progressive(sq.progress.at_start()))
    assert set(widths(everything[0].frame)) == {0.0}


def test_what_follows_sees_estimates_and_bounds() -> None:
    low = sq.col("m").struct.field("low")
    sure = query(m=sq.ci.mean("x")).where(low > 2.8).select("ad", low=low)
    found = [early.frame.height for early in sure.progressive(BY_USER)]
    assert found[-1] == 3
    assert found[0] < 3


def test_the_rows_behind_an_interval_are_those_of_its_group() -> None:
    for early in query(n=sq.count(), m=sq.ci.mean("x")).progressive(BY_USER):
        for row in early.frame.rows(named=True):
            behind = early.provenance(row)["visits"]
            assert behind["ad"].unique().to_list() == [row["ad"]]
            assert behind.height == row["n"]


@pytest.mark.parametrize("name", ["__ci_share", "__ci_share__", "__ci_z_y", "__ci_z_y__", "__ci_2_z_half"])
def test_columns_may_have_any_name(name: str) -> None:
    rows = visits().rename({"ad": name})
    asked = {"z": sq.ci.mean("x"), "q": sq.ci.quantile("x"), "n": sq.count()}
    named = sq.from_frame(rows).group_aggregate(name, **asked).progressive(BY_USER)
    plain = sq.from_frame(visits()).group_aggregate("ad", **asked).progressive(BY_USER)
    for one, other in zip(named, plain, strict=True):
        assert one.frame.rename({name: "ad"}).equals(other.frame)
    named = query(**{name: sq.ci.sum("x"), "z": sq.ci.sum("x"), "n": sq.count()}).progressive(BY_USER)
    for early in named:
        assert early.frame[name].equals(early.frame["z"])


MOMENTS = {"m": sq.ci.mean("x"), "t": sq.ci.sum("x", uniform=True), "n": sq.ci.count(), "plain": sq.max("x")}
"""Intervals of which only moments flow."""


@pytest.mark.parametrize("coarsen", [1, 3])
def test_intervals_that_are_computed_when_looked_at_are_those_that_would_flow(
    coarsen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = query(**MOMENTS).where(sq.col("m").struct.field("estimate") > 0)
    late = list(asked.progressive(BY_USER, coarsen=coarsen))
    monkeypatch.setattr(start, "without_late_columns", lambda node: (node, None))
    for found, flowed in zip(late, asked.progressive(BY_USER, coarsen=coarsen), strict=True):
        assert found.frame.equals(flowed.frame)
        assert found.changes.equals(flowed.changes)


def test_only_groups_that_change_flow() -> None:
    rows = sq.from_frame({"user": range(1_000), "group": range(1_000), "x": [1.0] * 1_000})
    answers = rows.group_aggregate("group", m=sq.ci.sum("x")).progressive(sq.progress.hashed("user", 100))
    assert sum(frame.height for early in answers for frame in early._changes) == 1_000


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_shards_give_the_same_intervals(cores: int) -> None:
    asked = query(**EVERYTHING)
    expected = [early.frame for early in asked.progressive(BY_USER)]
    with sq.local(cores=cores) as cluster:
        shared = [early.frame for early in asked.progressive(BY_USER, on=cluster)]
        stream = cluster.from_frame(visits(), name="visits").rekey("ad").redistribute()
        placed = stream.query(lambda g: g.aggregate(**EVERYTHING)).progressive(BY_USER)
        written = [early.frame for early in placed]
    for answers in (shared, written):
        for found, wanted in zip(answers, expected, strict=True):
            assert found["listed"].to_list() == wanted["listed"].to_list()
            for one, other in zip(numbers(found), numbers(wanted), strict=True):
                assert one == pytest.approx(other, rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("batch_rows", [7, 50])
def test_batches_of_any_size_give_the_same_intervals(batch_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = query(**EVERYTHING)
    expected = [early.frame for early in asked.progressive(BY_USER)]
    read_in_batches_of(monkeypatch, batch_rows, sent=batch_rows)
    for early, wanted in zip(asked.progressive(BY_USER), expected, strict=True):
        assert early.frame["listed"].to_list() == wanted["listed"].to_list()
        for one, other in zip(numbers(early.frame), numbers(wanted), strict=True):
            assert one == pytest.approx(other, rel=1e-9, nan_ok=True)


def test_files_are_read_with_the_hashed_column_although_nobody_names_it(tmp_path: Path) -> None:
    visits().write_parquet(tmp_path / "visits.parquet", row_group_size=50)
    rate = {"m": sq.ci.mean("x")}
    chosen = sq.col("clicked")
    stored = sq.scan(tmp_path / "visits.parquet").where(chosen).group_aggregate("ad", **rate)
    held = sq.from_frame(visits()).where(chosen).group_aggregate("ad", **rate)
    expected = [list(numbers(early.frame)) for early in held.progressive(BY_USER)]
    with sq.local(cores=2) as cluster:
        for on in (None, cluster):
            found = [list(numbers(early.frame)) for early in stored.progressive(BY_USER, on=on)]
            assert [len(rows) for rows in found] == [len(rows) for rows in expected]
            for rows, wanted in zip(found, expected, strict=True):
                for row, other in zip(rows, wanted, strict=True):
                    assert row == pytest.approx(other, rel=1e-9, nan_ok=True)


def numbers(frame: pl.DataFrame) -> Iterator[list[float]]:
    for row in frame.rows():
        flat = [field for value in row for field in (value.values() if isinstance(value, dict) else [value])]
        yield [math.nan if value is None else float(value) for value in flat if not isinstance(value, list)]


# -- coverage -------------------------------------------------------------------------------------------------

TRIALS = 400
USERS = 300


@pytest.fixture(scope="module")
def trials() -> dict[str, list[Array]]:
    """Return, by column and step, in which of many samples of one population the interval holds the truth.

    Every trial is a group of its own, whose users have other names and so other hashes. A user's rows are alike, and
    are more where the values are higher.
    """
    rng = np.random.default_rng(11)
    level = rng.random(USERS)
    user = np.repeat(np.arange(USERS), 1 + rng.binomial(6, level))
    x = 1 + level[user] + rng.normal(0, 0.3, len(user))
    y = (rng.random(len(user)) < level[user]).astype(np.float64)
    rows = pl.DataFrame({"user": user, "x": x, "y": y})
    frame = pl.concat(
        [rows.with_columns(pl.col("user") + USERS * trial, trial=pl.lit(trial)) for trial in range(TRIALS)]
    )
    truth = {
        "mean": float(x.mean()), "sum": float(x.sum()), "count": float(len(x)), "ratio": float(y.sum() / x.sum()),
        "quantile": float(np.quantile(x, 0.5)),
    }  # fmt: skip

    def asked(*, uniform: bool) -> dict[str, AggregateExpr]:
        return {
            "mean": sq.ci.mean("x", uniform=uniform),
            "sum": sq.ci.sum("x", uniform=uniform),
            "count": sq.ci.count(uniform=uniform),
            "ratio": sq.ci.ratio("y", "x", uniform=uniform),
            "quantile": sq.ci.quantile("x", uniform=uniform),
        }

    both = asked(uniform=False) | {f"{name} uniform": item for name, item in asked(uniform=True).items()}
    covered: dict[str, list[Array]] = {name: [] for name in both}
    for early in sq.from_frame(frame).group_aggregate("trial", **both).progressive(sq.progress.hashed("user", 6)):
        assert early.frame.height == TRIALS
        for name in both:
            fields, value = early.frame[name].struct.unnest(), truth[name.split()[0]]
            slack = 1e-9 * abs(value)
            low, high = fields["low"].fill_null(-math.inf), fields["high"].fill_null(math.inf)
            covered[name].append(((low - slack <= value) & (value <= high + slack)).to_numpy())
    return covered


def deviation(level: float) -> float:
    return math.sqrt(level * (1 - level) / TRIALS)


@pytest.mark.parametrize("name", ["mean", "sum", "count", "ratio", "quantile"])
def test_at_each_step_the_truth_is_inside_as_often_as_stated(name: str, trials: dict[str, list[Array]]) -> None:
    *steps, last = (float(step.mean()) for step in trials[name])
    assert last == 1
    # Five steps are looked at: three deviations each are passed by chance in one of a hundred runs of other seeds.
    assert min(steps) >= 0.95 - 3 * deviation(0.95), steps
    if name != "quantile":  # which is wider than need be
        assert max(steps) <= 0.95 + 3 * deviation(0.95), steps


@pytest.mark.parametrize("name", ["mean", "sum", "count", "ratio", "quantile"])
def test_at_all_steps_at_once_the_truth_is_inside_at_least_as_often_as_stated(
    name: str, trials: dict[str, list[Array]]
) -> None:
    always = np.logical_and.reduce(trials[f"{name} uniform"])
    assert always.mean() >= 0.95 - 3 * deviation(0.95)
    if name != "quantile":
        at_each_step = np.logical_and.reduce(trials[name])
        assert at_each_step.mean() < 0.95 - 3 * deviation(0.95), "the narrow ones do not hold at once"

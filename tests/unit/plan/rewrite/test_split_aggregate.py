from __future__ import annotations

import warnings
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import PlanError
from squill.plan.aggregates import AggregateExpr
from squill.plan.nodes import Aggregate
from squill.plan.rewrite.split_aggregate import split_aggregate
from squill.stream import Stream
from squill.testing import assert_same_events

ROWS = pl.DataFrame(
    {
        "t": range(60),
        "k": [t % 4 for t in range(60)],
        "x": [None if t % 4 == 3 else t % 7 for t in range(60)],
        "s": [f"text {t % 5}" for t in range(60)],
    },
    schema={"t": pl.Int64, "k": pl.Int64, "x": pl.Int64, "s": pl.String},
)
relation, clicks = sq.from_frame(ROWS.drop("t")), sq.from_frame(ROWS, start="t")


def spread(**changes: Any) -> AggregateExpr:
    """The distance of the extremes: there is no way to take an event away, but states can be merged."""
    functions: dict[str, Any] = {
        "init": lambda: (0, 1e300, -1e300, False),
        "accumulate": lambda s, t, x: (s[0] + 1, min(s[1], x), max(s[2], x), s[3] or x > 5),
        "merge": lambda a, b: (a[0] + b[0], min(a[1], b[1]), max(a[2], b[2]), a[3] or b[3]),
        "result": lambda s: s[2] - s[1] + (100 if s[3] else 0) if s[0] > 0 else None,
        "dtype": pl.Float64,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sq.aggregate_fn("x", **{**functions, **changes})


def total(inputs: str, weigh: Any, **changes: Any) -> AggregateExpr:
    return sq.aggregate_fn(
        inputs,
        init=lambda: (0, 0.0),
        accumulate=lambda s, t, x: (s[0] + 1, s[1] + weigh(x)),
        deaccumulate=lambda s, t, x: (s[0] - 1, s[1] - weigh(x)),
        merge=lambda a, b: (a[0] + b[0], a[1] + b[1]),
        result=lambda s: s[1] / s[0] if s[0] > 0 else None,
        dtype=pl.Float64,
        **changes,
    )


def halves(stream: Stream) -> tuple[list[str], list[str]] | None:
    node = stream.plan
    assert isinstance(node, Aggregate)
    split = split_aggregate(node)
    if split is None:
        return None
    return [call.kind for call in split.partial.calls], [call.kind for call in split.final(split.partial).calls]


def test_states_are_computed_and_merged() -> None:
    query = relation.aggregate(a=spread(), n=sq.count())
    assert halves(query) == (["user_states", "count"], ["user_merge", "sum"])
    node = query.plan
    assert isinstance(node, Aggregate)
    split = split_aggregate(node)
    assert split is not None
    types = {name: str(dtype) for name, dtype in split.partial.schema.items()}
    assert types == {
        "aggregate_fn(x)[0]": "Int64", "aggregate_fn(x)[1]": "Float64", "aggregate_fn(x)[2]": "Float64",
        "aggregate_fn(x)[3]": "Boolean", "count()": "Int64",
    }  # fmt: skip


def failing() -> tuple[int, ...]:
    raise ValueError("no state today")


@pytest.mark.parametrize(
    "changes", [{"merge": None}, {"init": list}, {"init": lambda: ("text",)}, {"init": tuple}, {"init": failing}]
)
def test_what_cannot_be_merged_is_not_split(changes: dict[str, Any]) -> None:
    assert halves(relation.aggregate(a=spread(**changes))) is None


def test_several_aggregates_of_one_column_are_kept_apart() -> None:
    twice = relation.aggregate(a=total("x", float), b=total("x", lambda x: 2.0 * x), c=spread())
    with sq.local(3) as cluster:
        assert_same_events(twice.collect(on=cluster), twice.collect())


QUERIES: dict[str, Stream] = {
    "a relation": relation.aggregate(a=spread(), m=total("x", float), n=sq.count()),
    "a relation, by key": relation.group_aggregate("k", a=spread() * 2, m=total("x", float), n=sq.mean("x")),
    "a window": clicks.hopping_window(20, 5).aggregate(a=spread(), m=total("x", float) + 1.0),
    "a window, by key": clicks.group_apply("k", lambda g: g.tumbling_window(20).aggregate(a=spread())),
}


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("shape", [(2, 1), (2, 2)])
def test_the_answer_is_that_of_one_process(name: str, shape: tuple[int, int]) -> None:
    cores, machines = shape
    with sq.local(cores=cores, machines=machines) as cluster:
        assert_same_events(QUERIES[name].collect(on=cluster), QUERIES[name].collect())


def test_the_plan_shows_the_halves() -> None:
    with sq.local(2) as cluster:
        text = QUERIES["a relation, by key"].explain(on=cluster)
        assert "aggregate_fn.states(x)" in text.split("fragment 2")[0]
        assert "aggregate_fn.merge(aggregate_fn(x)[0]" in text.split("fragment 2")[1]
        # With a key, a shard's answers in a window are as many as its events: they are not worth sending.
        assert "states" not in QUERIES["a window, by key"].explain(on=cluster)


def length(text: str) -> float:
    return float(len(text))


@pytest.mark.filterwarnings("ignore:aggregate .* runs as plain Python")
@pytest.mark.parametrize("taken_away", [True, False])
def test_plain_python_is_split_too(*, taken_away: bool) -> None:
    lengths = total("s", length)
    if not taken_away:
        (call,) = lengths.calls.values()
        assert call.user is not None
        functions = {name: getattr(call.user, name) for name in ("init", "accumulate", "merge", "result", "dtype")}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lengths = sq.aggregate_fn("s", **functions)
    query = clicks.tumbling_window(20).aggregate(m=lengths)
    assert halves(query) == (["user_states"], ["user_merge"])
    with sq.local(3) as cluster:
        assert_same_events(query.collect(on=cluster), query.collect())


@pytest.mark.filterwarnings("ignore")
def test_an_element_of_plain_python_keeps_its_type() -> None:
    sloppy = sq.aggregate_fn(
        "s",
        init=lambda: (0,),
        accumulate=lambda state, t, s: (state[0] + len(s) / 2,),
        merge=lambda a, b: (a[0] + b[0],),
        result=lambda state: float(state[0]),
        dtype=pl.Float64,
    )
    with sq.local(2) as cluster, pytest.raises(PlanError, match=r"element 0 of the state an integer(.|\n)*write 0\.0"):
        relation.aggregate(m=sloppy).collect(on=cluster)

"""Every worked case as a progressive query: the early answers are the reference's over the rows that are there.

A case's query is asked for each of some users, among whom its events are dealt out at random, and users come by hash.
Where a query makes sense without times, it is also asked of the bare payloads, each input in a random order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import polars as pl
import pytest

import squill as sq
from squill.errors import PlanError
from squill.plan.assignment import Assignment, Hashed
from squill.plan.node import walk
from squill.plan.nodes import FrameSource
from squill.stream import Stream
from squill.testing import assert_same_events, reference
from squill.time import INFINITY
from tests.conformance.cases import CASES, QUERIES
from tests.early_answers import Expected, assert_answers, expected_answers, hashed_steps, over

RUNTIMES: dict[str, Callable[[], AbstractContextManager[sq.Cluster | None]]] = {
    "in process": nullcontext,
    "one shard": lambda: sq.local(cores=1),
    "four shards": lambda: sq.local(cores=4),
    "two machines": lambda: sq.local(cores=2, machines=2),
}
"""Where early answers are asked for; all must agree."""
USERS = 5
STEPS = 3
BY_USER = Hashed(("user",), STEPS)


@pytest.fixture(scope="module", params=list(RUNTIMES.values()), ids=list(RUNTIMES))
def cluster(request: pytest.FixtureRequest) -> Iterator[sq.Cluster | None]:
    with request.param() as made:
        yield made


def frames_of(name: str) -> list[pl.DataFrame]:
    """Return the events of each input of a case as rows: start, end, and the payload."""
    query = QUERIES[name]
    frames = []
    for events in CASES[name]["input"].values():
        stream = query.read(events)
        rows = reference.run(stream)
        times = pl.DataFrame(
            {
                "start": [row.start for row in rows],
                "end": [None if row.end == INFINITY else row.end for row in rows],
            },
            schema={"start": pl.Int64, "end": pl.Int64},
        )
        payload = pl.DataFrame([row.payload for row in rows], schema=dict(stream.schema))
        frames.append(times.hstack(payload))
    return frames


# -- for each user --------------------------------------------------------------------------------------------


def per_user(name: str) -> Stream:
    """Return the case's query for each user: all inputs in one, told apart again for each of them."""
    rng = random.Random(name)
    frames = frames_of(name)
    tagged = [
        frame.rename({column: f"{side}_{column}" for column in frame.columns[2:]}).with_columns(
            pl.Series("user", [rng.randrange(USERS) for _ in range(frame.height)], pl.Int64),
            pl.lit(side).alias("side"),
        )
        for side, frame in enumerate(frames)
    ]
    together = pl.concat(tagged, how="diagonal").sort("start", maintain_order=True)
    stream = sq.from_frame(together, start="start", end="end", name="events")

    def ask(group: Stream) -> Stream:
        sides = [
            group.where(sq.col("side") == side).select(
                **{column: sq.col(f"{side}_{column}") for column in frame.columns[2:]}
            )
            for side, frame in enumerate(frames)
        ]
        return QUERIES[name].ask(*sides)

    return stream.group_apply("user", ask)


@cache
def asked_per_user(name: str) -> tuple[Stream, list[pl.DataFrame]]:
    """Return the query and its answer at each step."""
    query = per_user(name)
    (source,) = (node for node in walk(query.plan) if isinstance(node, FrameSource))
    steps = pl.Series(hashed_steps(source.frame, BY_USER), dtype=pl.Int64)
    return query, [reference.frame(over(query.plan, [source], [steps <= step])) for step in range(STEPS)]


@pytest.mark.filterwarnings("ignore:detect. the functions of the pattern run as plain Python")
@pytest.mark.parametrize("name", QUERIES)
def test_users_come_by_hash(name: str, cluster: sq.Cluster | None) -> None:
    query, expected = asked_per_user(name)
    answers = list(query.progressive(BY_USER, on=cluster))
    assert [(early.progress, early.is_final) for early in answers] == [(0, False), (1, False), (2, True)]
    for early, answer in zip(answers, expected, strict=True):
        assert_same_events(early.frame, answer)


# -- without times --------------------------------------------------------------------------------------------

RELATIONAL = """
average_int_snapshot coalesce_end_edges_toendedgefreetest1 coalesce_end_edges_toendedgefreetest3 compound_sum_count
count_includes_null_payloads countnotnull_all_null_still_outputs_zero disjoint_union_punctuation_minimum
disorder_adjust_1 disorder_adjust_3 disorder_adjust_4 doc_reorder_latency_100_drop filtered_aggregates_in_window
group_aggregate_constant_key group_aggregate_count_by_key guide_count_all_output guide_disorder_drop guide_select
join_edges join_intervals left_outer_join_with_post_predicate partitioned_running_average_start_edges
partitioned_union percentile_continuous_0_6 sum_decimal_snapshot sum_int_snapshot
topk_not_coalesced_across_adjacent_equal_results union_past_punctuation_is_raised union_sequential
where_not_exists_edges
""".split()
"""The cases whose queries say nothing of time."""
Tried = tuple[dict[str, Assignment], int, Expected]
"""The assignments by input, what they are coarsened by, and the answers."""
ORDERS = 2
"""How many orders of the inputs are tried for each of them."""


def bare(name: str) -> Stream:
    """Return the case's query over the payloads; where a row comes and goes stands beside, to be left out."""
    rng = random.Random(name)
    sides = []
    for number, frame in enumerate(frames_of(name)):
        comes = [rng.randrange(4) for _ in range(frame.height)]
        goes = [rng.choice([None, start, start + 1, start + 3]) for start in comes]
        points = [pl.Series("from", comes, pl.Int64), pl.Series("to", goes, pl.Int64)]
        stream = sq.from_frame(frame.drop("start", "end").hstack(points), name=f"input {number}")
        sides.append(stream.drop("from", "to"))
    return QUERIES[name].ask(*sides)


def order(rng: random.Random, columns: Sequence[str]) -> Assignment:
    """Return any order in which the rows of an input may come."""
    key = rng.choice([column for column in columns if column not in ("from", "to")])
    return rng.choice(
        [
            sq.progress.rows(rng.randint(1, 3)),
            sq.progress.fractions(rng.randint(1, 4)),
            sq.progress.exponential(1, rng.choice([1.5, 2])),
            sq.progress.stratified(key, 1),
            sq.progress.hashed(key, 3),
            sq.progress.at_start(),
            sq.progress.columns("from"),
            sq.progress.columns("from", "to"),
        ]
    )


def test_every_query_without_times_is_listed() -> None:
    assert sorted(name for name in QUERIES if is_relational(name)) == sorted(RELATIONAL)


def is_relational(name: str) -> bool:
    try:
        return bare(name).time is None
    except PlanError:
        return False


@cache
def asked_of_rows(name: str) -> tuple[Stream, list[Tried]]:
    """Return the query and some orders of its inputs, each with the answers."""
    query = bare(name)
    sources = [node for node in walk(query.plan) if isinstance(node, FrameSource)]
    rng = random.Random(name)
    tried: list[Tried] = []
    while len(tried) < ORDERS:
        chosen = [order(rng, source.frame.columns) for source in sources]
        coarsen = rng.choice([1, 2])
        if len({item for item in chosen if isinstance(item, Hashed)}) < 2:
            given = {source.label: assignment for source, assignment in zip(sources, chosen, strict=True)}
            tried.append((given, coarsen, expected_answers(query, chosen, coarsen)))
    return query, tried


@pytest.mark.parametrize("name", RELATIONAL)
def test_rows_come_in_any_order(name: str, cluster: sq.Cluster | None) -> None:
    query, tried = asked_of_rows(name)
    for given, coarsen, expected in tried:
        assert_answers(query.progressive(given, coarsen=coarsen, on=cluster), expected)

"""The rows behind a row of an early answer are those that take part in its derivation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import polars as pl
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

import squill as sq
from squill.stream import Stream
from tests.strategies import describe

thorough = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    phases=[Phase.explicit, Phase.generate],
)

Value = int | None
Pair = tuple[Value, Value]
Derived = list[tuple[Pair, frozenset[str]]]
"""Rows of k and v, and each with the ids of the input rows that take part in its derivation."""
Known = Callable[[set[str]], Derived]
K, V, W = sq.col("k"), sq.col("v"), sq.col("w")


@dataclass(frozen=True)
class Query:
    """A query that gives k and v, and what it must give over the input rows of some ids."""

    stream: Stream
    derived: Known

    def then(self, stream: Stream, change: Callable[[Derived], Derived]) -> Query:
        return Query(stream, lambda there: change(self.derived(there)))


def is_above(one: Value, other: Value) -> bool:
    return one is not None and other is not None and one > other


def together(rows: Derived, key: Callable[[Pair], object], made: Callable[[list[Pair]], Pair]) -> Derived:
    """Return one row for each group, made of all its rows."""
    groups: dict[object, Derived] = {}
    for row in rows:
        groups.setdefault(key(row[0]), []).append(row)
    return [(made([pair for pair, _ in group]), union(ids for _, ids in group)) for group in groups.values()]


def union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*sets)


def largest(values: Iterable[Value]) -> Value:
    return max((value for value in values if value is not None), default=None)


# -- one input ------------------------------------------------------------------------------------------------


def filtered(query: Query) -> Query:
    return query.then(query.stream.where(V > 0), lambda rows: [row for row in rows if is_above(row[0][1], 0)])


def swapped(query: Query) -> Query:
    return query.then(query.stream.select(k="v", v="k"), lambda rows: [((v, k), ids) for (k, v), ids in rows])


def absolute(query: Query) -> Query:
    """Return rows that were different and are equal."""
    return query.then(
        query.stream.select("k", v=V.abs()),
        lambda rows: [((k, None if v is None else abs(v)), ids) for (k, v), ids in rows],
    )


def highest(query: Query) -> Query:
    return query.then(
        query.stream.group_aggregate("k", v=sq.max("v")),
        lambda rows: together(rows, lambda pair: pair[0], lambda pairs: (pairs[0][0], largest(v for _, v in pairs))),
    )


def counted(query: Query) -> Query:
    return query.then(
        query.stream.group_aggregate(["k", "v"], n=sq.count()).select("k", v=sq.col("n").cast(pl.Int64)),
        lambda rows: together(rows, lambda pair: pair, lambda pairs: (pairs[0][0], len(pairs))),
    )


def distinct(query: Query) -> Query:
    return query.then(query.stream.distinct(), lambda rows: together(rows, lambda pair: pair, lambda pairs: pairs[0]))


def paired_in_groups(query: Query) -> Query:
    """Return pairs of rows of a key, of which null is one."""
    paired = query.stream.group_apply("k", lambda group: group.join(group.where(V > 0).select("k", w="v")))
    return query.then(
        paired.select("k", v="w"),
        lambda rows: [
            ((k, w), one | other) for (k, _), one in rows for (also, w), other in rows if also == k and is_above(w, 0)
        ],
    )


# -- two inputs -----------------------------------------------------------------------------------------------


def both(one: Query, other: Query, stream: Stream, change: Callable[[Derived, Derived], Derived]) -> Query:
    return Query(stream, lambda there: change(one.derived(there), other.derived(there)))


def united(one: Query, other: Query) -> Query:
    return both(one, other, one.stream.union(other.stream), lambda left, right: [*left, *right])


def matches(left: tuple[Pair, frozenset[str]], right: tuple[Pair, frozenset[str]]) -> bool:
    return left[0][0] is not None and left[0][0] == right[0][0]


def joined(one: Query, other: Query) -> Query:
    stream = one.stream.join(other.stream.select("k", w="v"), on="k").where(V > W).select("k", v="w")
    return both(
        one,
        other,
        stream,
        lambda left, right: [
            ((a[0][0], b[0][1]), a[1] | b[1])
            for a in left
            for b in right
            if matches(a, b) and is_above(a[0][1], b[0][1])
        ],
    )


def left_joined(one: Query, other: Query) -> Query:
    stream = one.stream.join(other.stream.select("k", w="v"), on="k", how="left").select("k", v="w")

    def derived(left: Derived, right: Derived) -> Derived:
        pairs: Derived = [((a[0][0], b[0][1]), a[1] | b[1]) for a in left for b in right if matches(a, b)]
        return pairs + [((a[0][0], None), a[1]) for a in left if not any(matches(a, b) for b in right)]

    return both(one, other, stream, derived)


def fully_joined(one: Query, other: Query) -> Query:
    right_side = other.stream.select(l="k", w="v")
    joined = one.stream.join(right_side, left_on="k", right_on="l", how="full", where=V > W)

    def derived(left: Derived, right: Derived) -> Derived:
        def fits(a: tuple[Pair, frozenset[str]], b: tuple[Pair, frozenset[str]]) -> bool:
            return matches(a, b) and is_above(a[0][1], b[0][1])

        pairs: Derived = [((a[0][0], b[0][1]), a[1] | b[1]) for a in left for b in right if fits(a, b)]
        pairs += [((a[0][0], None), a[1]) for a in left if not any(fits(a, b) for b in right)]
        return pairs + [((None, b[0][1]), b[1]) for b in right if not any(fits(a, b) for a in left)]

    return both(one, other, joined.select("k", v="w"), derived)


def crossed(one: Query, other: Query) -> Query:
    stream = one.stream.join(other.stream.select(w="v"), how="cross").where(V > W).select("k", v="w")
    return both(
        one,
        other,
        stream,
        lambda left, right: [
            ((a[0][0], b[0][1]), a[1] | b[1]) for a in left for b in right if is_above(a[0][1], b[0][1])
        ],
    )


def with_match(one: Query, other: Query) -> Query:
    def derived(left: Derived, right: Derived) -> Derived:
        found = [(a, [b for b in right if matches(a, b)]) for a in left]
        return [(a[0], a[1] | union(ids for _, ids in behind)) for a, behind in found if behind]

    return both(one, other, one.stream.where_exists(other.stream, on="k"), derived)


def without_match(one: Query, other: Query) -> Query:
    return both(
        one,
        other,
        one.stream.where_not_exists(other.stream, on="k"),
        lambda left, right: [a for a in left if not any(matches(a, b) for b in right)],
    )


OF_ONE = (filtered, swapped, absolute, highest, counted, distinct, paired_in_groups)
OF_TWO = (united, joined, left_joined, fully_joined, crossed, with_match, without_match)


# -- queries --------------------------------------------------------------------------------------------------


@st.composite
def inputs(draw: st.DrawFn, name: str) -> Query:
    values = st.one_of(st.none(), st.integers(-1, 2))
    pairs: list[Pair] = draw(st.lists(st.tuples(values, values), max_size=5))
    ids = [f"{name}{number}" for number in range(len(pairs))]
    schema = {"id": pl.String, "k": pl.Int64, "v": pl.Int64}
    frame = pl.DataFrame([(id_, *pair) for id_, pair in zip(ids, pairs, strict=True)], schema=schema, orient="row")
    return Query(
        sq.from_frame(frame, name=name).select("k", "v"),
        lambda there: [(pair, frozenset([id_])) for id_, pair in zip(ids, pairs, strict=True) if id_ in there],
    )


@st.composite
def queries(draw: st.DrawFn) -> Query:
    """Draw a query of some operators over two inputs, in which parts may be used more than once."""
    made = [draw(inputs("a")), draw(inputs("b"))]
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            made.append(draw(st.sampled_from(OF_ONE))(draw(st.sampled_from(made[-2:]))))
        else:
            one, other = made[-1], draw(st.sampled_from(made))
            made.append(draw(st.sampled_from(OF_TWO))(one, other))
    return made[-1]


def order(pair: Pair) -> tuple[bool, int, bool, int]:
    k, v = pair
    return k is None, k or 0, v is None, v or 0


@thorough
@given(query=queries(), step=st.sampled_from([2, 100]))
def test_behind_a_row_are_the_rows_of_its_derivations(query: Query, step: int) -> None:
    note(describe(query.stream))
    for early in query.stream.progressive(sq.progress.rows(step)):
        there = {id_ for frame in early.provenance().values() for id_ in frame["id"]}
        derived = query.derived(there)
        assert sorted(early.frame.rows(), key=order) == sorted((pair for pair, _ in derived), key=order)
        for pair in {pair for pair, _ in derived}:
            behind = early.provenance({"k": pair[0], "v": pair[1]})
            found = [id_ for frame in behind.values() for id_ in frame["id"]]
            assert len(found) == len(set(found))
            assert set(found) == union(ids for other, ids in derived if other == pair), pair

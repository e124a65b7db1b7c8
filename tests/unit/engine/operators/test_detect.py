"""Patterns: what matches, when it matches, what it carries."""

from __future__ import annotations

import warnings
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import PlanError, TimeOverflowError, UserFunctionError
from squill.plan.pattern import Pattern
from squill.stream import Stream
from tests.unit.engine.operators.rows import edges, points, rows

p = sq.pattern
A, B, C = (sq.col("k") == kind for kind in "ABC")


def spelled(text: str, **columns: Any) -> Stream:
    """Return one event per letter, at 0, 1, 2, …"""
    return points(*range(len(text)), k=list(text), **columns)


def numbered(*conditions: pl.Expr) -> list[Pattern]:
    """Return elements that note the number of the event they take: in `a` the first of them, in `b` the second, …"""
    return [p.one(item, **{name: "n"}) for item, name in zip(conditions, "abcd", strict=False)]


def matches(text: str, pattern: Pattern | pl.Expr, **options: Any) -> list[tuple[Any, ...]]:
    return rows(spelled(text, n=list(range(len(text)))).detect(pattern, **options))


# -- combinators --------------------------------------------------------------------------------------------


def test_match_lives_from_its_last_event_until_within_after_its_first() -> None:
    assert matches("xABC", p.seq(A, B, C), within=10) == [(3, 11)]


def test_match_without_limit_never_ends() -> None:
    assert matches("AB", p.seq(A, B)) == [(1, None)]


def test_event_that_no_element_takes_ends_the_match() -> None:
    assert matches("AxB", p.seq(A, B)) == []


def test_star_takes_none_or_many() -> None:
    assert matches("ACABBC", p.seq(A, p.star(B), C), within=9) == [(1, 9), (5, 11)]


def test_every_complete_prefix_is_given() -> None:
    assert matches("ABB", p.seq(A, p.plus(B)), within=9) == [(1, 9), (2, 9)]


def test_alternatives_and_options() -> None:
    assert matches("ABAC", p.seq(A, p.alt(B, C)), within=9) == [(1, 9), (3, 11)]
    assert matches("AC", p.seq(A, p.opt(B), C), within=9) == [(1, 9)]


def test_loops_repeat_all_their_parts() -> None:
    assert matches("ABABx", p.plus(A, B), within=9) == [(1, 9), (3, 9), (3, 11)]


def test_empty_match_is_no_match() -> None:
    assert matches("xAAx", p.star(A), within=9, overlap=False) == [(1, 10), (2, 10)]


def test_two_elements_that_take_the_same_event_are_two_matches() -> None:
    assert matches("A", p.alt(A, p.any()), within=9) == [(0, 9), (0, 9)]


def test_two_ways_to_the_same_element_are_one_match() -> None:
    assert matches("AA", p.star(p.star(A)), within=9, overlap=False) == [(0, 9), (1, 9)]


# -- time and overlap ---------------------------------------------------------------------------------------


def test_event_exactly_within_after_the_first_is_too_late() -> None:
    stream = points(0, 4, 10, 15, k=list("ABAB"))
    assert rows(stream.detect(p.seq(A, B), within=5)) == [(4, 5)]


def test_matches_overlap_unless_told_otherwise() -> None:
    assert matches("AAA", p.seq(A, A), within=9) == [(1, 9), (2, 10)]
    assert matches("AAAA", p.seq(A, A), within=9, overlap=False) == [(1, 9), (3, 11)]


def test_event_that_ends_the_only_match_may_begin_the_next() -> None:
    assert matches("AAB", p.seq(A, B), within=9, overlap=False) == [(2, 10)]


def test_ends_of_events_are_ignored() -> None:
    stream = edges((0, 9), (1, 3), x=["a", "b"])
    pattern = p.seq(sq.col("x") == "a", sq.col("x") == "b")
    assert rows(stream.detect(pattern, within=5)) == [(1, 5)]


def test_keys_have_matches_of_their_own() -> None:
    stream = spelled("AABB", u=[1, 2, 2, 1], n=[0, 1, 2, 3])
    a, b = numbered(A, B)
    query = stream.group_apply("u", lambda g: g.detect(p.seq(a, b), within=9))
    assert rows(query) == [(2, 10, 2, 1, 2), (3, 9, 1, 0, 3)]
    assert query.schema.names == ("u", "a", "b")


def test_time_out_of_range_is_refused() -> None:
    with pytest.raises(TimeOverflowError, match="detect"):
        points(2**63 - 3).detect(p.any(), within=9).collect()


# -- simultaneous events ------------------------------------------------------------------------------------


def simultaneous() -> Stream:
    return points(0, 1, 1, 2, k=list("ABAB"), n=[0, 2, 1, 3])


def test_single_elements_refuse_simultaneous_events() -> None:
    assert rows(simultaneous().detect(p.seq(A, B), within=9)) == []


def test_order_by_reads_them_one_after_the_other() -> None:
    assert rows(simultaneous().detect(p.seq(A, B), within=9, order_by="n")) == [(1, 10)]
    assert rows(simultaneous().detect(p.seq(A, B), within=9, order_by=-sq.col("n"))) == [(1, 9), (2, 10)]


def test_any_and_none_take_an_instant() -> None:
    assert rows(simultaneous().detect(p.seq(A, p.any(B), B), within=9)) == [(2, 9)]
    assert rows(simultaneous().detect(p.seq(A, p.none(C), B), within=9)) == [(2, 9)]
    assert rows(simultaneous().detect(p.seq(A, p.none(A), B), within=9)) == []


def test_updates_are_made_for_every_event_of_an_instant_in_payload_order() -> None:
    digits = p.any(n=lambda n, k: n * 10 + k, last="k")
    query = points(0, 1, 1, 1, k=[1, 5, 3, 4]).detect(p.seq(sq.col("k") == 1, digits).with_registers(n=0), within=9)
    assert rows(query) == [(1, 9, 345, 5)]


def test_simultaneous_events_of_different_keys_are_not_simultaneous() -> None:
    stream = points(0, 0, 1, 1, k=list("AABB"), u=[1, 2, 1, 2])
    assert rows(stream.group_apply("u", lambda g: g.detect(p.seq(A, B), within=9))) == [(1, 9, 1), (1, 9, 2)]


# -- registers ----------------------------------------------------------------------------------------------


def test_registers_hold_what_their_elements_saw() -> None:
    pattern = p.seq(p.one(A, began=sq.start(), text="s"), p.one(B, double=sq.col("n") * 2))
    query = spelled("AB", n=[1, 2], s=["first", "second"]).detect(pattern, within=9)
    assert rows(query) == [(1, 9, 0, "first", 4)]
    assert dict(query.schema) == {"began": pl.Int64(), "text": pl.String(), "double": pl.Int64()}


def test_register_that_is_not_set_keeps_its_first_value() -> None:
    pattern = p.alt(p.one(A, x="n", y="n"), p.one(B)).with_registers(x=-1)
    assert matches("AB", pattern, within=9) == [(0, 9, 0, 0), (1, 10, -1, None)]


def test_register_of_any_type_is_kept_while_its_match_is_open() -> None:
    lists = [[1, 2], None, [], [3]]
    stream = spelled("ABAB", v=pl.Series(lists, dtype=pl.List(pl.Int64)))
    query = stream.detect(p.seq(p.one(A, a="v"), p.one(B, b="v")), within=9)
    assert [row[2:] for row in query.collect(batch_rows=1).rows()] == [([1, 2], None), ([], [3])]


def test_functions_compute_registers_from_registers_and_columns() -> None:
    add = p.one(B, total=lambda total, n: total + n, count=lambda count: count + 1)
    pattern = p.seq(A, p.star(add), C).with_registers(total=0.5, count=0)
    assert matches("ABBC", pattern, within=9) == [(3, 9, 3.5, 2)]


def test_updates_see_the_registers_as_they_were() -> None:
    swap = p.any(x=lambda y: y, y=lambda x: x)
    assert matches("AB", p.seq(swap, swap).with_registers(x=1, y=2), within=9) == [(1, 9, 1, 2)]
    assert matches("A", swap.with_registers(x=1, y=2), within=9) == [(0, 9, 2, 1)]


def test_condition_may_read_a_register() -> None:
    rising = p.seq(p.any(low="v"), p.plus(p.one(lambda v, low: v > low, low="v")))
    query = points(0, 1, 2, 3, v=[1, 3, 2, 5]).detect(rising, within=9)
    assert rows(query) == [(1, 9, 3), (3, 11, 5)]


def test_functions_may_use_the_start_and_constants() -> None:
    step = 10
    query = points(3, 5).detect(p.any(t=lambda t, start, by=step: t + start * by).with_registers(t=1), within=9)
    assert rows(query) == [(3, 12, 31), (5, 14, 51)]


def test_function_is_not_called_with_null() -> None:
    add = p.one(lambda v: v < 9, total=lambda total, w: total + w)
    stream = points(0, 1, 2, v=[1, None, 3], w=[None, 5, 6])
    assert rows(stream.detect(add.with_registers(total=0), within=9)) == [(0, 9, 0), (2, 11, 6)]


def test_function_may_return_null() -> None:
    halves = p.any(half=lambda half, n: n // 2 if n % 2 == 0 else None).with_registers(half=0)
    assert [row[2] for row in matches("ABC", halves, within=1)] == [0, None, 1]


def test_what_numba_cannot_compile_runs_as_plain_python() -> None:
    pattern = p.seq(p.one(A, s=lambda s, k: s + k), p.plus(p.one(B, s=lambda s, k: s + k))).with_registers(s="")
    with pytest.warns(UserWarning, match=r"plain Python, which is slow: the column 'k' is String"):
        assert matches("ABB", pattern, within=9) == [(1, 9, "AB"), (2, 9, "ABB")]


def test_what_numba_cannot_even_read_runs_as_plain_python() -> None:
    def rounded(x: int, n: int) -> int:
        import math

        return math.floor(x + n)

    with pytest.warns(UserWarning, match=r"plain Python, which is slow: Use of unsupported opcode"):
        assert matches("AB", p.any(x=rounded).with_registers(x=5), within=9)


def test_float_for_an_integer_register_is_refused() -> None:
    with pytest.raises(PlanError, match=r"'x' is Int64, but a function returns a float(.|\n)*x=0\.0"):
        spelled("A", n=[1]).detect(p.any(x=lambda x, n: x + n / 2).with_registers(x=0)).collect()


@pytest.mark.parametrize("first", [0, ""])
def test_error_in_a_function_names_the_event(first: Any) -> None:
    broken = p.any(x=lambda x, n: 1 // (n - 2) if n > 1 else x).with_registers(x=first)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(UserFunctionError, match=r"failed at the event with start 2 and \{'k': 'C', 'n': 2\}"):
            matches("ABC", broken)


def test_value_of_another_type_from_plain_python_is_refused() -> None:
    with pytest.warns(UserWarning, match="plain Python"), pytest.raises(UserFunctionError, match="'s' is not String"):
        spelled("A").detect(p.any(s=lambda s, k: 5).with_registers(s="")).collect()


# -- large ----------------------------------------------------------------------------------------------------


def test_more_matches_than_one_output_holds() -> None:
    stream = points(*range(500), k=["A"] * 500)
    assert stream.detect(p.plus(A)).collect().height == 500 * 501 // 2


def test_instances_of_a_plan_travel() -> None:
    from squill.plan.explain import explain
    from squill.plan.serialise import dumps, loads

    plan = spelled("AB", n=[1, 2]).detect(p.seq(A, p.one(B, x="n", y=lambda y: y + 1)).with_registers(y=0)).plan
    copy = loads(dumps(plan))
    assert explain(copy) == explain(plan)
    assert sq.Stream(copy).collect().rows() == [(1, None, 1, 2)]


def test_many_keys_that_come_and_go() -> None:
    n = 20_000
    kinds = ["A", "B", "C", "A", "C"]
    frame = {"t": list(range(n)), "k": [kinds[i // 500 % 5] for i in range(n)], "u": [i % 500 for i in range(n)]}
    stream = sq.from_frame(frame, start="t").with_columns(n=sq.start())
    a, b = p.one(A, first="n"), p.one(B, seen=lambda seen: seen + 1)
    pattern = p.seq(a, p.star(b), C).with_registers(seen=0)
    found = stream.group_apply("u", lambda g: g.detect(pattern, within=1000)).collect(batch_rows=777)
    # The match over three events lasts 1000 ticks, which is too long; the one over two comes every 2500 ticks.
    assert found.height == n // 2500 * 500
    assert (found["start"] - found["first"]).unique().to_list() == [500]
    assert found["seen"].unique().to_list() == [0]

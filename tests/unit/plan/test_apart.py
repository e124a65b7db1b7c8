"""Which queries over time may run step by step of a hash."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import squill as sq
from squill.errors import UnsupportedOperatorError
from squill.stream import Stream

Query = Callable[[Stream, Stream], Stream]


def inputs() -> tuple[Stream, Stream]:
    left = sq.from_frame({"t": [1, 2], "u": [1, 2], "v": [3, 4], "x": [5, 6]}, start="t", name="left")
    right = sq.from_frame({"t": [1, 2], "u": [1, 2], "w": [1, 4]}, start="t", name="right")
    return left, right


APART: dict[str, Query] = {
    "grouped": lambda a, _: a.group_apply("u", lambda g: g.count()),
    "finer_group": lambda a, _: a.group_apply(["v", "u"], lambda g: g.count()),
    "renamed": lambda a, _: a.rename({"u": "user"}).group_apply("user", lambda g: g.count()),
    "row_by_row": lambda a, _: a.where(sq.col("x") > 5).select("x"),
    "windows": lambda a, _: a.group_apply("u", lambda g: g.session_window(5).count()),
    "distinct": lambda a, _: a.distinct(),
    "join": lambda a, b: a.join(b, on="u"),
    "left_join_then_group": lambda a, b: a.join(b, on="u", how="left").group_apply("u", lambda g: g.count()),
    "full_join_then_group": lambda a, b: a.join(b, on="u", how="full").group_apply("u", lambda g: g.count()),
    "join_by_other_names": lambda a, b: a.join(b.rename({"u": "z"}), left_on="u", right_on="z"),
    "asof": lambda a, b: a.asof_join(b, on="u"),
    "exists": lambda a, b: a.where_exists(b, on="u"),
    "union": lambda a, b: a.select("u").union(b.select("u")).group_apply("u", lambda g: g.count()),
}  # fmt: skip

MIXED: dict[str, Query] = {
    "ungrouped": lambda a, _: a.count(),
    "other_group": lambda a, _: a.group_apply("v", lambda g: g.count()),
    "computed_key": lambda a, _: a.with_columns(u=sq.col("u") % 2).group_apply("u", lambda g: g.count()),
    "distinct_without": lambda a, _: a.select("x").distinct(),
    "join_by_others": lambda a, b: a.join(b, left_on="u", right_on="w"),
    "cross_join": lambda a, b: a.join(b, how="cross"),
    "after_a_right_join": lambda a, b: a.join(b.rename({"u": "z"}), left_on="u", right_on="z", how="right").group_apply(
        "u", lambda g: g.count()
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_rows_of_different_steps_never_meet(name: str) -> None:
    query = APART[name](*inputs())
    *_, last = query.progressive(sq.progress.hashed("u", 3))
    assert last.frame.rows() == query.collect(sort=True).rows()


@pytest.mark.parametrize("name", MIXED)
def test_rows_of_different_steps_meet(name: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match="looks at rows of different steps"):
        MIXED[name](*inputs()).progressive(sq.progress.hashed("u", 3))


def test_a_dimension_whose_unmatched_rows_show_is_refused() -> None:
    left, right = inputs()
    given = {"left": sq.progress.at_start(), "right": sq.progress.hashed("u", 3)}
    with pytest.raises(UnsupportedOperatorError, match="without a match in every step"):
        left.join(right, on="u", how="left").progressive(given)

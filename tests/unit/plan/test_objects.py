"""Python objects without a codec pass where rows only pass; where rows are kept or compared, they are refused."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

import squill as sq
from squill.errors import PlanError
from squill.stream import Stream

OBJECTS = pl.DataFrame({"t": [1, 2, 3], "k": [1, 1, 2]}).with_columns(
    pl.Series("z", [complex(1, 2), complex(1, 2), complex(3, 4)], dtype=pl.Object)
)
TIMED = sq.from_frame(OBJECTS, start="t").with_duration(3)
TABLE = sq.from_frame(OBJECTS)

REFUSED: dict[str, Callable[[], Stream]] = {
    "distinct": TABLE.distinct,
    "stitch": TIMED.stitch,
    "count_window": lambda: TIMED.count_window(2),
    "session_window": lambda: TIMED.session_window(2),
    "join": lambda: TIMED.join(TIMED, on="k"),
    "where_exists": lambda: TIMED.where_exists(TIMED, on="k"),
    "asof_join": lambda: TIMED.asof_join(TIMED, on="k"),
    "clip": lambda: TIMED.clip(TIMED, on="k"),
    "consecutive_pairs": TIMED.consecutive_pairs,
    "followed_by": lambda: TIMED.followed_by(sq.col("k") == 1, sq.col("k") == 2, 5),
    "sessionize": lambda: TIMED.sessionize(sq.col("k") == 1, sq.col("k") == 2),
    "count_distinct": lambda: TABLE.aggregate(n=sq.count_distinct("z")),
}


@pytest.mark.parametrize("operator", REFUSED)
def test_operators_that_keep_or_compare_rows_refuse_them_when_the_plan_is_built(operator: str) -> None:
    with pytest.raises(PlanError, match=rf"{operator}: .*column 'z' holds Python objects"):
        REFUSED[operator]()


def test_answers_with_objects_are_not_sorted_by_them() -> None:
    assert TABLE.collect().height == 3
    with pytest.raises(PlanError, match=r"collect\(sort=True\): .*column 'z' holds Python objects"):
        TABLE.collect(sort=True)


def test_tables_are_joined_whatever_they_hold() -> None:
    others = sq.from_frame({"k": [1], "n": [7]})
    assert TABLE.join(others, on="k").collect()["z"].to_list() == [1 + 2j, 1 + 2j]
    assert sorted(TIMED.join(others, on="k").collect()["n"]) == [7, 7]


def test_progressive_joins_keep_rows_and_refuse_objects() -> None:
    others = sq.from_frame({"k": [1], "n": [7]}, name="others")
    query = sq.from_frame(OBJECTS.drop("t"), name="things").join(others, on="k")
    assert query.collect().height == 2
    with pytest.raises(PlanError, match=r"progressive join: .*column 'z' holds Python objects"):
        query.progressive(sq.progress.rows(1))

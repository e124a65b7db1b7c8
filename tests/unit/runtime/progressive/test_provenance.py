"""The input rows behind one row of an early answer: exactly those that take part in its derivation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.errors import UnsupportedOperatorError
from squill.runtime.progressive.early import EarlyAnswer
from squill.stream import Stream

A = sq.from_frame({"k": [1, 1, 2, None], "j": [1, 2, 1, 1], "x": [1, 5, 9, 4]}, name="A")
B = sq.from_frame({"k": [1, 1, 2, None], "y": [3, 100, 1, 7]}, name="B")
FIRST, SECOND, THIRD, LAST = (1, 1, 1), (1, 2, 5), (2, 1, 9), (None, 1, 4)
X, Y = sq.col("x"), sq.col("y")


def last(query: Stream, **options: Any) -> EarlyAnswer:
    *_, answer = query.progressive(sq.progress.rows(100), **options)
    return answer


def behind(query: Stream, row: dict[str, object]) -> dict[str, list[tuple[object, ...]]]:
    return {name: frame.rows() for name, frame in last(query).provenance(row).items()}


# -- filters above what puts rows together --------------------------------------------------------------------


def test_a_filter_above_a_join_leaves_rows_of_other_pairs_out() -> None:
    query = A.join(B, on="k").where(X > Y).group_aggregate("k", n=sq.count())
    assert behind(query, {"k": 1}) == {"A": [SECOND], "B": [(1, 3)]}


def test_a_filter_above_an_aggregate_leaves_rows_of_other_groups_out() -> None:
    query = A.group_aggregate(["k", "j"], s=sq.sum("x")).where(sq.col("s") > 2).group_aggregate("k", m=sq.count())
    assert behind(query, {"k": 1}) == {"A": [SECOND]}


def test_a_filter_above_a_cross_join() -> None:
    query = A.join(B.select(other="k", y="y"), how="cross").where(X > Y).group_aggregate("k", n=sq.count())
    assert behind(query, {"k": 1}) == {"A": [SECOND], "B": [(1, 3), (2, 1)]}


def test_a_condition_of_a_join() -> None:
    assert behind(A.join(B, on="k", where=X > Y), {"k": 1}) == {"A": [SECOND], "B": [(1, 3)]}
    assert behind(A.where_exists(B, on="k", where=X > Y), {"k": 1}) == {"A": [SECOND], "B": [(1, 3)]}


def test_a_filtered_aggregate_on_the_right_of_a_left_join() -> None:
    large = B.group_aggregate("k", s=sq.sum("y")).where(sq.col("s") > 50)
    query = A.join(large, on="k", how="left")
    assert behind(query, {"k": 2}) == {"A": [THIRD], "B": []}
    assert behind(query, {"k": 1, "x": 5}) == {"A": [SECOND], "B": [(1, 3), (1, 100)]}


# -- unions ---------------------------------------------------------------------------------------------------

SUMS = A.group_aggregate("k", n=sq.sum("x")), B.group_aggregate("k", n=sq.sum("y"))


def test_through_a_union_a_row_leads_to_the_input_it_came_from() -> None:
    query = SUMS[0].union(SUMS[1])
    assert behind(query, {"k": 1, "n": 6}) == {"A": [FIRST, SECOND], "B": []}
    assert behind(query, {"k": 1}) == {"A": [FIRST, SECOND], "B": [(1, 3), (1, 100)]}


def test_a_tag_tells_the_inputs_of_a_union_apart() -> None:
    tagged = [part.select("k", "n", src=pl.lit(name)) for part, name in zip(SUMS, "ab", strict=True)]
    assert behind(tagged[0].union(tagged[1]), {"k": 2, "src": "b"}) == {"A": [], "B": [(2, 1)]}


# -- null keys ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["left", "full"])
def test_a_null_key_of_a_join_matches_nothing(how: str) -> None:
    assert behind(A.join(B, on="k", how=how), {"k": None, "x": 4}) == {"A": [LAST], "B": []}


def test_a_null_key_of_a_group_matches_itself() -> None:
    query = A.group_apply("k", lambda group: group.join(group.where(X < 5).select("k", y="x")))
    assert behind(query, {"k": None}) == {"A": [LAST]}
    assert behind(query, {"k": 1, "x": 5}) == {"A": [FIRST, SECOND]}


# -- what else the row goes through ---------------------------------------------------------------------------


def test_a_row_that_does_not_say_its_key_leads_to_the_rows_of_all_that_are_equal() -> None:
    query = A.group_aggregate("k", n=sq.count()).select("n")
    assert behind(query, {"n": 2}) == {"A": [FIRST, SECOND]}
    assert behind(query, {"n": 1}) == {"A": [THIRD, LAST]}


def test_items_of_a_list_lead_to_their_row() -> None:
    rows = sq.from_frame({"k": [1, 2], "words": [["a", "b"], ["b", "c"]]}, name="rows").select_many("words")
    assert behind(rows.group_aggregate("words", n=sq.count()), {"words": "c"}) == {"rows": [(2, ["b", "c"])]}


def test_a_function_of_whole_frames_is_refused() -> None:
    query = A.map_batches(lambda frame: frame.select("k"), schema={"k": pl.Int64})
    with pytest.raises(UnsupportedOperatorError, match="does not say which of its input rows") as refused:
        last(query).provenance({"k": 1})
    assert "Hint: provenance() without a row" in str(refused.value)


def test_floats_that_shards_add_in_another_order() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(0, 1, 3_000) * 10.0 ** rng.integers(-8, 9, 3_000)
    rows = sq.from_frame({"k": [n % 3 for n in range(3_000)], "x": values}, name="rows")
    query = rows.group_aggregate("k", s=sq.sum("x"), m=sq.mean("x"))
    with sq.local(cores=2) as cluster:
        for early in query.progressive(sq.progress.rows(700), on=cluster):
            for row in early.frame.rows(named=True):
                found = early.provenance({"s": row["s"], "m": row["m"]})["rows"]
                assert found["k"].unique().to_list() == [row["k"]]
                assert found["x"].sum() == pytest.approx(row["s"])


def test_intervals_that_are_filtered_and_joined() -> None:
    rows = sq.from_frame({"u": range(40), "k": [n % 4 for n in range(40)]}, name="rows")
    rates = rows.group_aggregate("k", z=sq.ci.sum("u"), q=sq.ci.quantile("u"))
    sure = rates.where(sq.col("z").struct.field("estimate") > 100).join(B, on="k")
    for early in sure.progressive({"rows": sq.progress.hashed("u", 8), "B": sq.progress.at_start()}):
        for row in early.frame.rows(named=True):
            found = early.provenance(row)
            there = early.provenance()["rows"]
            assert found["rows"].equals(there.filter(pl.col("k") == row["k"]))
            assert found["B"].rows() == [(row["k"], row["y"])]


def test_rows_of_files_of_which_few_columns_are_read(tmp_path: Path) -> None:
    frame = pl.DataFrame({"k": [1, 1, 2], "x": [1, 5, 9], "unused": ["a", "b", "c"]})
    frame.write_parquet(tmp_path / "rows.parquet")
    rows = sq.scan(tmp_path / "rows.parquet", name="rows")
    assert behind(rows.where(X > 1).group_aggregate("k", n=sq.count()), {"k": 1}) == {"rows": [(1, 5, "b")]}
    assert behind(rows.aggregate(n=sq.count()), {"n": 3}) == {"rows": frame.rows()}


def test_rows_of_shards() -> None:
    with sq.local(cores=2) as cluster:
        moved = cluster.from_frame({"k": [1, 1, 2, None], "x": [1, 5, 9, 4]}, name="A").rekey("k").redistribute()
        query = moved.query(lambda group: group.where(X > 1).aggregate(n=sq.count()))
        *_, answer = query.progressive(sq.progress.rows(2))
        assert answer.provenance({"k": 1})["A"].rows() == [(1, 5)]


def test_what_shards_count_each_for_itself_is_refused() -> None:
    with sq.local(cores=2) as cluster:
        query = cluster.from_frame({"k": [1] * 1_000}, name="A").query(lambda rows: rows.aggregate(n=sq.count()))
        *_, answer = query.progressive(sq.progress.rows(1_000))
        counts = answer.frame["n"].to_list()
        assert len(counts) == 2
        with pytest.raises(UnsupportedOperatorError, match="gives other rows of these values"):
            answer.provenance({"n": counts[0]})

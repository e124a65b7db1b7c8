"""The input rows behind one row of an early answer: exactly those that take part in its derivation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.errors import InputError, PlanError, UnsupportedOperatorError
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


# -- which row is asked about ---------------------------------------------------------------------------------

CLOSE = pl.DataFrame(
    {
        "at": pl.Series([1_001, 1_002, 5_000], dtype=pl.Datetime("ns")),
        "took": pl.Series([-1, -2, 5_000], dtype=pl.Duration("ns")),
        "o'clock": pl.Series([1, 2, 5_000], dtype=pl.Time),
        "both": [{"a": [1], "b": 0.5}, {"a": [2], "b": 0.5}, {"a": [5_000], "b": None}],
    },
    schema_overrides={"both": pl.Struct({"a": pl.List(pl.Datetime("ns")), "b": pl.Float64})},
)


@pytest.mark.parametrize("name", CLOSE.columns)
def test_rows_that_differ_by_nanoseconds_are_told_apart_by_number_or_as_a_frame(name: str) -> None:
    answer = last(sq.from_frame(CLOSE, name="rows").select(name, n=1))
    for number, row in enumerate(answer.frame.iter_slices(1)):
        for asked in (number, number - 3, row, row.select(name)):
            assert answer.provenance(asked)["rows"][name].equals(row[name])


@pytest.mark.parametrize("name", CLOSE.columns)
def test_values_of_python_name_a_row_with_nanoseconds_unless_another_looks_alike(name: str) -> None:
    answer = last(sq.from_frame(CLOSE, name="rows").select(name, n=1))
    alike = [row for row in answer.frame.rows(named=True) if row[name] != CLOSE[name].to_list()[2]]
    assert answer.provenance({name: CLOSE[name].to_list()[2]})["rows"].equals(CLOSE[2])
    with pytest.raises(PlanError, match="differ, but look alike to Python") as refused:
        answer.provenance(alike[0])
    assert "Hint: give the row's number, provenance(" in str(refused.value)


def test_a_column_without_a_name() -> None:
    rows = sq.from_frame({"": [1, 1, 2], "x": [1, 5, 9]}, name="rows")
    query = rows.group_aggregate("", n=sq.count())
    assert behind(query, {"": 1}) == {"rows": [(1, 1), (1, 5)]}
    assert last(query).provenance()["rows"].columns == ["", "x"]


def test_python_objects_are_compared_by_their_bytes() -> None:
    numbers = sq.codec(complex, lambda z: repr(z).encode(), lambda data: complex(data.decode()))
    query = A.group_apply(
        "k", lambda g: g.snapshot_apply(lambda rows: [{"z": complex(rows.height)}], schema={"z": numbers})
    )
    answer = last(query)
    for asked in ({"z": 2 + 0j}, {"k": 1}, answer.frame.filter(pl.col("k") == 1)):
        assert answer.provenance(asked)["A"].rows() == [FIRST, SECOND]
    with pytest.raises(PlanError, match="provenance: 'z': codec\\(complex\\): 2 is an int, not a complex"):
        answer.provenance({"z": 2})


class Decoded(str):
    """Text that is written in another way than it was."""

    __slots__ = ()


def test_an_object_that_was_shown_is_found_where_its_bytes_come_out_another_way() -> None:
    texts = sq.codec(str, lambda text: f"{type(text).__name__} {text}".encode(), lambda data: Decoded(data.decode()))
    query = A.group_apply("k", lambda g: g.snapshot_apply(lambda rows: [{"z": "a"}], schema={"z": texts}))
    answer = last(query)
    for row in answer.frame.rows(named=True):
        assert answer.provenance(row)["A"]["k"].unique().to_list() == [row["k"]]


@pytest.mark.parametrize("asked", [4, -5, True, 1.5, "row", A.collect()])
def test_what_is_no_row_is_refused(asked: Any) -> None:
    with pytest.raises(PlanError, match=r"^provenance: .*\nHint: give a dict, such as early.frame.row"):
        last(A).provenance(asked)


# -- files that are not as they were --------------------------------------------------------------------------


@pytest.mark.parametrize("row", [None, 0])
def test_a_file_that_has_changed_since_the_query_began_is_noticed(tmp_path: Path, row: int | None) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("k\n1\n2\n")
    answers = sq.scan(path, name="rows").progressive(sq.progress.rows(1))
    path.write_text("k\n4\n")  # nothing has been read so far
    early = next(answers)
    assert early.provenance(row)["rows"].rows() == [(4,)]
    path.write_text("k\n5\n6\n")
    with pytest.raises(InputError, match=r"rows.csv' has changed since the query began") as refused:
        early.provenance(row)
    assert "Hint: run the query again" in str(refused.value)


def test_a_file_that_is_gone_is_noticed(tmp_path: Path) -> None:
    A.collect().write_parquet(tmp_path / "rows.parquet")
    early = last(sq.scan(tmp_path / "rows.parquet", name="rows"))
    (tmp_path / "rows.parquet").unlink()
    with pytest.raises(InputError, match="has changed since the query began"):
        early.provenance()


@pytest.mark.parametrize("row", [{"a": 1.7}, {"a": pl.Series([1])}, {}, True, 1.0])
def test_what_is_no_row_is_not_rounded_to_one(row: object) -> None:
    answer = last(sq.from_frame({"a": [1, 2]}, name="T").select("a"))
    with pytest.raises(PlanError, match="provenance: "):
        answer.provenance(row)  # type: ignore[arg-type]
    assert answer.provenance(np.int64(1))["T"].rows() == answer.provenance({"a": 2.0})["T"].rows() == [(2,)]  # type: ignore[arg-type]

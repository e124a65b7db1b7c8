"""Spark DataFrames as sources and as answers."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from functools import reduce
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from pyspark.errors import PythonException
from pyspark.sql.functions import udf

import squill as sq
from squill.errors import (
    ClusterError,
    ColumnNotFoundError,
    InputError,
    PlanError,
    ShardError,
    UnsupportedOperatorError,
)
from squill.plan.fragments import fragments_of
from squill.runtime.spark import executors
from squill.runtime.spark.runtime import SparkRuntime
from squill.runtime.spark.shuffle import BATCH_ROWS
from squill.runtime.spark.tables import tables_of, wanted_rows
from squill.testing import assert_same_events
from tests.spark.shared import session_of

pytestmark = pytest.mark.spark

RANDOM = np.random.default_rng(5)
ROWS = 2_000
START = dt.datetime(2024, 3, 1, tzinfo=dt.UTC)
FRAME = pl.DataFrame(
    {
        "ts": [START + dt.timedelta(seconds=int(second)) for second in RANDOM.integers(0, 90_000, ROWS)],
        "ad": [f"ad {number}" if number else None for number in RANDOM.integers(0, 30, ROWS)],
        "price": RANDOM.integers(0, 100, ROWS),
        "unused": ["x" * 20] * ROWS,
    }
)


@pytest.fixture(params=["files", "shuffle"])
def cluster(request: pytest.FixtureRequest, spark_cluster: sq.Cluster, tmp_path: Path) -> sq.Cluster:
    folder = tmp_path if request.param == "files" else None
    return sq.Cluster(SparkRuntime(session_of(spark_cluster), machines=3, cores=1, folder=folder))


LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"


def hourly(group: sq.Stream) -> sq.Stream:
    return group.tumbling_window("1h").aggregate(n=sq.count(), sold=sq.sum("price"))


def in_process() -> pl.DataFrame:
    cheap = sq.from_frame(FRAME, start="ts").where((sq.col("price") < 50) & (sq.col("price") % 7 != 0))
    return cheap.group_apply("ad", hourly).collect()


def test_rows_of_a_dataframe_are_a_source(cluster: sq.Cluster, tmp_path: Path) -> None:
    table = session_of(cluster).createDataFrame(FRAME.to_arrow()).repartition(5)
    rows = cluster.from_spark(table, start="ts")
    assert rows.schema["price"] == pl.Int64()
    cheap = rows.query(lambda s: s.where((sq.col("price") < 50) & (sq.col("price") % 7 != 0)))
    plan = cheap.rekey("ad").redistribute().query(hourly)
    assert_same_events(plan.collect(), in_process())
    assert list(tmp_path.iterdir()) == []
    # Spark itself leaves out what nobody wants, as far as it says the same as Polars.
    ((_, _, source),) = tables_of(fragments_of(plan.plan))
    given = wanted_rows(source)
    assert set(given.columns) == {"ts", "ad", "price"}
    assert given.agg({"price": "max"}).collect()[0][0] == 49


TYPED = """
select cast(0.1 as float) f, cast('nan' as double) d, 7 i, true b, date'2024-03-01' dy, 'x' s,
timestamp'2024-03-01 12:00:00' ts, 'A' collate UTF8_LCASE c
union all select null, null, null, null, null, null, null, null
"""
FILTERS = [
    (sq.col("f") == 0.1, False),
    (sq.col("b") == 1, False),
    (sq.col("i") > 6.5, False),
    (sq.col("dy") > 0, False),
    (sq.col("ts") > 0, False),
    (sq.col("c") != "a", False),
    (sq.col("d") > 1e300, True),
    (sq.col("d") >= 7, True),
    (sq.col("i") != 2**40, True),
    (sq.col("s") <= "x", True),
    (sq.col("b") != pl.lit(False), True),
    (sq.col("ts").is_not_null(), True),
]
"""Each keeps the first row alone; some of them Spark may be asked."""


def test_columns_may_have_any_names(cluster: sq.Cluster) -> None:
    columns = {"a.b": [1, 2], "a`b": [3, 4], "x": ["y", "z"], "X": [5, 6], "a": [7, 8]}
    frame = pl.DataFrame({**columns, "": [9, 10], "column_5": [11, 12]})
    rows = cluster.from_spark(session_of(cluster).createDataFrame(frame.to_arrow()))
    assert_same_events(rows.collect(), frame)
    kept = filtered(rows, (sq.col("a.b") > 1) & (sq.col("X") == 6) & sq.col("a`b").is_not_null())
    assert kept.query(lambda s: s.select("a", "x", "")).collect().to_dicts() == [{"a": 8, "x": "z", "": 10}]
    assert_same_events(pl.DataFrame(rows.rekey("").redistribute().to_spark().toArrow().to_pydict()), frame)


def test_rows_are_counted_where_no_column_is_read(cluster: sq.Cluster) -> None:
    rows = cluster.from_spark(session_of(cluster).range(0, 50, 1, 5).selectExpr("id", "id % 2 as odd"))
    assert rows.query(lambda s: s.aggregate(n=sq.count())).collect()["n"].sum() == 50
    assert filtered(rows, sq.col("odd") == 1).query(lambda s: s.select(one=pl.lit(1))).collect().height == 25


def test_filters_that_spark_has_not_leave_rows_out_too(cluster: sq.Cluster) -> None:
    rows = cluster.from_spark(session_of(cluster).range(0, 50, 1, 5).selectExpr("id", "id % 2 as odd"))
    some = filtered(rows, sq.col("id").cast(pl.String).str.contains("7"))  # of rows without times
    assert some.rekey("odd").redistribute().query(lambda s: s.count()).collect().rows() == [(1, 5)]
    assert some.to_spark().count() == 5


def filtered(rows: sq.ShardedStream, condition: pl.Expr) -> sq.ShardedStream:
    return rows.query(lambda s: s.where(condition))


def test_spark_filters_where_it_compares_as_polars_does(spark_cluster: sq.Cluster) -> None:
    rows = spark_cluster.from_spark(session_of(spark_cluster).sql(TYPED).coalesce(1))
    given = []
    for number, (condition, _) in enumerate(FILTERS):
        ((_, _, source),) = tables_of(fragments_of(filtered(rows, condition).plan))
        given.append(wanted_rows(source).selectExpr(f"{number} as number"))
    left = Counter(row["number"] for row in reduce(lambda one, other: one.union(other), given).collect())
    assert [left[number] == 1 for number in range(len(FILTERS))] == [is_pushed for _, is_pushed in FILTERS]
    every = reduce(lambda one, other: one & other, [condition for condition, _ in FILTERS])
    assert filtered(rows, every).collect().height == 1


def test_answer_is_a_dataframe(cluster: sq.Cluster) -> None:
    rows = cluster.from_frame(FRAME, start="ts")
    cheap = rows.query(lambda s: s.where((sq.col("price") < 50) & (sq.col("price") % 7 != 0)))
    table = cheap.rekey("ad").redistribute().query(hourly).to_spark()
    assert table.columns == ["start", "end", "ad", "n", "sold"]
    found = pl.from_arrow(table.toArrow())
    assert isinstance(found, pl.DataFrame)
    utc = [pl.col(name).dt.convert_time_zone("UTC") for name in ("start", "end")]
    assert_same_events(found.with_columns(utc), in_process())
    assert table.groupBy().sum("n").collect()[0][0] == in_process()["n"].sum()


def test_answer_may_be_put_together_with_others(cluster: sq.Cluster, tmp_path: Path) -> None:
    FRAME.write_parquet(tmp_path / "scanned.parquet")
    once = FRAME.group_by("ad").len().sort("ad", nulls_last=True).rows()
    other = session_of(cluster).createDataFrame([("other", 1)], "ad string, len bigint")
    for rows in (cluster.from_frame(FRAME), cluster.scan(tmp_path / "scanned.parquet")):
        answer = rows.rekey("ad").redistribute().query(lambda ad: ad.aggregate(len=sq.count())).to_spark()
        # Spark numbers the tasks of such DataFrames otherwise than those of the answer alone.
        for table, expected in (
            (other.union(answer), [*once, ("other", 1)]),
            (answer.union(answer), [*once, *once]),
            (answer.coalesce(1), once),
        ):
            assert Counter(map(tuple, table.collect())) == Counter(expected)


def test_session_whose_batches_have_no_end_is_said(spark_cluster: sq.Cluster) -> None:
    settings = session_of(spark_cluster).conf
    before = settings.get(BATCH_ROWS)
    settings.set(BATCH_ROWS, "-1")
    try:
        with pytest.raises(ClusterError, match=r"maxRecordsPerBatch is -1 in the .*\nHint: session\.conf\.set"):
            spark_cluster.from_frame(FRAME).to_spark()
    finally:
        settings.set(BATCH_ROWS, before)


def test_session_may_have_large_types(cluster: sq.Cluster) -> None:
    rows = cluster.from_frame(FRAME).rekey("ad").redistribute().query(lambda ad: ad.aggregate(len=sq.count()))
    settings = session_of(cluster).conf
    settings.set(LARGE_TYPES, "true")
    try:
        assert len(rows.to_spark().collect()) == rows.collect().height == FRAME["ad"].n_unique()
    finally:
        settings.unset(LARGE_TYPES)


def test_rows_of_a_dataframe_may_go_straight_into_another(spark_cluster: sq.Cluster) -> None:
    table = session_of(spark_cluster).createDataFrame([(5, 2, "a"), (6, 3, "b")], "t bigint, k bigint, x string")
    rows = spark_cluster.from_spark(table, start="t")
    assert [tuple(row) for row in rows.to_spark().orderBy("k").collect()] == [(5, 6, 2, "a"), (6, 7, 3, "b")]
    both = rows.query(lambda s: s.select("k")).union(spark_cluster.from_frame({"t": [1], "k": [1]}, start="t"))
    assert sorted(row["k"] for row in both.to_spark().collect()) == [1, 2, 3]


def test_relational_dataframes_join(cluster: sq.Cluster) -> None:
    session = session_of(cluster)
    left = cluster.from_spark(session.createDataFrame([(1, "a"), (2, "b")], "k bigint, x string")).rekey("k")
    right = cluster.from_frame({"k": [2, 3], "y": [5, 6]}).rekey("k")
    joined = left.redistribute().query(right.redistribute(), lambda one, other: one.join(other))
    assert [tuple(row) for row in joined.to_spark().collect()] == [(2, "b", 5)]


def poisoned(rows: sq.Stream) -> sq.Stream:
    # Not of this module, which workers do not have: it goes along as it is.
    def fail(_: object) -> dict[str, list[int]]:
        raise ValueError("seven is poison")

    return rows.map_batches(fail, schema={"x": pl.Int64})


FAILING: dict[str, tuple[Callable[[sq.Stream], sq.Stream], str, str]] = {
    "overflow": (
        lambda s: s.with_duration(50).sum("x"),
        r"NumericOverflowError: fragment 1, shard \d of 3, aggregate: .* the sum leaves the 64-bit range at time \d+",
        "sum a Float64 or a Decimal instead",
    ),
    "function": (
        poisoned,
        r"UserFunctionError: fragment 1, shard \d of 3, map_batches: .* seven is poison; the first row was {'x': \d+}",
        "the function must turn each row",
    ),
}


@pytest.mark.parametrize("name", FAILING)
def test_error_reaches_who_asks_for_the_rows(cluster: sq.Cluster, name: str) -> None:
    query, text, hint = FAILING[name]
    frame = {"t": list(range(100)), "x": [2**62] * 100}
    table = cluster.from_frame(frame, start="t").query(query).to_spark()
    with pytest.raises(PythonException, match=rf"\nsquill.errors.{text}\nHint: {hint}") as caught:
        table.collect()
    assert "squill-error:" not in str(caught.value)


def test_types_that_spark_has_not_become_wider(cluster: sq.Cluster) -> None:
    frame = pl.DataFrame({"a": [255], "b": [2**64 - 1]}, schema={"a": pl.UInt8(), "b": pl.UInt64()})
    (row,) = cluster.from_frame(frame).to_spark().collect()
    assert (row["a"], int(row["b"])) == (255, 2**64 - 1)
    nano = pl.DataFrame({"t": [1]}).select(pl.col("t").cast(pl.Datetime("ns")))
    with pytest.raises(PlanError, match=r"to_spark: the column 'start' has nanoseconds"):
        cluster.from_frame(nano, start="t").to_spark()


TICK = dt.timedelta(milliseconds=5)
NESTED = {
    "tick": pl.Series([TICK], dtype=pl.Duration("ms")),
    "times": pl.Series([[START, None]], dtype=pl.List(pl.Datetime("ms", "UTC"))),
    "words": pl.Series([["a", None]], dtype=pl.List(pl.Enum(["a"]))),
    "pair": pl.Series([["a", "b"]], dtype=pl.Array(pl.Categorical, 2)),
    "nothing": pl.Series([[None]], dtype=pl.List(pl.Null)),
    "map": pl.Series([{"a": 255}], dtype=pl.Map(pl.String, pl.UInt8)),
    "both": pl.Series([{"x": 255, "y": [TICK]}], dtype=pl.Struct({"x": pl.UInt8, "y": pl.List(pl.Duration("ms"))})),
}


def test_types_in_lists_structs_and_maps_become_those_of_spark(spark_cluster: sq.Cluster) -> None:
    frame = pl.DataFrame(NESTED)
    table = spark_cluster.from_frame(frame).to_spark()
    assert dict(table.dtypes)["both"] == "struct<x:smallint,y:array<interval day to second>>"
    found = pl.from_arrow(table.toArrow())
    assert isinstance(found, pl.DataFrame)
    assert found.to_dicts() == frame.to_dicts()


UNKNOWN = {
    pl.Datetime("ns"): r"has nanoseconds, which Spark has not\nHint: cast it before, for instance with sq.col\('x'\)",
    pl.Duration("ns"): r"has nanoseconds, .*\.cast\(pl.Duration\(time_unit='us'\)\)",
    pl.List(pl.Struct({"a": pl.Duration("ns")})): "has nanoseconds",
    pl.List(pl.Float16()): r"is List\(Float16\), which has no counterpart in Spark\nHint: cast it before, or",
    pl.Map(pl.Enum(["a"]), pl.Int8()): "is Map.*, which has no counterpart in Spark",
    pl.Map(pl.String(), pl.Time()): "is Map.*, which has no counterpart in Spark",
}


def test_types_that_no_type_of_spark_can_hold_are_refused(spark_cluster: sq.Cluster) -> None:
    for dtype, text in UNKNOWN.items():
        with pytest.raises(PlanError, match=rf"(?s)^to_spark: the column 'x' {text}"):
            spark_cluster.from_frame(pl.DataFrame(schema={"x": dtype})).to_spark()
    nano = pl.DataFrame(schema={"t": pl.Datetime("ns")})
    with pytest.raises(PlanError, match=r'^to_spark: the column \'start\' has .* not\nHint: use cast_time\("us"\)'):
        spark_cluster.from_frame(nano, start="t").to_spark()


def test_a_column_of_nulls_stays_one(spark_cluster: sq.Cluster) -> None:
    nothing = pl.DataFrame({"x": [1], "n": [None], "l": [[None]]})
    table = spark_cluster.from_frame(nothing).to_spark()
    assert table.dtypes == [("x", "bigint"), ("n", "void"), ("l", "array<void>")]
    assert spark_cluster.from_spark(table).collect().equals(nothing)


def test_times_of_day_go_to_spark_unless_it_would_cut_them(spark_cluster: sq.Cluster) -> None:
    times = pl.Series("t", [3_000, None], dtype=pl.Time)
    kept = pl.DataFrame([times, pl.Series("l", [[3_000], []], dtype=pl.List(pl.Time))])
    assert [row["t"] for row in spark_cluster.from_frame(kept).to_spark().collect()] == [dt.time(0, 0, 0, 3), None]
    nested = pl.Struct({"a": pl.List(pl.Time)})
    for cut in (pl.Series("x", [3_001], dtype=pl.Time), pl.Series("x", [{"a": [0, 3_001]}], dtype=nested)):
        table = spark_cluster.from_frame(pl.DataFrame([cut])).to_spark()
        with pytest.raises(PythonException, match=r"the column 'x' has the time of day 00:00:00.000003001, and Spark"):
            table.collect()


def test_lists_are_those_of_spark(cluster: sq.Cluster) -> None:
    """Spark reads neither large lists nor those of one length, which is what Polars has."""
    frame = pl.DataFrame(
        {"k": [1, 1, 2], "x": [5, 6, 7], "a": pl.Series([[1, 2], [3, None], None], dtype=pl.Array(pl.Int64, 2))}
    )
    lists = sq.from_frame(frame).group_aggregate(
        "k", l=sq.collect_list("x"), a=sq.collect_list("a"), t=sq.top_k("x", 1)
    )
    rows = cluster.sharded(lists).to_spark().orderBy("k").collect()
    assert [row.asDict(recursive=True) for row in rows] == lists.collect(sort=True).to_dicts()


def test_what_is_no_table_of_spark_is_refused(cluster: sq.Cluster) -> None:
    with pytest.raises(PlanError, match="from_spark: a DataFrame is no DataFrame of Spark\nHint: from_frame takes"):
        cluster.from_spark(pl.DataFrame({"t": [1]}), start="t")
    with pytest.raises(PlanError, match="from_spark: two columns are called 'id'"):
        cluster.from_spark(session_of(cluster).range(3).selectExpr("id", "id"))
    with pytest.raises(PlanError, match=r"from_spark: the column 'y' is interval year, which has no .*\nHint: cast it"):
        cluster.from_spark(session_of(cluster).sql("select 1 as id, interval '1' year as y"))
    with pytest.raises(PlanError, match="from_spark: the DataFrame has no columns\nHint: select one"):
        cluster.from_spark(session_of(cluster).range(3).select())
    with pytest.raises(PlanError, match=r"from_spark: the DataFrame is a streaming one, .*\nHint: cluster\.stream\(df"):
        cluster.from_spark(session_of(cluster).readStream.format("rate").load(), start="timestamp")


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("parse_json('[1]')", "variant"),
        ("array(map(1, parse_json('[1]')))", r"array<map<int,variant>>"),
        ("st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')", r"geometry\(.*\)"),
        ("named_struct('a', 1, 'a', 2)", r"struct<a:int,a:int>"),
    ],
)
def test_types_that_only_spark_can_read_are_refused(spark_cluster: sq.Cluster, column: str, kind: str) -> None:
    table = session_of(spark_cluster).sql(f"select 1 as id, struct({column} as inner) as x, {column} as y")
    with pytest.raises(PlanError, match=rf"from_spark: the column 'x' is struct<inner:{kind}>, which has no "):
        spark_cluster.from_spark(table)
    with pytest.raises(PlanError, match=rf"from_spark: the column 'y' is {kind}, which has no counterpart"):
        spark_cluster.from_spark(table.drop("x"))


def test_what_made_a_dataframe_fail_is_said(cluster: sq.Cluster) -> None:
    @udf("bigint")
    def fail(number):  # type: ignore[no-untyped-def]  # Spark reads types otherwise than they are meant
        raise ValueError(f"no such number: {number}")

    table = session_of(cluster).range(7, 8, 1, 1).select(fail("id").alias("id"))
    with pytest.raises(
        ShardError, match=r"a Spark task failed: ValueError: no such number: 7\nHint: Spark's own error, "
    ):
        cluster.from_spark(table).collect()
    table = session_of(cluster).sql("select assert_true(id < 7) from range(7, 8, 1, 1)")
    with pytest.raises(ShardError, match=r"failed: \[USER_RAISED_EXCEPTION\] .*\nHint: Spark's own error is"):
        cluster.from_spark(table).collect()

    def import_more(_):  # type: ignore[no-untyped-def]
        raise ModuleNotFoundError("No module named 'more'")

    table = session_of(cluster).range(7, 8, 1, 1).select(udf(import_more, "bigint")("id").alias("id"))
    with pytest.raises(ShardError, match=r"No module named 'more'\nHint: install 'more' where .*addPyFile\(path\)\.$"):
        cluster.from_spark(table).collect()


def test_error_in_a_row_names_the_input(cluster: sq.Cluster) -> None:
    table = session_of(cluster).sql("select cast(null as timestamp) ts, 1 id")
    with pytest.raises(InputError, match=r"^fragment 1, shard 0 of 3: input 'clicks': the start time 'ts' is null in"):
        cluster.from_spark(table, start="ts", name="clicks").collect()


def test_wrong_column_lists_near_names(cluster: sq.Cluster) -> None:
    table = session_of(cluster).range(3)
    with pytest.raises(ColumnNotFoundError, match="from_spark: start: there is no column 'ids'"):
        cluster.from_spark(table, start="ids")


def test_local_clusters_have_no_session(spark_cluster: sq.Cluster) -> None:
    with sq.local(cores=1) as local:
        with pytest.raises(ClusterError, match="from_spark: this cluster has no Spark session"):
            local.from_spark(session_of(spark_cluster).range(3))
        with pytest.raises(ClusterError, match="to_spark: this cluster has no Spark session"):
            local.from_frame({"a": [1]}).to_spark()


def test_check_says_what_the_executors_have(cluster: sq.Cluster) -> None:
    assert f"polars {pl.__version__}" in cluster.check()


def test_check_says_what_is_missing(cluster: sq.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squill.runtime.spark.executors.PACKAGES", ("squill", "no-such-package"))
    monkeypatch.setattr(
        "squill.runtime.spark.executors.versions",
        lambda packages: {"python": "3.11.0", "squill": "999", "no-such-package": "1.0"},
    )
    with pytest.raises(
        ClusterError, match=r"(?s)no-such-package is missing.*the driver has 999.*PYSPARK_PYTHON=.*pip install"
    ):
        cluster.check()


def test_check_says_who_does_not_see_the_folder(
    cluster: sq.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stands for a folder of that name which each machine has for itself: what is put into it here is not there."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.setattr(cluster.runtime, "folder", folder)
    assert "1 host" in cluster.check()
    assert list(folder.iterdir()) == []
    monkeypatch.setattr(executors, "_probe_in", lambda _: nullcontext(str(folder / "elsewhere")))
    with pytest.raises(ClusterError, match=r"does not see a file .*'.*folder'\nHint: name one that all machines"):
        cluster.check()
    monkeypatch.undo()
    monkeypatch.setattr(cluster.runtime, "folder", tmp_path / "gone")
    with pytest.raises(ClusterError, match=r"check: the folder '.*gone' .* cannot be written to: No such file"):
        cluster.check()


def test_early_answers_ask_for_stored_rows(spark_cluster: sq.Cluster) -> None:
    rows = spark_cluster.from_spark(session_of(spark_cluster).range(20).selectExpr("id u"))
    with pytest.raises(
        UnsupportedOperatorError, match="is a Spark DataFrame, whose rows are in no fixed order\nHint: store"
    ):
        rows.query(lambda s: s.aggregate(n=sq.count())).progressive(sq.progress.hashed("u", 3))


def test_python_objects_are_refused_before_tasks_are_sent(spark_cluster: sq.Cluster) -> None:
    frame = pl.DataFrame({"k": [1], "z": pl.Series([1j], dtype=pl.Object)})
    with pytest.raises(PlanError, match=r"input .*: the column 'z' is Object, which cannot cross shards"):
        spark_cluster.from_frame(frame).collect()

"""Sums over relational data: their types, and what leaves 64 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.engine.batch import Batch
from squill.engine.egress import CollectSink
from squill.engine.operator import STARTS
from squill.engine.operators import relational_aggregate
from squill.engine.operators.aggregate import aggregate_operator
from squill.engine.operators.relational_aggregate import RelationalAggregateOperator
from squill.errors import NumericOverflowError
from squill.testing import assert_same_events
from squill.time import INFINITY

MOST = 2**63 - 1
LEAST = -(2**63)


def whole(x: pl.Series, **options: Any) -> pl.Series:
    return sq.from_frame(pl.DataFrame({"x": x})).aggregate(s=sq.sum("x", **options)).collect()["s"]


def grouped(x: pl.Series, **options: Any) -> pl.Series:
    frame = pl.DataFrame({"x": x}).with_columns(k=pl.lit("a"))
    return sq.from_frame(frame).group_aggregate("k", s=sq.sum("x", **options)).collect()["s"]


@pytest.mark.parametrize("total", [whole, grouped])
class TestSums:
    @pytest.mark.parametrize("values", [[MOST, 1], [LEAST, -1], [None, MOST, 1, None], [MOST] * 5, [2**62] * 2])
    def test_a_sum_that_leaves_64_bits_is_refused(self, total: Any, values: list[int | None]) -> None:
        with pytest.raises(NumericOverflowError, match=r"aggregate sum\(x\): the sum leaves the 64-bit range"):
            total(pl.Series(values))

    @pytest.mark.parametrize(
        "values",
        [[MOST, MOST, LEAST, LEAST + 1], [MOST], [LEAST], [LEAST, -5, 5], [None, MOST, -1], [2**62, 2**62, -1]],
    )
    def test_only_the_true_value_counts(self, total: Any, values: list[int | None]) -> None:
        answer = total(pl.Series(values))
        assert answer.dtype == pl.Int64
        assert answer.to_list() == [sum(value or 0 for value in values)]

    def test_values_that_the_condition_leaves_out_do_not_count(self, total: Any) -> None:
        assert total(pl.Series([MOST, 5, 6]), where=sq.col("x") < 10).to_list() == [11]

    @pytest.mark.parametrize("dtype", [pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32])
    def test_short_integers_are_added_in_64_bits(self, total: Any, dtype: Any) -> None:
        largest = dtype.max()
        top = pl.select(largest).item()
        answer = total(pl.Series([top, top, None, top], dtype=dtype))
        assert answer.dtype == pl.Int64
        assert answer.to_list() == [3 * top]

    def test_nulls_alone_sum_to_nothing(self, total: Any) -> None:
        assert total(pl.Series([None, None], dtype=pl.Int64)).to_list() == [0]


def test_exact_and_other_aggregates_stand_in_the_order_they_were_asked() -> None:
    frame = pl.DataFrame({"x": [1, 2, None], "y": [0.5, 1.5, 2.0]})
    answer = sq.from_frame(frame).aggregate(
        n=sq.count(), a=sq.sum("x"), b=sq.sum("y"), c=sq.sum("x") * 2, m=sq.max("x"), v=sq.count_not_null("x")
    )
    assert answer.collect().to_dicts() == [{"n": 3, "a": 3, "b": 4.0, "c": 6, "m": 2, "v": 2}]


@pytest.mark.parametrize("batch_rows", [1, 2, 5])
def test_the_pieces_rows_come_in_do_not_matter(batch_rows: int) -> None:
    stream = sq.from_frame({"x": [MOST, MOST, LEAST, LEAST, 7]}).aggregate(s=sq.sum("x"))
    assert stream.collect(batch_rows=batch_rows).rows() == [(5,)]


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("rows", [[None], [None, None], [None, 3.0], [3.0]])
def test_spread_of_few_values(rows: list[float | None], ddof: int) -> None:
    frame = pl.DataFrame({"k": [1] * len(rows), "x": pl.Series(rows, dtype=pl.Float64)})
    spread = {"v": sq.var("x", ddof=ddof), "s": sq.std("x", ddof=ddof)}
    expected = 0.0 if ddof == 0 and 3.0 in rows else None
    assert sq.from_frame(frame).aggregate(**spread).collect().rows() == [(expected, expected)]
    assert sq.from_frame(frame).group_aggregate("k", **spread).collect().rows() == [(1, expected, expected)]


class TestMoreThanIsHeld:
    """Rows of files, of other shards or of joins go to the incremental fold once they are many."""

    @pytest.fixture
    def folds(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        made: list[Any] = []
        begin = RelationalAggregateOperator._begin_fold

        def noted(self: RelationalAggregateOperator) -> Any:
            made.append(self)
            return begin(self)

        monkeypatch.setattr(RelationalAggregateOperator, "_begin_fold", noted)
        monkeypatch.setattr(relational_aggregate, "HELD_BYTES", 8_000)
        return made

    @staticmethod
    def _query(source: sq.Stream) -> pl.DataFrame:
        totals = source.group_aggregate("k", n=sq.count(), s=sq.sum("x"), m=sq.max("x"), a=sq.mean("x"))
        return totals.collect(batch_rows=100).sort("k")

    FRAME = pl.DataFrame({"k": [i % 7 for i in range(2_000)], "x": list(range(2_000)), "unused": ["u"] * 2_000})

    def test_files(self, folds: list[Any], tmp_path: Path) -> None:
        self.FRAME.write_parquet(tmp_path / "rows.parquet", row_group_size=100)
        expected = self._query(sq.from_frame(self.FRAME))
        assert not folds
        assert self._query(sq.scan(tmp_path / "rows.parquet")).equals(expected)
        assert len(folds) == 1

    def test_few_rows_of_files_stay_with_polars(self, folds: list[Any], tmp_path: Path) -> None:
        self.FRAME.head(500).write_parquet(tmp_path / "rows.parquet")
        assert self._query(sq.scan(tmp_path / "rows.parquet"))["n"].sum() == 500
        assert not folds

    def test_rows_of_other_shards(self, folds: list[Any]) -> None:
        with sq.local(cores=2) as cluster:
            whole = cluster.from_frame(self.FRAME).rekey("k").redistribute()
            answer = whole.query(lambda s: s.aggregate(s=sq.sum("x"), v=sq.var("x"))).collect()
        assert len(folds) == 2
        assert answer["s"].sum() == sum(range(2_000))

    def test_a_join(self, folds: list[Any]) -> None:
        left, right = sq.from_frame(self.FRAME), sq.from_frame(pl.DataFrame({"k": [0, 1] * 40}))
        answer = left.join(right, on="k").group_aggregate("k", n=sq.count()).collect(batch_rows=100)
        assert len(folds) == 1
        assert sorted(answer.rows()) == [(0, 40 * 286), (1, 40 * 286)]

    def test_what_is_held_or_folded_is_saved(self, folds: list[Any]) -> None:
        node = sq.from_frame(self.FRAME).group_aggregate("k", n=sq.count(), s=sq.sum("x")).plan
        for pushes in (1, 30):
            (operator, sink), (other, other_sink) = self._limited(node), self._limited(node)
            columns = {name: self.FRAME[name][:100] for name in ("k", "x")}
            for _ in range(pushes):
                operator.push(Batch.relational(columns, 100))
            other.load(operator.save())
            assert other.state_rows == operator.state_rows == (7 if folds else 100)
            operator.advance(INFINITY)
            other.advance(INFINITY)
            assert_same_events(sink.frame(), other_sink.frame())
            assert sink.frame()["n"].sum() == 100 * pushes

    @staticmethod
    def _limited(node: Any) -> tuple[RelationalAggregateOperator, CollectSink]:
        operator, sink = aggregate_operator(node), CollectSink(node)
        assert isinstance(operator, RelationalAggregateOperator)
        operator._is_limited = True
        operator.consumers.append((sink, 0))
        operator.demand = STARTS
        return operator, sink


def test_constants_are_aggregated_once_for_each_row() -> None:
    rows = sq.from_frame({"k": [0, 1, 1]})
    assert rows.aggregate(c=sq.sum(pl.lit(2))).collect().rows() == [(6,)]
    assert rows.aggregate(c=sq.count(where=pl.lit(True)), n=sq.count(where=pl.lit(False))).collect().rows() == [(3, 0)]
    assert rows.group_aggregate("k", c=sq.sum(pl.lit(2))).collect(sort=True).rows() == [(0, 2), (1, 4)]

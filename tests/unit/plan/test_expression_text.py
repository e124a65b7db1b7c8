"""Expressions survive as text, with the numbers that JSON does not have."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import polars as pl
import pytest

import squill as sq
from squill.errors import PlanError
from squill.plan import expression_text
from squill.plan.expression_text import LostLiteralError, deserialise, serialise
from squill.plan.expressions import Scope, bind, bind_one
from squill.plan.schema import Schema
from squill.plan.serialise import dumps, loads
from squill.testing import assert_same_events, reference

NAN, INF = math.nan, math.inf
X = pl.col("x")
SCOPE = Scope(Schema({"x": pl.Float64(), "f": pl.Float32(), "n": pl.Int64()}), None, ends_known=True)

EXPRESSIONS = {
    "compared": X < INF,
    "two": X.clip(-INF, INF),
    "the same number as a stand-in": (X > 5_000_000.0) & (X < INF) & (X < 5_000_001.0),
    "stand-ins of every kind": (X > 5_000_000.0) & (pl.col("f") < pl.lit(INF, dtype=pl.Float32)) & (X > -INF),
    "typed": pl.lit(-INF, dtype=pl.Float64),
    "narrow": pl.lit(NAN, dtype=pl.Float32),
    "half": pl.lit(NAN, dtype=pl.Float16),
    "null beside NaN": pl.coalesce(pl.lit(None, dtype=pl.Float64), X, NAN),
    "either": pl.when(X > 0).then(NAN).otherwise(-INF),
    "table": X.is_in([NAN, 1.0, None]),
    "replaced": X.replace({NAN: 1.0, 2.0: -INF}),
    "tolerance": X.is_close(1.0, abs_tol=INF),
    "struct": pl.lit({"a": NAN, "b": [INF]}),
    "in a list": pl.concat_list(X).list.eval(pl.element() * -INF),
    "many arguments": pl.max_horizontal(*[X + number for number in range(70)], -INF),
    "text that looks like one": pl.lit("NaN Infinity") + pl.lit('"Float":null'),
    "none": X + 1.5,
    "named beyond ASCII": pl.col("größe") * 2,
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_text_and_back_is_the_same_expression(name: str) -> None:
    expr = EXPRESSIONS[name]
    back = deserialise(serialise(expr))
    assert back.meta.serialize() == expr.meta.serialize()
    assert serialise(back) == serialise(expr)


def test_every_nan_has_one_text() -> None:
    odd_nan = struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0]
    assert serialise(pl.lit(odd_nan)) == serialise(pl.lit(NAN))


def test_nan_null_and_the_infinities_are_different_expressions() -> None:
    literals = [pl.lit(value, dtype=pl.Float64) for value in (NAN, None, INF, -INF, 0.0, -0.0)]
    bound = [bind_one(X.fill_null(literal), SCOPE, "select") for literal in literals]
    assert len(set(bound)) == len(literals)
    assert len({bind_one(X.fill_null(NAN), SCOPE, "select") for _ in range(3)}) == 1


def test_a_column_has_one_text_however_it_is_named() -> None:
    scope = Scope(Schema({"größe": pl.Int64()}), None, ends_known=True)
    assert bind_one("größe", scope, "select") == bind_one(pl.col("größe"), scope, "select")


def test_wildcards_expand_beside_lost_literals() -> None:
    several = bind([pl.all().fill_null(INF)], {}, SCOPE, "select")
    frame = pl.DataFrame({"x": [None, 1.0], "f": [2.0, None], "n": [None, 3]}, schema=dict(SCOPE.schema))
    assert frame.select(item.expr for item in several).equals(frame.select(pl.all().fill_null(INF)))
    assert [item.dtype for item in several] == [pl.Float64(), pl.Float32(), pl.Float64()]


def test_expressions_travel_to_other_processes() -> None:
    expression = bind_one(X > -INF, SCOPE, "where")
    back = loads(dumps(expression))
    assert back == expression
    assert back.expr.meta.eq(expression.expr)


@pytest.mark.parametrize("damage", [lambda form: form + b"\x00", lambda form: b"\x00" + form[1:]])
def test_a_binary_form_that_is_not_the_known_one_is_refused(
    damage: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = expression_text._with_stand_ins
    monkeypatch.setattr(expression_text, "_with_stand_ins", lambda *args: (damage(known(*args)[0]), known(*args)[1]))
    with pytest.raises(LostLiteralError, match="binary form"):
        serialise(X < INF)
    with pytest.raises(PlanError, match=r"where: .* not finite where a plan cannot keep it(.|\n)*is_nan"):
        bind_one(X < INF, SCOPE, "where")


def test_stand_ins_that_are_all_in_use_are_refused() -> None:
    used = [float(number) == X for number in expression_text.FIRST_NUMBERS]
    with pytest.raises(LostLiteralError, match="told apart"):
        serialise(pl.any_horizontal(*used, X < INF))


def test_queries_give_what_polars_gives() -> None:
    values = [NAN, INF, -INF, None, 1.0]
    stream = sq.from_frame({"t": range(5), "x": values}, start="t")
    query = (
        stream.where((sq.col("x") < INF) | sq.col("x").is_null())
        .with_columns(y=sq.col("x").fill_null(NAN), z=pl.when(sq.col("x") > -INF).then(INF).otherwise(NAN))
        .aggregate(n=sq.count(where=sq.col("y") != NAN), top=sq.max("z") - INF, s=sq.sum("z", where=sq.col("z") < NAN))
    )
    assert_same_events(query.collect(), reference.run(query))
    rows = query.collect().rows()
    assert [(start, n, s) for start, _, n, _, s in rows] == [(2, 1, 0.0), (3, 0, 0.0), (4, 1, INF)]
    assert math.isnan(rows[0][3])


def test_a_filter_with_infinity_moves_into_a_scan(tmp_path: object) -> None:
    path = f"{tmp_path}/a.parquet"
    pl.DataFrame({"t": [1, 2, 3], "x": [1.0, INF, NAN]}).write_parquet(path)
    query = sq.scan(path, start="t").where(sq.col("x") < INF).where(sq.col("x") > -INF)
    assert "where" not in query.explain("rewritten")
    assert query.collect().rows() == [(1, 2, 1.0)]

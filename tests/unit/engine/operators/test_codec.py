"""Columns of Python objects."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import polars as pl
import pytest

import squill as sq
from squill.errors import PlanError, UserFunctionError
from tests.unit.engine.operators.rows import points


@dataclass(frozen=True)
class Model:
    weight: int


MODEL = sq.codec(Model, pickle.dumps, pickle.loads)


def train(frame: pl.DataFrame) -> pl.DataFrame:
    return pl.DataFrame({"model": pl.Series([Model(x) for x in frame["x"]], dtype=pl.Object)})


def weigh(frame: pl.DataFrame) -> pl.DataFrame:
    return pl.DataFrame({"w": [model.weight for model in frame["model"]]})


def test_objects_pass_from_one_function_to_the_next() -> None:
    trained = points(1, 2, x=[5, 6]).map_batches(train, schema={"model": MODEL})
    assert trained.map_batches(weigh, schema={"w": pl.Int64}).collect().rows() == [(1, 2, 5), (2, 3, 6)]


def test_collect_gives_the_objects_back() -> None:
    trained = points(1, x=[5]).map_batches(train, schema={"model": MODEL}).rename({"model": "m"})
    assert trained.collect()["m"].to_list() == [Model(5)]


def test_objects_wait_in_operators_as_bytes() -> None:
    trained = points(1, 2, x=[5, 6]).map_batches(train, schema={"model": MODEL})
    assert trained.session_window(5).collect()["model"].to_list() == [Model(5), Model(6)]


def test_objects_without_a_codec_are_refused_when_the_plan_is_built() -> None:
    with pytest.raises(PlanError, match=r"map_batches: the column 'model' holds Python objects(.|\n)*sq\.codec"):
        points(1, x=[5]).map_batches(train, schema={"model": pl.Object})


def test_value_of_another_type_is_refused() -> None:
    def wrong(frame: pl.DataFrame) -> pl.DataFrame:
        return pl.DataFrame({"model": pl.Series(["text"] * frame.height, dtype=pl.Object)})

    with pytest.raises(UserFunctionError, match=r"codec\(Model\): 'text' is a str, not a Model"):
        points(1, x=[5]).map_batches(wrong, schema={"model": MODEL}).collect()


def test_select_many_encodes_too() -> None:
    query = points(1, x=[2]).select_many(lambda row: [{"model": Model(row["x"])}] * 2, schema={"model": MODEL})
    assert query.collect()["model"].to_list() == [Model(2), Model(2)]

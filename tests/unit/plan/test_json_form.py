"""Plans as text: every kind of value, what is shared, what is refused."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import NotRowWiseError, PlanError
from squill.plan.json_form import KINDS, OF_A_PROCESS
from squill.plan.node import Node, walk
from squill.plan.nodes.live import AnyInput
from squill.plan.nodes.movement import Move, ShardInput, Split
from squill.plan.nodes.progress import EachStep, ProgressSource
from squill.plan.nodes.sources import FedSource, FileSource, GivenSource, Source
from squill.plan.nodes.tables import SpooledSource, TableSource
from squill.plan.nodes.two_inputs import TwoInputs

EVENTS = sq.from_frame({"t": [1, 2, 5], "k": ["a", "b", "a"], "x": [1.5, 2.5, None]}, start="t")


def again(stream: sq.Stream, *, allow_code: bool = False) -> sq.Stream:
    return sq.from_json(stream.to_json(allow_code=allow_code), allow_code=allow_code)


def changed(stream: sq.Stream, change: Any) -> str:
    content = json.loads(stream.to_json())
    change(content)
    return json.dumps(content)


def test_every_node_that_users_make_has_a_form_or_a_reason() -> None:
    abstract = {Source, GivenSource, TwoInputs}
    made_by_runtimes = {Split, Move, ShardInput, FedSource, SpooledSource, AnyInput, ProgressSource, EachStep}

    def below(kind: type[Node]) -> set[type[Node]]:
        return {kind}.union(*(below(item) for item in kind.__subclasses__() if item.__module__.startswith("squill")))

    concrete = {kind for kind in below(Node) if not kind.__subclasses__() or kind in (FileSource, TableSource)}
    assert concrete - abstract - made_by_runtimes == {
        kind for kind in (*KINDS.values(), *OF_A_PROCESS) if issubclass(kind, Node)
    }


def test_files_are_named(tmp_path: Path) -> None:
    pl.DataFrame({"t": [1, 2], "x": [3, 4]}).write_parquet(tmp_path / "rows.parquet")
    stream = sq.scan(tmp_path / "rows.parquet", start="t").where(sq.col("x") > 3)
    assert "rows.parquet" in stream.to_json()
    assert again(stream).collect().rows() == [(2, 3, 4)]


def test_what_is_used_twice_stays_one() -> None:
    shared = EVENTS.with_duration(3)
    plan = again(shared.union(shared.where(sq.col("x") > 2))).plan
    assert len([node for node in walk(plan) if node.name == "with_duration"]) == 1
    assert len([node for node in walk(plan) if node.name == "frame_source"]) == 1


@pytest.mark.parametrize(
    "literal",
    [
        1, 2.5, float("nan"), float("inf"), -float("inf"), "text", True, b"\x00\xff", dt.date(2020, 1, 2),
        Decimal("1.50"), dt.datetime(2020, 1, 2, 3, 4, 5, 6), dt.timedelta(microseconds=7), dt.time(1, 2, 3),
    ],
    ids=str,
)  # fmt: skip
def test_literals(literal: Any) -> None:
    stream = EVENTS.select("k", y=pl.lit(literal))
    assert again(stream).collect().equals(stream.collect(), null_equal=True)


@pytest.mark.parametrize(
    "dtype",
    [
        pl.Datetime("ns", "Europe/Berlin"), pl.Duration("ms"), pl.Decimal(20, 3), pl.Enum(["a", "b"]), pl.Categorical(),
        pl.List(pl.Struct({"a": pl.Int8(), "b": pl.Array(pl.Float32, 2)})), pl.Binary(), pl.Null(), pl.Int128(),
    ],
    ids=str,
)  # fmt: skip
def test_types(dtype: pl.DataType) -> None:
    stream = sq.from_frame(pl.DataFrame({"t": [1]}).with_columns(x=pl.lit(None, dtype=dtype)), start="t")
    assert again(stream).schema == stream.schema
    assert again(stream).collect().schema == stream.collect().schema


def test_single_events_with_values_of_all_kinds() -> None:
    start = dt.datetime(2020, 1, 1)
    payload = {"d": Decimal("1.5"), "l": [1, 2], "s": {"a": 1}, "b": b"x"}
    stream = sq.from_events([sq.point(start, **payload), sq.punctuation(start + dt.timedelta(days=1))])
    assert again(stream).collect().equals(stream.collect())


def test_patterns() -> None:
    p = sq.pattern
    pattern = p.seq(
        p.one(sq.col("x") > 1, first=sq.col("x")), p.one(sq.col("k") == "b", day=pl.lit(dt.date(2020, 1, 1)))
    )
    stream = EVENTS.detect(pattern.with_registers(first=float("nan"), total=Decimal("1.5")), within=10)
    assert len(stream.collect()) == 1
    assert again(stream).collect().equals(stream.collect())


class TestCode:
    STREAM = EVENTS.map_batches(lambda frame: frame.select(y=pl.col("x") * 2), schema={"y": pl.Float64})

    def test_is_not_written_unasked(self) -> None:
        with pytest.raises(PlanError, match=r"to_json: map_batches.* holds Python code.*\n.*allow_code=True"):
            self.STREAM.to_json()

    def test_is_not_read_unasked(self) -> None:
        text = self.STREAM.to_json(allow_code=True)
        with pytest.raises(PlanError, match=r"the plan carries Python code, which would be run\n.*if you trust"):
            sq.from_json(text)

    def test_is_carried_when_both_say_so(self) -> None:
        assert again(self.STREAM, allow_code=True).collect()["y"].to_list() == [3.0, 5.0, None]

    def test_in_an_expression_is_refused_in_any_case(self) -> None:
        code = json.loads(pl.col("x").map_elements(lambda x: x, pl.Float64).meta.serialize(format="json"))

        def smuggle(content: Any) -> None:
            content["nodes"][1]["predicate"]["$expression"] = code

        for allow_code in (False, True):
            with pytest.raises(NotRowWiseError):
                sq.from_json(changed(EVENTS.where(sq.col("x") > 1), smuggle), allow_code=allow_code)


def test_a_pushed_source_has_no_text() -> None:
    with pytest.raises(PlanError, match="a pushed source belongs to the program that pushes"):
        sq.source({"t": pl.Int64}, start="t").count().to_json()


def _set(*path: Any, to: Any) -> Any:
    def change(content: Any) -> None:
        for step in path[:-1]:
            content = content[step]
        content[path[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set("squill_plan", to=2), "the plan is in form 2, this version of Squill reads form 1"),
        (_set("nodes", to=[]), "the text is no plan: IndexError"),
        (_set("nodes", to=5), "the text is no plan: TypeError"),
        (_set("nodes", 1, "kind", to="System"), "there is no node or value 'System'"),
        (_set("nodes", 1, "kind", to="Lifetime"), "Lifetime is no node of a plan"),
        (_set("nodes", 1, "parent", to={"$node": 7}), "the text is no plan: IndexError"),
        (_set("nodes", 1, "parent", to={"$what": 7}), r"unknown value \['\$what'\]"),
        (_set("nodes", 1, "extra", to=1), "unexpected keyword argument 'extra'"),
        (_set("nodes", 0, "frame", to={"$frame": "QUJD"}), "the text is no plan"),
        (_set("nodes", 0, "frame", to={"$frame": "!"}), "the text is no plan"),
        (_set("nodes", 0, "columns", to={"$schema": [["t", {"$dtype": "Int65"}]]}), "the text is no plan"),
        (_set("nodes", 1, "predicate", "$expression", to={"Column": "y"}), "the columns of expression 'x' are not"),
        (_set("nodes", 1, "predicate", "$expression", to={"Colum": "x"}), "NotRowWise|no plan|Colum"),
    ],
)
def test_a_text_that_is_no_plan(change: Any, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        sq.from_json(changed(EVENTS.where(sq.col("x") > 1), change))


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "{}", '{"nodes": []}'])
def test_other_texts(text: str) -> None:
    with pytest.raises(PlanError, match="the text is no plan"):
        sq.from_json(text)

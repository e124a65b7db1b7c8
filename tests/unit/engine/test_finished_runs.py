"""A run that is over holds nothing, without waiting for Python to look for cycles."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.engine.operator import Operator
from squill.errors import NumericOverflowError

LEFT = pl.DataFrame({"t": [1, 2, 3, 4], "k": ["a", "b", "a", "c"]})
RIGHT = pl.DataFrame({"k": ["a", "c"], "x": [1, 2]})


@pytest.fixture(autouse=True)
def others() -> Iterator[list[Operator]]:
    """Operators of other tests that are still there; from now on no cycles are looked for."""
    gc.collect()
    gc.disable()
    yield operators()
    gc.enable()


def operators() -> list[Operator]:
    # Proxies of what is gone do not like to be asked for their class.
    return [item for item in gc.get_objects() if issubclass(type(item), Operator)]


def joined() -> sq.Stream:
    return sq.from_frame(LEFT, start="t").join(sq.from_frame(RIGHT), on="k").group_aggregate("k", n=sq.count())


RUNS: dict[str, Callable[[sq.Stream, Path], object]] = {
    "in process": lambda stream, folder: stream.collect(),
    "events": lambda stream, folder: stream.collect_events(),
    "file": lambda stream, folder: stream.to_parquet(folder / "answer.parquet"),
    "one thread": lambda stream, folder: stream.collect(on=sq.local(cores=1)),
    "two threads": lambda stream, folder: stream.collect(on=sq.local(cores=2)),
}


def holding(others: list[Operator]) -> list[str]:
    known = set(map(id, others))
    return [type(item).__name__ for item in operators() if id(item) not in known and set(vars(item)) - {"node"}]


@pytest.mark.parametrize("run", RUNS)
def test_no_operator_holds_state_when_the_answer_is_there(run: str, tmp_path: Path, others: list[Operator]) -> None:
    RUNS[run](joined(), tmp_path)
    assert holding(others) == []


@pytest.mark.parametrize("cores", [None, 1])
def test_none_does_so_after_an_error(cores: int | None, others: list[Operator]) -> None:
    rows = sq.from_frame(pl.DataFrame({"t": [1, 2], "x": [2**62, 2**62]}), start="t").with_duration(5)
    with pytest.raises(NumericOverflowError):
        rows.sum("x").collect(on=None if cores is None else sq.local(cores=cores))
    assert holding(others) in ([], ["CollectSink"])  # which the error's traceback may hold

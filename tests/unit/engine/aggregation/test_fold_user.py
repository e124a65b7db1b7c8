from __future__ import annotations

import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

import squill as sq
from squill.errors import PlanError, UserFunctionError
from squill.plan.aggregates import AggregateExpr
from tests.unit.engine.aggregation.snapshots import Row, agrees, histories, value_at_end
from tests.unit.engine.aggregation.test_fold_ranks import in_order

quick = settings(max_examples=40, deadline=None, derandomize=True)

WEIGHT = 0.5


def weighed(x: float) -> float:
    return x * WEIGHT


def user(inputs: Any, **functions: Any) -> AggregateExpr:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sq.aggregate_fn(inputs, **functions)


def total(**more: Any) -> AggregateExpr:
    return user(
        ["n", "k"],
        init=lambda: (0, 0.0),
        accumulate=lambda state, t, n, k: (state[0] + 1, state[1] + weighed(n) + t),
        result=lambda state: state[1] if state[0] > 0 else None,
        dtype=pl.Float64,
        **more,
    )


def total_model(alive: list[Row]) -> float | None:
    values = [row["n"] / 2 + row["start"] for row in alive if row["n"] is not None and row["k"] is not None]
    return sum(values) if values else None


@quick
@given(history=histories())
def test_compiled_functions_follow_the_rows(history: Any) -> None:
    taken_away = total(deaccumulate=lambda state, t, n, k: (state[0] - 1, state[1] - weighed(n) - t))
    agrees(taken_away, total_model, history)
    agrees(total(), total_model, history)


def joined(**more: Any) -> AggregateExpr:
    return user("s", init=str, accumulate=lambda text, t, s: text + s, dtype=pl.String, result=str.upper, **more)


@quick
@given(history=histories())
@pytest.mark.filterwarnings("ignore:aggregate aggregate_fn")
def test_plain_python_sees_the_rows_in_order(history: Any) -> None:
    def model(alive: list[Row]) -> str:
        return "".join(row["s"] for row in in_order(alive) if row["s"] is not None).upper()

    agrees(joined(), model, history)


@quick
@given(history=histories())
@pytest.mark.filterwarnings("ignore:aggregate aggregate_fn")
def test_plain_python_takes_rows_away(history: Any) -> None:
    lengths = user(
        "s",
        init=lambda: {"length": 0},
        accumulate=lambda state, t, s: {"length": state["length"] + len(s)},
        deaccumulate=lambda state, t, s: {"length": state["length"] - len(s)},
        result=lambda state: state["length"],
        dtype=pl.Int64,
    )
    agrees(lengths, lambda alive: sum(len(row["s"] or "") for row in alive), history)


def test_what_numba_cannot_compile_warns() -> None:
    with pytest.warns(UserWarning, match="runs as plain Python, which is slow: init"):
        assert value_at_end(joined_x(), ["a", "b"], pl.String) == "AB"
    unknown = user(
        "x", init=lambda: (0,), accumulate=lambda state, t, x: (state[0] + len(frozenset((x, -x))),),
        result=lambda state: state[0], dtype=pl.Int64,
    )  # fmt: skip
    with pytest.warns(UserWarning, match="aggregate aggregate_fn.x. runs as plain Python"):
        assert value_at_end(unknown, [1, 2], pl.Int64) == 4


def test_what_numba_cannot_even_read_warns_too() -> None:
    def rounded(state: tuple[int], t: int, x: int) -> tuple[int]:
        import math

        return (state[0] + math.floor(x),)

    imports = user("x", init=lambda: (0,), accumulate=rounded, result=lambda state: state[0], dtype=pl.Int64)
    with pytest.warns(UserWarning, match="runs as plain Python, which is slow: Use of unsupported opcode"):
        assert value_at_end(imports, [1, 2], pl.Int64) == 3


class Adder:
    def __init__(self, times: int) -> None:
        self.times = times

    def __call__(self, state: tuple[int], t: int, x: int) -> tuple[int]:
        return (state[0] + self.times * x,)

    def called(self, state: tuple[int], t: int, x: int) -> tuple[int]:
        return self(state, t, x)


@pytest.mark.parametrize(
    ("what", "functions"),
    [
        ("result is a builtin_function_or_method", {"result": max}),
        ("accumulate is a partial", {"accumulate": partial(lambda by, state, t, x: (state[0] + by * x,), 2)}),
        ("accumulate is an Adder", {"accumulate": Adder(2)}),
        ("deaccumulate is a method", {"deaccumulate": Adder(-2).called}),
        ("init.. gives .an int of 333 bits", {"init": lambda: (10**100,)}),
    ],
)
def test_whatever_can_be_called_is_a_function(what: str, functions: dict[str, Any]) -> None:
    usual = {"init": lambda: (0,), "accumulate": lambda state, t, x: (state[0] + 2 * x,), "result": smaller}
    doubled = user("x", dtype=pl.Int64, **{**usual, **functions})
    with pytest.warns(UserWarning, match=f"runs as plain Python, which is slow: {what}"):
        assert value_at_end(doubled, [1, 2], pl.Int64) == 6


def smaller(state: tuple[int]) -> int:
    return state[0] % 10**100


def broken() -> tuple[int]:
    raise ConnectionError("no state today")


@pytest.mark.parametrize("changes", [{}, {"deaccumulate": lambda state, t, x: state}])
def test_an_error_in_init_is_told_where_the_query_runs(changes: dict[str, Any]) -> None:
    failing = user("x", init=broken, accumulate=lambda s, t, x: s, result=smaller, dtype=pl.Int64, **changes)
    with pytest.raises(UserFunctionError, match=r"aggregate aggregate_fn.x.: init.. failed: ConnectionError: no state"):
        value_at_end(failing, [1, 2], pl.Int64)


def joined_x() -> AggregateExpr:
    return user("x", init=str, accumulate=lambda text, t, s: text + s, dtype=pl.String, result=str.upper)


def test_without_deaccumulate_there_is_a_warning_when_the_plan_is_built() -> None:
    with pytest.warns(UserWarning, match="without deaccumulate"):
        sq.aggregate_fn("x", init=tuple, accumulate=max, result=max, dtype=pl.Int64)


def test_a_function_must_be_one() -> None:
    with pytest.raises(PlanError, match="accumulate is 3, not a function"):
        sq.aggregate_fn("x", init=tuple, accumulate=3, result=max, dtype=pl.Int64)  # type: ignore[arg-type]


def simple(**changed: Any) -> AggregateExpr:
    functions: dict[str, Any] = {
        "init": lambda: (0.0,),
        "accumulate": lambda state, t, x: (state[0] + x,),
        "deaccumulate": lambda state, t, x: (state[0] - x,),
        "result": lambda state: state[0],
        "dtype": pl.Float64,
    }
    return user("x", **{**functions, **changed})


def test_a_float_is_not_cut_to_an_integer() -> None:
    with pytest.raises(PlanError, match="element 0 of the state an integer"):
        value_at_end(simple(init=lambda: (0,)), [1.5], pl.Float64)
    with pytest.raises(PlanError, match="returns a float, but dtype is Int64"):
        value_at_end(simple(dtype=pl.Int64), [1.5], pl.Float64)


@pytest.mark.parametrize("deaccumulate", [None, lambda state, t, x: state])
@pytest.mark.parametrize(("result", "dtype"), [(lambda state: state[0], pl.Float64), (str, pl.String)])
@pytest.mark.filterwarnings("ignore:aggregate aggregate_fn")
def test_an_error_names_the_aggregate_and_the_event(deaccumulate: Any, result: Any, dtype: Any) -> None:
    broken = simple(
        accumulate=lambda state, t, x: (1 / (x - 3),), deaccumulate=deaccumulate, result=result, dtype=dtype
    )
    text = "aggregate_fn.x.: a function failed at the event with start 1 and x=3"
    with pytest.raises(UserFunctionError, match=text):
        value_at_end(broken, [2.0, 3.0], pl.Float64)


@pytest.mark.parametrize("deaccumulate", [None, lambda state, t, x: state])
def test_an_error_in_result_names_the_time(deaccumulate: Any) -> None:
    broken = simple(result=lambda state: 1 / state[0], deaccumulate=deaccumulate)
    with pytest.raises(UserFunctionError, match="failed at time 0: ZeroDivisionError"):
        value_at_end(broken, [0.0], pl.Float64)


def test_functions_over_arrays_are_compiled_for_this_process() -> None:
    weights = np.array([1.0, 10.0])
    picked = simple(accumulate=lambda state, t, x: (state[0] + weights[t % 2] * x,))
    assert value_at_end(picked, [1.0, 2.0], pl.Float64) == 21.0


PROGRAM = """
import polars as pl, squill as sq
import numba.core.dispatcher as d
compiled = []
real = d._FunctionCompiler.compile
def compile(self, args, return_type):
    compiled.append(self.py_func.__name__)
    return real(self, args, return_type)
d._FunctionCompiler.compile = compile
import math
K = 3.25
def weigh(x): return math.sqrt(x) * K
mean = sq.aggregate_fn("x", init=lambda: (0.0,), accumulate=lambda s, t, x: (s[0] + weigh(x),),
    deaccumulate=lambda s, t, x: (s[0] - weigh(x),), result=lambda s: s[0], dtype=pl.Float64)
answer = sq.from_frame({"t": [1], "x": [4.0]}, start="t").aggregate(v=mean).collect()["v"].to_list()
print(answer, "loop" in compiled)
"""


def test_another_process_finds_the_compiled_code(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    said: list[str] = []
    for constant in ("3.25", "3.25", "4.5"):
        program.write_text("\n" * len(said) + PROGRAM.replace("3.25", constant))
        environment = {
            "SQUILL_KERNEL_CACHE": str(tmp_path / "cache"),
            "PATH": "",
            "PYTHONPATH": str(Path(sq.__file__).parents[1]),
        }
        run = subprocess.run(
            [sys.executable, str(program)], capture_output=True, text=True, env=environment, check=True
        )
        said.append(run.stdout.strip())
    assert said == ["[6.5] True", "[6.5] False", "[9.0] True"]

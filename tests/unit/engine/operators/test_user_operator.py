"""The user's own operator: what it is given, what it may return, and what it is told when it is wrong."""

from __future__ import annotations

import datetime as dt
import functools
import pickle
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.engine.batch import Batch
from squill.engine.compile import Pipeline, compile_plan
from squill.engine.egress import CollectSink
from squill.engine.operators import user_operator
from squill.engine.run import source_arrivals
from squill.errors import TimeOverflowError, UnboundedResultError, UserFunctionError
from squill.plan.serialise import dumps
from squill.stream import Stream
from squill.testing import assert_same_events, reference
from tests.unit.engine.operators.rows import edges, intervals, points, rows

BATCHES = (1, 2, None)


class Stateless:
    """Base of the operators here that keep nothing."""

    schema: ClassVar[dict[str, Any]] = {"n": pl.Int64}

    def save(self) -> Any:
        return None

    def load(self, state: Any) -> None:
        pass


class Total(Stateless):
    """The running sum of x, as points."""

    def __init__(self, first: int = 0) -> None:
        self.n = first

    def on_instant(self, t: int, starts: pl.DataFrame) -> dict[str, Any]:
        self.n += sum(starts["x"].to_list())
        return {"n": self.n}

    def save(self) -> Any:
        return self.n

    def load(self, state: Any) -> None:
        self.n = state


def listener(seen: list[Any], *, ends: bool) -> type:
    """Return an operator that notes what it is told."""

    class Starts(Stateless):
        def on_instant(self, t: int, starts: pl.DataFrame) -> None:
            seen.append((t, starts["x"].to_list()))

    class Both(Stateless):
        def on_instant(self, t: int, starts: pl.DataFrame, ends: pl.DataFrame) -> None:
            seen.append((t, starts["x"].to_list(), ends["x"].to_list()))

    return Both if ends else Starts


def told(stream: Stream, *, ends: bool = False) -> list[Any]:
    """Return what `on_instant` is told over this stream, the same for every batch size."""
    runs: list[list[Any]] = [[] for _ in BATCHES]
    for size, seen in zip(BATCHES, runs, strict=True):
        stream.operator(listener(seen, ends=ends)).collect(batch_rows=size)
    assert runs[0] == runs[1] == runs[2]
    return runs[0]


# -- what it is given ---------------------------------------------------------------------------------------


def test_instants_come_whole_and_in_the_order_of_the_rule() -> None:
    assert told(points(1, 1, 1, 2, x=[3, None, 1, 5])) == [(1, [None, 1, 3]), (2, [5])]


def test_ends_are_not_told_to_a_method_of_two() -> None:
    assert told(edges((1, 4), (2, None), x=[1, 2])) == [(1, [1]), (2, [2])]


def test_ends_of_intervals_are_told_when_they_come() -> None:
    assert told(intervals((1, 3), (3, 4), x=[1, 2]), ends=True) == [(1, [1], []), (3, [2], [1]), (4, [], [2])]


def test_ends_of_edges_are_told_when_they_come() -> None:
    assert told(edges((1, 3), (2, None), x=[1, 2]), ends=True) == [(1, [1], []), (2, [2], []), (3, [], [1])]


def test_rows_that_end_together_are_in_the_order_of_the_payload() -> None:
    assert told(intervals((1, 5), (2, 5), x=[2, 1]), ends=True)[-1] == (5, [], [1, 2])


def test_each_key_has_an_object_of_its_own() -> None:
    stream = points(1, 1, 2, 2, k=["a", "b", "a", "b"], x=[1, 10, 2, 20])
    query = stream.group_apply("k", lambda g: g.operator(Total))
    assert rows(query) == [(1, 2, "a", 1), (1, 2, "b", 10), (2, 3, "a", 3), (2, 3, "b", 30)]


def test_arguments_go_to_the_constructor() -> None:
    assert rows(points(1, x=[1]).operator(Total, first=5)) == [(1, 2, 6)]


def test_a_partial_and_a_function_make_objects_too() -> None:
    assert rows(points(1, x=[1]).operator(functools.partial(Total, first=5))) == [(1, 2, 6)]
    assert rows(points(1, x=[1]).operator(lambda: Total(7))) == [(1, 2, 8)]


def test_key_columns_are_in_the_frame_and_may_be_returned() -> None:
    class Echo(Stateless):
        def on_instant(self, t: int, starts: pl.DataFrame) -> pl.DataFrame:
            return starts.select("k", n=pl.col("x"))

    query = points(1, k=["a"], x=[1]).group_apply("k", lambda g: g.operator(Echo))
    assert rows(query) == [(1, 2, "a", 1)]


def test_calendar_time_is_in_ticks() -> None:
    class Tick(Stateless):
        def on_instant(self, t: int, starts: pl.DataFrame) -> dict[str, int]:
            return {"n": t}

    stream = sq.from_frame({"day": [dt.date(1970, 1, 11)], "x": [1]}, start="day")
    assert rows(stream.operator(Tick)) == [(dt.date(1970, 1, 11), dt.date(1970, 1, 12), 10)]


# -- how long its rows live ---------------------------------------------------------------------------------


class Until(Stateless):
    """x lives until the next answer; null leaves the answer as it is, 0 ends it."""

    lifetime = "until_next"

    def on_instant(self, t: int, starts: pl.DataFrame) -> Any:
        x = starts["x"][-1]
        return None if x is None else [] if x == 0 else {"n": x}


def test_answers_live_until_the_next_one() -> None:
    query = points(1, 3, 5, 8, 9, x=[1, None, 2, 0, 3]).operator(Until)
    assert rows(query) == [(1, 5, 1), (5, 8, 2), (9, None, 3)]


def test_answers_end_by_edges_for_who_wants_them() -> None:
    events = points(1, 3, x=[1, 2]).operator(Until).collect_events()
    assert [event for event in events if not hasattr(event, "time")] == [
        sq.start_edge(1, n=1), sq.end_edge(3, 1, n=1), sq.start_edge(3, n=2),
    ]  # fmt: skip


@pytest.mark.parametrize("size", BATCHES)
def test_open_answers_can_be_asked_further(size: int | None) -> None:
    query = points(1, 3, 5, x=[1, 2, 0]).operator(Until)
    assert query.stitch().collect(batch_rows=size).rows() == [(1, 3, 1), (3, 5, 2)]
    assert query.with_duration(7).collect(batch_rows=size).rows() == [(1, 8, 1), (3, 10, 2)]
    assert query.count().collect(batch_rows=size).rows() == [(1, 3, 1), (3, 5, 1)]


def test_only_open_rows_are_held() -> None:
    answers = 20_000
    query = points(*range(answers), x=[1] * answers).operator(Until).extend(1)
    node = query.plan
    pipeline = compile_plan(node, CollectSink(node))
    run(pipeline, 1000)
    held = pipeline.operators[1].save()["answers"]["held"]["size"]
    assert held <= 16_384 + 1000
    assert len(query.collect(batch_rows=1000)) == answers


class Ahead(Stateless):
    lifetime = "interval"

    def on_instant(self, t: int, starts: pl.DataFrame) -> Any:
        return [{"n": x, "start": t + x, "end": None if x == 9 else t + 2 * x} for x in starts["x"]]


def test_rows_may_start_later_and_say_their_end() -> None:
    query = points(1, 2, 3, x=[5, 1, 9]).operator(Ahead)
    assert rows(query) == [(3, 4, 1), (6, 11, 5), (12, None, 9)]
    assert query.collect(batch_rows=1)["start"].is_sorted()


def test_ends_are_known_of_points_and_intervals() -> None:
    assert rows(points(1, x=[5]).operator(Ahead).where(sq.end() > 10)) == [(6, 11, 5)]
    assert rows(points(1, x=[5]).operator(Total).where(sq.end() > 10)) == []


def test_frames_say_lifetimes_in_columns_of_time() -> None:
    class Frame(Stateless):
        lifetime = "interval"

        def on_instant(self, t: int, starts: pl.DataFrame) -> pl.DataFrame:
            return starts.select(n="x", end=pl.col("at") + pl.duration(days=2))

    stream = sq.from_frame({"day": [dt.date(2020, 1, 1)], "x": [1]}, start="day").with_columns(at=sq.start())
    assert rows(stream.operator(Frame)) == [(dt.date(2020, 1, 1), dt.date(2020, 1, 3), 1)]


def test_a_row_may_give_a_date_as_its_end() -> None:
    class Dated(Stateless):
        lifetime = "interval"

        def on_instant(self, t: int, starts: pl.DataFrame) -> dict[str, Any]:
            return {"n": 1, "end": starts["at"][0] + dt.timedelta(days=2)}

    stream = sq.from_frame({"day": [dt.date(2020, 1, 1)], "x": [1]}, start="day").with_columns(at=sq.start())
    assert rows(stream.operator(Dated)) == [(dt.date(2020, 1, 1), dt.date(2020, 1, 3), 1)]


def test_dicts_and_frames_mix() -> None:
    class Mixed(Stateless):
        def on_instant(self, t: int, starts: pl.DataFrame) -> Any:
            return starts.select(n="x") if t % 2 else [{"n": t}, {"n": None}]

    query = points(1, 2, 3, x=[7, 0, 9]).operator(Mixed)
    assert rows(query) == [(1, 2, 7), (2, 3, None), (2, 3, 2), (3, 4, 9)]


# -- timers -------------------------------------------------------------------------------------------------


class Timeout(Stateless):
    """A row with the number of events, three ticks after the last."""

    def __init__(self) -> None:
        self.wake_at: int | None = None
        self.n = 0

    def on_instant(self, t: int, starts: pl.DataFrame) -> None:
        self.n += starts.height
        self.wake_at = t + 3

    def on_time(self, t: int) -> dict[str, int]:
        n, self.n = self.n, 0
        return {"n": n}

    @property
    def alive(self) -> bool:
        return self.n > 0

    def save(self) -> int:
        return self.n

    def load(self, state: int) -> None:
        self.n = state


def test_it_is_woken_when_it_asked_to_be() -> None:
    assert rows(points(1, 2, 9, x=[0, 0, 0]).operator(Timeout)) == [(5, 6, 2), (12, 13, 1)]


def test_it_is_woken_before_the_events_of_that_instant() -> None:
    assert rows(points(1, 4, x=[0, 0]).operator(Timeout)) == [(4, 5, 1), (7, 8, 1)]


def test_timers_of_other_keys_come_in_time_order() -> None:
    stream = points(1, 2, 9, k=["a", "b", "a"], x=[0, 0, 0])
    query = stream.group_apply("k", lambda g: g.operator(Timeout))
    assert query.collect(batch_rows=1).rows() == [(4, 5, "a", 1), (5, 6, "b", 1), (12, 13, "a", 1)]


def test_pushed_rows_and_punctuations_wake_too() -> None:
    source = sq.source({"t": pl.Int64, "x": pl.Int64}, start="t")
    seen: list[Any] = []
    source.operator(Timeout).subscribe(lambda frame: seen.extend(frame.rows()), emit="closed")
    source.push({"t": 1, "x": 0})
    source.punctuate(4)
    assert seen == []
    source.punctuate(6)
    assert seen == [(4, 5, 1)]
    source.complete()
    assert seen == [(4, 5, 1)]


def test_waking_for_ever_is_an_error_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Heartbeat(Stateless):
        def on_instant(self, t: int, starts: pl.DataFrame) -> None:
            self.wake_at = t + 1

        def on_time(self, t: int) -> None:
            self.wake_at = t + 1

    monkeypatch.setattr(user_operator, "MOST_WAKES_AFTER_THE_END", 50)
    found = fails(points(1, 1000, x=[0, 0]).operator(Heartbeat), UnboundedResultError)
    assert found == (
        "operator(Heartbeat): on_time was called 50 times after the last row, at 1051\n"
        "Hint: leave wake_at None once there is nothing more to do."
    )


# -- state --------------------------------------------------------------------------------------------------


def run(pipeline: Pipeline, size: int) -> None:
    """Push all rows of the query's frame, without completing it."""
    ((source, entry),) = pipeline.entries
    for arrival in source_arrivals(source, size):
        if arrival.batch is not None:
            entry.push(arrival.batch)
            entry.advance(int(arrival.batch.sync[-1]))


def pipeline_after(query: Stream) -> Pipeline:
    pipeline = compile_plan(query.plan, CollectSink(query.plan))
    run(pipeline, 1)
    return pipeline


def test_a_key_that_is_not_alive_keeps_no_state() -> None:
    stream = points(*range(0, 1000, 5), k=list(range(200)), x=[0] * 200)
    assert pipeline_after(stream.group_apply("k", lambda g: g.operator(Total))).state_rows >= 199
    assert pipeline_after(stream.group_apply("k", lambda g: g.operator(Timeout))).state_rows <= 2


def test_an_object_lives_while_events_whose_end_it_wants_do() -> None:
    made = []

    class Idle(Stateless):
        alive = False

        def __init__(self) -> None:
            made.append(self)

        def on_instant(self, t: int, starts: pl.DataFrame, ends: pl.DataFrame) -> None:
            pass

    query = intervals((1, 5), (2, 3), (8, 9), x=[1, 2, 3]).operator(Idle)
    made.clear()
    query.collect()
    assert len(made) == 2


def test_state_that_was_saved_does_not_change_afterwards() -> None:
    class Listing(Stateless):
        def __init__(self) -> None:
            self.seen: list[int] = []

        def on_instant(self, t: int, starts: pl.DataFrame) -> dict[str, int]:
            self.seen.append(t)
            return {"n": len(self.seen)}

        def save(self) -> Any:
            return self.seen

        def load(self, state: Any) -> None:
            self.seen = state

    query = points(1, 2, 3, x=[0, 0, 0]).operator(Listing)
    operator = pipeline_after(query).operators[1]
    saved = operator.save()
    before = pickle.dumps(saved["objects"])
    operator.advance(100)
    operator.push(Batch(np.array([200]), np.array([201]), {"x": pl.Series("x", [1])}))
    operator.advance(300)
    assert pickle.dumps(saved["objects"]) == before


def test_what_is_not_plain_data_is_refused() -> None:
    class Counting(Total):
        def save(self) -> Any:
            return {"n": [1, defaultdict(int)]}

    operator = pipeline_after(points(1, 2, x=[0, 0]).operator(Counting)).operators[1]
    with pytest.raises(UserFunctionError) as caught:
        operator.save()
    assert str(caught.value) == (
        "operator(Counting): save returned what is not plain data: ['n'][1] is a defaultdict, at 2\n"
        "Hint: return None, numbers, text, bytes, dates, lists, tuples, dicts, NumPy arrays or Polars columns, so that "
        "a checkpoint can be read by another process."
    )


def test_a_load_that_fails_says_so() -> None:
    class Forgetful(Total):
        def load(self, state: Any) -> None:
            raise KeyError("weights")

    query = points(1, 2, k=["a", "a"], x=[0, 0]).group_apply("k", lambda g: g.operator(Forgetful))
    saved = pipeline_after(query).operators[1].save()
    fresh = compile_plan(query.plan, CollectSink(query.plan)).operators[1]
    with pytest.raises(UserFunctionError, match=r"load raised KeyError: 'weights', at 2 for the key k='a'"):
        fresh.load(saved)


CONTINUE = """
import pathlib, sys
from squill.engine.compile import compile_plan
from squill.engine.egress import CollectSink
from squill.plan.serialise import loads
from squill.time import INFINITY

plan, state, rest = loads(pathlib.Path(sys.argv[1]).read_bytes())
pipeline = compile_plan(plan, CollectSink(plan))
pipeline.load(state)
((_, entry),) = pipeline.entries
entry.push(rest)
entry.advance(INFINITY)
print(pipeline.sink.frame().rows())
"""


def test_another_process_goes_on_from_the_saved_state(tmp_path: Path) -> None:
    class Local(Timeout):
        """Not to be imported anywhere: it travels with the plan."""

    query = points(1, 2, x=[0, 0]).operator(Local)
    rest = Batch(np.array([3, 9]), np.array([4, 10]), {"x": pl.Series("x", [0, 0])})
    path = tmp_path / "checkpoint"
    path.write_bytes(dumps((query.plan, pipeline_after(query).save(), rest)))
    done = subprocess.run([sys.executable, "-c", CONTINUE, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[(6, 7, 3), (12, 13, 1)]"


# -- objects in columns -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    weight: int


MODEL = sq.codec(Model, pickle.dumps, pickle.loads)


class Train(Stateless):
    schema: ClassVar[dict[str, Any]] = {"model": MODEL}

    def on_instant(self, t: int, starts: pl.DataFrame) -> list[dict[str, Any]]:
        return [{"model": Model(x)} for x in starts["x"]]


class Weigh(Stateless):
    lifetime = "until_next"

    def on_instant(self, t: int, starts: pl.DataFrame) -> dict[str, int]:
        return {"n": starts["model"][0].weight}


def test_columns_of_objects_go_in_and_out() -> None:
    trained = points(1, 2, x=[5, 6]).operator(Train)
    assert trained.collect()["model"].to_list() == [Model(5), Model(6)]
    assert rows(trained.operator(Weigh)) == [(1, 2, 5), (2, None, 6)]


def test_objects_of_another_type_are_refused() -> None:
    class Wrong(Train):
        def on_instant(self, t: int, starts: pl.DataFrame) -> Any:
            return {"model": "text"}

    assert "on_instant returned for 'model' what its codec refuses: codec(Model): 'text' is a str" in fails(
        points(1, x=[5]).operator(Wrong)
    )


# -- errors -------------------------------------------------------------------------------------------------


def fails(query: Stream, kind: type[Exception] = UserFunctionError) -> str:
    """Return the text of the error, which is the same for every batch size."""
    texts = set()
    for size in BATCHES:
        with pytest.raises(kind) as caught:
            query.collect(batch_rows=size)
        texts.add(str(caught.value))
    assert len(texts) == 1, texts
    return texts.pop()


def returning(answer: Any, **attributes: Any) -> type:
    """Return an operator whose `on_instant` returns this."""

    def on_instant(self: Any, t: int, starts: pl.DataFrame) -> Any:
        return answer(t) if callable(answer) else answer

    return type("Mine", (Stateless,), {"on_instant": on_instant, **attributes})


def keyed(operator: type) -> Stream:
    stream = points(1, 4, k=["a", "b"], x=[7, 8])
    return stream.group_apply("k", lambda g: g.operator(operator))


def test_an_error_names_the_operator_the_instant_the_key_and_a_row() -> None:
    class Divide(Stateless):
        def on_instant(self, t: int, starts: pl.DataFrame) -> dict[str, int]:
            return {"n": 1 // (starts["x"][0] - 8)}

    assert fails(keyed(Divide)) == (
        "operator(Divide): on_instant raised ZeroDivisionError: integer division or modulo by zero, at 4 for the key "
        "k='b'; the first row was {'k': 'b', 'x': 8}\n"
        "Hint: it must take whatever rows the input may have, nulls too: handle such rows in it, or filter them before."
    )


def test_an_error_in_a_generator_is_told_alike() -> None:
    class Generator(Stateless):
        def on_instant(self, t: int, starts: pl.DataFrame) -> Any:
            yield {"n": 1}
            raise ValueError("no more")

    assert "operator(Generator): on_instant raised ValueError: no more, at 1" in fails(
        points(1, x=[1]).operator(Generator)
    )


def test_an_error_in_on_time_has_no_row() -> None:
    class Late(Timeout):
        def on_time(self, t: int) -> Any:
            raise ValueError("too late")

    assert fails(points(1, x=[1]).operator(Late)) == (
        "operator(Late): on_time raised ValueError: too late, at 4\n"
        "Hint: the error that it raised is the cause of this one: mend the method, or handle the error in it."
    )


def test_an_error_in_the_constructor_names_the_key() -> None:
    made = []

    class Third(Total):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)
            if len(made) == 3:
                raise MemoryError("no room")

    query = points(1, k=["a"], x=[1]).group_apply("k", lambda g: g.operator(Third))
    with pytest.raises(UserFunctionError, match="the constructor raised MemoryError: no room, at 1 for the key k='a'"):
        query.collect()


HINT = "Hint: return None, a dict, an iterable of dicts or a frame, with the columns n: Int64."
PLACE = "at 1 for the key k='a'; the first row was {'k': 'a', 'x': 7}"
PAST = "Hint: time does not go back: results start at the instant t of the call, or later."
EMPTY = "Hint: the end is after the start; None is for ever."
NO_TIMES = 'Hint: rows say their lifetime with lifetime = "interval" in the class.'
NOT_NOW = "Hint: a timer fires after the instant it is set at; to act now, return rows now."
INTERVAL: dict[str, Any] = {"lifetime": "interval"}
WRONG: dict[str, tuple[type, str]] = {
    "a number": (returning(5), f"returned an int, not rows, {PLACE}\n{HINT}"),
    "text": (returning("no"), f"returned a row that is a str, not a dict, {PLACE}\n{HINT}"),
    "tuples": (returning([(1,)]), f"returned a row that is a tuple, not a dict, {PLACE}\n{HINT}"),
    "missing": (returning({"m": 1}), f"returned a row without 'n', {PLACE}\n{HINT}"),
    "extra": (returning({"n": 1, "m": 1}), f"returned a row with 'm', which the schema does not name, {PLACE}\n{HINT}"),
    "value": (returning([{"n": 1}, {"n": "two"}]), f"returned 'n' as 'two' (str), not Int64, {PLACE}\n{HINT}"),
    "float": (returning({"n": 0.5}), f"returned 'n' as 0.5 (float), not Int64, {PLACE}\n{HINT}"),
    "frame type": (
        returning(pl.DataFrame({"n": ["1"]})), f"returned the column 'n' as String, not Int64, {PLACE}\n{HINT}",
    ),
    "frame column": (returning(pl.DataFrame({"m": [1]})), f"returned a row without 'n', {PLACE}\n{HINT}"),
    "end of a point": (
        returning({"n": 1, "end": 5}),
        f"returned a row with 'end', {PLACE}\n{NO_TIMES}",
    ),
    "no end": (returning({"n": 1}, **INTERVAL), f"returned a row without 'end', {PLACE}\n{HINT}"),
    "past": (
        returning(lambda t: {"n": 1, "start": t - 1, "end": 9}, **INTERVAL),
        f"returned a row that starts at 0, in the past, {PLACE}\n{PAST}",
    ),
    "empty": (
        returning(lambda t: {"n": 1, "end": t}, **INTERVAL),
        f"returned a row that lives from 1 to 1, which is not at all, {PLACE}\n{EMPTY}",
    ),
    "time": (
        returning({"n": 1, "end": 2.5}, **INTERVAL), f"gave end as 2.5, {PLACE}\nHint: times are ticks, as t is.",
    ),
    "beyond time": (
        returning({"n": 1, "end": 2**63}, **INTERVAL),
        f"gave end as 9223372036854775808, outside the 64-bit range, {PLACE}\nHint: use None for no end.",
    ),
    "frame past": (
        returning(pl.DataFrame({"n": [1], "start": [0], "end": [9]}), **INTERVAL),
        f"returned a row that starts at 0, in the past, {PLACE}\n{PAST}",
    ),
    "frame time": (
        returning(pl.DataFrame({"n": [1], "end": ["noon"]}), **INTERVAL),
        f"returned the column 'end' as String, {PLACE}\nHint: give ticks (integers) or Int64.",
    ),
    "wake now": (
        returning(None, wake_at=1, on_time=lambda self, t: None),
        f"set wake_at to 1, which is not after its instant, {PLACE}\n{NOT_NOW}",
    ),
    "wake nobody": (
        returning(None, wake_at=9), f"set wake_at, but there is no method on_time(self, t), {PLACE}\nHint: write one.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_answers_are_told(name: str) -> None:
    operator, text = WRONG[name]
    assert fails(keyed(operator)) == f"operator(Mine): on_instant {text}"


def test_the_culprit_is_found_among_many() -> None:
    class Sometimes(Stateless):
        def on_instant(self, t: int, starts: pl.DataFrame) -> Any:
            return [{"n": x if x < 90 else "ninety"} for x in starts["x"]]

    times = [i // 2 for i in range(100)]
    found = fails(points(*times, x=list(range(100))).operator(Sometimes))
    assert "returned 'n' as 'ninety' (str), not Int64, at 45; the first row was {'x': 90}" in found


def test_a_point_at_the_end_of_time_is_an_error() -> None:
    last = 2**63 - 2
    with pytest.raises(TimeOverflowError, match=r"operator\(Total\): the lifetime of the event at"):
        intervals((last, None), x=[1]).operator(Total).collect()


# -- elsewhere ----------------------------------------------------------------------------------------------


def on_shards(query: Callable[[Stream], Stream], cores: int = 2) -> pl.DataFrame:
    columns = {"t": [i // 3 for i in range(60)], "k": [i % 7 for i in range(60)], "x": list(range(60))}
    with sq.local(cores=cores) as cluster:
        return cluster.from_frame(columns, start="t").rekey("k").redistribute(3).query(query).collect(sort=True)


@pytest.mark.parametrize("operator", [Total, Timeout, Until])
def test_shards_give_the_same_answer(operator: type) -> None:
    frame = pl.DataFrame({"t": [i // 3 for i in range(60)], "k": [i % 7 for i in range(60)], "x": list(range(60))})
    alone = sq.from_frame(frame, start="t").group_apply("k", lambda g: g.operator(operator))
    assert_same_events(on_shards(lambda s: s.operator(operator)), reference.frame(alone))


def test_explain_shows_the_class_and_its_arguments() -> None:
    query = points(1, k=[1], x=[1]).group_apply("k", lambda g: g.operator(Total, first=3))
    assert query.explain().splitlines()[0] == (
        "operator(Total(first=3), keys=[k])  -> k: Int64, n: Int64  [Int64; ends known, duration 1]"
    )

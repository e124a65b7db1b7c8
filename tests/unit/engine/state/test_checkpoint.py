"""`Subscription.checkpoint` and `subscribe(fn, restore=…)`: what goes on, and what is refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import polars as pl
import pytest

import squill as sq
from squill.engine.hashing import HASH_VERSION
from squill.engine.state import manifest
from squill.engine.state.belonging import STATE_VERSION
from squill.engine.subscription import Subscription
from squill.errors import CheckpointError, SourceStateError
from squill.pushed import PushedSource
from squill.stream import Stream

Query = Callable[[Stream], Stream]
Rows = list[tuple[Any, ...]]
FACTOR = 3


def counted(s: Stream) -> Stream:
    return s.group_apply("k", lambda g: g.tumbling_window(10).count())


def running(
    query: Query = counted, restore: Path | None = None, emit: str = "closed", **source_options: Any
) -> tuple[PushedSource, Subscription, Rows]:
    source = sq.source({"t": pl.Int64, "k": pl.Int64}, start="t", **source_options)
    rows: Rows = []
    return source, query(source).subscribe(lambda f: rows.extend(f.rows()), emit=emit, restore=restore), rows


def appending(rows: Rows) -> Callable[[pl.DataFrame], None]:
    return lambda frame: rows.extend(frame.rows())


def refused(text: str) -> Any:
    return pytest.raises(CheckpointError, match=text)


def test_one_run_goes_on_from_another(tmp_path: Path) -> None:
    source, subscription, before = running()
    source.push({"t": [1, 2, 15], "k": [1, 1, 2]})
    subscription.checkpoint(tmp_path)
    source.push({"t": 999, "k": 999})  # after the checkpoint: the other run does not know it
    again, _, after = running(restore=tmp_path)
    again.push({"t": [16, 40], "k": [2, 1]})
    again.complete()
    assert before[0] == (10, 20, 1, 2)
    assert after == [(10, 20, 1, 2), (20, 30, 2, 2), (50, 60, 1, 1)]


def test_a_restored_run_makes_checkpoints_of_its_own(tmp_path: Path) -> None:
    source, subscription, _ = running()
    for t in range(5):
        source.push({"t": t, "k": 1})
        subscription.checkpoint(tmp_path)
        source, subscription, rows = running(restore=tmp_path)
    source.complete()
    assert rows == [(10, 20, 1, 5)]


def test_the_source_is_as_it_was(tmp_path: Path) -> None:
    options: dict[str, Any] = {"disorder": sq.drop(wait=5), "end": None}
    source, subscription, _ = running(lambda s: s, **options)
    source.push({"t": [10, 3, 12, 11], "k": [1, 2, 3, 4]})
    subscription.checkpoint(tmp_path)
    again, _, rows = running(lambda s: s, tmp_path, **options)
    assert again.counts == source.counts == {"late": 1, "empty": 0, "waiting": 3}
    assert again.late.rows() == source.late.rows() == [(3, 4, 2, 2)]
    again.push({"t": [5], "k": [5]})
    assert again.counts["late"] == 2
    again.complete()
    assert rows == [(10, 11, 1), (11, 12, 4), (12, 13, 3)]


def test_a_completed_source_stays_so(tmp_path: Path) -> None:
    source, subscription, _ = running()
    source.push({"t": 1, "k": 1})
    source.complete()
    subscription.checkpoint(tmp_path)
    again, _, rows = running(restore=tmp_path)
    with pytest.raises(SourceStateError, match="is completed"):
        again.push({"t": 2, "k": 1})
    assert rows == []


def test_stored_inputs_are_not_read_again(tmp_path: Path) -> None:
    def beside(path: Path) -> Query:
        return lambda s: s.union(sq.scan(str(path), start="t")).sliding_window(1000).count()

    file = tmp_path / "stored.parquet"
    pl.DataFrame({"t": [5, 6], "k": [1, 1]}).write_parquet(file)
    source, subscription, _ = running(beside(file))
    source.push({"t": 7, "k": 1})
    subscription.checkpoint(tmp_path / "state")
    pl.DataFrame({"t": [5, 6, 6, 6], "k": [1, 1, 1, 1]}).write_parquet(file)
    again, _, rows = running(beside(file), tmp_path / "state")
    again.push({"t": 8, "k": 1})
    again.complete()
    assert max(row[2] for row in rows) == 4


def test_a_query_may_be_saved_while_it_gets_results(tmp_path: Path) -> None:
    source = sq.source({"t": pl.Int64, "k": pl.Int64}, start="t")
    other: Rows = []
    saved: list[Subscription] = []
    source.subscribe(lambda f: saved[0].checkpoint(tmp_path), emit="closed")
    # The second one has not got the rows yet when the first one's function is called.
    saved.append(source.subscribe(lambda f: other.extend(f.rows()), emit="closed"))
    for t in range(4):
        source.push({"t": t, "k": t})
    source.complete()
    assert other == [(t, t + 1, t) for t in range(4)]


def test_queries_of_one_source_are_restored_together(tmp_path: Path) -> None:
    source = sq.source({"t": pl.Int64, "k": pl.Int64}, start="t")
    queries: list[Query] = [counted, lambda s: s.sliding_window(5).count()]
    subscriptions = [query(source).subscribe(lambda f: None, emit="closed") for query in queries]
    source.push({"t": [1, 2], "k": [1, 1]})
    for i, subscription in enumerate(subscriptions):
        subscription.checkpoint(tmp_path / f"{i}")
    again = sq.source({"t": pl.Int64, "k": pl.Int64}, start="t")
    rows: list[Rows] = [[], []]
    for i, query in enumerate(queries):
        query(again).subscribe(appending(rows[i]), emit="closed", restore=tmp_path / f"{i}")
    again.push({"t": 3, "k": 1})
    again.complete()
    assert rows[0] == [(10, 20, 1, 3)]
    assert max(row[2] for row in rows[1]) == 3
    with pytest.raises(SourceStateError, match="cannot be restored: it has begun"):
        counted(again).subscribe(lambda f: None, emit="closed", restore=tmp_path / "0")


def test_queries_saved_at_different_points_are_not_restored_together(tmp_path: Path) -> None:
    source = sq.source({"t": pl.Int64, "k": pl.Int64}, start="t")
    first, second = (counted(source).subscribe(lambda f: None) for _ in range(2))
    source.push({"t": 1, "k": 1})
    first.checkpoint(tmp_path / "0")
    source.push({"t": 1, "k": 1})
    second.checkpoint(tmp_path / "1")
    again = sq.source({"t": pl.Int64, "k": pl.Int64}, start="t")
    counted(again).subscribe(lambda f: None, restore=tmp_path / "0")
    with pytest.raises(SourceStateError, match="to the same point"):
        counted(again).subscribe(lambda f: None, restore=tmp_path / "1")


# -- another plan ---------------------------------------------------------------------------------------------


@pytest.fixture
def state(tmp_path: Path) -> Path:
    source, subscription, _ = running()
    source.push({"t": 1, "k": 1})
    subscription.checkpoint(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("query", "there", "here"),
    [
        (
            lambda s: s.group_apply("k", lambda g: g.tumbling_window(11).count()),
            "hopping_window.*10",
            "hopping_window.*11",
        ),
        (lambda s: s.group_apply("k", lambda g: g.tumbling_window(10).aggregate(n=sq.count())), "count=", "n="),
        (lambda s: counted(s.where(sq.col("k") > 1)), "hopping_window", "where"),
        (lambda s: s.tumbling_window(10).count(), "aggregate.*keys", r"aggregate\(count"),
    ],
)
def test_another_plan_is_refused_and_the_node_named(query: Query, there: str, here: str, state: Path) -> None:
    before = {item.name: item.read_bytes() for item in state.iterdir()}
    with refused(f"is of another query:\n  there: .*{there}.*\n  here:  .*{here}"):
        running(query, state)
    assert {item.name: item.read_bytes() for item in state.iterdir()} == before
    running(restore=state)


def test_more_nodes_are_another_plan(state: Path) -> None:
    with refused("there: nothing\n  here:  shift"):
        running(lambda s: counted(s).shift(1), state)


@pytest.mark.parametrize("options", [{"disorder": sq.drop(wait=3)}, {"lifetime": "open"}, {"punctuate_every": 5}])
def test_another_source_is_another_plan(options: dict[str, Any], state: Path) -> None:
    with refused("is of another query:\n  there: push_source"):
        running(restore=state, **options)


def test_another_form_of_results_is_refused(state: Path) -> None:
    with refused('is of a query with emit="closed", this one has emit="changes"'):
        running(restore=state, emit="changes")


def mapped(factor: int) -> Query:
    schema = {"k": pl.Int64}
    return lambda s: s.map_batches(lambda f: f.select(k=f["k"] * factor * FACTOR), schema=schema).sliding_window(9)


def test_functions_are_part_of_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, subscription, _ = running(mapped(2))
    source.push({"t": 1, "k": 1})
    subscription.checkpoint(tmp_path)
    running(mapped(2), tmp_path)
    with refused("is of another query:\n  there: map_batches"):
        running(mapped(3), tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 4)
    with refused("is of another query:\n  there: map_batches"):
        running(mapped(2), tmp_path)


class Total:
    schema: ClassVar[dict[str, Any]] = {"n": pl.Int64}

    def __init__(self, first: int = 0) -> None:
        self.n = first

    @property
    def step(self) -> int:
        return 1

    def on_instant(self, t: int, starts: pl.DataFrame) -> dict[str, int]:
        self.n += self.step
        return {"n": self.n}

    def save(self) -> int:
        return self.n

    def load(self, state: int) -> None:
        self.n = state


def own(**arguments: int) -> Query:
    return lambda s: s.operator(Total, **arguments)


def test_methods_of_own_operators_are_part_of_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, subscription, _ = running(own(first=2))
    source.push({"t": 1, "k": 1})
    subscription.checkpoint(tmp_path)
    running(own(first=2), tmp_path)
    with refused("is of another query:\n  there: operator.Total.first=2"):
        running(own(first=3), tmp_path)
    monkeypatch.setattr(Total, "step", property(lambda self: 2))
    with refused("is of another query:\n  there: operator.Total.first=2"):
        running(own(first=2), tmp_path)


@pytest.mark.parametrize(("what", "version"), [("state", STATE_VERSION), ("hash", HASH_VERSION)])
@pytest.mark.parametrize("step", [-1, 1])
def test_another_version_of_state_is_refused_and_left_alone(what: str, version: int, step: int, state: Path) -> None:
    found = manifest.read_manifest(state)
    assert found.plan[what] == version
    found.plan[what] = version + step
    manifest.write_manifest(state, found)
    before = {item.name: item.read_bytes() for item in state.iterdir()}
    with refused(
        f"holds {what} version {version + step}, this version of Squill has {version}\n.*"
        "restore it with the version of Squill that wrote it"
    ):
        running(restore=state)
    assert {item.name: item.read_bytes() for item in state.iterdir()} == before


def test_fields_of_a_source_belong_to_the_version(state: Path) -> None:
    """Other fields are another version: raise STATE_VERSION, then change this."""
    (saved,) = manifest.read_manifest(state).tree["feeds"].values()
    assert STATE_VERSION == 6
    assert sorted(saved) == [
        "begun", "buffer", "completed", "empty", "first_row_left", "last_punctuation", "pending", "pushes",
    ]  # fmt: skip


# -- one checkpoint, several queries --------------------------------------------------------------------------


def test_queries_restored_from_one_checkpoint_go_on_independently(
    state: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    fresh = tmp_path_factory.mktemp("fresh")
    (one, first, mine), (two, second, other) = (running(restore=state) for _ in range(2))
    one.push({"t": [2, 3], "k": [1, 1]})
    two.push({"t": [4], "k": [2]})
    first.checkpoint(state)
    with refused("another run has gone on in .*: it holds version 2 of that one, this query was at version 1"):
        second.checkpoint(state)
    two.push({"t": [5], "k": [2]})
    second.checkpoint(fresh)
    one.push({"t": [6], "k": [1]})
    first.checkpoint(state)
    with refused("a checkpoint of another run is in"):
        second.checkpoint(state)
    again, _, restored = running(restore=state)
    elsewhere, _, moved = running(restore=fresh)
    for source in (one, two, again, elsewhere):
        source.complete()
    assert mine == restored == [(10, 20, 1, 4)]
    assert other == moved == [(10, 20, 1, 1), (10, 20, 2, 2)]


def test_two_queries_of_one_source_may_be_restored_from_one_checkpoint(state: Path) -> None:
    source = sq.source({"t": pl.Int64, "k": pl.Int64}, start="t")
    rows: list[Rows] = [[], []]
    subscriptions = [counted(source).subscribe(appending(rows[i]), emit="closed", restore=state) for i in range(2)]
    source.push({"t": 2, "k": 1})
    subscriptions[1].checkpoint(state)
    with refused("another run has gone on in"):
        subscriptions[0].checkpoint(state)
    source.complete()
    assert rows == [[(10, 20, 1, 2)]] * 2


@pytest.mark.parametrize("moved", ["push", "punctuate", "complete"])
def test_a_source_that_has_moved_on_takes_no_restored_query(moved: str, state: Path) -> None:
    source = sq.source({"t": pl.Int64, "k": pl.Int64}, start="t")
    counted(source).subscribe(lambda f: None, emit="closed", restore=state)
    {
        "push": lambda: source.push({"t": 2, "k": 1}),
        "punctuate": lambda: source.punctuate(7),
        "complete": source.complete,
    }[moved]()
    with pytest.raises(SourceStateError, match="cannot be restored: it has begun"):
        counted(source).subscribe(lambda f: None, emit="closed", restore=state)


# -- misuse ---------------------------------------------------------------------------------------------------


def test_a_stopped_query_has_no_state(tmp_path: Path) -> None:
    _, subscription, _ = running()
    subscription.stop()
    with refused("checkpoint: the query was stopped"):
        subscription.checkpoint(tmp_path)


@pytest.mark.parametrize("bad", [5, b"x/", ["x"]])
def test_paths_must_be_paths(bad: Any) -> None:
    with refused("checkpoint: .* is no path"):
        running()[1].checkpoint(bad)
    with refused("restore: .* is no path"):
        running(restore=bad)


def test_the_folder_of_another_query_is_refused(state: Path) -> None:
    source, subscription, _ = running(lambda s: s)
    source.push({"t": 1, "k": 1})
    with refused("a checkpoint of another run is in"):
        subscription.checkpoint(state)


def test_a_refused_restore_leaves_the_source_alone(state: Path) -> None:
    source = sq.source({"t": pl.Int64, "k": pl.Int64}, start="t")
    with refused("another query"):
        source.subscribe(lambda f: None, restore=state)
    file = next(iter(state.glob("*.state")))
    file.write_bytes(file.read_bytes()[:-64])
    with refused("is damaged: .* has .* bytes, not"):
        counted(source).subscribe(lambda f: None, emit="closed", restore=state)
    rows: Rows = []
    source.subscribe(lambda f: rows.extend(f.rows()), emit="closed")
    source.push({"t": 1, "k": 1})
    source.complete()
    assert rows == [(1, 2, 1)]


# -- kill -9 --------------------------------------------------------------------------------------------------

KILLED = """
import sys, polars as pl, numpy as np, squill as sq
folder, restore = sys.argv[1], sys.argv[2] == "restore"
source = sq.source({"t": pl.Int64, "k": pl.Int64}, start="t")
query = source.with_duration(None).group_aggregate("k", n=sq.count())
subscription = query.subscribe(lambda f: None, restore=folder if restore else None)
first = int(sys.argv[3])
for version in range(first, 10**9):
    source.push({"t": np.full(2000, version), "k": np.arange(2000) * (version % 7)})
    subscription.checkpoint(folder)
    print(version, flush=True)
"""


def pushes_in(folder: Path) -> int:
    """Return how many pushes the state in the folder has seen."""
    source = sq.source({"t": pl.Int64, "k": pl.Int64}, start="t")
    rows: list[pl.DataFrame] = []
    query = source.with_duration(None).group_aggregate("k", n=sq.count())
    query.subscribe(rows.append, restore=folder)
    source.push({"t": [10**9], "k": [0]})
    source.punctuate(10**9 + 1)
    # Every push but the seventh gives key 0 one row; the seventh gives it 2000.
    last = pl.concat(rows).filter(pl.col("k") == 0, pl.col("diff") == 1, pl.col("time") == 10**9)
    total = int(last["n"][0]) - 1
    sevenths, rest = divmod(total, 2000 + 6)
    return 7 * sevenths + (rest - 2000 + 1 if rest >= 2000 else rest)


def killed_again_and_again(folder: Path, kills: int, most: int) -> None:
    done, random = 0, Random(1)
    for attempt in range(kills):
        arguments = [str(folder), "restore" if attempt else "new", str(done)]
        process = subprocess.Popen([sys.executable, "-c", KILLED, *arguments], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        acknowledged = done
        for _ in range(random.randrange(1, most)):
            line = process.stdout.readline()
            assert line, "it ended by itself"
            acknowledged = int(line) + 1
        for _ in range(random.randrange(20_000)):  # anywhere inside the next one
            pass
        process.send_signal(signal.SIGKILL)
        rest = process.communicate()[0].split()
        acknowledged = int(rest[-1]) + 1 if rest else acknowledged
        found = pushes_in(folder)
        assert acknowledged <= found <= acknowledged + 1
        done = found
        assert len(list(folder.iterdir())) < 80


def test_a_killed_process_leaves_the_last_complete_checkpoint(tmp_path: Path) -> None:
    killed_again_and_again(tmp_path / "state", kills=3, most=15)


@pytest.mark.faults
def test_a_process_killed_many_times_loses_nothing(tmp_path: Path) -> None:
    killed_again_and_again(tmp_path / "state", kills=40, most=60)


def test_the_manifest_is_json_after_two_lines(state: Path) -> None:
    first, _, body = (state / "MANIFEST").read_bytes().split(b"\n", 2)
    assert first == b"squill checkpoint 2"
    assert {"plan", "tree", "leaves", "chunks", "files"} <= json.loads(body).keys()

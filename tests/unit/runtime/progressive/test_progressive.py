"""Progressive queries: the paper's example figure by figure, what answers carry, and that leaving releases all."""

from __future__ import annotations

import gc
import io
import threading
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import squill as sq
from squill.engine.batch import Batch
from squill.engine.progress.tally import Tally
from squill.errors import InputError, InternalError, NumericOverflowError, PlanError, UnsupportedOperatorError
from squill.exchange.flow import Halted
from squill.plan.assignment import Rows
from squill.plan.nodes.progress import ProgressSource
from squill.plan.schema import Schema
from squill.runtime.progressive.answers import EarlyAnswers
from squill.runtime.progressive.outlet import Outlet
from squill.runtime.progressive.points import ChangesByPoint, Counted
from squill.runtime.progressive.start import start_progressive
from squill.runtime.progressive.store import AnswerStore
from squill.stream import Stream
from squill.time import MINUS_INFINITY

CLICKS = {"user": ["u0", "u1", "u2"], "ad": ["a0"] * 3, "p": [0, 1, 2]}
IMPRESSIONS = {"user": ["u0", "u0", "u1", "u2", "u2"], "ad": ["a0"] * 5, "p": [0, 0, 1, 2, 2]}
BY_USER = sq.progress.columns("p")


def counts(data: dict[str, list[object]], name: str, column: str) -> Stream:
    return sq.from_frame(data, name=name).group_aggregate("ad", **{column: sq.count()})


def ctr(clicks: dict[str, list[object]] = CLICKS, impressions: dict[str, list[object]] = IMPRESSIONS) -> Stream:  # type: ignore[assignment]
    both = counts(clicks, "clicks", "c").join(counts(impressions, "impressions", "i"), on="ad")
    return both.select("ad", ctr=sq.col("c") / sq.col("i"))


def shown(answers: EarlyAnswers) -> list[tuple[int, list[tuple[object, ...]]]]:
    return [(early.progress, early.frame.rows()) for early in answers]


# -- the figures of the paper ---------------------------------------------------------------------------------


def test_figure_4c_counts_of_clicks_and_impressions() -> None:
    clicks = counts(CLICKS, "clicks", "c").progressive(BY_USER)  # type: ignore[arg-type]
    assert shown(clicks) == [(0, [("a0", 1)]), (1, [("a0", 2)]), (2, [("a0", 3)])]
    impressions = counts(IMPRESSIONS, "impressions", "i").progressive(BY_USER)  # type: ignore[arg-type]
    assert shown(impressions) == [(0, [("a0", 2)]), (1, [("a0", 3)]), (2, [("a0", 5)])]


def test_figure_4d_click_through_rate() -> None:
    assert shown(ctr().progressive(BY_USER)) == [(0, [("a0", 0.5)]), (1, [("a0", 2 / 3)]), (2, [("a0", 0.6)])]


def test_figure_5_what_flows_are_the_ends_and_starts_of_progress_intervals() -> None:
    changes = [early.changes.rows() for early in counts(CLICKS, "clicks", "c").progressive(BY_USER)]  # type: ignore[arg-type]
    assert changes == [[(1, "a0", 1)], [(-1, "a0", 1), (1, "a0", 2)], [(-1, "a0", 2), (1, "a0", 3)]]


SPLIT = {"user": ["u0"] * 2 + ["u1"] * 2 + ["u2"] * 4, "ad": ["a0"] * 3 + ["a1"] * 5, "p": [0, 0, 1, 1, 2, 2, 2, 2]}


FINE = {0: ["u0"] * 2, 1: ["u1"] * 2, 2: ["u2"] * 4}
COARSE = {0: ["u0", "u0", "u1", "u1"], 2: ["u2"] * 4}


@pytest.mark.parametrize(("coarsen", "batches"), [(None, FINE), (2, COARSE)])
def test_figure_7_progress_batches(coarsen: int | None, batches: dict[int, list[str]]) -> None:
    answers = sq.from_frame(SPLIT).select("user").progressive(BY_USER, coarsen=coarsen)
    found = {early.progress: [row[1] for row in early.changes.rows() for _ in range(row[0])] for early in answers}
    assert found == batches


def test_a_rate_above_one_appears_without_progress_semantics_and_never_with_them() -> None:
    """Map-reduce online joins whatever either side has counted so far; here the clicks are ahead."""
    users = [f"u{number}" for number in range(40)]
    clicks = {"user": users, "ad": ["a"] * 40}
    impressions = {"user": sorted(users * 2), "ad": ["a"] * 80}
    arrival = {"clicks": sq.progress.rows(10), "impressions": sq.progress.rows(4)}
    without = [rate for early in ctr(clicks, impressions).progressive(arrival) for rate in early.frame["ctr"]]  # type: ignore[arg-type]
    assert max(without) > 1
    by_user = ctr(clicks, impressions).progressive(sq.progress.hashed("user", 10))  # type: ignore[arg-type]
    assert {rate for early in by_user for rate in early.frame["ctr"]} == {0.5}


# -- what an answer carries -----------------------------------------------------------------------------------


def test_provenance_of_an_answer_and_of_one_of_its_rows() -> None:
    ads = {"user": [1, 2, 3, 4], "ad": ["a", "b", "a", "a"], "bot": [False, False, False, True]}
    query = sq.from_frame(ads, name="clicks").where(~sq.col("bot")).group_aggregate("ad", n=sq.count())
    _, last = query.progressive(sq.progress.rows(3))
    assert last.provenance()["clicks"]["user"].to_list() == [1, 2, 3, 4]
    assert last.provenance({"ad": "a"})["clicks"]["user"].to_list() == [1, 3]


def test_provenance_through_a_join_by_its_key() -> None:
    first, *_ = ctr().progressive(BY_USER)
    behind = first.provenance(first.frame.row(0, named=True))
    assert {name: frame["user"].to_list() for name, frame in behind.items()} == {
        "clicks": ["u0"],
        "impressions": ["u0", "u0"],
    }


def test_provenance_of_a_row_without_its_key_is_that_of_all_that_are_equal() -> None:
    (only,) = ctr().select("ctr").progressive(sq.progress.at_start())
    behind = only.provenance({"ctr": 0.6})
    assert {name: frame.height for name, frame in behind.items()} == {"clicks": 3, "impressions": 5}


@pytest.mark.parametrize("name", ["__squill_row", "index", "literal"])
def test_provenance_of_rows_whose_columns_have_odd_names(name: str) -> None:
    rows = sq.from_frame({"k": [1, 1, 2], name: [7, 8, 9]}).where(pl.lit(value=True))
    query = rows.select("k", twice=sq.col(name) * 2, one=pl.lit(1)).group_aggregate("k", n=sq.sum("twice"))
    (only,) = query.progressive(sq.progress.at_start())
    assert only.provenance({"k": 1})["frame"][name].to_list() == [7, 8]
    (plain,) = rows.progressive(sq.progress.at_start())
    assert plain.provenance({name: 9})["frame"].rows() == [(2, 9)]


def test_rows_that_leave_and_come_again() -> None:
    data = {"x": [1, 2, 1], "from": [0, 0, 3], "to": [1, None, 4]}
    answers = list(sq.from_frame(data).select("x").progressive(sq.progress.columns("from", "to")))
    assert [(early.progress, early.frame["x"].to_list()) for early in answers] == [
        (0, [1, 2]), (1, [2]), (3, [1, 2]), (4, [2]),
    ]  # fmt: skip
    assert [early.fraction for early in answers] == [2 / 3, 1 / 3, 2 / 3, 1 / 3]


def test_a_step_at_which_nothing_changes_has_an_answer() -> None:
    answers = list(sq.from_frame({"x": [1]}).progressive(sq.progress.fractions(3)))
    assert [(early.progress, early.changes.height, early.is_final) for early in answers] == [
        (0, 1, False), (1, 0, False), (2, 0, True),
    ]  # fmt: skip


def test_an_input_without_rows_has_one_answer() -> None:
    (only,) = sq.from_frame({"x": pl.Series([], dtype=pl.Int64)}).progressive(sq.progress.rows(5))
    assert (only.progress, only.is_final, only.frame.height) == (0, True, 0)


def test_a_dimension_is_there_from_the_start() -> None:
    facts = sq.from_frame({"ad": [1, 2, 1]}, name="facts")
    ads = sq.from_frame({"ad": [1, 2], "brand": ["x", "y"]}, name="ads")
    given = {"facts": sq.progress.rows(1), "ads": sq.progress.at_start()}
    answers = facts.join(ads, on="ad").group_aggregate("brand", n=sq.count()).progressive(given)
    assert [(round(early.fraction, 2), early.frame.rows()) for early in answers] == [
        (0.33, [("x", 1)]), (0.67, [("x", 1), ("y", 1)]), (1.0, [("x", 2), ("y", 1)]),
    ]  # fmt: skip


def test_first_goes_by_the_order_rule_not_by_progress() -> None:
    data = {"x": [3, 1, 2], "p": [0, 1, 2]}
    answers = sq.from_frame(data).aggregate(first=sq.first("x"), all=sq.collect_list("x")).progressive(BY_USER)
    assert [early.frame.row(0) for early in answers] == [(3, [3]), (1, [1, 3]), (1, [1, 2, 3])]


# -- stopping -------------------------------------------------------------------------------------------------


def test_until_a_condition_delivers_the_answer_that_meets_it() -> None:
    numbers = sq.from_frame({"x": range(100)}).aggregate(n=sq.count())
    answers = numbers.progressive(sq.progress.rows(10), until=lambda early: early.fraction >= 0.25)
    assert [early.frame.item() for early in answers] == [10, 20, 30]


def test_until_a_time_delivers_one_answer_at_least() -> None:
    numbers = sq.from_frame({"x": range(100)}).aggregate(n=sq.count())
    assert [early.frame.item() for early in numbers.progressive(sq.progress.rows(10), until=1e-9)] == [10]


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_leaving_the_loop_leaves_no_thread(cores: int) -> None:
    before = set(threading.enumerate())
    with sq.local(cores=cores) as cluster:
        stream = cluster.from_frame({"k": list(range(50)) * 40}, name="it")
        query = stream.rekey("k").redistribute().query(lambda g: g.aggregate(n=sq.count()))
        for early in query.progressive(sq.progress.rows(100)):
            assert early.progress == 0
            assert early.frame["n"].sum() == 100
            break
    gc.collect()
    assert set(threading.enumerate()) <= before


def test_a_loop_that_is_left_frees_the_rows() -> None:
    answers = sq.from_frame({"x": range(100)}).progressive(sq.progress.rows(10))
    first = next(answers)
    answers.close()
    assert next(answers, None) is None
    assert first.frame.height == 10


def test_a_loop_that_is_left_stops_the_query_also_where_the_answers_are_kept() -> None:
    before = set(threading.enumerate())
    with sq.local(cores=2) as cluster:
        query = sq.from_frame({"k": list(range(50)) * 40}).group_aggregate("k", n=sq.count())
        answers = query.progressive(sq.progress.rows(100), on=cluster)
        for _ in answers:
            break
        assert set(threading.enumerate()) <= before
        assert next(answers, None) is None


def test_show_refines_one_table() -> None:
    console = Console(file=io.StringIO(), width=60, force_terminal=False)
    last = ctr().progressive(BY_USER).show(console=console)
    assert last is not None
    assert last.is_final
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    assert "progress 2: final" in printed
    assert "0.6" in printed


def test_a_failing_shard_raises_where_answers_are_asked_for() -> None:
    with sq.local(cores=2) as cluster:
        big = cluster.from_frame({"k": [1, 1, 2], "x": [2**62, 2**62, 1]})
        query = big.rekey("k").redistribute().query(lambda g: g.aggregate(x=sq.sum("x")))
        with pytest.raises(NumericOverflowError):
            list(query.progressive(sq.progress.rows(1)))


def test_shards_that_hand_over_after_the_end_stop() -> None:
    outlet = Outlet(1)
    outlet.end(InternalError("lost"))
    with pytest.raises(InternalError):
        outlet.take(0)


def test_a_runtime_without_early_answers_says_so() -> None:
    class Elsewhere:
        def refuse_early(self, *, ha: bool) -> None:
            raise UnsupportedOperatorError(f"no early answers here, ha={ha}")

    with pytest.raises(UnsupportedOperatorError, match="no early answers here, ha=True"):
        start_progressive(
            sq.from_frame(CLICKS).plan,
            BY_USER,
            coarsen=None,
            until=None,
            ha=True,
            runtime=Elsewhere(),  # type: ignore[arg-type]
        )


def test_ha_is_a_choice_of_two() -> None:
    with pytest.raises(PlanError, match="progressive: ha is 'yes'"):
        ctr().progressive(BY_USER, ha="yes")  # type: ignore[arg-type]


# -- beginning again ------------------------------------------------------------------------------------------


def changes(point: int, *rows: tuple[int, int]) -> Batch:
    """Changes at one point: (diff, x) each."""
    sync = np.full(len(rows), point)
    return Batch(sync, np.array([diff for diff, _ in rows]), {"x": pl.Series("x", [x for _, x in rows])})


def test_what_comes_again_replaces_what_was_given_without_being_given_again() -> None:
    tally = Tally()
    tally.add(np.array([0, 1, 2]), None)
    tally.finish()
    source = ProgressSource(
        label="it",
        columns=Schema(),
        lifetime=None,
        source=None,  # type: ignore[arg-type]
        assignment=Rows(1),
        tally=tally,
    )
    points = ChangesByPoint(Counted([source]))
    points.add(changes(0, (1, 5)))
    points.add(changes(1, (-1, 5), (1, 6)))
    first = list(points.until(1))
    assert [(step.point, step.from_nothing) for step in first] == [(0, False)]
    points.start_over()
    assert list(points.until(1)) == []
    points.add(changes(0, (1, 7)))  # as a sum of floats may come out otherwise
    points.add(changes(1, (-1, 7), (1, 6)))
    points.add(changes(2, (1, 8)))
    second, third = points.until(3)
    assert (second.point, second.from_nothing, third.point, third.from_nothing) == (1, True, 2, False)
    answers = EarlyAnswers(
        node=sq.from_frame({"x": [1]}).plan,
        flowing=Schema({"x": pl.Int64()}),
        steps=lambda: (step for step in [*first, second, third]),
        until=None,
        provenance=None,  # type: ignore[arg-type]
        explain=str,
    )
    given = [(early.frame["x"].to_list(), early.changes.rows()) for early in answers]
    assert given == [([5], [(1, 5)]), ([6], [(-1, 5), (1, 6)]), ([6, 8], [(1, 8)])]


def test_an_outlet_takes_nothing_from_an_attempt_that_is_over() -> None:
    outlet = Outlet(2)
    outlet.hand(0, 3, changes(0, (1, 5)), 0)
    outlet.hand(1, 2, None, 0)
    taken = outlet.take(MINUS_INFINITY)
    assert (len(taken.changes), taken.clock, taken.again) == (1, 2, False)
    outlet.hand(0, 9, changes(4, (1, 6)), 0)
    assert outlet.start_over() == 2
    with pytest.raises(Halted):
        outlet.hand(1, 9, changes(4, (1, 6)), 0)
    outlet.hand(0, 1, changes(0, (1, 5)), 1)
    taken = outlet.take(2)
    assert (len(taken.changes), taken.clock, taken.again) == (1, MINUS_INFINITY, True)
    assert not outlet.is_complete


# -- what is held ---------------------------------------------------------------------------------------------


def test_answers_that_are_kept_show_what_they_showed_and_others_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    stores: list[AnswerStore] = []
    make = AnswerStore.__init__

    def noted(self: AnswerStore, *arguments: object) -> None:
        make(self, *arguments)  # type: ignore[arg-type]
        stores.append(self)

    monkeypatch.setattr(AnswerStore, "__init__", noted)
    monkeypatch.setattr("squill.runtime.progressive.store.ENOUGH_ROWS", 0)
    query = sq.from_frame({"x": range(100)}).aggregate(n=sq.count())
    kept = [early for early in query.progressive(sq.progress.rows(1)) if early.progress in (98, 99)]
    assert len(stores[0]) <= 8
    assert [early.frame.item() for early in kept] == [99, 100]


# -- numbers over splits, and shards --------------------------------------------------------------------------


def test_rows_are_numbered_round_robin_over_row_groups(tmp_path: Path) -> None:
    pl.DataFrame({"x": range(12)}).write_parquet(tmp_path / "a.parquet", row_group_size=4)
    scanned = sq.scan(tmp_path / "a.parquet").where(sq.col("x") != 4)
    found = shown(scanned.progressive(sq.progress.rows(1)))
    assert [[x for (x,) in rows] for _, rows in found[:5]] == [[0], [0], [0, 8], [0, 1, 8], [0, 1, 5, 8]]
    for cores in (1, 2, 3):
        with sq.local(cores=cores) as cluster:
            assert shown(scanned.progressive(sq.progress.rows(1), on=cluster)) == found


@pytest.mark.parametrize(
    "assignment", [sq.progress.fractions(3), sq.progress.stratified("k", 2), sq.progress.hashed("k", 4)]
)
@pytest.mark.parametrize("file_format", ["parquet", "csv"])
def test_files_on_shards_give_the_same_answers(
    tmp_path: Path, assignment: sq.progress.Assignment, file_format: str
) -> None:
    frame = pl.DataFrame({"k": [number * number % 7 for number in range(50)], "x": range(50)})
    for part in range(3):
        piece = frame.slice(part * 17, 17)
        path = tmp_path / f"{part}.{file_format}"
        piece.write_parquet(path, row_group_size=5) if file_format == "parquet" else piece.write_csv(path)
    query = sq.scan(tmp_path / f"*.{file_format}").where(sq.col("x") > 3).group_aggregate("k", x=sq.sum("x"))
    expected = shown(query.progressive(assignment))
    assert expected[-1][1] == query.collect(sort=True).rows()
    for cores in (1, 2, 4):
        with sq.local(cores=cores) as cluster:
            assert shown(query.progressive(assignment, on=cluster)) == expected


def test_a_reshard_between_changing_rows_keeps_starts_and_ends_together() -> None:
    with sq.local(cores=3) as cluster:
        numbers = cluster.from_frame({"k": [1, 2, 3, 1, 2, 3], "x": [1, 2, 3, 4, 5, 6]}, name="it")
        sums = numbers.rekey("k").redistribute().query(lambda g: g.aggregate(x=sq.sum("x"))).reshard()
        total = sums.rekey(one=sq.col("k") * 0).redistribute()
        answers = total.query(lambda g: g.aggregate(x=sq.sum("x"), n=sq.count())).progressive(sq.progress.rows(2))
        assert [early.frame.select("x", "n").row(0) for early in answers] == [(3, 2), (10, 3), (21, 3)]


def test_a_stored_dataset_is_read_otherwise_but_keys_meet(tmp_path: Path) -> None:
    with sq.local(
        cores=2,
    ) as cluster:
        rows = {"k": [number % 5 for number in range(40)], "x": list(range(40))}
        cluster.from_frame(rows).rekey("k").redistribute().to_storage(tmp_path / "set")
        query = cluster.scan(tmp_path / "set").query(lambda g: g.aggregate(x=sq.sum("x")))
        *_, last = query.progressive(sq.progress.rows(7))
        assert last.frame.rows() == [(k, sum(range(k, 40, 5))) for k in range(5)]


# -- queries over time ----------------------------------------------------------------------------------------


def sessions() -> Stream:
    events = {"t": [1, 2, 4, 8, 9, 20], "user": [1, 2, 1, 3, 2, 1], "ad": list("ababab")}
    return sq.from_frame(events, start="t", name="events")


def test_a_query_over_time_is_the_union_of_the_keys_there() -> None:
    query = sessions().group_apply("user", lambda g: g.sliding_window(5).count())
    answers = list(query.progressive(sq.progress.hashed("user", 8)))
    assert answers[-1].frame.rows() == query.collect(sort=True).rows()
    for early in answers:
        there = early.provenance()["events"]["user"].unique().to_list()
        assert set(early.frame["user"]) == set(there)
        assert early.frame.rows() == query.where(sq.col("user").is_in(there)).collect(sort=True).rows()
    with sq.local(cores=2) as cluster:
        assert shown(query.progressive(sq.progress.hashed("user", 8), on=cluster)) == [
            (early.progress, early.frame.rows()) for early in answers
        ]


def test_a_join_over_time_with_a_dimension(tmp_path: Path) -> None:
    sessions().to_parquet(tmp_path / "events.parquet")
    events = sq.scan(tmp_path / "events.parquet", start="start", end="end", name="events")
    users = sq.from_frame({"user": [1, 2], "age": [30, 40]}, name="users")
    query = events.join(users, on="user", how="left").where(sq.col("ad") == "a").select("user", "age")
    given = {"events": sq.progress.hashed("user", 4), "users": sq.progress.at_start()}
    *_, last = query.progressive(given, coarsen=2)
    assert last.frame.rows() == query.collect(sort=True).rows()


def test_a_promise_that_rows_over_time_break_is_told_in_their_own_columns() -> None:
    events = sq.from_frame({"t": [1, 2], "user": [1, 1]}, start="t", unique="user")
    with pytest.raises(InputError, match=r"row 1 repeats a key of unique=\[user\]: \{'t': 2, 'user': 1\}"):
        next(events.progressive(sq.progress.hashed("user", 2)))


def test_changes_of_objects_that_have_no_order() -> None:
    things = pl.DataFrame([pl.Series("x", [1]), pl.Series("thing", [{1, 2}], dtype=pl.Object)])
    (only,) = sq.from_frame(things).progressive(sq.progress.at_start())
    assert only.changes.rows() == [(1, 1, {1, 2})]


def test_points_of_files_are_seen_when_they_are_read(tmp_path: Path) -> None:
    pl.DataFrame({"x": [1, 2], "p": [0, -1]}).write_parquet(tmp_path / "it.parquet")
    answers = sq.scan(tmp_path / "it.parquet").progressive(BY_USER)
    with pytest.raises(InputError, match=r"the progress 'p' is negative in row 1: \{.*'p': -1\}"):
        next(answers)


def test_steps_that_nobody_looks_at_take_no_memory() -> None:
    counts = sq.from_frame({"u": [1, 2, 3, 4]}).aggregate(n=sq.count())
    with counts.progressive(sq.progress.hashed("u", 2**31 - 1)) as answers:
        assert [next(answers).progress for _ in range(3)] == [0, 1, 2]
    coarse = list(counts.progressive(sq.progress.hashed("u", 2**30), coarsen=2**29))
    assert [early.progress for early in coarse] == [0, 2**29]
    assert coarse[-1].is_final


def test_shards_send_what_a_step_changes_in_their_groups_unless_channels_are_kept() -> None:
    spent = sq.from_frame({"user": [1, 2, 1], "x": [5, 6, 7]}, name="paid").group_aggregate("user", x=sq.sum("x"))
    with sq.local(cores=2) as cluster:
        summed_up = spent.progressive(sq.progress.rows(2), on=cluster).explain()
        kept = spent.progressive(sq.progress.rows(2), on=cluster, ha=True).explain()
        by_step = spent.progressive(sq.progress.hashed("user", 2), on=cluster).explain()
    # What is sent is kept for replay where whoever sends it holds nothing; the groups of one step have few rows.
    assert [text.count("aggregate(") for text in (summed_up, kept, by_step)] == [2, 1, 1]

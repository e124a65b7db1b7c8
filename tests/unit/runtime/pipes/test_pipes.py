"""Pipes between tasks: the same early answers as in process, no standstill, no strangers, nothing left."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import flight

import squill as sq
from squill.engine.batch import Batch
from squill.engine.progress.tally import Tally
from squill.errors import ClusterError, InternalError, UserFunctionError
from squill.exchange.codec import decode
from squill.plan.schema import Schema
from squill.runtime import machine
from squill.runtime.progressive.answers import EarlyAnswers
from squill.runtime.spark.pipes import wire
from squill.runtime.spark.pipes.certificate import new_certificate
from squill.runtime.spark.pipes.hub import Hub
from squill.runtime.spark.pipes.lanes import pieces
from squill.runtime.spark.pipes.link import CLOCK, TAKEN, Link, Mark, read_marks
from squill.runtime.spark.pipes.member import Invitation
from squill.runtime.spark.pipes.replay import raised
from squill.runtime.spark.pipes.wire import MESSAGE, Calls, Pass, Server, connected, facing
from squill.stream import Stream
from tests.unit.runtime.pipes.piped import PipedRuntime, piped

USERS = [n * 7919 % 97 for n in range(3_000)]
BY_USER = sq.progress.hashed("user", steps=7)


def ctr() -> Stream:
    shown = sq.from_frame({"user": USERS, "ad": [n % 5 for n in range(3_000)]}, name="impressions")
    clicked = sq.from_frame({"user": USERS[::4], "ad": [n % 5 for n in range(0, 3_000, 4)]}, name="clicks")
    both = clicked.group_aggregate("ad", c=sq.count()).join(shown.group_aggregate("ad", i=sq.count()), on="ad")
    return both.select("ad", ctr=sq.col("c") / sq.col("i"))


def two_stages() -> Stream:
    """A join, an aggregate by another key and the best of them: three keys, one after the other."""
    searches = sq.from_frame({"user": USERS, "word": [f"w{n * n % 31}" for n in range(3_000)]}, name="searches")
    places = sq.from_frame({"user": range(97), "place": [n % 4 for n in range(97)]}, name="places")
    counted = searches.join(places, on="user").group_aggregate(["word", "place"], n=sq.count())
    return counted.group_aggregate("place", best=sq.top_k("n", 3))


def sessions() -> Stream:
    """A query over time: the longest session of each user, beside what it paid at the time."""
    events = sq.from_frame({"t": [n * 31 % 5_000 for n in range(3_000)], "user": USERS}, start="t", name="events")
    paid = {"from": range(0, 4_850, 50), "to": range(70, 4_920, 50), "user": range(97), "price": range(97)}
    prices = sq.from_frame(paid, start="from", end="to", name="prices")
    counted = events.group_apply("user", lambda user: user.session_window(40).count())
    return counted.join(prices, on="user", how="left").group_apply("user", lambda user: user.max("count"))


QUERIES = {"rates": ctr, "two stages": two_stages, "over time": sessions}


def shown(answers: EarlyAnswers) -> list[tuple[int, float, list[tuple[object, ...]]]]:
    return [(early.progress, early.fraction, early.frame.rows()) for early in answers]


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize(("machines", "tasks"), [(1, 1), (2, 1), (2, 2), (4, 3), (3, 2)])
def test_early_answers_are_those_in_process(name: str, machines: int, tasks: int) -> None:
    query = QUERIES[name]()
    before = set(threading.enumerate())
    with piped(machines, tasks) as cluster:
        assert shown(query.progressive(BY_USER, on=cluster)) == shown(query.progressive(BY_USER))
    assert set(threading.enumerate()) <= before


def test_rows_that_end_and_answers_of_several_movements() -> None:
    data = {"k": [n % 11 for n in range(600)], "x": range(600), "from": [n % 6 for n in range(600)]}
    data["to"] = [start + 1 + n % 3 if n % 4 else None for n, start in enumerate(data["from"])]  # type: ignore[misc]
    given = sq.progress.columns("from", "to")
    query = sq.from_frame(data).group_aggregate("k", s=sq.sum("x")).group_aggregate(n=sq.col("s") % 7, m=sq.max("s"))
    with piped(3, 3) as cluster:
        assert shown(query.progressive(given, on=cluster)) == shown(query.progressive(given))


@pytest.mark.parametrize("tasks", [1, 2, 3])
@pytest.mark.parametrize("room", [0, 1])
def test_no_plan_stands_still_with_tiny_mailboxes(monkeypatch: pytest.MonkeyPatch, tasks: int, room: int) -> None:
    """Without room nobody can send anything, until it is seen that all wait for it."""
    monkeypatch.setattr(machine, "LEAST_ROWS", room)
    monkeypatch.setattr(machine, "MAILBOX_ROWS", room)
    rows = sq.from_frame({"k": [n % 50 for n in range(2_000)], "x": [n % 7 for n in range(2_000)]})
    slow = rows.group_aggregate("x", m=sq.count()).group_aggregate(g=sq.col("m") % 3, total=sq.sum("m"))
    query = rows.with_columns(g=sq.col("k") % 3).join(slow, on="g").group_aggregate("k", n=sq.count())
    steps = sq.progress.rows(10)
    with piped(3, tasks) as cluster:
        found = shown(query.progressive(steps, on=cluster))
    assert found == shown(query.progressive(steps))


def test_an_error_of_the_users_is_raised_with_its_place_and_ends_all() -> None:
    def fail(rows: pl.DataFrame) -> pl.DataFrame:
        if 13 in rows["x"]:
            raise ValueError("thirteen")
        return rows

    query = sq.from_frame({"x": range(100)}).map_batches(fail).group_aggregate("x", n=sq.count())
    before = set(threading.enumerate())
    with piped(2, 2) as cluster, pytest.raises(UserFunctionError, match=r"^fragment 1, shard \d of 2.*thirteen"):
        shown(query.progressive(sq.progress.rows(10), on=cluster))
    assert set(threading.enumerate()) <= before


def test_leaving_the_loop_ends_all_tasks() -> None:
    before = set(threading.enumerate())
    with piped(2, 2) as cluster:
        answers = ctr().progressive(sq.progress.hashed("user", steps=90), on=cluster)
        for early in answers:
            assert early.progress == 0
            break
        assert set(threading.enumerate()) <= before
    assert answers.status().state == "over"


def test_status_names_the_shard_that_holds_progress_back(tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"

    def linger(rows: pl.DataFrame) -> pl.DataFrame:
        while 13 in rows["x"] and not go_on.exists():
            time.sleep(0.01)
        return rows

    query = sq.from_frame({"x": [*range(50), 13]}, name="it").map_batches(linger).group_aggregate("x", n=sq.count())
    with piped(2, 2) as cluster:
        answers = query.progressive(sq.progress.rows(51), on=cluster)
        assert str(answers.status()) == "not begun, no answer yet"
        taker = threading.Thread(target=lambda: list(answers), daemon=True)
        taker.start()
        deadline = time.monotonic() + 60
        while (behind := answers.status().behind) is None or behind.fragment != 1:
            assert time.monotonic() < deadline, answers.status()
            time.sleep(0.02)
        go_on.touch()
        taker.join(60)
    assert "fragment 1 (task " in str(behind)
    assert behind.place in ("task 0 at 127.0.0.1", "task 1 at 127.0.0.1")


# -- who may take part ----------------------------------------------------------------------------------------


def calls(client: flight.FlightClient, options: flight.FlightCallOptions) -> list[Any]:
    def put() -> None:
        writer, _ = client.do_put(flight.FlightDescriptor.for_command(b"{}"), MESSAGE, options)
        writer.write_metadata(b"")
        writer.close()

    return [
        put,
        lambda: list(client.do_action(flight.Action("tell", b"{}"), options)),
        lambda: client.do_get(flight.Ticket(b"[0, 0, 1]"), options).read_all(),
        lambda: list(client.list_flights(b"", options)),
    ]


@pytest.mark.parametrize("secret", [None, b"", b"x" * 32, "close"])
def test_strangers_are_refused_whatever_they_call(secret: bytes | str | None) -> None:
    called: list[object] = []
    access = Pass()
    given = bytes([*access.secret[:-1], access.secret[-1] ^ 1]) if isinstance(secret, str) else secret
    taken = Calls(
        put=lambda *them: called.append(them),
        get=lambda ticket: iter([called.append(ticket) or b""]),  # type: ignore[func-returns-value]
        act=lambda *them: iter([called.append(them) or b""]),  # type: ignore[func-returns-value]
    )
    options = flight.FlightCallOptions() if given is None else Pass(given).options
    server = Server("127.0.0.1", access, taken)
    with server, connected(("127.0.0.1", server.port), access) as client:
        for call in calls(client, options):
            with pytest.raises(flight.FlightUnauthenticatedError, match="no member of the run"):
                call()
        assert called == []
        list(client.do_action(flight.Action("tell", b"{}"), access.options))
    assert called == [("tell", b"{}")]


def test_a_stranger_does_not_disturb_a_run() -> None:
    runtime = PipedRuntime(2, 2)
    refused: list[Exception] = []

    def intrude(hub: Hub, invitation: Invitation) -> None:
        with connected(invitation.driver, Pass()) as client:
            for call in calls(client, Pass().options):
                with pytest.raises(flight.FlightUnauthenticatedError) as caught:
                    call()
                refused.append(caught.value)

    runtime.on_begin = intrude
    with sq.Cluster(runtime) as cluster:
        assert shown(ctr().progressive(BY_USER, on=cluster)) == shown(ctr().progressive(BY_USER))
    assert len(refused) == 4


def test_secrets_are_not_shown_and_never_the_same() -> None:
    one, two = Pass(), Pass()
    assert len(one.secret) == 32
    assert one.secret != two.secret
    assert one.secret.hex() not in repr(one)
    assert repr(one.secret) not in repr(Invitation(("h", 1), one))


def test_with_a_certificate_all_is_encrypted_and_members_know_theirs() -> None:
    certificate = new_certificate()
    with piped(2, 2, certificate) as cluster:
        assert shown(ctr().progressive(BY_USER, on=cluster)) == shown(ctr().progressive(BY_USER))
    access = Pass(certificate=certificate)
    server = Server("127.0.0.1", access, Calls(act=lambda *_: iter(())))
    with server:
        for stranger in (Pass(access.secret), Pass(access.secret, new_certificate())):
            with (
                connected(("127.0.0.1", server.port), stranger) as client,
                pytest.raises(flight.FlightUnavailableError),
            ):
                list(client.do_action(flight.Action("tell", b""), stranger.options))


def test_servers_listen_where_they_are_needed_only() -> None:
    assert facing(("127.0.0.1", 7)) == "127.0.0.1"


# -- what is sent ---------------------------------------------------------------------------------------------


def test_batches_are_cut_into_pieces_that_can_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MOST_BYTES", 4_000)
    times = np.arange(1_000)
    batch = Batch(times, times + 1, {"x": pl.Series(times * 3)})
    sent = list(pieces(batch))
    assert max(piece.size for piece in sent) <= 4_000
    found = Batch.concat([decode(piece, Schema({"x": pl.Int64()})) for piece in sent])
    assert found.columns["x"].to_list() == batch.columns["x"].to_list()


def test_a_row_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MOST_BYTES", 4_000)
    batch = Batch(np.array([0]), np.array([1]), {"text": pl.Series(["x" * 5_000])})
    with pytest.raises(ClusterError, match=r"a row of text has 5,\d+ bytes, and at most 4,000 are sent at once"):
        list(pieces(batch))
    with pytest.raises(ClusterError, match="a message has 5,000 bytes"):
        list(wire.read_messages(_Reader(wire.message(b"x" * 5_000))))


class _Reader:
    def __init__(self, *batches: pa.RecordBatch) -> None:
        self._chunks = [_Chunk(batch) for batch in batches]

    def read_chunk(self) -> Any:
        if not self._chunks:
            raise StopIteration
        return self._chunks.pop()


class _Chunk:
    app_metadata = None

    def __init__(self, data: pa.RecordBatch) -> None:
        self.data = data


class _Writer:
    def __init__(self, go_on: threading.Event) -> None:
        self.go_on = go_on
        self.sent: list[Any] = []

    def __enter__(self) -> Self:
        self.go_on.wait(60)
        return self

    def __exit__(self, *error: object) -> None:
        self.sent.append("closed")

    def write_with_metadata(self, batch: pa.RecordBatch, header: bytes) -> None:
        self.sent.append(batch.column(0)[0].as_py())

    def write_metadata(self, header: bytes) -> None:
        self.sent.append(read_marks(pa.py_buffer(header)))


def test_of_clocks_only_the_last_is_sent_and_after_the_batches_before_it() -> None:
    writer = _Writer(threading.Event())
    link = Link(lambda: writer, lambda error: None)
    clock, taken = Mark(CLOCK, 1, 0, 1), Mark(TAKEN, 1, 0, 1, 2)
    link.send(1, 0, [1], pa.py_buffer(b"a"))
    for t in range(1_000):
        link.mark([(clock, t)])
    link.send(1, 0, [1], pa.py_buffer(b"b"))
    link.mark([(taken, 5)])
    assert link.put == 1_003
    writer.go_on.set()
    link.close()
    *_, last = [item for item in writer.sent if isinstance(item, tuple)]
    assert writer.sent[-1] == "closed"
    assert writer.sent[:2] == [b"a", b"b"]
    marks = [mark for item in writer.sent if isinstance(item, tuple) for mark in item[1]]
    assert sorted(marks) == [(clock, 999), (taken, 5)]
    assert last[0] == 1_003


def test_rows_are_raised_to_where_answers_are_wanted() -> None:
    batches = [
        Batch(np.array([0, 1]), np.array([3, 9]), {"x": pl.Series([1, 2])}),
        Batch(np.array([3, 5]), np.array([4, 8]), {"x": pl.Series([3, 4])}),
        Batch(np.array([6]), np.array([7]), {"x": pl.Series([5])}),
    ]
    found = [
        (row.sync.tolist(), row.other.tolist(), row.columns["x"].to_list()) for row in raised(batches, 3, brief=False)
    ]
    assert found == [([3], [9], [2]), ([3, 5], [4, 8], [3, 4]), ([6], [7], [5])]


def test_a_tally_takes_what_others_have_counted() -> None:
    here, there = Tally(2), Tally(1)
    there.add(np.array([0, 0, 2]), np.array([2, 9, 9]))
    rows, changes = there.take_counts()
    assert there.take_counts() == (0, [])
    here.add_counts(rows, changes)
    here.finish()
    assert not here.is_complete
    here.add(np.array([1]), None)
    here.finish()
    assert (here.rows, here.points().tolist()) == (4, [0, 1, 2, 9])
    assert [here.alive(point) for point in (0, 1, 2, 9)] == [2, 3, 3, 1]


def test_a_standstill_that_room_does_not_end_is_an_error() -> None:
    """Nobody waits for room, and all that was sent has come: there is no one to bring what they wait for."""
    runtime = PipedRuntime(1, 1)
    with sq.Cluster(runtime) as cluster:
        list(sq.from_frame({"x": [1]}).progressive(sq.progress.rows(1), on=cluster))
    hub = runtime.hub
    assert hub is not None
    report = {"put": {}, "received": {}, "wants_room": False, "room": 4}
    hub._on_state(0, [], {**report, "is_over": True})
    assert hub.error is None
    hub._on_state(0, [], {**report, "is_over": False})
    assert isinstance(hub.error, InternalError)

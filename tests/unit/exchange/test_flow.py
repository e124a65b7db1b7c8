"""An exchange with tiny mailboxes loses no row, keeps the order of time and never stands still."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import sleep

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squill.engine.batch import Batch
from squill.errors import InternalError
from squill.exchange.flow import Flow, Halted
from squill.exchange.mailbox import Mailbox, MailboxReader, MailboxWriter
from squill.time import INFINITY, MINUS_INFINITY

LIMIT_SECONDS = 60


def batch_of(times: list[int]) -> Batch:
    sync = np.array(times, np.int64)
    return Batch(sync, sync + 1, {"x": pl.Series("x", times)})


def run_all(work: list[Callable[[], object]], flow: Flow) -> None:
    """Run every task on a thread; a flow that stands still fails instead of hanging."""
    errors: list[BaseException] = []

    def guarded(item: Callable[[], object]) -> None:
        flow.begin()
        try:
            item()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)
            flow.halt()
        finally:
            flow.end()

    threads = [threading.Thread(target=guarded, args=(item,), daemon=True) for item in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    assert not any(thread.is_alive() for thread in threads), "the flow stands still"
    for error in errors:
        if not isinstance(error, Halted):
            raise error


def take_all(box: Mailbox, got: list[int]) -> None:
    """Take the times of all rows of a mailbox."""
    reader = MailboxReader(box)
    while reader.clock != INFINITY:
        got.extend(time for batch in reader.take() for time in batch.sync.tolist())


class Bringing:
    """An errand that sends (time, receiver) rows one by one; clocks go to all before each may block."""

    def __init__(self, rows: list[tuple[int, int]], producer: int, flow: Flow, boxes: list[Mailbox]) -> None:
        self._writer = MailboxWriter(flow, producer, {number: [box] for number, box in enumerate(boxes)})
        self._everyone = range(len(boxes))
        self._rows = iter(sorted(rows))
        self.has_room = self._writer.has_room
        self.clock = MINUS_INFINITY
        self.is_at_it = False

    @property
    def turn(self) -> tuple[int, int]:
        return self.clock, 0

    def step(self) -> bool:
        assert not self.is_at_it, "two are on one errand"
        self.is_at_it = True
        for time, receiver in self._rows:
            self._writer.tell([(self._everyone, time)])
            self.clock = time
            self._writer.send([receiver % len(self._everyone)], batch_of([time]))
            self.is_at_it = False
            return True
        self._writer.tell([(self._everyone, INFINITY)])
        return False


streams = st.lists(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), max_size=25), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(streams, st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.booleans(), st.integers(0, 4))
def test_rows_arrive_once_and_in_order(
    sent: list[list[tuple[int, int]]], receivers: int, room: int, cores: int, whole_instants: bool, errands: int
) -> None:
    """Some producers have threads of their own, the first ones are brought by who waits, and by who only helps."""
    errands = min(errands, len(sent))
    helpers = max(0, cores - receivers) if errands else 0
    flow = Flow(tasks=len(sent) - errands + receivers + helpers, cores=cores, room=room)
    boxes = [Mailbox(flow, range(len(sent)), whole_instants=whole_instants) for _ in range(receivers)]
    got: list[list[int]] = [[] for _ in range(receivers)]

    def produce(producer: int) -> None:
        bringing = Bringing(sent[producer], producer, flow, boxes)
        while bringing.step():
            pass

    def receive(receiver: int) -> None:
        reader = MailboxReader(boxes[receiver])
        while reader.clock != INFINITY:
            before = reader.clock
            for batch in reader.take():
                times = batch.sync.tolist()
                assert times[0] >= before, "a row came below the clock"
                assert times[-1] <= reader.clock, "a row came before its time"
                got[receiver].extend(times)

    work: list[Callable[[], object]] = []
    for number in range(errands):
        flow.add(Bringing(sent[number], number, flow, boxes))
    work += [flow.do_errands] * helpers
    work += [lambda number=number: produce(number) for number in range(errands, len(sent))]  # type: ignore[misc]
    work += [lambda number=number: receive(number) for number in range(receivers)]  # type: ignore[misc]
    run_all(work, flow)
    for receiver in range(receivers):
        expected = sorted(time for rows in sent for time, to in rows if to % receivers == receiver)
        assert got[receiver] == expected
        assert all(rows == 0 for rows in boxes[receiver].rows.values())


@given(
    moves=st.lists(st.tuples(st.sampled_from(["leave", "tell", "take"]), st.integers(0, 2), st.integers(0, 4))),
    whole_instants=st.booleans(),
)
def test_a_mailbox_knows_its_clock_and_whether_rows_may_leave(
    moves: list[tuple[str, int, int]], whole_instants: bool
) -> None:
    """It is told of each change, and looks at no queue to answer."""
    box = Mailbox(Flow(tasks=1, cores=1, room=4), range(3), whole_instants=whole_instants)
    clocks, left, taken = [0, 0, 0], [[], [], []], []  # type: ignore[var-annotated]
    for producer in range(3):
        box.tell(producer, 0)
    for move, producer, step in moves:
        clocks[producer] += step
        if move == "leave":
            box.leave(producer, batch_of([clocks[producer], clocks[producer] + 1]))
            left[producer] += [clocks[producer], clocks[producer] + 1]
            clocks[producer] += 1
        box.tell(producer, clocks[producer])
        if move == "take":
            due = box.due  # may be less once rows are gone
            taken += [time for run in box.take_due() for batch in run for time in batch.sync.tolist()]
            left = [[time for time in times if time > due] for times in left]
        assert box.clock == min(clocks)
        assert box.has_due == any(times and times[0] <= box.due for times in left)
        assert list(box.rows.values()) == [len(times) for times in left]
    assert all(time <= box.clock for time in taken)


def test_whole_instants_are_taken_at_once_when_all_of_their_rows_are_there() -> None:
    flow = Flow(tasks=1, cores=1, room=3)
    box = Mailbox(flow, [0, 1], whole_instants=True)
    writers = [MailboxWriter(flow, producer, {0: [box]}) for producer in (0, 1)]
    reader = MailboxReader(box)
    flow.begin()
    for writer in writers:
        writer.tell([([0], 5)])
        writer.send([0], batch_of([5]))
    assert (reader.take(), reader.clock) == ([], 5)
    writers[0].tell([([0], 6)])
    writers[0].send([0], batch_of([6]))
    writers[1].tell([([0], 6)])
    assert ([batch.sync.tolist() for batch in reader.take()], reader.clock) == ([[5, 5]], 6)
    # More than there is room for leave as they come.
    writers[0].send([0], batch_of([6, 6]))
    assert ([batch.sync.tolist() for batch in reader.take()], reader.clock) == ([[6, 6, 6]], 6)
    flow.end()


def test_two_ways_of_different_delay_get_the_room_they_need() -> None:
    """One way is held back by 50 ticks, the other is full after one row: without more room both would wait."""
    flow = Flow(tasks=2, cores=2, room=1)
    fast, slow = Mailbox(flow, [0]), Mailbox(flow, [0])
    got: list[int] = []

    def produce() -> None:
        writer_of_fast = MailboxWriter(flow, 0, {0: [fast]})
        writer_of_slow = MailboxWriter(flow, 0, {0: [slow]})
        for time in range(100):
            writer_of_slow.tell([([0], time - 50)])
            writer_of_fast.tell([([0], time)])
            writer_of_fast.send([0], batch_of([time]))
        for writer in (writer_of_fast, writer_of_slow):
            writer.tell([([0], INFINITY)])

    def receive() -> None:
        ahead, behind = MailboxReader(fast), MailboxReader(slow)
        while min(ahead.clock, behind.clock) != INFINITY:
            current = min(ahead, behind, key=lambda reader: reader.clock)
            got.extend(time for batch in current.take() for time in batch.sync.tolist())

    run_all([produce, receive], flow)
    assert got == list(range(100))
    assert 50 <= flow.room < 200, "as much room as the delay asks for, not as much as there are rows"


def test_waiting_for_what_nobody_sends_is_an_error() -> None:
    flow = Flow(tasks=2, cores=2, room=1)
    box = Mailbox(flow, [0])

    def receive() -> None:
        reader = MailboxReader(box)
        while reader.clock != INFINITY:
            reader.take()

    with pytest.raises(InternalError, match="every shard waits for rows that nobody is going to send"):
        run_all([receive, lambda: None], flow)


def test_halt_wakes_up_who_waits() -> None:
    flow = Flow(tasks=2, cores=2, room=1)
    box = Mailbox(flow, [0])
    woken = threading.Event()

    def receive() -> None:
        try:
            MailboxReader(box).take()
        except Halted:
            woken.set()
            raise

    def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        run_all([receive, fail], flow)
    assert woken.is_set()


def test_no_more_tasks_compute_at_once_than_there_are_cores() -> None:
    flow = Flow(tasks=8, cores=2, room=1)
    lock, running, most = threading.Lock(), [0], [0]

    def work() -> None:
        for _ in range(20):
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            sleep(0.0005)  # long enough for one too many to be seen
            with lock:
                running[0] -= 1

    run_all([work] * 8, flow)
    assert most[0] == 2


def run_beside(*works: Callable[[], None]) -> None:
    """Run tasks that begin and end by themselves."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)


def test_the_most_urgent_compute_first_when_others_give_way() -> None:
    flow = Flow(tasks=2, cores=1, room=1)
    order: list[str] = []
    begun = threading.Event()
    clock = [3]

    def ahead() -> None:
        flow.begin(lambda: (clock[0], 0))
        begun.set()
        while not flow._permits.is_wanted_before((9, 0)):
            sleep(0.001)
        flow.give_way()  # not yet: the other one is further
        clock[0] = 6
        order.append("has come further")
        flow.give_way()
        order.append("ends")
        flow.end()

    def behind() -> None:
        begun.wait(LIMIT_SECONDS)
        flow.begin(lambda: (5, 0))
        order.append("was behind")
        flow.give_way()
        flow.end()

    run_beside(ahead, behind)
    assert order == ["has come further", "was behind", "ends"]


def test_nobody_gives_way_before_its_turn_is_over() -> None:
    now = [100.0]
    flow = Flow(tasks=2, cores=1, room=1, turn=0.5, now=lambda: now[0])
    order: list[str] = []
    begun = threading.Event()

    def ahead() -> None:
        flow.begin(lambda: (6, 0))
        begun.set()
        while not flow._permits.is_wanted_before((6, 0)):
            sleep(0.001)
        now[0] = 100.4
        flow.give_way()
        order.append("has its turn")
        now[0] = 100.5
        flow.give_way()
        order.append("ends")
        flow.end()

    def behind() -> None:
        begun.wait(LIMIT_SECONDS)
        flow.begin(lambda: (5, 0))
        order.append("was behind")
        flow.end()

    run_beside(ahead, behind)
    assert order == ["has its turn", "was behind", "ends"]


def test_where_rows_come_from_outside_a_standstill_is_said_and_room_is_made_by_who_sees_all() -> None:
    flow = Flow(tasks=1, cores=1, room=1)
    said = threading.Event()
    flow.on_standstill = said.set
    mailbox = Mailbox(flow, [0])

    def send() -> None:
        mailbox.post(0, batch_of([1]))
        mailbox.post(0, batch_of([2]))

    def outside() -> None:
        assert said.wait(LIMIT_SECONDS)
        assert flow.room == 1
        seen: list[bool] = []
        flow.change(lambda: seen.extend([flow.stands_still, flow.wants_room, flow.is_over]))
        assert seen == [True, True, False]
        flow.make_room(4)

    helper = threading.Thread(target=outside, daemon=True)
    helper.start()
    run_all([send], flow)
    helper.join(LIMIT_SECONDS)
    assert [len(batch) for batch in mailbox.queues[0]] == [1, 1]
    assert flow.is_over


def test_errands_are_done_without_a_thread_of_their_own_the_furthest_behind_first() -> None:
    flow = Flow(tasks=1, cores=1, room=10)
    boxes = [Mailbox(flow, [0, 1])]
    done: list[tuple[int, int]] = []
    for producer, times in enumerate([[1, 5, 6], [2, 3, 4]]):
        errand = Bringing([(time, 0) for time in times], producer, flow, boxes)

        def step(errand: Bringing = errand, producer: int = producer, step: Callable[[], bool] = errand.step) -> bool:
            has_more = step()
            done.append((producer, errand.clock))
            return has_more

        errand.step = step  # type: ignore[method-assign]
        flow.add(errand)
    got: list[int] = []

    run_all([lambda: take_all(boxes[0], got)], flow)
    assert got == [1, 2, 3, 4, 5, 6]
    assert done == [(0, 1), (1, 2), (0, 5), (1, 3), (1, 4), (1, 4), (0, 6), (0, 6)]


def test_errand_for_which_there_is_no_room_waits_and_gets_it_when_all_do() -> None:
    """The receiver waits for the second producer, which has nothing before 50; the first one's rows fill the box."""
    flow = Flow(tasks=1, cores=1, room=1)
    boxes = [Mailbox(flow, [0, 1])]
    flow.add(Bringing([(time, 0) for time in range(100)], 0, flow, boxes))
    late = Bringing([(50, 0)], 1, flow, boxes)
    late.has_room = lambda: flow.room >= 8
    flow.add(late)
    got: list[int] = []

    run_all([lambda: take_all(boxes[0], got)], flow)
    assert got == sorted([*range(100), 50])
    assert flow.room == 8, "no more room than was needed"


def test_errand_that_fails_halts_who_was_on_it() -> None:
    flow = Flow(tasks=2, cores=2, room=1)
    boxes = [Mailbox(flow, [0])]
    errand = Bringing([], 0, flow, boxes)

    def fail() -> bool:
        raise Halted

    errand.step = fail  # type: ignore[method-assign]
    flow.add(errand)
    ended: list[str] = []

    def receive() -> None:
        try:
            MailboxReader(boxes[0]).take()
        except Halted:
            ended.append("halted")
            raise

    run_all([receive, receive], flow)
    assert ended == ["halted", "halted"]


def test_errands_wait_while_others_have_work_for_the_core() -> None:
    """The first task waits for rows of the second, which is ready to compute: it must not be kept from its core."""
    flow = Flow(tasks=2, cores=1, room=1_000)
    boxes = [Mailbox(flow, [0])]
    order: list[str] = []
    flow.add(Bringing([(time, 0) for time in range(10)], 0, flow, boxes))
    is_there = [False]
    begun = threading.Event()

    def first() -> None:
        flow.begin(lambda: (0, -2))
        begun.set()
        while not flow._permits.is_wanted_before((9, 9)):
            sleep(0.001)
        flow.wait_until(lambda: is_there[0])
        order.append("has waited")
        flow.end()

    def second() -> None:
        begun.wait(LIMIT_SECONDS)
        flow.begin(lambda: (0, -1))
        order.append(f"computes, {sum(boxes[0].rows.values())} rows were brought")
        flow.change(lambda: is_there.__setitem__(0, True))
        flow.end()

    run_beside(first, second)
    assert order == ["computes, 0 rows were brought", "has waited"]


def test_who_waits_on_an_errand_begins_no_other() -> None:
    """Each errand first waits for what a feeder brings: they would pile up on one thread, as deep as they are many."""
    flow = Flow(tasks=3, cores=3, room=10)
    boxes = [Mailbox(flow, range(200))]
    is_there = [False]
    depth, deepest = threading.local(), [0]

    def begun(errand: Bringing, step: Callable[[], bool]) -> Callable[[], bool]:
        def waits_first() -> bool:
            depth.now = getattr(depth, "now", 0) + 1
            deepest[0] = max(deepest[0], depth.now)
            flow.wait_until(lambda: is_there[0])
            depth.now -= 1
            return step()

        return waits_first

    for number in range(200):
        errand = Bringing([(number, 0)], number, flow, boxes)
        errand.step = begun(errand, errand.step)  # type: ignore[method-assign]
        flow.add(errand)
    got: list[int] = []

    def feed() -> None:
        sleep(0.05)  # long enough for the others to be on errands
        flow.change(lambda: is_there.__setitem__(0, True))

    run_all([lambda: take_all(boxes[0], got), flow.do_errands, feed], flow)
    assert sorted(got) == list(range(200))
    assert deepest[0] == 1

"""All shards of all fragments on threads of this process; batches pass by reference, through bounded mailboxes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from squill.errors import ClusterError, InternalError, PlanError
from squill.exchange.scatter import Outbox
from squill.plan.fragments import Channel, Fragment, ShardedPlan
from squill.plan.layout import Layout
from squill.plan.nodes import Source
from squill.plan.schema import Schema
from squill.runtime.allocation import keep_freed_memory
from squill.runtime.answer import Answer, OnReceipt, Receipt, handed_over
from squill.runtime.estimate import known_rows
from squill.runtime.local.dealing import deals_of
from squill.runtime.machine import Machine, Ports
from squill.runtime.progress import OnProgress, Progress, reporting
from squill.runtime.progressive.outlet import ChangesAnswer, Outlet
from squill.runtime.progressive.status import Watch, clocks_of
from squill.runtime.report import Work
from squill.runtime.shard import BatchInbox, Inbox, read_split, rows_per_batch
from squill.runtime.splits import splits_of_fragment
from squill.runtime.ticket import RunTicket
from squill.wording import kind_of, shortened

if TYPE_CHECKING:
    from squill.plan.nodes.live import LiveSource
    from squill.runtime.live.host import LivePlan
    from squill.runtime.live.inputs import LiveInput
    from squill.runtime.live.runner import Runner
    from squill.runtime.memory import Held

__all__ = ["LocalRuntime"]


MOST_SHARDS = 4_096


class LocalRuntime:
    """`cores` threads of this process; of several `machines`, which stand for those of a cluster, each has as many."""

    can_go_on = False
    keeps_state = True

    def __init__(self, cores: int, machines: int = 1) -> None:
        for name, value in (("cores", cores), ("machines", machines)):
            if type(value) is not int or value < 1:
                raise PlanError(f"local: {name} is {shortened(value)}", "give a whole number of at least 1.")
        _check_shards(cores * machines)
        self._cores = cores
        self._machines = machines
        self._is_closed = False

    @property
    def shards(self) -> int:
        return self._cores * self._machines

    def layout_of(self, shards: int) -> Layout:
        _check_shards(shards)
        # One process is one machine, however many shards it is given.
        return Layout(shards=shards, cores=shards if self._machines == 1 else self._cores)

    def describe(self) -> str:
        machines = "" if self._machines == 1 else f"{self._machines} machines of "
        return f"local, {machines}{self._cores} threads"

    def run(
        self,
        plan: ShardedPlan,
        answer: Answer,
        on_progress: OnProgress | None = None,
        *,
        on_receipt: OnReceipt | None = None,
        stop: Event | None = None,
        works: list[Work] | None = None,
        ticket: RunTicket | None = None,
        watch: Watch | None = None,
    ) -> list[Receipt]:
        if self._is_closed:
            raise ClusterError("this cluster is closed", "make another one with sq.local(…).")
        if self.shards > 1:
            keep_freed_memory()
        splits = {place: parts for fragment in plan.fragments for place, parts in splits_of_fragment(fragment)}
        total = sum(fragment.layout.shards for fragment in plan.fragments)

        @contextmanager
        def open_ports(fragment: Fragment, shard: int) -> Iterator[Ports]:
            yield _LocalPorts(
                lambda leaf: splits[fragment.number, leaf][shard], rows_per_batch(fragment.root), on_receipt
            )

        done = 0

        def look() -> Progress:
            # Each shard counts for itself, and nobody waits for the sum: it may be a batch behind.
            rows = sum(work.rows_read for work in machine.works)
            return Progress(stage=1, stages=1, done=done, shards=total, rows=rows)

        deals = {} if answer.keeps_shards else deals_of(plan, splits)
        machine = Machine(
            plan.fragments,
            lambda fragment: range(fragment.layout.shards),
            inner=plan.channels,
            answer=answer,
            cores=self.shards,
            deal_of=lambda routing: deals.get((routing.columns, routing.layout)),
            is_early=isinstance(answer, ChangesAnswer),
        )
        if watch is not None:
            watch.look = lambda: clocks_of(machine.works)
        with reporting(look, on_progress, lambda: known_rows(plan)) as tell:

            def on_done(count: int) -> None:
                nonlocal done
                done = count
                tell()

            results = machine.run(open_ports, on_done=on_done, stop=stop)
        if works is not None:
            works.extend(machine.works)
        return [receipt for receipt in results if receipt is not None]

    def run_early(self, plan: ShardedPlan, outlet: Outlet, *, stop: Event, watch: Watch, ha: bool) -> None:
        # Threads of one process do not get lost one by one, so there is nothing to keep for that.
        self.run(plan, ChangesAnswer(outlet), stop=stop, watch=watch)

    def refuse_early(self, *, ha: bool) -> None:
        """Threads always can."""

    def run_place(self, run_id: str) -> None:
        return None

    def refuse_channel(self, channel: str, operator: str) -> None:
        """Rows pass by reference, whatever a plan says of Spark."""

    def check(self) -> str:
        return f"{self.describe()}: nothing is needed elsewhere"

    def table_columns(self, table: Any) -> Schema:
        raise ClusterError("from_spark: this cluster has no Spark session", "use a cluster of sq.spark(…).")

    def to_table(self, plan: ShardedPlan) -> Any:
        raise ClusterError("to_spark: this cluster has no Spark session", "use a cluster of sq.spark(…), or collect().")

    def stream_columns(self, table: Any) -> Schema:
        raise PlanError(
            f"stream: {kind_of(table)} is no live source of this cluster",
            "give the path of a folder, sq.partitions(…) or a pushed sq.source(…).",
        )

    @property
    def session(self) -> None:
        return None

    def live_input(self, source: LiveSource, checkpoint: Path | None, number: int) -> LiveInput:
        from squill.runtime.live.inputs import input_for

        return input_for(source)

    def live_runner(self, plan: LivePlan) -> Runner:
        from squill.runtime.live.local import LocalRunner

        if self._is_closed:
            raise ClusterError("this cluster is closed", "make another one with sq.local(…).")
        return LocalRunner(plan, self.shards)

    def memory_folder(self) -> None:
        return None

    def hold(self, plan: ShardedPlan, on_progress: OnProgress | None, ticket: RunTicket) -> tuple[list[Receipt], Held]:
        from squill.runtime.memory import hold_in_process

        return hold_in_process(self, plan, on_progress, ticket)

    def close(self) -> None:
        self._is_closed = True


def _check_shards(shards: int) -> None:
    if shards > MOST_SHARDS:
        raise PlanError(
            f"local: {shards:,} shards, each of which is a thread of this process",
            f"give {MOST_SHARDS:,} at most; as many as there are cores are enough.",
        )


class _LocalPorts:
    """Stored sources come in; nothing leaves a process but receipts."""

    def __init__(self, split_of: Callable[[int], Source], batch_rows: int, on_receipt: OnReceipt | None) -> None:
        self._split_of = split_of
        self._batch_rows = batch_rows
        self._on_receipt = on_receipt

    def inbox(self, leaf: int) -> Inbox:
        return BatchInbox(read_split(self._split_of(leaf), self._batch_rows))

    def outbox(self, channel: Channel) -> Outbox:
        raise InternalError(f"channel {channel.number} leads out of a process that is alone")

    def answer_outbox(self) -> None:
        return None

    def result(self, receipt: Receipt | None) -> Receipt | None:
        return None if receipt is None else handed_over(receipt, self._on_receipt)

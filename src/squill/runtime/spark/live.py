"""Live shards in Spark tasks: a job for each wave of an epoch, a task for each machine.

State lives in Python workers that Spark uses again, and which of them runs a task is Spark's to say. So a task is not
bound to a machine: it takes one whose shards its worker holds at the wanted version, if nobody has taken that, else any
other, and loads their states from the checkpoint. What a task has taken stands in the epoch's folder, and is taken by
whoever tries the task again.
"""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.errors import PySparkException

from squill.errors import PlanError, SquillError
from squill.plan.fragments import Fragment
from squill.plan.live import PushedRows
from squill.plan.node import Node
from squill.plan.nodes import FrameSource
from squill.plan.nodes.live import LiveSource
from squill.plan.rebuild import substitute
from squill.plan.serialise import dumps, loads
from squill.runtime.live.host import LivePlan, ShardHost
from squill.runtime.live.orders import ShardOrder, ShardReport
from squill.runtime.live.postbox import FilePostbox, MemoryPostbox, Postbox
from squill.runtime.spark.carried import carried_error, carrying
from squill.runtime.spark.jobs import failed_without_a_word, jobs_of_one_run
from squill.runtime.spark.task import MAY_PASS
from squill.runtime.splits import without_rows
from squill.runtime.threads import Checkpoint, run_on_threads

__all__ = ["SparkRunner", "run_live_task"]

OUTPUT = pa.schema([("reports", pa.binary()), ("error", pa.binary())])
OUTPUT_DDL = "reports binary, error binary"

_hosts: dict[str, ShardHost] = {}
"""The shards that this worker holds, by query."""
MOST_QUERIES = 8


@dataclass(frozen=True, kw_only=True)
class LiveWave:
    """All that the tasks of one wave need to know.

    ``query``   names the run of the query, so that a worker knows its shards again.
    ``orders``  by machine, what its shards are to do.
    ``folder``  where rows move, and where tasks say which machine they have taken.
    """

    query: str
    plan: LivePlan
    number: int
    orders: Mapping[int, Sequence[ShardOrder]]
    folder: str
    compression: str | None

    def run(self, machine: int, attempt: int) -> list[ShardReport]:
        """Run the shards of a machine, on threads."""
        host = _host_for(self.query, self.plan)

        def run(order: ShardOrder, checkpoint: Checkpoint) -> ShardReport:
            if order.ahead:
                return host.look_ahead(order, self._postbox(order, attempt), checkpoint)
            host.read(order, checkpoint)
            return host.work(order, {}, self._postbox(order, attempt), checkpoint)

        orders = self.orders[machine]
        work = [partial(run, order) for order in orders]
        return run_on_threads(work, host.most_at_once or len(work))

    def _postbox(self, order: ShardOrder, attempt: int) -> Postbox:
        if not self.plan.fragments[order.fragment].outputs:
            return MemoryPostbox()
        path = Path(self.folder) / f"f{order.fragment}-s{order.shard}-a{attempt}.arrow"
        return FilePostbox(
            path, fragment=order.fragment, shard=order.shard, attempt=attempt, compression=self.compression
        )

    def taken_by(self, task: int) -> int:
        """Return the machine that a task takes; another attempt of it takes the same one."""
        folder = Path(self.folder)
        mine = folder / f"wave{self.number}-task{task}"
        with suppress(FileNotFoundError):
            return int(mine.read_text())
        note = folder / f".{self.number}-{task}-{os.urandom(4).hex()}"
        note.write_text(str(task))
        try:
            for machine in self._by_preference(task):
                place = folder / f"wave{self.number}-machine{machine}"
                try:
                    os.link(note, place)
                except FileExistsError:
                    if place.read_text() != str(task):
                        continue  # somebody else's
                mine.write_text(str(machine))
                return machine
        finally:
            note.unlink(missing_ok=True)
        raise RuntimeError("there are more tasks than machines")

    def _by_preference(self, task: int) -> list[int]:
        held = _host_for(self.query, self.plan).versions
        machines = sorted(self.orders)

        def lacking(machine: int) -> int:
            return sum(held.get(order.place, None) != order.before for order in self.orders[machine])

        turned = machines[task % len(machines) :] + machines[: task % len(machines)]
        return sorted(turned, key=lacking)


def _host_for(query: str, plan: LivePlan) -> ShardHost:
    if query not in _hosts:
        while len(_hosts) >= MOST_QUERIES:
            del _hosts[next(iter(_hosts))]
        cores = max(fragment.layout.cores for fragment in plan.fragments.values())
        _hosts[query] = ShardHost(plan, processes=(os.cpu_count() or 1) // cores)
    return _hosts[query]


def run_live_task(wave_bytes: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function of the task: its number in, the reports of its shards out."""
    wave: LiveWave = loads(wave_bytes)
    attempt = TaskContext.get().taskAttemptId()  # type: ignore[union-attr]
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield pa.RecordBatch.from_pylist([_line(wave, number, attempt)], schema=OUTPUT)


def _line(wave: LiveWave, number: int, attempt: int) -> dict[str, bytes]:
    try:
        return {"reports": pickle.dumps(wave.run(wave.taken_by(number), attempt))}
    except SquillError as error:
        if isinstance(error, MAY_PASS):
            raise carrying(error) from error
        return {"error": pickle.dumps(error)}


class SparkRunner:
    """Runs the waves of a live query as Spark jobs; rows move as files under `folder`, which all machines see."""

    tries = 3

    def __init__(self, session: Any, plan: LivePlan, folder: Path, query: str, compression: str | None) -> None:
        _refuse_pushed(plan)
        self._session = session
        self._folder = folder / f"squill-live-{query}"
        self._query = query
        self.take_plan(plan)
        self._compression = compression
        self._wave = 0

    def read(self, orders: Sequence[ShardOrder]) -> None:
        return None

    def work(self, orders: Sequence[ShardOrder], until: Sequence[dict[int, int]]) -> list[ShardReport]:
        self._wave += 1
        epoch_folder = self._folder / str(orders[0].epoch)
        epoch_folder.mkdir(parents=True, exist_ok=True)
        by_machine: dict[int, list[ShardOrder]] = {}
        for order in orders:
            machine = self._plan.fragments[order.fragment].layout.machine_of(order.shard)
            by_machine.setdefault(machine, []).append(order)
        wave = LiveWave(
            query=self._query,
            plan=self._plan,
            number=self._wave,
            orders=by_machine,
            folder=str(epoch_folder),
            compression=self._compression,
        )
        return self._reports(wave)

    def look_ahead(self, orders: Sequence[ShardOrder]) -> list[ShardReport]:
        return self.work(orders, [{} for _ in orders])

    def _reports(self, wave: LiveWave) -> list[ShardReport]:
        reports: list[ShardReport] = []
        errors: list[bytes] = []
        with jobs_of_one_run(self._session) as jobs:
            try:
                task = partial(run_live_task, dumps(wave))
                for batch in jobs.run_tasks(task, OUTPUT_DDL, [()] * len(wave.orders), one_by_one=False):
                    for line in batch.to_pylist():
                        if line["error"] is not None:
                            errors.append(line["error"])
                        else:
                            reports += pickle.loads(line["reports"])  # noqa: S301  (written by our own task)
            except (PySparkException, Py4JError) as error:
                carried = carried_error(str(error))
                raise carried or failed_without_a_word(error) from error
        if errors:
            raise pickle.loads(errors[0])  # noqa: S301  (written by our own task)
        return sorted(reports, key=lambda report: (report.fragment, report.shard))

    def take_plan(self, plan: LivePlan) -> None:
        self._plan = replace(plan, fragments={number: _bare(item) for number, item in plan.fragments.items()})
        # Workers know the plan by the query's name.
        self._query += "+"

    def epoch_over(self, epoch: int) -> None:
        shutil.rmtree(self._folder / str(epoch), ignore_errors=True)

    def forget(self) -> None:
        """Workers find out by themselves: what they hold is not the version that is wanted."""

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _bare(fragment: Fragment) -> Fragment:
    """Return the fragment without what only readers of its sources need."""

    def bare(node: Node) -> Node | None:
        if isinstance(node, LiveSource):
            return replace(node, live=None)
        return without_rows(node) if isinstance(node, FrameSource) else None

    return replace(fragment, root=substitute(fragment.root, bare))


def _refuse_pushed(plan: LivePlan) -> None:
    from squill.runtime.live.inputs import live_sources

    for source in live_sources(list(plan.fragments.values())).values():
        if isinstance(source.live, PushedRows):
            raise PlanError(
                f"start: rows of {source.label!r} are pushed into this process; Spark's tasks cannot read them",
                "use sq.local(…), or put the rows where tasks find them: files in a folder, or sq.partitions(…).",
            )

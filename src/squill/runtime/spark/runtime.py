"""Stages as Spark jobs, wave by wave; rows move between them as Arrow files.

Each wave is one job without a shuffle, a task for each machine of each of its stages, which reads its splits and
maps the files of earlier waves. The rows that tasks return to the driver are the manifest, and the answer comes in
files too. What waves have done is written down in the run's folder, so that another driver can go on.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from squill.errors import ClusterError, PlanError, UnsupportedOperatorError
from squill.exchange.segments import Run, runs_for
from squill.plan.build.movement import refuse_bound_columns
from squill.plan.fragments import ShardedPlan
from squill.plan.layout import Layout
from squill.plan.live import StreamingTable
from squill.plan.nodes import FileSource, FrameSource, Source
from squill.plan.schema import Schema
from squill.plan.serialise import packed
from squill.plan.stages import Stage, stages_of, waves_of
from squill.runtime.answer import DRIVER, Answer, CollectAnswer, OnReceipt, Receipt, handed_over
from squill.runtime.estimate import known_rows
from squill.runtime.hosts import HostsOf
from squill.runtime.progress import OnProgress, Progress, reporting
from squill.runtime.removal import FileRemoval
from squill.runtime.report import Work
from squill.runtime.run_folder import (
    Committed,
    Order,
    RunFolder,
    StoredSplit,
    explained,
    lost_files,
    remove_old_runs,
    run_place,
    stamp_of,
)
from squill.runtime.spark.cache import CachedRows
from squill.runtime.spark.carried import carried_error
from squill.runtime.spark.executors import check_executors, saying_what_is_missing
from squill.runtime.spark.jobs import (
    Jobs,
    as_often_as_rows_are_lost,
    failed_without_a_word,
    filler_rows,
    jobs_of_one_run,
)
from squill.runtime.spark.kinds import has_lost_java, is_connect, is_one_host, is_stopped, java_is_gone
from squill.runtime.spark.near import hadoop_hosts
from squill.runtime.spark.results import WaveResults, all_with_rows, with_rows
from squill.runtime.spark.shuffle import ByFiles, ShuffleRun, answer_table
from squill.runtime.spark.slots import check_shards
from squill.runtime.spark.small_waves import SmallWaves
from squill.runtime.spark.spool import spooled
from squill.runtime.spark.tables import columns_of
from squill.runtime.spark.task import (
    ANSWER,
    OUTPUT_DDL,
    StageJob,
    WaveJob,
    error_files,
    file_name,
    run_task,
)
from squill.runtime.splits import plan_without_rows, splits_of_fragment, without_rows
from squill.runtime.ticket import RunTicket, new_id
from squill.wording import kind_of

if TYPE_CHECKING:
    from squill.plan.nodes.live import LiveSource
    from squill.runtime.live.host import LivePlan
    from squill.runtime.live.inputs import LiveInput
    from squill.runtime.live.runner import Runner
    from squill.runtime.progressive.outlet import Outlet
    from squill.runtime.progressive.status import Watch

__all__ = ["SparkRuntime"]

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (the memory filesystem is what is wanted)


KnownRows = Callable[[], int | None]
"""How many rows a run reads, where that is known. Asked by who shows it: files are opened for it."""


class SparkRuntime:
    """`machines` Spark tasks of `cores` shards each, whose files, if any, stand in `folder` while a plan runs.

    ``session``  the Spark session; closing the runtime stops it when it `owns_session`.
    ``task``     what a task runs: a function of the job's bytes and the task's rows.
    ``hosts_of`` who knows which hosts have a file, if anybody does.
    ``pipe_task``  what a task of early answers runs instead of its own, given an `Invitation` and the task's rows.
    """

    can_go_on = True
    keeps_state = False

    def __init__(
        self,
        session: Any,
        *,
        machines: int,
        cores: int,
        folder: Path | None,
        compression: str | None = None,
        channel: str | None = None,
        owns_session: bool = False,
        tls: bool = False,
    ) -> None:
        self.session = session
        self.pipe_task: Callable[..., Iterator[Any]] | None = None
        self._tls = tls
        self.task: Callable[[bytes, Iterator[Any]], Iterator[Any]] = run_task
        self.hosts_of: HostsOf | None = hadoop_hosts(session)
        self._machines = machines
        self._cores = cores
        self.folder = folder
        self._compression = compression
        self._channel = channel or ("shuffle" if folder is None else "files")
        self._owns_session = owns_session
        self._is_closed = False
        self._is_cleaned = False

    @property
    def shards(self) -> int:
        return self._machines * self._cores

    def layout_of(self, shards: int) -> Layout:
        check_shards(shards)
        return Layout(shards=shards, cores=self._cores)

    def describe(self) -> str:
        return f"spark, {self._machines} machines of {self._cores} cores"

    def run(
        self,
        plan: ShardedPlan,
        answer: Answer,
        on_progress: OnProgress | None = None,
        *,
        on_receipt: OnReceipt | None = None,
        stop: threading.Event | None = None,
        works: list[Work] | None = None,
        ticket: RunTicket | None = None,
    ) -> list[Receipt]:
        self._check_open()
        done: list[Work] = []
        if ticket is None:
            with (alone := RunTicket(id=new_id(), action="run", owner="", started="")).scope:
                return self.run(plan, answer, on_progress, on_receipt=on_receipt, stop=stop, works=works, ticket=alone)
        with saying_what_is_missing(self.session, self._machines), jobs_of_one_run(self.session, stop) as jobs:
            if ticket.left is not None:
                ticket.scope.enter_context(ticket.left[0])
                receipts = self._go_on(jobs, *ticket.left, lambda: None, answer, on_progress, on_receipt, done)
            elif self.folder is None or "shuffle" in (ways := self._ways(plan)).values():
                by_files = ByFiles() if self.folder is None else self._by_files(ways, self.folder, ticket)
                run = ShuffleRun(self.session, jobs, plan, answer, self._compression, self.hosts_of, by_files)
                receipts = run.receipts(on_progress, on_receipt, done)
            else:
                begun = self._begun(plan, self.folder, ticket)
                receipts = self._go_on(jobs, *begun, answer, on_progress, on_receipt, done)
        if works is not None:
            works.extend(done)
        return sorted(receipts, key=lambda receipt: receipt.shard)

    def _begun(self, plan: ShardedPlan, base: Path, ticket: RunTicket) -> tuple[RunFolder, Order, KnownRows]:
        """Return the folder of a run that begins, which goes with the ticket, what is to be done, and over how much."""
        folder = self._new_folder(base, ticket)
        try:
            plan = as_often_as_rows_are_lost(partial(spooled, plan, folder.files))
        except (PySparkException, Py4JError) as error:
            raise failed_without_a_word(error) from error
        order = self._order(plan, folder, ticket.request)
        if ticket.request is not None:
            folder.keep(order)
        return folder, order, partial(known_rows, plan)

    def _new_folder(self, base: Path, ticket: RunTicket) -> RunFolder:
        if not self._is_cleaned:
            remove_old_runs(base)
            self._is_cleaned = True
        return ticket.scope.enter_context(RunFolder.make(base, ticket))

    def _order(self, plan: ShardedPlan, folder: RunFolder, request: object) -> Order:
        with explained(folder.path):
            splits = {
                (number, leaf): [
                    _stored(part, folder.files / f"f{number}-l{leaf}-{shard}.ipc") for shard, part in enumerate(parts)
                ]
                for fragment in plan.fragments
                for (number, leaf), parts in splits_of_fragment(fragment, self.hosts_of, machines_wait=False)
            }
        read = [part for parts in splits.values() for part, _ in parts if isinstance(part, FileSource)]
        stamps = {path: stamp_of(path) for part in read for path in part.paths}
        return Order(
            plan=plan_without_rows(plan),
            splits=splits,
            sources={path: stamp for path, stamp in stamps.items() if stamp is not None},
            settings=self.settings,
            request=request,
        )

    def _go_on(
        self,
        jobs: Jobs,
        folder: RunFolder,
        order: Order,
        known: KnownRows,
        answer: Answer,
        on_progress: OnProgress | None,
        on_receipt: OnReceipt | None,
        works: list[Work],
    ) -> list[Receipt]:
        """Run the waves that are not done."""
        waves = waves_of(order.plan)
        schema = order.plan.answer.root.schema
        finished = _usable(folder, waves)
        small = SmallWaves(waves)
        is_awaited = on_progress is not None or on_receipt is not None
        sent: dict[int, pa.Table] = {}
        answered: list[tuple[Receipt, Run | None]] = []
        receipts: list[Receipt] = []
        at = 0

        def look() -> Progress:
            return _progress(folder.files, waves, at, works)

        def take(receipt: Receipt, run: Run | None) -> None:
            if on_receipt is None:
                answered.append((receipt, run))
            else:
                receipts.append(handed_over(with_rows(receipt, run, schema), on_receipt))

        with reporting(look, on_progress, known), FileRemoval() as removal:
            for at, stages in enumerate(waves):
                number = at + 1
                if number in finished:
                    done = finished[number]
                    works += done.works
                    for receipt, run in _answered(done):
                        take(receipt, run)
                else:
                    tasks = sum(stage.layout.machines for stage in stages)
                    filling = filler_rows(self.session, tasks) if is_awaited else 0
                    stage_jobs = tuple(self._job(stage, sent, folder.files, order, answer) for stage in stages)
                    wave = WaveJob(jobs=stage_jobs, filling=filling)
                    results, begin = WaveResults(works), len(works)
                    notes: list[Receipt] = []
                    for receipt, run in self._run_wave(jobs, wave, small, folder.files, results, is_awaited=is_awaited):
                        notes.append(receipt)
                        take(receipt, run)
                    done = Committed(manifest=results.manifest(), receipts=notes, works=works[begin:])
                    # What stands elsewhere goes with its driver: its stage is run again.
                    if order.request is not None and all(receipt.note is None for receipt in notes):
                        folder.commit(number, done)
                sent |= {channel: done.manifest for stage in stages for channel in stage.outputs}
                removal.remove(_unread_files(sent, _read_later(waves, number)))
        return receipts if on_receipt is not None else all_with_rows(answered, schema)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClusterError("this cluster is closed", "make another one with sq.spark(…).")
        if is_stopped(self.session):
            if not is_connect(self.session) and has_lost_java(self.session.sparkContext):
                raise java_is_gone()
            raise ClusterError(
                "the Spark session of this cluster has been stopped",
                "start another session, and make another cluster on it with sq.spark(session).",
            )

    def refuse_channel(self, channel: str, operator: str) -> None:
        if channel == "files" and self.folder is None:
            raise ClusterError(
                f"{operator}: channel='files' needs a folder that all machines and this process see",
                'give one: sq.spark(session, folder="/mnt/shared"), or leave channel out.',
            )

    def _ways(self, plan: ShardedPlan) -> dict[int, str]:
        """Return by channel how its rows go, of those that leave a machine."""
        leaving = {channel for stage in stages_of(plan) for channel in stage.outputs}
        return {number: plan.channels[number].routing.channel or self._channel for number in leaving}

    def _by_files(self, ways: Mapping[int, str], base: Path, ticket: RunTicket) -> ByFiles:
        """Return which channels of a run through the shuffle go by files; their folder goes with the ticket."""
        channels = frozenset(number for number, way in ways.items() if way == "files")
        if not channels:
            return ByFiles()
        return ByFiles(channels=channels, folder=str(self._new_folder(base, ticket).files))

    def _job(self, stage: Stage, sent: dict[int, pa.Table], files: Path, order: Order, answer: Answer) -> StageJob:
        """Return the job; a plan goes to every task of it, a shard's rows only to its own."""
        numbers = {fragment.number for fragment in stage.fragments}
        return StageJob(
            stage=stage,
            folder=str(files),
            compression=order.settings["compression"],
            splits={place: parts for place, parts in order.splits.items() if place[0] in numbers},
            inboxes={channel: sent[channel] for channel in stage.inputs},
            answer=answer,
        )

    def _run_wave(
        self, jobs: Jobs, wave: WaveJob, small: SmallWaves, files: Path, results: WaveResults, *, is_awaited: bool
    ) -> Iterator[tuple[Receipt, Run | None]]:
        """Run one job; yield the receipts of the answer, and what holds their rows, as tasks finish."""
        try:
            content, holds_code = packed(wave)
            batches: Iterable[pa.RecordBatch] | None = small.run(wave, holds_code=holds_code)
            if batches is None:
                batches = jobs.run_tasks(partial(self.task, content), OUTPUT_DDL, wave.hosts(), one_by_one=is_awaited)
            for batch in batches:
                yield from results.add(batch)
        except (PySparkException, Py4JError) as error:
            raise _reported(wave, files, error) from error
        results.raise_first_error()

    def run_early(self, plan: ShardedPlan, outlet: Outlet, *, stop: threading.Event, watch: Watch, ha: bool) -> None:
        from squill.runtime.spark.pipes.run import PipedRun

        self._check_open()
        with saying_what_is_missing(self.session, self._machines):
            PipedRun(
                self.session,
                plan,
                outlet,
                machines=self._machines,
                cores=self._cores,
                folder=self.folder if ha else None,
                tls=self._tls,
                task=self.pipe_task,
            ).run(stop, watch)

    def refuse_early(self, *, ha: bool) -> None:
        if is_connect(self.session):
            raise UnsupportedOperatorError(
                "progressive: the tasks of Spark Connect cannot reach this process, which early answers come to",
                "run the query with sq.local(…), or where the Spark driver is.",
            )
        if ha and self.folder is None:
            raise ClusterError(
                "progressive: ha=True keeps rows in files, and this cluster has no folder for them",
                "name one that all machines see: sq.spark(…, folder=…).",
            )

    def run_place(self, run_id: str) -> Path | None:
        return None if self.folder is None else run_place(self.folder, run_id)

    @property
    def settings(self) -> dict[str, Any]:
        """What `start_runtime` needs to make a cluster like this one."""
        return {
            "master": self.session.conf.get("spark.master", None),
            "machines": self._machines,
            "cores": self._cores,
            "folder": self.folder,
            "channel": self._channel,
            "compression": self._compression,
            "tls": self._tls,
        }

    def check(self) -> str:
        self._check_open()
        return check_executors(self.session, self._machines, self.folder)

    def table_columns(self, table: Any) -> Schema:
        if getattr(table, "isStreaming", False) is True:
            raise PlanError(
                "from_spark: the DataFrame is a streaming one, whose rows have no end",
                "cluster.stream(df, start=…) takes it, for a plan that is run with start().",
            )
        return columns_of(table, "from_spark")

    def stream_columns(self, table: Any) -> Schema:
        if not getattr(table, "isStreaming", False):
            raise PlanError(
                f"stream: {kind_of(table)} is no live source",
                "give the path of a folder, a streaming DataFrame (spark.readStream…), or sq.partitions(…).",
            )
        return columns_of(table, "stream")

    def live_input(self, source: LiveSource, checkpoint: Path | None, number: int) -> LiveInput:
        from squill.runtime.live.inputs import input_for
        from squill.runtime.spark.streams import TableInput

        if not isinstance(source.live, StreamingTable):
            return input_for(source)
        assert checkpoint is not None
        return TableInput(source, checkpoint / "tables" / str(number))

    def live_runner(self, plan: LivePlan) -> Runner:
        from squill.runtime.spark.live import SparkRunner

        self._check_open()
        if self.folder is None:
            raise ClusterError(
                "start: the states and rows of a live query are files, and this cluster has no folder for them",
                "name one that all machines see: sq.spark(…, folder=…).",
            )
        return SparkRunner(self.session, plan, self.folder, new_id(), self._compression)

    def to_table(self, plan: ShardedPlan) -> Any:
        """Return the answer as a DataFrame of the session."""
        self._check_open()
        return answer_table(self.session, plan, self._compression, self.hosts_of)

    def memory_folder(self) -> Path | None:
        if not is_one_host(self.session):
            return None  # of several, Spark's cache
        return SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())

    def hold(
        self, plan: ShardedPlan, on_progress: OnProgress | None, ticket: RunTicket
    ) -> tuple[list[Receipt], CachedRows]:
        """Keep the answer in Spark's cache. Rows go through the shuffle: Spark makes anew what it loses of them."""
        self._check_open()
        if ticket.left is not None:
            ticket.scope.enter_context(ticket.left[0])
        with saying_what_is_missing(self.session, self._machines), jobs_of_one_run(self.session) as jobs:
            answer = CollectAnswer(keeps_shards=True)
            return ShuffleRun(self.session, jobs, plan, answer, self._compression, self.hosts_of).held(on_progress)

    def close(self) -> None:
        if self._owns_session and not self._is_closed:
            _stop(self.session)
        self._is_closed = True


def _stop(session: Any) -> None:
    if is_connect(session) or not has_lost_java(session.sparkContext):
        session.stop()
        return
    # The first finds that there is no Java, the second lets go of all else.
    for _ in range(2):
        with suppress(Py4JError, OSError):
            session.stop()


def _usable(folder: RunFolder, waves: Sequence[Sequence[Stage]]) -> dict[int, Committed]:
    """Return by wave what is done; nothing of it when files that are still to be read are lost."""
    finished = folder.committed()
    if not finished:
        return {}
    last = max(finished)
    wanted = {ANSWER} if last == len(waves) else _read_later(waves, last)
    for done in finished.values():
        if lost_files(done.manifest.filter(pc.field("channel").isin(sorted(wanted)))):
            folder.start_over()
            return {}
    folder.remove_unaccepted({path for done in finished.values() for path in done.manifest.column("path").to_pylist()})
    return finished


def _answered(done: Committed) -> Iterator[tuple[Receipt, Run | None]]:
    """Yield the receipts of the answer that a wave which is done has given, and what holds their rows."""
    runs = {run.shard: run for run in runs_for(ANSWER, DRIVER, done.manifest)}
    for receipt in done.receipts:
        yield receipt, runs.get(receipt.shard)


def _read_later(waves: Sequence[Sequence[Stage]], number: int) -> set[int]:
    """Return the channels that waves after this one read."""
    return {channel for stages in waves[number:] for stage in stages for channel in stage.inputs}


def _stored(split: Source, path: Path) -> StoredSplit:
    """Return the split as tasks get it; rows in memory become a file."""
    if not isinstance(split, FrameSource):
        return split, None
    refuse_bound_columns(split.schema, f"input {split.label!r}")
    split.frame.write_ipc(path)
    return without_rows(split), str(path)


def _unread_files(sent: dict[int, pa.Table], wanted: set[int]) -> set[str]:
    """Forget the channels that nobody is going to read; return the files that hold nothing else."""
    unread = [sent.pop(channel) for channel in list(sent) if channel not in wanted]
    return _paths(unread) - _paths(sent.values())


def _paths(manifests: Iterable[pa.Table]) -> set[str]:
    return {path for manifest in manifests for path in manifest.column("path").unique().to_pylist()}


def _reported(wave: WaveJob, folder: Path, error: Exception) -> Exception:
    """Return the error that the last attempt has left, or what Spark says when the worker died without a word."""
    for path in error_files(folder, wave):
        failure = pickle.loads(path.read_bytes())  # noqa: S301  (written by our own task)
        assert isinstance(failure, Exception)
        return failure
    carried = carried_error(str(error))
    if carried is not None:
        return carried
    return failed_without_a_word(error, [fragment for job in wave.jobs for fragment in job.stage.fragments])


def _progress(folder: Path, waves: Sequence[Sequence[Stage]], at: int, works: Sequence[Work]) -> Progress:
    """Return how far a wave is, as told by its files, whatever the kind of session; rows by the tasks that are done."""
    names = [path.name for stage in waves[at] for path in folder.glob(file_name(stage.number, "*", "*", "*"))]
    return Progress(
        stage=at + 1,
        stages=len(waves),
        done=len({tuple(name.split("-")[:3]) for name in names}),
        shards=sum(len(stage.fragments) * stage.layout.shards for stage in waves[at]),
        rows=sum(work.rows_read for work in works),
    )

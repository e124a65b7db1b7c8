"""A whole plan as one Spark job, whose stages are Spark's own: rows move as parcels through its shuffle.

Works wherever Spark does: nothing but the shuffle is shared between machines. Spark keeps the retries and the
lineage. The driver gets the answer as parcels too. Movements that are to go by files do, where there is a folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from squill.engine.batch import Batch
from squill.engine.egress import result_frame
from squill.errors import ClusterError, PlanError
from squill.exchange.codec import decode
from squill.plan.fragments import Fragment, ShardedPlan, sources_of
from squill.plan.nodes import FrameSource
from squill.plan.nodes.tables import CachedSource, TableSource
from squill.plan.serialise import dumps
from squill.plan.stages import waves_of
from squill.plan.storable import refuse_unstorable
from squill.runtime.answer import Answer, CollectAnswer, OnReceipt, Receipt, handed_over
from squill.runtime.estimate import known_rows
from squill.runtime.hosts import HostsOf
from squill.runtime.progress import OnProgress, Progress, reporting
from squill.runtime.report import Work
from squill.runtime.spark.cache import CachedRows, cached_parcels, in_cache, reports_of
from squill.runtime.spark.carried import carried_error
from squill.runtime.spark.jobs import Jobs, as_often_as_rows_are_lost, failed_without_a_word, filler_rows
from squill.runtime.spark.kinds import is_connect
from squill.runtime.spark.near import task_rows
from squill.runtime.spark.parcel import MARK, PARCEL, PARCEL_DDL
from squill.runtime.spark.parcels import ParcelReader, Spool
from squill.runtime.spark.shuffle_task import (
    ShuffleJob,
    frame_parcels,
    rows_of_answer,
    run_shuffle_task,
    table_parcels,
)
from squill.runtime.spark.tables import answer_schema, answer_types, as_frames, map_rows, tables_of, wanted_rows
from squill.runtime.splits import plan_without_rows, splits_of_fragment, stage_without_rows, without_rows

__all__ = ["ByFiles", "ShuffleRun", "answer_table"]


@dataclass(frozen=True, kw_only=True)
class ByFiles:
    """The channels whose rows go by files all the same, and the folder for them, which all machines see."""

    channels: frozenset[int] = frozenset()
    folder: str = ""


ALL_THROUGH_THE_SHUFFLE = ByFiles()
BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


class ShuffleRun:
    """One run of a plan."""

    def __init__(
        self,
        session: Any,
        jobs: Jobs,
        plan: ShardedPlan,
        answer: Answer,
        compression: str | None,
        hosts_of: HostsOf | None = None,
        by_files: ByFiles = ALL_THROUGH_THE_SHUFFLE,
    ) -> None:
        self._session = session
        self._jobs = jobs
        self._plan = plan
        self._answer = answer
        self._compression = compression
        self._hosts_of = hosts_of
        self._by_files = by_files
        self._rows_read: Any = None
        leaves = [source for fragment in plan.fragments for source in sources_of(fragment.root)]
        self._sent_before = sum(any(isinstance(leaf, kind) for leaf in leaves) for kind in (FrameSource, TableSource))

    def receipts(
        self, on_progress: OnProgress | None, on_receipt: OnReceipt | None, works: list[Work]
    ) -> list[Receipt]:
        """Run it; return the receipts of the answer's shards, which `on_receipt` is given as tasks finish."""
        table = self._parcels(on_progress, is_awaited=on_receipt is not None)
        return self._read(table, on_progress, on_receipt, works)

    def held(self, on_progress: OnProgress | None) -> tuple[list[Receipt], CachedRows]:
        """Run it and keep the answer in Spark's cache; return notes of its shards, and what holds the rows."""
        bare = plan_without_rows(as_frames(self._plan)).answer.root
        table = in_cache(self._parcels(on_progress), bare)
        held = CachedRows(self._session, table)
        try:
            return self._read(reports_of(table), on_progress, None, []), held
        except BaseException:
            held.free()
            raise

    def _parcels(self, on_progress: OnProgress | None, *, is_awaited: bool = False) -> Any:
        """Return the DataFrame of what the driver is to have."""
        tasks = sum(stage.layout.machines for stage in waves_of(self._plan)[-1])
        filling = filler_rows(self._session, tasks) if is_awaited else 0
        if on_progress is not None and not is_connect(self._session):
            # What tasks add is here once they are done; Spark Connect has no such counts.
            self._rows_read = self._session.sparkContext.accumulator(0)
        job, parcels = _job(
            as_frames(self._plan), self._answer, self._compression, self._hosts_of, filling, self._by_files
        )
        return _answer_parcels(self._session, tables_of(self._plan), job, parcels, self._rows_read)

    def _read(
        self, table: Any, on_progress: OnProgress | None, on_receipt: OnReceipt | None, works: list[Work]
    ) -> list[Receipt]:
        schema = self._plan.answer.root.schema
        found: dict[int, Receipt] = {}

        def take() -> None:
            done: list[Work] = []
            # Without anybody who takes them, all rows are in memory in the end.
            with Spool(is_taken=on_receipt is not None) as spool:
                reader = ParcelReader(spool, done)
                for receipt, kept in self._jobs.read(table, reader.read):
                    pieces = [decode(spool.take(place), schema) for place in kept]
                    if receipt.shard not in found:  # a job that was run again brings what came before too
                        found[receipt.shard] = handed_over(replace(receipt, pieces=pieces), on_receipt)
                reader.raise_first_error()
            works.extend(done)

        with reporting(self._look, on_progress, partial(known_rows, self._plan)):
            try:
                as_often_as_rows_are_lost(take)
            except (PySparkException, Py4JError) as error:
                raise carried_error(str(error)) or failed_without_a_word(error) from error
        return list(found.values())

    def _look(self) -> Progress:
        """Return how far it is, as told by Spark's stages, which are the waves; a task counts as its shards."""
        waves = waves_of(self._plan)
        stages = self._jobs.stages()
        # Frames and tables are sent to their shards before the first wave.
        over = sum(done == tasks for done, tasks in stages) - self._sent_before
        at = min(max(over, 0), len(waves) - 1)
        shards = sum(len(stage.fragments) * stage.layout.shards for stage in waves[at])
        part = max((done / tasks for done, tasks in stages if done < tasks), default=0.0) if over >= 0 else 0.0
        rows = None if self._rows_read is None else self._rows_read.value
        return Progress(stage=at + 1, stages=len(waves), done=int(part * shards), shards=shards, rows=rows)


def answer_table(session: Any, plan: ShardedPlan, compression: str | None, hosts_of: HostsOf | None = None) -> Any:
    """Return the answer as a DataFrame; nothing runs before Spark is asked for its rows."""
    node = plan.answer.root
    if node.codecs:
        raise PlanError(
            f"to_spark: the columns {', '.join(node.codecs)} hold Python objects", "drop them, or collect() instead."
        )
    refuse_unstorable(node.schema, "to_spark")
    empty = result_frame(Batch.empty(dict(node.schema)), node)
    schema = answer_schema(empty, node.schema)
    framed = as_frames(plan)
    # Tasks have no use for the rows that it reads, and a DataFrame cannot be sent to them.
    bare = plan_without_rows(framed).answer.root
    make_rows = partial(rows_of_answer, dumps(bare), answer_types(empty))
    # Its rows may be asked for at any time, when files would be gone: everything goes through the shuffle.
    job, parcels = _job(framed, CollectAnswer(), compression, hosts_of)
    job = replace(job, is_table=True)
    return _answer_parcels(session, tables_of(plan), job, parcels).mapInArrow(make_rows, schema)


def _answer_parcels(
    session: Any,
    tables: Sequence[tuple[Fragment, int, TableSource]],
    job: ShuffleJob,
    parcels: list[pa.RecordBatch],
    rows_read: Any = None,
) -> Any:
    job_bytes = dumps(job)
    rows = _first_rows(session, job, parcels)
    for fragment, leaf, source in tables:
        if isinstance(source, CachedSource):
            rows = rows.union(cached_parcels(source, job_bytes, fragment.number, leaf))
            continue
        send = partial(table_parcels, job_bytes, fragment.number, leaf)
        rows = rows.union(map_rows(wanted_rows(source), send, PARCEL_DDL))
    for wave in range(len(job.waves)):
        if wave or tables:
            placed = rows.repartitionById(job.tasks(wave), "target")
            rows = placed.sortWithinPartitions("first", "kind", "sender", "number")
        rows = rows.mapInArrow(partial(run_shuffle_task, job_bytes, wave, rows_read), PARCEL_DDL)
    return rows


def _job(
    plan: ShardedPlan,
    answer: Answer,
    compression: str | None,
    hosts_of: HostsOf | None,
    filling: int = 0,
    by_files: ByFiles = ALL_THROUGH_THE_SHUFFLE,
) -> tuple[ShuffleJob, list[pa.RecordBatch]]:
    """Return the job, which every task gets, and the rows of frames, of which each shard gets its own."""
    splits = {place: parts for fragment in plan.fragments for place, parts in splits_of_fragment(fragment, hosts_of)}
    by_number = {fragment.number: fragment for fragment in plan.fragments}
    job = ShuffleJob(
        waves=tuple(tuple(map(stage_without_rows, wave)) for wave in waves_of(plan)),
        senders={number: by_number[channel.sender].layout.shards for number, channel in plan.channels.items()},
        schemas={number: channel.schema for number, channel in plan.channels.items()},
        splits={place: [without_rows(split) for split in parts] for place, parts in splits.items()},
        compression=compression,
        answer=answer,
        filling=filling,
        files=by_files.channels,
        folder=by_files.folder,
    )
    parcels = [
        row
        for (fragment, leaf), parts in splits.items()
        for shard, split in enumerate(parts)
        if isinstance(split, FrameSource)
        for row in frame_parcels(job, split.frame, fragment, leaf, shard)
    ]
    return job, parcels


def _first_rows(session: Any, job: ShuffleJob, parcels: list[pa.RecordBatch]) -> Any:
    """Return what the first wave's tasks are given: a mark, and the rows of frames, if there are any."""
    tasks = job.tasks(0)
    if parcels:
        _check_takes_tables(session)
        table = pa.Table.from_batches([*job.marks(0, range(tasks)), *parcels], schema=PARCEL)
        return session.createDataFrame(table).repartitionById(tasks, "target")
    return task_rows(session, job.hosts(0)).selectExpr(*_columns_of_marks())


def _check_takes_tables(session: Any) -> None:
    """Raise where `createDataFrame` fails on Arrow tables: it cuts them as the setting says, also if that is never."""
    rows = session.conf.get(BATCH_ROWS, "10000")
    if int(rows) < 1:
        raise ClusterError(
            f"spark: {BATCH_ROWS} is {rows} in the session, and so Spark takes no rows of frames",
            f'session.conf.set("{BATCH_ROWS}", "10000") before the run; or scan() files, with channel="files".',
        )


def _columns_of_marks() -> list[str]:
    given = {"wave": "0", "target": "id", "kind": str(MARK)}
    columns = (item.split() for item in PARCEL_DDL.split(", "))
    return [f"cast({given.get(name, 'null')} as {kind}) as {name}" for name, kind in columns]

"""A whole plan as one Spark job, whose stages are Spark's own: rows move as parcels through its shuffle.

Works wherever Spark does: nothing but the shuffle is shared between machines. Spark keeps the retries and the
lineage. The driver gets the answer as parcels too.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from squill.engine.batch import Batch
from squill.engine.egress import result_frame
from squill.errors import PlanError
from squill.exchange.codec import decode
from squill.plan.fragments import ShardedPlan
from squill.plan.nodes import FrameSource
from squill.plan.serialise import dumps
from squill.plan.stages import waves_of
from squill.runtime.answer import Answer, CollectAnswer, Receipt
from squill.runtime.hosts import HostsOf
from squill.runtime.report import Work
from squill.runtime.spark.jobs import failed_without_a_word
from squill.runtime.spark.near import task_rows
from squill.runtime.spark.shuffle_task import (
    ERROR,
    PARCEL,
    PARCEL_DDL,
    RECEIPT,
    WORK,
    ShuffleJob,
    carried_error,
    frame_parcels,
    rows_of_answer,
    run_shuffle_task,
    table_parcels,
)
from squill.runtime.spark.tables import answer_schema, as_frames, spark_frame, tables_of, wanted_rows
from squill.runtime.splits import splits_of_fragment, stage_without_rows, without_rows

__all__ = ["answer_table", "run_by_shuffle"]


def run_by_shuffle(
    session: Any,
    plan: ShardedPlan,
    answer: Answer,
    compression: str | None,
    works: list[Work],
    hosts_of: HostsOf | None = None,
) -> list[Receipt]:
    """Return the receipts of the answer's shards, in their order."""
    try:
        parcels = _answer_parcels(session, plan, answer, compression, hosts_of).toArrow()
    except (PySparkException, Py4JError) as error:
        raise carried_error(str(error)) or failed_without_a_word(error) from error
    return _receipts(parcels, plan, works)


def answer_table(session: Any, plan: ShardedPlan, compression: str | None, hosts_of: HostsOf | None = None) -> Any:
    """Return the answer as a DataFrame; nothing runs before Spark is asked for its rows."""
    node = plan.answer.root
    if node.codecs:
        raise PlanError(
            f"to_spark: the columns {', '.join(node.codecs)} hold Python objects", "drop them, or collect() instead."
        )
    empty = result_frame(Batch.empty(dict(node.schema)), node)
    schema = answer_schema(empty)
    make_rows = partial(rows_of_answer, dumps(node), spark_frame(empty).to_arrow().schema)
    return _answer_parcels(session, plan, CollectAnswer(), compression, hosts_of).mapInArrow(make_rows, schema)


def _answer_parcels(
    session: Any, plan: ShardedPlan, answer: Answer, compression: str | None, hosts_of: HostsOf | None
) -> Any:
    tables = tables_of(plan)
    job, parcels = _job(as_frames(plan), answer, compression, hosts_of)
    job_bytes = dumps(job)
    rows = _first_rows(session, job, parcels)
    for fragment, leaf, source in tables:
        send = partial(table_parcels, job_bytes, fragment.number, leaf)
        rows = rows.union(wanted_rows(source).mapInArrow(send, PARCEL_DDL))
    for wave in range(len(job.waves)):
        if wave or tables:
            placed = rows.repartitionById(job.tasks(wave), "target")
            rows = placed.sortWithinPartitions("first", "kind", "sender", "number")
        rows = rows.mapInArrow(partial(run_shuffle_task, job_bytes, wave), PARCEL_DDL)
    return rows


def _job(
    plan: ShardedPlan, answer: Answer, compression: str | None, hosts_of: HostsOf | None
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
    """Return what the first wave's tasks are given: the rows of frames, if there are any."""
    tasks = job.tasks(0)
    if parcels:
        table = pa.Table.from_batches(parcels, schema=PARCEL)
        return session.createDataFrame(table).repartitionById(tasks, "target")
    return task_rows(session, job.hosts(0)).where("id < 0").selectExpr(*_blank_columns())


def _blank_columns() -> list[str]:
    return [f"cast(null as {kind}) as {name}" for name, kind in (item.split() for item in PARCEL_DDL.split(", "))]


def _receipts(answer: pa.Table, plan: ShardedPlan, works: list[Work]) -> list[Receipt]:
    rows = answer.select(["kind", "sender", "number", "data"]).to_pylist()
    for row in rows:
        if row["kind"] == ERROR:
            raise pickle.loads(row["data"])  # noqa: S301  (written by our own task)
    runs: dict[int, list[Batch]] = {}
    receipts: list[Receipt] = []
    schema = plan.answer.root.schema
    for row in sorted(rows, key=lambda row: (row["sender"], row["number"])):
        if row["kind"] == RECEIPT:
            receipts.append(pickle.loads(row["data"]))  # noqa: S301  (written by our own task)
        elif row["kind"] == WORK:
            works.append(pickle.loads(row["data"]))  # noqa: S301
        else:
            runs.setdefault(row["sender"], []).append(decode(pa.py_buffer(row["data"]), schema))
    return [replace(receipt, pieces=runs.get(receipt.shard, ())) for receipt in receipts]

"""Clusters: where sharded queries run. `local` is threads of this process, `spark` a Spark session."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from squill import ingest
from squill.arguments import URLS_HINT
from squill.errors import PlanError
from squill.plan.build import live
from squill.plan.build.movement import checked_shards, split
from squill.plan.build.names import with_free_names
from squill.plan.build.refresh import refresh_of
from squill.plan.build.sources import table_source
from squill.plan.events import throw
from squill.plan.expressions import IntoExpression
from squill.plan.layout import Layout
from squill.plan.live import Partitions, Refresh
from squill.plan.node import Node
from squill.plan.nodes import Disorder, FileSource, FrameSource
from squill.plan.nodes.sources import KEEP_LATE
from squill.plan.paths import written_path
from squill.plan.rewrite.parallelise import parallelise
from squill.sharded import ShardedStream
from squill.stream import Stream
from squill.time import Duration
from squill.wording import kind_of, shortened

if TYPE_CHECKING:
    from squill.catalog import Catalog, RunRecord
    from squill.plan.dataset import Dataset
    from squill.runtime.datasets import Datasets
    from squill.runtime.progressive.answers import EarlyAnswers
    from squill.runtime.resume import Resumed
    from squill.runtime.run_folder import Order, RunFolder
    from squill.runtime.runs import Runs
    from squill.runtime.runtime import Runtime

__all__ = ["Cluster", "checked_cluster", "local", "resume", "spark"]

Names = str | Sequence[str] | None
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Folder = str | os.PathLike[str]

WAREHOUSE = "squill-warehouse"
"""The folder of the catalog unless the user names one, in the working folder."""


def _catalog_place(warehouse: Folder | None, catalog: str | None) -> tuple[str, Path | None]:
    """Return the URL of the catalog, and its file when it is nobody's choice."""
    if catalog is not None and not isinstance(catalog, str):
        raise PlanError(f"catalog: {shortened(catalog)} is no URL of a database", URLS_HINT)
    file = written_path(WAREHOUSE if warehouse is None else warehouse, "warehouse").resolve() / "catalog.sqlite"
    return catalog or f"sqlite:///{file}", file if warehouse is None and catalog is None else None


class Cluster:
    """Shards to run queries on, and the datasets that they made. As a context it closes itself."""

    def __init__(self, runtime: Runtime, *, warehouse: Folder | None = None, catalog: str | None = None) -> None:
        self._runtime = runtime
        self._catalog_url, self._default_catalog = _catalog_place(warehouse, catalog)
        self._runs: Runs | None = None
        self._datasets: Datasets | None = None

    @property
    def shards(self) -> int:
        """How many shards run at once; what data is cut into unless the plan says otherwise."""
        return self._runtime.shards

    @property
    def runtime(self) -> Runtime:
        """What runs the shards."""
        return self._runtime

    def __repr__(self) -> str:
        return f"Cluster({self._runtime.describe()})"

    def from_frame(
        self,
        frame: Any,
        start: IntoExpression | None = None,
        end: IntoExpression | None = None,
        lifetime: str = "point",
        *,
        shards: int | None = None,
        name: str | None = None,
        keep_time: bool = False,
        sorted_by: Names = None,
        packed: Names = None,
        duration: Duration | None = None,
        unique: Names = None,
        trust: bool = False,
    ) -> ShardedStream:
        """Return the rows of a table, whose blocks go to `shards` shards in turn; see `squill.from_frame`.

        Rows of equal `packed=` columns stay on one shard, so that a query by them needs no `redistribute()`; rows that
        break this promise are an error, also where they would be on several shards, unless `trust=True`.
        """
        stream = ingest.from_frame(
            frame,
            start,
            end,
            lifetime,
            name=name,
            keep_time=keep_time,
            sorted_by=sorted_by,
            packed=packed,
            duration=duration,
            unique=unique,
            trust=trust,
        )
        return self._split(stream, shards, "from_frame")

    def scan(
        self,
        paths: Paths,
        start: IntoExpression | None = None,
        end: IntoExpression | None = None,
        lifetime: str = "point",
        *,
        shards: int | None = None,
        format: str | None = None,  # noqa: A002  (the public name)
        schema: Mapping[str, Any] | None = None,
        name: str | None = None,
        keep_time: bool = False,
        sorted_by: Names = None,
        packed: Names = None,
        duration: Duration | None = None,
        unique: Names = None,
        trust: bool = False,
        refresh: Duration | None = None,
    ) -> ShardedStream:
        """Return the rows of files, of which each of `shards` shards reads its own parts; see `squill.scan`.

        Parquet is cut between row groups, ipc between record batches, csv and ndjson between lines, but for csv
        files that hold quotation marks, which are not cut; nor are files of a source with `packed=` columns, of
        which equal keys stay on one shard; that no key is in files of two shards is looked up before, by reading these
        columns, unless `trust=True`. `sorted_by=` and `unique=` are checked within what each shard reads, since no plan
        needs more of them. A dataset, as `to_storage` writes it, comes with its key, on as many
        shards as it was written by unless `shards` says otherwise.

        Beside live inputs a stored one is read once; a table without times is read again every `refresh`, such as
        "10m" of the wall clock. Rows that are gone then end at the query's time, new ones begin there, all others go
        on. In a plan that is not live `refresh` means nothing.
        """
        stream = ingest.scan(
            paths,
            start,
            end,
            lifetime,
            format=format,
            schema=schema,
            name=name,
            keep_time=keep_time,
            sorted_by=sorted_by,
            packed=packed,
            duration=duration,
            unique=unique,
            trust=trust,
        )
        return self._split(stream, shards, "scan", refresh_of(refresh, stream.plan, paths, format, schema))

    def from_spark(
        self,
        table: Any,
        start: IntoExpression | None = None,
        end: IntoExpression | None = None,
        lifetime: str = "point",
        *,
        shards: int | None = None,
        name: str | None = None,
        keep_time: bool = False,
    ) -> ShardedStream:
        """Return the rows of a Spark DataFrame of this cluster's session; see `squill.from_frame`.

        Columns that nobody uses and rows that a simple filter drops are left out by Spark itself.
        """
        columns = self._runtime.table_columns(table)
        node = table_source(table, columns, start, end, lifetime, name, keep_time=keep_time)
        return ShardedStream(self, split(with_free_names(node), self.layout(shards, "from_spark")))

    def stream(
        self,
        source: Any,
        start: IntoExpression | None = None,
        end: IntoExpression | None = None,
        lifetime: str = "point",
        *,
        disorder: Disorder | None = None,
        files_per_epoch: int | None = None,
        format: str | None = None,  # noqa: A002  (the public name)
        schema: Mapping[str, Any] | None = None,
        shards: int | None = None,
        name: str | None = None,
        keep_time: bool = False,
        keep_late: int = KEEP_LATE,
        idle_after: Duration | None = "1m",
    ) -> ShardedStream:
        """Return rows that keep coming, for a plan that is run with `start`.

        `source` is a folder, in which files appear (whole, and under their final names), the user's own
        `sq.partitions(n, open)`, or on a local cluster a pushed `sq.source`. The columns are those of a file that is
        there, or `schema`. `start`, `end` and `lifetime` are as in `squill.scan`. Of a folder an epoch takes at most
        `files_per_epoch` files, or files of about a gigabyte.

        A row is late when it begins before the latest start of earlier epochs, less the `wait` of the `disorder`
        policy: `sq.throw()` (the default), `sq.drop(wait=…)` or `sq.adjust(wait=…)`. The newest `keep_late` of them
        are kept for `handle.late`. Where a plan has several live inputs, one without rows for `idle_after` does not
        hold the others' time back any more; what it brings later may be late.
        """
        times: dict[str, Any] = {
            "start": start,
            "end": end,
            "lifetime": lifetime,
            "disorder": throw() if disorder is None else disorder,
            "keep_late": keep_late,
            "keep_time": keep_time,
            "idle_after": idle_after,
        }
        if isinstance(source, Partitions):
            node = live.partitions_source(source, schema=schema, name=name, **times)
        elif isinstance(source, Stream):
            node = live.pushed_source(source.plan, name=name)
        elif isinstance(source, (str, os.PathLike)):
            node = live.folder_source(
                source, file_format=format, schema=schema, files_per_epoch=files_per_epoch, name=name, **times
            )
        else:
            columns = self._runtime.stream_columns(source)
            node = live.streaming_source(source, columns, name=name, **times)
        return ShardedStream(self, split(with_free_names(node), self.layout(shards, "stream")))

    def check(self) -> str:
        """Look at what the executors have; return it as text, or raise with what is to be installed there."""
        return self._runtime.check()

    def _split(
        self, stream: Stream, shards: int | None, operator: str, refresh: Refresh | None = None
    ) -> ShardedStream:
        stored = stream.plan.stored if isinstance(stream.plan, (FileSource, FrameSource)) else None
        if stored is None:
            return ShardedStream(self, split(stream.plan, self.layout(shards, operator), refresh))
        layout = self.layout(stored.shards if shards is None else shards, operator)
        if refresh is not None:  # where a key's rows are may be another shard with the next reading
            return ShardedStream(self, split(replace(stream.plan, stored=None), layout, refresh), stored.keys)  # type: ignore[call-arg]
        return ShardedStream(self, split(stream.plan, layout), stored.keys)

    def layout(self, shards: int | None = None, operator: str = "layout") -> Layout:
        """Return how so many shards are arranged here, as many as there are unless told."""
        return self._runtime.layout_of(self.shards if shards is None else checked_shards(shards, operator))

    @property
    def stored(self) -> Datasets:
        """What makes, finds and removes datasets."""
        if self._datasets is None:
            from squill.runtime.datasets import Datasets

            self._datasets = Datasets(self.recorder)
        return self._datasets

    @property
    def recorder(self) -> Runs:
        """What runs plans, and records it."""
        if self._runs is None:
            from squill.runtime.runs import Runs

            self._runs = Runs(self._runtime, self._catalog_url, self._default_catalog)
        return self._runs

    @property
    def catalog(self) -> Catalog:
        """The database of datasets, lineage, runs and errors; made when it is first used."""
        return self.stored.catalog

    def dataset(self, name: str, *, shards: int | None = None) -> ShardedStream:
        """Return the rows of a dataset by its name, with its key, where they were; lost ones are computed again."""
        return self._split(Stream(self.stored.source(name)), shards, "dataset")

    def datasets(self) -> list[Dataset]:
        """Return all datasets of the catalog, by name."""
        return self.stored.datasets()

    def search(self, name: str) -> list[Dataset]:
        """Return the datasets whose names hold this text; when none does, those of similar names."""
        return self.stored.search(name)

    def remove(self, name: str) -> None:
        """Remove a dataset from the catalog, and its rows from storage or memory."""
        self.stored.remove(name)

    def runs(self) -> list[RunRecord]:
        """Return what was run, the first one first: id, action, state, rows, plan and error of each.

        It is what the catalog has, and runs over files whose folders are beside this cluster's. A run whose driver
        is no more is called "died"; `squill.resume` goes on with it.
        """
        return self.recorder.listed()

    def run(self, stream: Stream, *, sort: bool = False) -> pl.DataFrame:
        """Let the shards share the work of an ordinary query and return the answer: `stream.collect(on=cluster)`.

        Examples
        --------
        >>> spent = sq.from_frame({"user": [1, 2, 1], "x": [5, 6, 7]}).group_aggregate("user", x=sq.sum("x"))
        >>> with sq.local(cores=2) as cluster:
        ...     cluster.run(spent, sort=True).rows()
        [(1, 12), (2, 6)]
        """
        return self.sharded(stream, "run").collect(sort=sort)

    def sharded(self, stream: Stream, operator: str = "sharded") -> ShardedStream:
        """Return an ordinary query as one over the shards of this cluster, with the movements that it needs."""
        if not isinstance(stream, Stream):
            raise PlanError(
                f"{operator}: {kind_of(stream)} is not a Stream", "give a query, such as sq.scan(…).where(…)."
            )
        return ShardedStream(self, self.spread(stream._outside()))

    def spread(self, node: Node, *, sums_up_steps: bool = True) -> Node:
        """Return a plan over the shards of this cluster, with the movements that it needs."""
        return parallelise(node, self.layout(), self.layout(1), sums_up_steps=sums_up_steps)

    def early_answers(
        self, stream: Stream, assignment: Any, *, coarsen: int | None, until: Any, ha: bool = False
    ) -> EarlyAnswers:
        """Let the shards share the work of a progressive query: `stream.progressive(…, on=cluster)`."""
        from squill.runtime.progressive.start import start_progressive

        return start_progressive(
            stream._outside(),
            assignment,
            coarsen=coarsen,
            until=until,
            ha=ha,
            runtime=self._runtime,
            # What was sent is kept for replay where those who send hold nothing (decision 16).
            sharded=partial(self.spread, sums_up_steps=not ha),
            spread=self.spread,
        )

    def _go_on(self, folder: RunFolder, order: Order) -> Resumed:
        from squill.runtime.resume import go_on

        return go_on(self.recorder, self.stored, folder, order)

    def close(self) -> None:
        """Give back what the cluster holds: datasets in its memory, and a Spark session that it started."""
        if self._datasets is not None:
            self._datasets.close()
        if self._runs is not None:
            self._runs.close()
        self._runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def checked_cluster(given: object, operator: str) -> Cluster:
    if not isinstance(given, Cluster):
        raise PlanError(
            f"{operator}: on={shortened(given)} is not a cluster", "give what sq.local(…) or sq.spark(…) returns."
        )
    return given


def local(
    cores: int | None = None, machines: int = 1, *, warehouse: Folder | None = None, catalog: str | None = None
) -> Cluster:
    """Return a cluster of threads in this process; `cores` is how many, as many as the machine has.

    With `machines` there are so many groups of `cores` threads, and plans whose movements have a scope run as
    they do on a real cluster: to try them out.

    Named datasets and runs are entered in a catalog, a database that is made when it is first used: SQLite in the
    folder `warehouse`, or the one at the URL `catalog`, such as PostgreSQL. When neither is given the folder is
    squill-warehouse, made for the first dataset that has a name; before that no run is recorded.

    Examples
    --------
    >>> with sq.local(cores=2) as cluster:
    ...     print(cluster)
    Cluster(local, 2 threads)
    """
    from squill.runtime.local import LocalRuntime

    runtime = LocalRuntime(len(os.sched_getaffinity(0)) if cores is None else cores, machines)
    return Cluster(runtime, warehouse=warehouse, catalog=catalog)


def spark(
    session: object | None = None,
    *,
    master: str | None = None,
    machines: int | None = None,
    cores: int = 1,
    folder: Folder | None = None,
    channel: str | None = None,
    compression: str | None = None,
    tls: bool = False,
    warehouse: Folder | None = None,
    catalog: str | None = None,
) -> Cluster:
    """Return a cluster on a Spark session: yours, or one started for it (`master`, local[*] unless told).

    Sessions of Spark Connect will do, also by their address, sc://host.
    Executors that are not on this host are sent the driver's own package.

    A machine is one Spark task that runs `cores` shards on threads; `machines` defaults to the tasks that can
    run at once. Rows move between tasks over a `channel`: "files" are Arrow files in `folder`, which all machines
    must see (on one host the temporary folder does), "shuffle" is Spark's own and needs nothing; files are faster,
    and chosen where there is a folder. A movement may choose for itself. `compression` of what moves is None,
    "lz4" or "zstd". `tls` encrypts the rows of progressive queries, which tasks send each other and this process by
    themselves; it needs the program openssl here. `warehouse` and `catalog` are as in `squill.local`.
    """
    from squill.runtime.spark import start_runtime

    _catalog_place(warehouse, catalog)  # what is wrong with it is said before a session is started
    runtime = start_runtime(
        session,
        master=master,
        machines=machines,
        cores=cores,
        folder=folder,
        channel=channel,
        compression=compression,
        tls=tls,
    )
    return Cluster(runtime, warehouse=warehouse, catalog=catalog)


def resume(
    run_id: str,
    *,
    on: Cluster | None = None,
    folder: Folder | None = None,
    warehouse: Folder | None = None,
    catalog: str | None = None,
) -> Resumed:
    """Go on with a run on Spark whose driver died, and return what it would have returned.

    Stages that were done are not run again. What is returned is what the action returns: the frame of `collect`, the
    run of `run`, the dataset of `to_storage` and `to_memory`, the number of rows of `to_ipc`; of `batches` one frame
    with all rows. A run that has made its dataset already gives it again.

    `on` is the cluster to run on; without it one like the run's own is started, and closed afterwards. The run is
    looked for in the catalog and in the folder of that cluster, or in those that are given, as `squill.spark` had
    them; without any in the temporary folder, where Spark on one host keeps its files. `Cluster.runs` lists ids. What
    a dead driver left stays for a week.
    """
    from squill.runtime.resume import answer_of_finished, check_alone, find_folder, taken

    if not isinstance(run_id, str):
        raise PlanError(f"resume: {shortened(run_id)} is no id of a run", "cluster.runs() lists them.")
    if on is not None and not checked_cluster(on, "resume").runtime.can_go_on:
        raise PlanError(f"resume: on={on!r} is a cluster of threads", "give what sq.spark(…) returns.")
    url, default = _catalog_place(warehouse, catalog)
    if on is not None and warehouse is None and catalog is None:
        url, default = on._catalog_url, on._default_catalog
    with _opened(url) as known:
        record = None if known is None else known.find_run(run_id)
        if known is not None and record is not None and (made := answer_of_finished(record, known)) is not None:
            return made
        place = find_folder(run_id, _bases(on, folder), record, known)
    with taken(run_id, place) as (left, order):
        if on is not None:
            return on._go_on(left, order)
        chosen = url if default is None else order.request.catalog
        check_alone(run_id, order.request, chosen)
        from squill.runtime.spark import start_runtime

        with Cluster(start_runtime(None, **order.settings), catalog=chosen) as cluster:
            return cluster._go_on(left, order)


def _bases(on: Cluster | None, folder: Folder | None) -> list[Path]:
    """Return where folders of runs may be."""
    if folder is not None:
        return [written_path(folder, "resume: folder").resolve()]
    place = None if on is None else on.runtime.run_place("")
    return [Path(tempfile.gettempdir())] if place is None else [place.parent]


@contextmanager
def _opened(url: str) -> Iterator[Catalog | None]:
    """Give the catalog at the URL while in context, or None when there is none."""
    from squill.catalog import Catalog

    if not Catalog.exists(url):
        yield None
        return
    opened = Catalog(url)
    try:
        yield opened
    finally:
        opened.close()

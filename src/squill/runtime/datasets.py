"""Datasets of a cluster by name: made by running plans, found in the catalog, made again when they are lost."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

import polars as pl

from squill.catalog.catalog import Catalog, Entry, Lineage
from squill.errors import ClusterError, SourceReadError
from squill.plan.build.sources import held_source, stored_as, stored_source
from squill.plan.dataset import MANIFEST, MEMORY, Dataset, find_dataset, stored_sources
from squill.plan.fragments import explain_fragments
from squill.plan.node import Node, walk
from squill.plan.nodes import FileSource, FrameSource, Stored
from squill.plan.rebuild import substitute
from squill.plan.serialise import dumps, loads
from squill.runtime.memory import FRAME, MemoryFolder, forget_frame, frame_of, hold, is_alive, new_owner
from squill.runtime.runtime import Runtime
from squill.runtime.staging import check_mode
from squill.runtime.store import Wanted, new_version, store

__all__ = ["Datasets"]

PLAN_BYTES = 32 << 20
"""A plan with more rows of frames in it than this is kept as text only, so that the catalog stays a catalog."""


class Datasets:
    """What one cluster does with the catalog."""

    def __init__(self, runtime: Runtime, url: str) -> None:
        self._runtime = runtime
        self._url = url
        self._catalog: Catalog | None = None
        self._owner = new_owner()
        self._folder: MemoryFolder | None = None
        self._held: set[str] = set()

    @property
    def catalog(self) -> Catalog:
        """The catalog; opened, and made, when it is first asked for."""
        if self._catalog is None:
            self._catalog = Catalog(self._url)
        return self._catalog

    # -- make ---------------------------------------------------------------------------------------------

    def store(self, wanted: Wanted) -> Dataset:
        """Run the plan and write its answer; with a name it is entered in the catalog."""
        if wanted.name is None:
            return store(self._runtime, replace(wanted, node=self.ready(wanted.node)))
        return self._make(wanted)

    def remember(self, wanted: Wanted) -> Dataset:
        """Run the plan and keep its answer in the cluster's memory."""
        return self._make(replace(wanted, place=MEMORY, operator="to_memory"))

    def _make(self, wanted: Wanted) -> Dataset:
        check_mode(wanted.mode, wanted.operator)
        name, overwrite = wanted.name, wanted.mode == "overwrite"
        self.catalog.check_free(name, wanted.operator, overwrite=overwrite)
        assert name is not None
        before = self.catalog.find(name)
        with self.catalog.run(wanted.operator, name, self._owner) as run:
            dataset = self._run(replace(wanted, node=self.ready(wanted.node)))
            run.rows = dataset.rows
            entry = Entry(dataset=dataset, owner=self._owner)
            try:
                self.catalog.put(entry, lineage_of(wanted.node), overwrite=overwrite)
            except BaseException:
                if not overwrite:  # else it stands in the place of an older one
                    self._free(dataset)
                raise
        if before is not None and before.dataset.place == MEMORY:
            self._free(before.dataset)
        return dataset

    def _run(self, wanted: Wanted) -> Dataset:
        if wanted.place != MEMORY:
            return store(self._runtime, wanted)
        base = self._runtime.memory_folder()
        if base is None:
            dataset = hold(self._runtime, replace(wanted, format=FRAME))
            self._held.add(dataset.version)
            return dataset
        if self._folder is None:
            self._folder = MemoryFolder(base, self._owner)
        version = wanted.version or new_version()
        place = self._folder.place_of(version)
        mode = "overwrite" if (place / MANIFEST).exists() else "error"
        return store(self._runtime, replace(wanted, path=place, format="ipc", version=version, mode=mode))

    # -- find ---------------------------------------------------------------------------------------------

    def datasets(self) -> list[Dataset]:
        return [entry.dataset for entry in self.catalog.entries()]

    def search(self, text: str) -> list[Dataset]:
        """Return the datasets whose name holds the text, in any case; when there is none, those of near names."""
        found = self.datasets()
        holding = [dataset for dataset in found if text.casefold() in str(dataset.name).casefold()]
        near = get_close_matches(text, [str(dataset.name) for dataset in found], n=5, cutoff=0.5)
        return holding or [dataset for dataset in found if dataset.name in near]

    def source(self, name: str) -> Node:
        """Return the rows of a dataset, made again when they are lost."""
        dataset = self._present(self.catalog.require(name, "dataset"))
        if dataset.format != FRAME:
            return stored_source(dataset, None)
        return held_source(dataset, self._frame(stored_as(dataset)))

    def _present(self, entry: Entry) -> Dataset:
        dataset = entry.dataset
        if dataset.format == FRAME:
            return dataset if frame_of(dataset.version) is not None else self._again(entry)
        there = find_dataset(dataset.path)
        if there is not None and there.version != dataset.version:
            # Its plan made other rows than these: to run it now would replace what somebody wanted there.
            raise SourceReadError(
                f"the folder of the dataset {dataset.name!r}, {dataset.path!r}, holds another dataset now",
                f"scan the folder, or cluster.remove({dataset.name!r}): that leaves the other one.",
            )
        return self._again(entry) if dataset.lost() else dataset

    def _again(self, entry: Entry) -> Dataset:
        """Make a lost dataset again, under the names that its files had."""
        dataset = entry.dataset
        name = str(dataset.name)
        made_by = self.catalog.lineage(name)
        if made_by.plan is None:
            raise ClusterError(
                f"the rows of the dataset {name!r} are lost, and its plan is not kept: {made_by.reason}",
                f"make it again, or cluster.remove({name!r}).",
            )
        wanted = Wanted(
            node=self.ready(loads(made_by.plan)),
            keys=dataset.keys,
            path=dataset.path,
            name=name,
            format=dataset.format,
            mode="overwrite",
            place=dataset.place,
            version=dataset.version,
            operator="recompute",
        )
        with self.catalog.run("recompute", name, self._owner) as run:
            again = self._run(wanted)
            run.rows = again.rows
            # A frame of another process that lives is still its own; this one is a copy.
            if dataset.format != FRAME or not is_alive(entry.owner):
                owner = self._owner if dataset.place == MEMORY else entry.owner
                self.catalog.renew(Entry(dataset=again, owner=owner))
        return again

    def ready(self, node: Node) -> Node:
        """Return the plan with the rows of all datasets that it reads; those that are lost are made again."""
        found = {id(source): self._ready(source) for source in stored_sources(node)}
        return substitute(node, lambda item: found.get(id(item)))

    def _ready(self, source: FileSource | FrameSource) -> Node:
        stored = source.stored
        assert stored is not None
        if isinstance(source, FrameSource):
            if source.frame.height == sum(stored.rows):
                return source
            return replace(source, frame=self._frame(stored))
        if all(Path(path).is_file() for path in source.paths):
            return source
        dataset = self._present(self._entry(stored))
        if dataset.version != stored.version:
            raise _written_anew(stored)
        return replace(source, paths=dataset.paths, stored=stored_as(dataset))

    def _frame(self, stored: Stored) -> pl.DataFrame:
        frame = frame_of(stored.version)
        if frame is None:
            self._present(self._entry(stored))
            frame = frame_of(stored.version)
        if frame is None:
            raise _written_anew(stored)
        return frame

    def _entry(self, stored: Stored) -> Entry:
        found: list[Entry | None] = []
        if self._catalog is not None or Catalog.exists(self._url):
            by_name = None if stored.name is None else self.catalog.find(stored.name)
            found = [by_name, self.catalog.find_path(stored.folder)]
        entries = [entry for entry in found if entry is not None]
        if not entries:
            raise SourceReadError(
                f"rows of the dataset {stored.name or stored.folder!r} are lost, and no catalog knows its plan",
                "write it again; to_storage(path, name=…) lets lost files be made again.",
            )
        return next((entry for entry in entries if entry.dataset.version == stored.version), entries[0])

    # -- let go -------------------------------------------------------------------------------------------

    def remove(self, name: str) -> None:
        """Forget a dataset and delete its rows."""
        entry = self.catalog.require(name, "remove")
        self.catalog.remove(name)
        self._free(entry.dataset)

    def _free(self, dataset: Dataset) -> None:
        if dataset.format == FRAME:
            forget_frame(dataset.version)
            self._held.discard(dataset.version)
            return
        folder = Path(dataset.path)
        there = find_dataset(folder)
        if there is not None and there.version == dataset.version:
            # Out of sight first: nobody is to see half of it.
            hidden = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:12]}.removed")
            folder.rename(hidden)
            shutil.rmtree(hidden, ignore_errors=True)

    def close(self) -> None:
        """Free the memory that this cluster's datasets take, and forget those."""
        for version in self._held:
            forget_frame(version)
        if self._folder is not None:
            self._folder.free()
        if self._catalog is not None:
            for entry in self._catalog.entries():
                if entry.owner == self._owner and entry.dataset.place == MEMORY:
                    self._catalog.remove(str(entry.dataset.name))
            self._catalog.close()
            self._catalog = None


def lineage_of(node: Node) -> Lineage:
    """Return how the plan is remembered: datasets that are frames by name, other frames with their rows."""
    read = [source.stored for source in stored_sources(node) if source.stored is not None]
    inputs = tuple(dict.fromkeys(stored.name or stored.folder for stored in read))
    explained = explain_fragments(node)
    bare = substitute(node, _without_held_rows)
    frames = [source.frame for source in walk(bare) if isinstance(source, FrameSource)]
    held = sum(int(frame.estimated_size()) for frame in frames)
    if held > PLAN_BYTES:
        reason = f"it reads frames of {held >> 20} MiB that no dataset holds"
        return Lineage(explain=explained, inputs=inputs, reason=reason)
    try:
        return Lineage(explain=explained, inputs=inputs, plan=dumps(bare))
    except Exception as error:  # noqa: BLE001  (a user's object may refuse to be pickled in any way)
        return Lineage(explain=explained, inputs=inputs, reason=f"it cannot be pickled: {error}")


def _without_held_rows(node: Node) -> Node | None:
    if isinstance(node, FrameSource) and node.stored is not None:
        return replace(node, frame=node.frame.clear())
    return None


def _written_anew(stored: Stored) -> SourceReadError:
    return SourceReadError(
        f"the dataset {stored.name or stored.folder!r} was written anew since this query was made",
        "make the query again, from cluster.dataset(…) or scan(…).",
    )

"""Datasets of a cluster by name: made by running plans, found in the catalog, made again when they are lost."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from squill.catalog.catalog import Catalog, Entry, Lineage, check_name
from squill.errors import ClusterError, DatasetNotFoundError, PlanError, SourceReadError
from squill.plan.build.sources import held_source, stored_as, stored_source
from squill.plan.dataset import MANIFEST, MEMORY, Dataset, find_dataset, is_damaged, stored_sources
from squill.plan.fragments import explain_fragments, fragments_of
from squill.plan.node import Node, walk
from squill.plan.nodes import FileSource, FrameSource, Stored
from squill.plan.nodes.tables import CachedSource
from squill.plan.paths import written_path
from squill.plan.rebuild import substitute
from squill.plan.serialise import dumps, loads
from squill.runtime.memory import FRAME, Held, MemoryFolder, forget_held, held_for, hold, is_alive
from squill.runtime.request import Request, bare
from squill.runtime.runs import ActiveRun, Runs
from squill.runtime.staging import check_mode, remove_left_by
from squill.runtime.store import Wanted, store, write_manifest
from squill.runtime.ticket import RunTicket
from squill.wording import near_names, shortened

__all__ = ["Datasets"]

PATIENCE_SECONDS = 1.0
"""So long whoever replaces a dataset may take from putting the new one in its place to naming it."""

PLAN_BYTES = 32 << 20
"""A plan with more rows of frames in it than this is kept as text only, so that the catalog stays a catalog."""


class Datasets:
    """What one cluster does with the catalog."""

    def __init__(self, runs: Runs) -> None:
        self._runtime = runs.runtime
        self._runs = runs
        self._owner = runs.owner
        self._folder: MemoryFolder | None = None
        self._held: dict[str, Held] = {}
        """By version the rows that it has made, those of another process's datasets too."""
        self._recomputed: set[str] = set()
        """Names of datasets whose plans are run again at this moment."""

    @property
    def catalog(self) -> Catalog:
        """The catalog; opened, and made, when it is first asked for."""
        return self._runs.catalog

    # -- make ---------------------------------------------------------------------------------------------

    def store(self, wanted: Wanted) -> Dataset:
        """Run the plan and write its answer; with a name it is entered in the catalog."""
        return self._make(replace(wanted, path=written_path(wanted.path, wanted.operator).resolve()))

    def remember(self, wanted: Wanted) -> Dataset:
        """Run the plan and keep its answer in the cluster's memory."""
        return self._make(replace(wanted, place=MEMORY, operator="to_memory"))

    def _make(self, wanted: Wanted) -> Dataset:
        check_mode(wanted.mode, wanted.operator)
        self._check_name(wanted)
        made_by = None if not _is_named(wanted) else lineage_of(wanted.node)
        with self._runs.record(wanted.operator, fragments_of(wanted.node), wanted.name or str(wanted.path)) as active:
            # A dataset's version is the run that made it, so that whoever goes on with a run knows its work.
            node = self.ready(wanted.node)
            wanted = replace(
                wanted, node=self.in_process(node) if wanted.keep_state else node, version=active.ticket.id
            )
            asked = replace(wanted, node=bare(wanted.node), path=str(wanted.path))
            request = replace(self._runs.request(wanted.operator), wanted=asked, lineage=made_by)
            return self._made(wanted, made_by, active, active.asking(request))

    def go_on(self, request: Request, active: ActiveRun) -> Dataset:
        """Make what another driver was asked for."""
        assert request.wanted is not None
        wanted = request.wanted
        there = None if wanted.place == MEMORY else find_dataset(Path(wanted.path))
        if there is None or there.version != wanted.version:
            self._check_name(wanted)
            return self._made(wanted, request.lineage, active, active.ticket)
        # It had its files in their place already, and died before it could say so.
        remove_left_by(active.ticket.id, Path(wanted.path))
        if _is_named(wanted) and request.lineage is not None and self._version_of(wanted) != there.version:
            self._name(there, request.lineage, wanted)
        active.rows = there.rows
        if active.ticket.left is not None:
            active.ticket.scope.enter_context(active.ticket.left[0])
        return there

    def _name(self, dataset: Dataset, made_by: Lineage, wanted: Wanted) -> Entry | None:
        """Give the dataset its name, unless another client has replaced it already and names what it made.

        Returns the dataset that had the name.
        """
        entry, overwrite = Entry(dataset=dataset, owner=self._owner), _replaces(wanted)
        return self.catalog.put(entry, made_by, overwrite=overwrite, is_current=lambda: _is_in_its_place(dataset))

    def _version_of(self, wanted: Wanted) -> str | None:
        entry = self.catalog.find(str(wanted.name))
        return None if entry is None else entry.dataset.version

    def _check_name(self, wanted: Wanted) -> None:
        if _is_named(wanted):
            check_name(wanted.name, wanted.operator)
            self.catalog.check_free(wanted.name, wanted.operator, overwrite=_replaces(wanted))

    def _made(self, wanted: Wanted, made_by: Lineage | None, active: ActiveRun, ticket: RunTicket) -> Dataset:
        before = self.catalog.find(wanted.name) if wanted.name is not None else None
        interrupts: list[KeyboardInterrupt] = []
        replaced: list[Entry | None] = []

        def announce(dataset: Dataset) -> None:
            if made_by is None:
                return
            try:
                # It need not be the one of before: another client may have given the name since.
                replaced.append(self._name(dataset, made_by, wanted))
            except KeyboardInterrupt as interrupt:
                if self._version_of(wanted) != dataset.version:
                    raise
                replaced.append(before)
                interrupts.append(interrupt)  # it came when the name was given: the dataset stays

        dataset = self._run(wanted, ticket, announce)
        active.rows = dataset.rows
        for entry in replaced:
            if entry is not None and entry.dataset.place == MEMORY:
                self._free(entry.dataset)
        for interrupt in interrupts:
            raise interrupt
        return dataset

    def _run(self, wanted: Wanted, ticket: RunTicket, announce: Callable[[Dataset], None] = lambda _: None) -> Dataset:
        if wanted.place != MEMORY:
            return store(self._runtime, wanted, ticket, announce)
        base = self._runtime.memory_folder()
        if base is None:
            return self._hold(wanted, ticket, announce)
        if self._folder is None:
            self._folder = MemoryFolder(base, self._owner)
        version = wanted.version or ticket.id
        place = self._folder.place_of(version)
        mode = "overwrite" if (place / MANIFEST).exists() else "error"
        wanted = replace(wanted, path=place, format="ipc", version=version, mode=mode)
        return store(self._runtime, wanted, ticket, announce)

    def _hold(self, wanted: Wanted, ticket: RunTicket, announce: Callable[[Dataset], None]) -> Dataset:
        dataset, held = hold(self._runtime, replace(wanted, format=FRAME), ticket)
        self._held[dataset.version] = held
        try:
            announce(dataset)
        except BaseException:
            self._free(dataset)
            raise
        return dataset

    # -- find ---------------------------------------------------------------------------------------------

    def datasets(self) -> list[Dataset]:
        """Return what the catalog has; to look leaves nothing in the working folder."""
        return [entry.dataset for entry in self.catalog.entries()] if self._runs.has_catalog else []

    def search(self, text: str) -> list[Dataset]:
        """Return the datasets whose name holds the text, in any case; when there is none, those of near names."""
        if not isinstance(text, str):
            raise PlanError(f"search: {shortened(text)} is no text", "give a part of a name.")
        found = self.datasets()
        holding = [dataset for dataset in found if text.casefold() in str(dataset.name).casefold()]
        near = near_names(text, [str(dataset.name) for dataset in found], most=5)
        return holding or [dataset for dataset in found if dataset.name in near]

    def source(self, name: str) -> Node:
        """Return the rows of a dataset, made again when they are lost."""
        dataset = self._present(self._require(name, "dataset"))
        if dataset.format != FRAME:
            return stored_source(dataset, None)
        return self._held_rows(stored_as(dataset)).source(dataset)

    def _require(self, name: str, operator: str) -> Entry:
        if not self._runs.has_catalog:
            raise DatasetNotFoundError(operator, name, ())
        return self.catalog.require(name, operator)

    def _present(self, entry: Entry) -> Dataset:
        dataset = entry.dataset
        if dataset.format == FRAME:
            return dataset if held_for(dataset.version, self._runtime) is not None else self._again(entry)
        if _is_cut_short(dataset.path, dataset.paths):
            return self._again(entry)
        there = find_dataset(dataset.path)
        if there is not None and there.version != dataset.version:
            replaced = self._named_anew(str(dataset.name)) if there.name == dataset.name else None
            if replaced is not None:
                return replaced
            # Its plan made other rows than these: to run it now would replace what somebody wanted there.
            raise SourceReadError(
                f"the folder of the dataset {dataset.name!r}, {dataset.path!r}, holds another dataset now",
                f"scan the folder, or cluster.remove({dataset.name!r}): that leaves the other one.",
            )
        return self._again(entry) if dataset.lost() else dataset

    def _named_anew(self, name: str) -> Dataset | None:
        """Return the dataset that has this name and is in its place, once the client that replaced one has named it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            entry = self.catalog.find(name)
            if entry is not None and _is_in_its_place(entry.dataset):
                return entry.dataset
            if time.monotonic() > deadline:
                return None
            time.sleep(PATIENCE_SECONDS / 20)

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
            node=self._ready_again(name, loads(made_by.plan)),
            keys=dataset.keys,
            path=dataset.path,
            name=name,
            format=dataset.format,
            mode="overwrite",
            place=dataset.place,
            version=dataset.version,
            operator="recompute",
            keep_state=dataset.keeps_state,
            progress=dataset.progress,
        )
        _restore_manifest(dataset)
        with self._runs.record("recompute", fragments_of(wanted.node), name) as active:
            again = self._run(wanted, active.ticket)
            active.rows = again.rows
            # A frame of another process that lives is still its own; this one is a copy.
            if dataset.format != FRAME or not is_alive(entry.owner):
                owner = self._owner if dataset.place == MEMORY else entry.owner
                self.catalog.renew(Entry(dataset=again, owner=owner))
        return again

    def _ready_again(self, name: str, node: Node) -> Node:
        """Return the plan of a lost dataset with all that it reads, which must not be the dataset itself."""
        if name in self._recomputed:
            raise ClusterError(
                f"the rows of the dataset {name!r} are lost, and its plan reads {name!r} itself, as it was before",
                f"make it again from other inputs, or cluster.remove({name!r}).",
            )
        self._recomputed.add(name)
        try:
            return self.ready(node)
        finally:
            self._recomputed.discard(name)

    def ready(self, node: Node) -> Node:
        """Return the plan with the rows of all datasets that it reads; those that are lost are made again."""
        found = {id(source): self._ready(source) for source in stored_sources(node)}
        return substitute(node, lambda item: found.get(id(item)))

    def _ready(self, source: FileSource | FrameSource) -> Node:
        stored = source.stored
        assert stored is not None
        if isinstance(source, (FrameSource, CachedSource)):
            return self._held_again(source, stored)
        if _is_whole(source, stored):
            return source
        dataset = self._present(self._entry(stored))
        if dataset.version != stored.version:
            raise _written_anew(stored)
        return replace(source, paths=dataset.paths, stored=stored_as(dataset))

    def _held_again(self, source: FrameSource | CachedSource, stored: Stored) -> Node:
        """Return the source with its rows, which may be held in another way by now."""
        if isinstance(source, FrameSource) and source.frame.height == sum(stored.rows):
            return source
        return self._held_rows(stored).source(self._entry(stored).dataset)

    def _held_rows(self, stored: Stored) -> Held:
        held = held_for(stored.version, self._runtime)
        if held is None:
            self._present(self._entry(stored))
            held = held_for(stored.version, self._runtime)
        if held is None:
            raise _written_anew(stored)
        return held

    def in_process(self, node: Node) -> Node:
        """Return the plan with the rows in this process that a runtime's memory has: not all can read these."""

        def bring(item: Node) -> Node | None:
            if not isinstance(item, CachedSource) or item.stored is None:
                return None
            held = self._held_rows(item.stored)
            dataset = self._entry(item.stored).dataset
            return held_source(dataset, held.frame(dataset))

        return substitute(node, bring)

    def _entry(self, stored: Stored) -> Entry:
        found: list[Entry | None] = []
        if self._runs.has_catalog:
            by_name = None if stored.name is None else self.catalog.find(stored.name)
            found = [by_name, self.catalog.find_path(stored.folder)]
        entries = [entry for entry in found if entry is not None]
        if not entries:
            raise SourceReadError(
                f"rows of the dataset {stored.name or stored.folder!r} are lost, and no catalog knows its plan",
                "write it again; to_storage(path, name=…) lets lost files be made again.",
            )
        return next((entry for entry in entries if entry.dataset.version == stored.version), entries[0])

    def found(self, given: Dataset | str | os.PathLike[str], operator: str) -> Dataset:
        """Return a dataset that is in storage, by its path or its name."""
        if isinstance(given, Dataset):
            return given
        there = find_dataset(given, operator)
        if there is not None:
            return there
        name = os.fspath(given)
        return self._present(self._require(name, operator))

    # -- let go -------------------------------------------------------------------------------------------

    def remove(self, name: str) -> None:
        """Forget a dataset and delete its rows."""
        if self._runs.has_catalog and self.catalog.is_damaged(name):
            self.catalog.remove(name)  # which rows were its own nobody knows: they stay
            return
        entry = self._require(name, "remove")
        self.catalog.remove(name)
        self._free(entry.dataset)

    def _free(self, dataset: Dataset) -> None:
        if dataset.format == FRAME:
            forget_held(dataset.version)
            self._held.pop(dataset.version, None)
            return
        folder = Path(dataset.path)
        _restore_manifest(dataset)
        there = dataset if _is_cut_short(folder, dataset.paths) else find_dataset(folder)
        if there is not None and there.version == dataset.version:
            # Out of sight first: nobody is to see half of it.
            hidden = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:12]}.removed")
            folder.rename(hidden)
            shutil.rmtree(hidden, ignore_errors=True)

    def close(self) -> None:
        """Free the memory that this cluster's datasets take, and forget those."""
        for version, held in self._held.items():
            forget_held(version, held)
        if self._folder is not None:
            self._folder.free()
        if self._runs.has_catalog:
            self.catalog.forget(self._owner, MEMORY)


def _is_in_its_place(dataset: Dataset) -> bool:
    """Whether no other dataset is in its folder; in memory each has a place of its own."""
    there = None if dataset.place == MEMORY else find_dataset(dataset.path)
    return dataset.place == MEMORY or (there is not None and there.version == dataset.version)


def _is_cut_short(folder: str | os.PathLike[str], files: Sequence[str]) -> bool:
    """Whether a manifest can be read no more beside files of these names, whose version tells whose it was."""
    return is_damaged(folder) and any(Path(file).exists() for file in files)


def _restore_manifest(dataset: Dataset) -> None:
    """Put a manifest that is gone back beside what is left of its files: without it nobody may replace the folder."""
    folder = Path(dataset.path)
    if dataset.format == FRAME or not folder.is_dir() or (folder / MANIFEST).exists():
        return
    with suppress(OSError):  # whoever writes there next says what is wrong with the folder
        left = {item.name for item in folder.iterdir()}
        if left and left <= {Path(MANIFEST).parts[0], *(file.name for file in dataset.files)}:
            write_manifest(folder, dataset)


def _is_whole(source: FileSource, stored: Stored) -> bool:
    """Whether the files are there, and as long as the manifest says, where it is still theirs."""
    if _is_cut_short(stored.folder, source.paths):
        return False
    there = find_dataset(stored.folder)
    if there is not None and there.version == stored.version:
        return not there.lost()
    return all(Path(path).is_file() for path in source.paths)


def _is_named(wanted: Wanted) -> bool:
    return wanted.name is not None or wanted.place == MEMORY


def _replaces(wanted: Wanted) -> bool:
    return wanted.mode == "overwrite"


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
    except PlanError as error:
        return Lineage(explain=explained, inputs=inputs, reason=error.what)


def _without_held_rows(node: Node) -> Node | None:
    if isinstance(node, FrameSource) and node.stored is not None:
        return replace(node, frame=node.frame.clear())
    if isinstance(node, CachedSource):
        return replace(node, table=None)
    return None


def _written_anew(stored: Stored) -> SourceReadError:
    return SourceReadError(
        f"the dataset {stored.name or stored.folder!r} was written anew since this query was made",
        "make the query again, from cluster.dataset(…) or scan(…).",
    )

"""Live queries that begin where a run over stored rows has ended.

The run is a live query that ends with its windows open: its rows are the dataset, its checkpoint stands in the
dataset's folder. A query that begins from it has the same plan over other inputs, and begins with links to the states:
no file of a state is ever changed, so the dataset stays as it is, for any number of queries.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from squill.engine.state.manifest import read_manifest
from squill.errors import CheckpointError
from squill.plan.dataset import STATE, Dataset
from squill.plan.fragments import ShardedPlan
from squill.plan.node import Node
from squill.plan.nodes.live import AnyInput, LiveSource
from squill.plan.rebuild import substitute
from squill.runtime.live.driver import plan_as_json
from squill.runtime.live.host import state_folder
from squill.runtime.live.inputs import live_sources
from squill.runtime.live.log import READINGS, Commit, check_query, last_commit, write_beginning, write_query
from squill.runtime.stored_answer import sync_to_disk

__all__ = ["Bootstrap", "KeptState", "seal"]

Bootstrap = Callable[[], Dataset]
"""Finds the dataset that a query begins from; asked only when it begins."""
PLAN = "PLAN"
"""In the folder of a kept state: the plan, whatever its inputs are."""


def seal(folder: Path, plan: ShardedPlan, root: Node, emit: str) -> None:
    """Let queries begin from the checkpoint in a folder, whose query has ended."""
    for place, version in last_commit(folder).states.items():
        of_shard = state_folder(str(folder), *place)
        kept = {version.manifest, *read_manifest(of_shard, version.manifest).files}
        for item in of_shard.iterdir():
            if item.name not in kept:
                item.unlink()
    write_query(folder / PLAN, _over_any_inputs(plan, root, emit))
    (folder / "LOCK").unlink(missing_ok=True)


class KeptState:
    """The state that a dataset keeps."""

    def __init__(self, dataset: Dataset) -> None:
        self._name = f"the dataset {dataset.name or dataset.path!r}"
        self.folder = Path(dataset.path) / STATE
        if not dataset.keeps_state:
            raise CheckpointError(
                f"start: {self._name} holds rows only, no state to go on from",
                "make it with to_storage(…, keep_state=True).",
            )
        if not (self.folder / PLAN).is_file():
            raise CheckpointError(
                f"start: the state of {self._name} is not there any more: {str(self.folder)!r}",
                "restore the folder from a copy, or make the dataset again.",
            )

    def check(self, plan: ShardedPlan, root: Node, emit: str, shards: list[int]) -> None:
        """Raise, saying where they part, when the plan is not the one that made the dataset but for its inputs.

        It begins on these shards, whatever becomes of them later.
        """
        check_query(self.folder / PLAN, {**_over_any_inputs(plan, root, emit), "shards": shards}, self._name)

    def lay(self, checkpoint: Path) -> None:
        """Let a checkpoint begin with these states."""
        try:
            last = last_commit(self.folder)
            for place, version in last.states.items():
                source, target = state_folder(str(self.folder), *place), state_folder(str(checkpoint), *place)
                target.mkdir(parents=True)
                for name in (version.manifest, *read_manifest(source, version.manifest).files):
                    _link(source / name, target / name)
                sync_to_disk(target)
            for item in (self.folder / READINGS).glob("*"):
                (checkpoint / READINGS).mkdir(exist_ok=True)
                _link(item, checkpoint / READINGS / item.name)
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"start: the state of {self._name} cannot be taken over: {error}",
                "restore the dataset's folder from a copy, or make the dataset again.",
            ) from error
        write_beginning(
            checkpoint, Commit(number=0, states=last.states, clocks=last.clocks, readings=last.readings, offsets={})
        )


def _over_any_inputs(plan: ShardedPlan, root: Node, emit: str) -> Any:
    numbers = {live_id: number for number, live_id in enumerate(live_sources(plan.fragments))}

    def neutral(node: Node) -> Node | None:
        return AnyInput.of(node, numbers[node.live_id]) if isinstance(node, LiveSource) else None

    fragments = tuple(replace(item, root=substitute(item.root, neutral)) for item in plan.fragments)
    return plan_as_json(ShardedPlan(fragments=fragments), root, emit)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, target)
        sync_to_disk(target)

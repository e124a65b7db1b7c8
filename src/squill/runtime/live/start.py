"""From a plan to a running query."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from squill.arguments import checked_flag, is_one_of
from squill.errors import PlanError
from squill.plan.build.refresh import with_refreshed
from squill.plan.build.sources import wall_seconds
from squill.plan.live import WatchedFolder
from squill.plan.node import Node
from squill.plan.nodes.live import LiveSource
from squill.plan.paths import written_path
from squill.plan.relayout import shards_in
from squill.runtime.live.bootstrap import Bootstrap, KeptState
from squill.runtime.live.driver import LiveDriver, plan_as_json
from squill.runtime.live.handle import LiveQuery
from squill.runtime.live.host import LivePlan
from squill.runtime.live.inputs import LiveInput, live_sources
from squill.runtime.live.log import EpochLog, MemoryLog
from squill.runtime.live.outside import Outside, World
from squill.runtime.live.shards import shards_for
from squill.runtime.live.share import checked_memory
from squill.runtime.live.sinks import FolderSink, Sink, sink_for
from squill.runtime.runtime import Runtime
from squill.time import Duration
from squill.wording import shortened

__all__ = ["prepare_live"]

EMITS = ("closed", "changes")


def prepare_live(
    root: Node,
    runtime: Runtime,
    sink: object,
    *,
    checkpoint: str | os.PathLike[str] | None,
    every: Duration | None,
    emit: str,
    until_now: bool,
    complete: bool,
    speculate: bool,
    bootstrap: Bootstrap | None,
    memory: int | None = None,
    outside: Outside | None = None,
) -> LiveQuery:
    """Return the query of a sharded plan, to `begin`; `ShardedStream.start` says what the arguments mean."""
    outside = outside or World()
    seconds = _checked(every, emit, checkpoint, until_now=until_now, complete=complete, speculate=speculate)
    if speculate and emit == "closed":
        raise PlanError(
            'start: speculate=True with emit="closed": a closed row is final, an early answer is not',
            'use emit="changes", or leave speculate out.',
        )
    memory = checked_memory(memory)
    folder = None if checkpoint is None else written_path(checkpoint, "start: checkpoint").absolute()
    begins = folder is None or not (folder / "QUERY").is_file()
    kept = KeptState(bootstrap()) if bootstrap is not None and begins else None
    shards = shards_for(with_refreshed(root), folder if kept is None else kept.folder, runtime.layout_of, emit)
    plan = shards.plan
    sources = live_sources(plan.fragments)
    if not sources:
        raise PlanError("start: no source of this plan is live", "use collect(), or read it with cluster.stream(…).")
    if kept is not None:
        kept.check(plan, shards.root, emit, shards.before or shards_in(shards.root))
    chosen = sink_for(sink, runtime.session)
    _refuse_own_answers(chosen, sources.values())
    with ExitStack() as held:
        if folder is None and (kept is not None or memory is not None or not runtime.keeps_state):
            folder = Path(tempfile.mkdtemp(prefix="squill-live-"))
            held.callback(shutil.rmtree, folder, ignore_errors=True)
        fragments = {fragment.number: fragment for fragment in plan.fragments}
        live_plan = LivePlan(
            fragments=fragments,
            emit=emit,
            folder=None if folder is None else str(folder),
            divisions=shards.divisions,
            memory=memory,
        )
        log = (
            MemoryLog()
            if folder is None
            else EpochLog(
                folder,
                plan_as_json(plan, shards.root, f"{emit}, speculate" if speculate else emit),
                shards.before,
                None if kept is None else kept.lay,
            )
        )
        held.callback(log.close)
        runner = runtime.live_runner(live_plan)
        held.callback(runner.close)
        inputs: dict[int, LiveInput] = {}
        for number, source in enumerate(sources.values()):
            inputs[number] = runtime.live_input(source, folder, number)
            held.callback(inputs[number].close)
        driver = LiveDriver(
            shards, live_plan, runner, chosen, log, inputs, outside, speculate=speculate, layout_of=runtime.layout_of
        )
        driver.open()
        # From here on the query lets go of them, in the same order.
        return LiveQuery(
            driver,
            chosen,
            every=seconds,
            until_now=until_now,
            complete=complete,
            on_end=held.pop_all().close,
            outside=outside,
        )


def _refuse_own_answers(sink: Sink, sources: Iterable[LiveSource]) -> None:
    """Raise when an input is a folder in which the query's answers would appear, to be read as rows."""
    if not isinstance(sink, FolderSink):
        return
    path = sink.path.resolve()
    for source in sources:
        if isinstance(source.live, WatchedFolder) and path.is_relative_to(source.live.path):
            inside = path.relative_to(source.live.path).parts
            if not any(part.startswith((".", "_")) for part in inside):
                raise PlanError(
                    f"start: the answers would appear in {str(path)!r}, where the input {source.label!r} takes its "
                    "rows from",
                    "give them a folder beside it, not in it.",
                )


def _checked(
    every: Duration | None, emit: object, checkpoint: object, *, until_now: object, complete: object, speculate: object
) -> float:
    if not is_one_of(emit, EMITS):
        raise PlanError(f"start: emit is {shortened(emit)}", 'use "closed" or "changes".')
    for name, value in (("until_now", until_now), ("complete", complete), ("speculate", speculate)):
        checked_flag(value, f"start: {name}")
    if checkpoint is not None and not isinstance(checkpoint, (str, os.PathLike)):
        raise PlanError(f"start: checkpoint is {shortened(checkpoint)}", 'give the path of a folder, such as "ck/".')
    return wall_seconds(every, "start: every") or 0.0

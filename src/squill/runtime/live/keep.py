"""Run a plan over stored rows as a live query that ends with its windows open, and keep its rows and its state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from squill.engine.batch import Batch
from squill.engine.egress import result_frame
from squill.plan.build.files import read_stored
from squill.plan.build.refresh import with_refreshed
from squill.plan.fragments import fragments_of
from squill.plan.node import Node
from squill.plan.placement import layout_of
from squill.plan.sinks import SUFFIXES, Folder
from squill.runtime.answer import Receipt
from squill.runtime.live.bootstrap import seal
from squill.runtime.live.sinks import FolderSink
from squill.runtime.live.start import prepare_live
from squill.runtime.runtime import Runtime
from squill.runtime.stored_answer import WrittenFile
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["run_with_state"]

EMIT = "closed"


def run_with_state(runtime: Runtime, root: Node, rows: Path, state: Path, file_format: str) -> list[Receipt]:
    """Run the plan; write the rows that are final to `rows`, in files of shards and epochs, the rest to `state`."""
    state.parent.mkdir(exist_ok=True)
    root = with_refreshed(root)
    sink = FolderSink(Folder(path=str(rows), format=file_format))
    query = prepare_live(
        root,
        runtime,
        sink,
        checkpoint=state,
        every=None,
        emit=EMIT,
        until_now=True,
        complete=False,
        speculate=False,
        bootstrap=None,
    )
    with query.begin():
        query.wait()
    seal(state, fragments_of(root), root, EMIT)
    return list(_receipts(root, rows, file_format))


def _receipts(root: Node, folder: Path, file_format: str) -> Iterator[Receipt]:
    """Yield what was written; a shard without rows gets a file too, as from every other run.

    Shards may have been divided on the way: keys of shard 1 of 2 are then on shards 1 and 3 of 4.
    """
    suffix = SUFFIXES[file_format]
    shards = layout_of(root).shards
    written = sorted(folder.glob(f"*{suffix}"))
    for shard in range(shards):
        files = [file for file in written if int(file.stem.partition("-")[2]) % shards == shard]
        if not files:
            files = [folder / f"00000000-{shard:04}{suffix}"]
            empty = result_frame(Batch.empty(dict(root.schema)), root)
            _ = empty.write_parquet(files[0]) if file_format == "parquet" else empty.write_ipc(files[0])
        for turn, file in enumerate(files):
            frame = read_stored(file, file_format)
            note = WrittenFile(
                path=str(file),
                rows=frame.height,
                bytes=file.stat().st_size,
                span=_span(frame, root),
                turn=turn,
            )
            yield Receipt(shard=shard, note=note)


def _span(frame: pl.DataFrame, node: Node) -> tuple[int, int] | None:
    """Return the earliest start and the latest end in ticks."""
    if node.time is None or node.properties.per_window or not frame.height:
        return None
    start, end = frame["start"].to_physical(), frame["end"].to_physical()
    low = MINUS_INFINITY if start.null_count() else start.min()
    high = INFINITY if end.null_count() else end.max()
    return int(low), int(high)  # type: ignore[arg-type]

"""Whether a key that is promised to stand together is on one shard: what plans without a redistribute rest on.

Each shard sees for itself that its own rows keep the promise. That no other shard has one of its keys it cannot see, so
this is looked at where the shards are given their parts; `trust=True` spares it. Of the other promises none needs that
for an answer to be right: order and duration are used, and checked, within a shard (`sorted_borders` looks at what is
between them), and that keys are unique is used nowhere, and checked within a shard: docs/decisions/0020.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from squill.engine.files import frames_of
from squill.engine.promises import PromiseCheck
from squill.errors import InputError
from squill.plan.nodes import FilePart, FileSource, FrameSource, Promises

__all__ = ["check_packed_files", "check_packed_frame"]

SHARD, PLACE = "__squill_shard__", "__squill_place__"
FIRST, LAST = "__squill_first__", "__squill_last__"


def check_packed_frame(source: FrameSource) -> None:
    """Raise for the first row whose key comes again."""
    if source.promises.trust or not source.frame.height:
        return
    packed = source.promises.packed
    columns = {item.name: item.rechunk() if item.name in packed else item for item in source.frame.get_columns()}
    PromiseCheck(replace(source, promises=Promises(packed=packed)))(columns, 0, source.label)


def check_packed_files(source: FileSource, paths_of: Sequence[Sequence[str]]) -> None:
    """Raise for a key that is in the files of two shards; `paths_of` are those of each."""
    packed = source.promises.packed
    if source.promises.trust or not packed or sum(map(bool, paths_of)) < 2:
        return
    placed = [(path, shard) for shard, paths in enumerate(paths_of) for path in paths]
    keys_only = replace(source, lifetime=None, read=packed, promises=Promises(), parts=None)
    found = [
        _distinct(keys_only, path).with_columns(pl.lit(shard).alias(SHARD), pl.lit(place).alias(PLACE))
        for place, (path, shard) in enumerate(placed)
    ]
    places = (pl.col(PLACE).min().alias(FIRST), pl.col(PLACE).max().alias(LAST))
    keys = pl.concat(found).group_by(packed).agg(pl.col(SHARD).n_unique(), *places)
    broken = keys.filter(pl.col(SHARD) > 1).sort(FIRST, LAST).head(1)
    if broken.height:
        key = broken.select(packed).row(0, named=True)
        first, last = (placed[broken[end].item()][0] for end in (FIRST, LAST))
        raise InputError(
            f"input {source.label!r}: the key {key} is in {first!r} and, after others, in {last!r}, but "
            f"packed=[{', '.join(packed)}] promises that its rows stand together",
            "drop the promise and redistribute(), or correct the data.",
        )


def _distinct(source: FileSource, path: str) -> pl.DataFrame:
    frames = [frame.unique() for frame in frames_of(source, FilePart(path))]
    return pl.concat(frames).unique() if frames else source.schema.empty_frame()

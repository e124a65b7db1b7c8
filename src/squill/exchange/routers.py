"""Batches taken apart by receiver: one router for each kind of movement.

A router has *lanes*: rows of one lane all go to the same receivers, so they are gathered, and encoded, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import index
from typing import Any

import numpy as np
import polars as pl

from squill.engine.batch import DEFAULT_BATCH_ROWS, Batch, Int64s
from squill.engine.columns import framed, values_of
from squill.engine.expressions import Evaluator
from squill.engine.hashing import HASH_VERSION, hash_columns, is_hashed_fast
from squill.engine.large_arrays import large_array
from squill.engine.operator import OperatorState
from squill.errors import InputError, InternalError, UserFunctionError
from squill.exchange.deal import Deal, plain_deal
from squill.exchange.kernels.partition import order_by_lane, place_by_lane
from squill.plan.node import Node
from squill.plan.routing import (
    FLAT,
    GLOBAL,
    LOCAL,
    BroadcastRouting,
    HashRouting,
    MulticastRouting,
    RoundRobinRouting,
    Routing,
)

__all__ = ["BLOCK_ROWS", "Router", "router_for"]

BLOCK_ROWS = DEFAULT_BATCH_ROWS
"""Round robin hands rows out in blocks of this many, counted from the first row of the shard."""

Lanes = tuple[tuple[int, ...], ...]


class Router:
    """Takes batches apart; rows of a lane keep their order.

    ``lanes``  the receivers of each lane.
    """

    lanes: Lanes

    def __call__(self, batch: Batch) -> Iterator[tuple[int, Batch]]:
        """Yield (lane, its rows) for the lanes that get any."""
        raise NotImplementedError

    def save(self) -> OperatorState:
        """Return what the way of later rows depends on, besides their values."""
        return {}

    def load(self, state: OperatorState) -> None:
        """Go on where the router that saved `state` was."""


def router_for(routing: Routing, shard: int, node: Node, deal: Deal | None = None) -> Router:
    """Return the router of one sender, whose rows are those of `node`; a `deal` stands for the plain one of hashes."""
    targets = routing.targets(shard)
    match routing:
        case HashRouting():
            return HashRouter(routing, targets, deal)
        case RoundRobinRouting():
            return RoundRobinRouter(routing, shard, targets)
        case BroadcastRouting():
            return BroadcastRouter(targets)
        case MulticastRouting():
            return MulticastRouter(routing, targets, node)
    raise InternalError(f"nobody knows how to {routing.verb}")


def _one_each(targets: Sequence[int]) -> Lanes:
    return tuple((target,) for target in targets)


class HashRouter(Router):
    """Each row to the shard that its key's hash names, by the deal.

    Examples
    --------
    >>> from squill.plan.layout import Layout
    >>> times = np.arange(6)
    >>> batch = Batch(times, times + 1, {"k": pl.Series([7, 8, 7, 9, 8, 7])})
    >>> routing = HashRouting(keys=("k",), layout=Layout(shards=3))
    >>> parts = HashRouter(routing, routing.targets(0))(batch)
    >>> {lane: part.columns["k"].to_list() for lane, part in parts}
    {0: [7, 7, 7], 1: [8, 9, 8]}
    """

    def __init__(self, routing: HashRouting, targets: Sequence[int], deal: Deal | None = None) -> None:
        if routing.hash_version != HASH_VERSION:
            raise InternalError(f"the movement '{routing}' is not of hash version {HASH_VERSION}")
        self.lanes = _one_each(targets)
        self._keys = routing.keys
        layout = routing.layout
        # The hash names a shard: between machines its machine counts, within one its place there.
        divisor, modulus = {
            FLAT: (1, layout.shards),
            LOCAL: (1, layout.cores),
            GLOBAL: (layout.cores, layout.machines),
        }[routing.scope]
        shard_of = plain_deal(layout.shards) if deal is None else deal
        self._lane_of = shard_of // np.int32(divisor) % np.int32(modulus)

    def __call__(self, batch: Batch) -> Iterator[tuple[int, Batch]]:
        if len(self.lanes) == 1 or not self._keys:
            yield 0, batch
            return
        columns = [batch.columns[name] for name in self._keys]
        known = batch.hash_of(self._keys)
        hashes = hash_columns(columns) if known is None else known
        begin = np.zeros(len(self.lanes) + 1, np.int64)
        places = large_array(len(batch), np.uint32)
        place_by_lane(hashes, self._lane_of, begin, places)
        if not is_hashed_fast(columns):
            batch = batch.with_columns(batch.columns)
            batch.hash = self._keys, hashes
        yield from _pieces(batch.placed(places), begin)


def _pieces(in_order: Batch, begin: Int64s) -> Iterator[tuple[int, Batch]]:
    for lane in range(len(begin) - 1):
        low, high = int(begin[lane]), int(begin[lane + 1])
        if high > low:
            yield lane, in_order.slice(low, high)


class BroadcastRouter(Router):
    """Each row to every shard in scope, by reference."""

    def __init__(self, targets: Sequence[int]) -> None:
        self.lanes = (tuple(targets),)

    def __call__(self, batch: Batch) -> Iterator[tuple[int, Batch]]:
        yield 0, batch


class RoundRobinRouter(Router):
    """Blocks of rows to the shards in scope in turn, by reference; which block a row is in, its number says.

    The first block goes to a shard of the sender's own number, so that senders of few rows spread them too. Rows
    of equal packed columns go where the first of them goes.
    """

    def __init__(self, routing: RoundRobinRouting, shard: int, targets: Sequence[int]) -> None:
        self.lanes = _one_each(targets)
        self._packed = routing.packed
        self._shard = shard
        self._rows = 0
        self._block = 0
        self._last_hash: int | None = None

    def __call__(self, batch: Batch) -> Iterator[tuple[int, Batch]]:
        cuts = self._cuts(batch)
        low = 0
        for cut in [*cuts, len(batch)]:
            if cut > low:
                yield (self._shard + self._block) % len(self.lanes), batch.slice(low, cut)
            if cut < len(batch):
                self._block = (self._rows + cut) // BLOCK_ROWS
            low = cut
        self._rows += len(batch)

    def save(self) -> OperatorState:
        return {"rows": self._rows, "block": self._block, "last_hash": self._last_hash}

    def load(self, state: OperatorState) -> None:
        self._rows, self._block, self._last_hash = state["rows"], state["block"], state["last_hash"]

    def _cuts(self, batch: Batch) -> list[int]:
        """Return the rows of the batch with which another block begins; the first row may be one."""
        first = -(-self._rows // BLOCK_ROWS) * BLOCK_ROWS - self._rows
        cuts = np.arange(first, len(batch), BLOCK_ROWS)
        if not self._packed:
            return [int(cut) for cut in cuts]
        hashes = hash_columns([batch.columns[name] for name in self._packed])
        begins = np.empty(len(batch), np.bool_)
        begins[0] = self._last_hash is None or int(hashes[0]) != self._last_hash
        np.not_equal(hashes[1:], hashes[:-1], out=begins[1:])
        self._last_hash = int(hashes[-1])
        # A block that is overdue, because equal rows kept it waiting, begins with the first other row.
        if self._block != self._rows // BLOCK_ROWS:
            cuts = np.concatenate([[0], cuts])
        keys_begin = np.flatnonzero(begins)
        at = np.searchsorted(keys_begin, cuts)
        return sorted({int(keys_begin[place]) for place in at if place < len(keys_begin)})


def _no_shard(found: int, row: dict[str, Any], shards: int) -> InputError:
    return InputError(
        f"multicast: shard {found} does not exist, for the row {row}",
        f"give numbers from 0 to {shards - 1}, or null or an empty list for none.",
    )


class MulticastRouter(Router):
    """Each row to the shards that an expression or a function of the row names."""

    def __init__(self, routing: MulticastRouting, targets: Sequence[int], node: Node) -> None:
        self.lanes = _one_each(targets)
        self._function = routing.function
        self._evaluate = None
        if routing.chosen is not None:
            self._evaluate = Evaluator([routing.chosen], node.time, "multicast")

    def __call__(self, batch: Batch) -> Iterator[tuple[int, Batch]]:
        rows, lanes = self._pairs(batch)
        begin = np.zeros(len(self.lanes) + 1, np.int64)
        order = np.empty(len(rows), np.uint32)
        order_by_lane(rows, lanes, begin, order)
        yield from _pieces(batch.take(order), begin)

    def _pairs(self, batch: Batch) -> tuple[Int64s, Int64s]:
        """Return (row, shard) for every copy of a row that is to be sent, in the order of the rows; all exist."""
        chosen = self._chosen(batch)
        rows = pl.Series("row", np.arange(len(batch)))
        frame = pl.DataFrame([rows, chosen.alias("lane")])
        if isinstance(chosen.dtype, (pl.List, pl.Array)):
            frame = frame.explode("lane", empty_as_null=False, keep_nulls=False)
        frame = frame.drop_nulls("lane").unique(maintain_order=True)
        # Looked at as they are: numbers of other types need not fit into 64 bits with a sign.
        wrong = frame.filter(~pl.col("lane").is_between(0, len(self.lanes) - 1))
        if wrong.height:
            row, found = wrong.row(0)
            raise _no_shard(found, {name: column[row] for name, column in batch.columns.items()}, len(self.lanes))
        return values_of(frame["row"].cast(pl.Int64)), values_of(frame["lane"].cast(pl.Int64))

    def _chosen(self, batch: Batch) -> pl.Series:
        if self._evaluate is not None:
            (chosen,) = self._evaluate(batch).values()
            return chosen
        assert self._function is not None
        answers: list[list[int]] = []
        shards = range(len(self.lanes))
        for row in framed(list(batch.columns.values())).iter_rows(named=True):
            try:
                answer = self._function(row)
                several = [answer] if isinstance(answer, (int, np.integer)) else () if answer is None else answer
                answers.append([_number(shard) for shard in several])
            except Exception as error:
                raise UserFunctionError(
                    f"multicast: the function raised {type(error).__name__}: {error}, for the row {row}",
                    "return a shard number, or an iterable of them.",
                ) from error
            wrong = next((shard for shard in answers[-1] if shard not in shards), None)
            if wrong is not None:
                raise _no_shard(wrong, row, len(shards))
        return pl.Series("lane", answers, pl.List(pl.Int64))


def _number(shard: Any) -> int:
    """Return a shard's number as the user's function gave it; an answer of yes or no is refused, as of expressions."""
    if isinstance(shard, bool):
        raise TypeError(f"{shard} is not a shard number")
    return index(shard)

"""What becomes of the answer's rows.

An *answer* is a small picklable object that a runtime takes along to wherever the last fragment runs. Each
attempt of each shard opens its part once, pushes rows into the part's sink, and asks it for a receipt; the
runtime hands the driver the receipts of the attempts that count. So whether rows are collected, written to
files or kept in memory is nothing that a runtime knows of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from squill.engine.batch import Batch
from squill.engine.egress import CollectSink
from squill.engine.operator import Operator
from squill.exchange.merge import worth_pushing
from squill.exchange.routers import BroadcastRouter
from squill.exchange.scatter import Outbox, ScatterSink
from squill.plan.node import Node

__all__ = ["DRIVER", "Answer", "CollectAnswer", "OnReceipt", "Part", "Receipt", "handed_over", "send_to_driver"]

DRIVER = 0
"""The only receiver of the answer."""


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What one shard reports: rows for the driver, in pieces, or a `note`, small and picklable, on all others.

    A shard whose rows have left it as they came (see `Answer.open`) reports none.
    """

    shard: int
    pieces: Sequence[Batch] = ()
    note: Any = None

    def rows(self, node: Node) -> Batch:
        """Return the rows, which are those of the node, in one piece."""
        return Batch.concat(self.pieces) if self.pieces else Batch.empty(dict(node.schema))


OnReceipt = Callable[[Receipt], object]


def handed_over(receipt: Receipt, on_receipt: OnReceipt | None) -> Receipt:
    """Give the receipt to who wants it at once; return what the run is still to hold of it."""
    if on_receipt is None:
        return receipt
    on_receipt(receipt)
    return replace(receipt, pieces=())


class Part(Protocol):
    """One attempt of one shard."""

    @property
    def sink(self) -> Operator:
        """Where the rows go."""
        ...

    def finish(self) -> Receipt:
        """Return what to report; called once, after the last row."""
        ...


class Answer(Protocol):
    """What is done with the answer's rows, shard by shard. It is pickled where tasks are other processes."""

    @property
    def keeps_shards(self) -> bool:
        """Whether a later plan may rely on which shard a row was on: it must be the one that the plain hash names."""
        ...

    def open(self, root: Node, shard: int, attempt: int, outbox: Outbox | None) -> AbstractContextManager[Part]:
        """Return a part while in context; left by an error, nothing of it stays.

        No two attempts of a shard in one run have the same number. Rows for the driver may leave by the `outbox` as
        they come, where there is one.
        """
        ...


@dataclass(frozen=True)
class CollectAnswer:
    """All rows to the driver, in the order of their starts."""

    keeps_shards: bool = False

    @contextmanager
    def open(self, root: Node, shard: int, attempt: int, outbox: Outbox | None) -> Iterator[Part]:
        # Rows may be more than memory holds: they leave at once, or, where ends follow later, when these are there.
        if outbox is None:
            yield _CollectedPart(shard, CollectSink(root))
        elif root.properties.ends_known:
            yield _SentPart(root, shard, outbox)
        else:
            yield _CollectedPart(shard, CollectSink(root, partial(send_to_driver, outbox)))


class _SentPart:
    def __init__(self, root: Node, shard: int, outbox: Outbox) -> None:
        self.sink = ScatterSink(root, BroadcastRouter([DRIVER]), outbox)
        self._shard = shard

    def finish(self) -> Receipt:
        return Receipt(shard=self._shard)


def send_to_driver(outbox: Outbox, batches: Iterable[Batch]) -> None:
    """Send rows of the answer on, small batches put together."""
    for batch in worth_pushing(batches):
        outbox.send([DRIVER], batch)


class _CollectedPart:
    def __init__(self, shard: int, sink: CollectSink) -> None:
        self.sink = sink
        self._shard = shard

    def finish(self) -> Receipt:
        return Receipt(shard=self._shard, pieces=self.sink.pieces())

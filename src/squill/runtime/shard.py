"""One shard's share of a fragment: read or receive rows, push them through the plan, deliver.

This is all the work there is; runtimes only decide where it happens and what the outbox is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from squill.engine.batch import DEFAULT_BATCH_ROWS, Batch
from squill.engine.compile import compile_plan
from squill.engine.egress import CollectSink
from squill.engine.operator import Operator
from squill.engine.run import source_arrivals
from squill.exchange.scatter import Outbox, ScatterSink
from squill.plan.fragments import Fragment
from squill.plan.nodes import FileSource, Source
from squill.plan.rebuild import substitute
from squill.runtime.splits import source_of
from squill.time import INFINITY

__all__ = ["DRIVER", "ShardTask"]

DRIVER = 0
"""The only receiver of a fragment that delivers to the driver."""


@dataclass(frozen=True, kw_only=True)
class ShardTask:
    """The work of one shard on one fragment.

    ``split``     the part of the source it reads; None when it receives rows.
    ``received``  the rows it receives, in sync order.
    """

    fragment: Fragment
    shard: int
    split: Source | None = None
    received: Iterable[Batch] = ()

    def run(self, outbox: Outbox, checkpoint: Callable[[], None]) -> None:
        """Do it; `checkpoint` is called between batches and may raise to stop the work.

        Rows for the driver are sent once they are all there, as intervals.
        """
        placement = self.fragment.delivers
        if placement is None:
            collected = CollectSink(self.fragment.root)
            self._drive(collected, checkpoint)
            rows = collected.rows()
            if len(rows):
                outbox.send(DRIVER, rows)
        else:
            scattered = ScatterSink(self.fragment.root, placement, outbox)
            self._drive(scattered, checkpoint)
            scattered.finish()

    def _drive(self, sink: Operator, checkpoint: Callable[[], None]) -> None:
        root, batches = self.fragment.root, self.received
        if self.split is not None:
            source = source_of(root)
            root = substitute(root, lambda node: self.split if node is source else None)
            batches = read_split(self.split)
        ((_, entry),) = compile_plan(root, sink).entries
        for batch in batches:
            checkpoint()
            if len(batch):
                entry.push(batch)
                entry.advance(int(batch.sync[-1]))
        checkpoint()
        entry.advance(INFINITY)


def read_split(split: Source) -> Iterator[Batch]:
    """Yield a split's rows in time order."""
    if isinstance(split, FileSource) and not split.paths:
        return  # there are fewer files than shards
    for arrival in source_arrivals(split, DEFAULT_BATCH_ROWS):
        if arrival.batch is not None:
            yield arrival.batch

"""Where the shards of a live query live and work: on threads, or in Spark tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from squill.runtime.live.host import LivePlan
from squill.runtime.live.orders import Seen, ShardOrder, ShardReport

__all__ = ["Runner"]


class Runner(Protocol):
    """Where shards live and work.

    ``tries``  how often an epoch is run in which a worker dies.
    """

    tries: int

    def read(self, orders: Sequence[ShardOrder]) -> list[dict[int, Seen]] | None:
        """Let shards take what is new; return how far the live inputs have come in each, by leaf.

        None where `work` reads too, because what shards read is not known before they work.
        """
        ...

    def work(self, orders: Sequence[ShardOrder], until: Sequence[dict[int, int]]) -> list[ShardReport]:
        """Let shards work; `until` is for each how far all of them together have come, by leaf."""
        ...

    def look_ahead(self, orders: Sequence[ShardOrder]) -> list[ShardReport]:
        """Let copies of shards work to the end of time."""
        ...

    def take_plan(self, plan: LivePlan) -> None:
        """Go on with the plan on other shards; those that are held are let go."""
        ...

    def epoch_over(self, epoch: int) -> None:
        """Forget what moved between the waves of an epoch."""
        ...

    def forget(self) -> None:
        """Let shards go that are half way through an epoch."""
        ...

    def close(self) -> None:
        """Give back what it holds; later calls do nothing."""
        ...

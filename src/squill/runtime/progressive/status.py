"""How far a progressive query is, and who holds it back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from squill.runtime.report import Work
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["EarlyStatus", "ShardClock", "Watch", "clocks_of"]


@dataclass(frozen=True, kw_only=True, order=True)
class ShardClock:
    """How far one shard of a fragment has come; `place` says where it runs."""

    clock: int
    fragment: int
    shard: int
    place: str = "this process"

    def __str__(self) -> str:
        at = "before the first step" if self.clock == MINUS_INFINITY else f"at progress {self.clock}"
        return f"shard {self.shard} of fragment {self.fragment} ({self.place}) is {at}"


class Watch:
    """Where a runtime leaves word of a query that runs.

    ``look``      returns how far each shard is.
    ``restarts``  how often the query had to be run again.
    """

    def __init__(self) -> None:
        self.look: Callable[[], Iterable[ShardClock]] = tuple
        self.restarts = 0

    def behind(self) -> ShardClock | None:
        """Return the shard that the others wait for: of those that are furthest behind the first that rows come to."""
        return min((shard for shard in self.look() if shard.clock < INFINITY), default=None)


@dataclass(frozen=True, kw_only=True)
class EarlyStatus:
    """What `status()` returns.

    ``state``     "not begun", "running" or "over".
    ``progress``  the point of the last answer that was given; None before the first.
    ``behind``    the shard that holds progress back, where shards share the work.
    ``restarts``  how often the query was run again after a task was lost.
    """

    state: str
    progress: int | None = None
    behind: ShardClock | None = None
    restarts: int = 0

    def __str__(self) -> str:
        told = "no answer yet" if self.progress is None else f"answered up to progress {self.progress}"
        waits = "" if self.behind is None else f"; {self.behind}"
        again = "" if not self.restarts else f"; run again {self.restarts} times"
        return f"{self.state}, {told}{waits}{again}"


def clocks_of(works: Sequence[Work], place: str = "this process") -> list[ShardClock]:
    """Return how far the shards that did this work are."""
    return [ShardClock(clock=work.clock, fragment=work.fragment, shard=work.shard, place=place) for work in works]

"""The work of one shard, step by step: on a thread of its own, or by whoever waits for its rows."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from inspect import GEN_RUNNING, getgeneratorstate
from typing import Any

from squill.exchange.flow import Halted
from squill.runtime.report import Work
from squill.runtime.threads import Checkpoint

__all__ = ["ShardTask", "Steps"]

Steps = Generator[None, None, Any]
"""What a shard does, a step at a time; it returns what the shard reports."""


class ShardTask:
    """One shard of one fragment.

    ``checkpoint``  called before each step.
    ``has_room``    whether the rows of a step can be left without waiting; the caller has the flow's lock.
    ``place``       among those that are as far, by who is waited for.

    After `run`, or the last `step`, ``result`` is what the shard reports. A step of somebody else's that fails leaves
    its ``error`` here, and the somebody is `Halted`: it is not his.
    """

    def __init__(
        self,
        steps: Steps,
        work: Work,
        checkpoint: Checkpoint,
        has_room: Callable[[], bool] = lambda: True,
        place: int = 0,
    ) -> None:
        self._steps = steps
        self._work = work
        self._checkpoint = checkpoint
        self.has_room = has_room
        self._place = place
        self.result: Any = None
        self.error: Exception | None = None
        self.is_over = False

    @property
    def turn(self) -> tuple[int, int]:
        return self._work.clock, self._place

    def run(self, _: Checkpoint) -> Any:
        """Do all of it, on a thread of its own."""
        while self._step():
            pass
        return self.result

    def step(self) -> bool:
        """Do a step for others, as an errand; return whether there are more."""
        try:
            return self._step()
        except Halted:
            raise
        except Exception as error:
            self.error = error
            raise Halted from error

    def _step(self) -> bool:
        self._checkpoint()
        try:
            with self._work.measured():
                next(self._steps)
        except StopIteration as end:
            self.result, self.is_over = end.value, True
            return False
        return True

    def abandon(self) -> None:
        """Let go of what a task holds that nobody is going to finish; what went wrong before that matters more."""
        # Who is interrupted twice does not wait for threads; one that is still at it ends at its next step.
        if getgeneratorstate(self._steps) != GEN_RUNNING:
            with suppress(Exception):
                self._steps.throw(Halted())

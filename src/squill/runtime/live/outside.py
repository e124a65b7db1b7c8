"""What a live query has of the world around it: the time of day, and who looks on."""

from __future__ import annotations

import datetime as dt
import time as wall
from typing import Protocol

__all__ = ["MOMENTS", "Outside", "World"]

MOMENTS = ("begin", "read", "work", "commit", "deliver")
"""What an epoch is about to do: it is written down what it reads; shards read; they work; it is committed; the sink
is given the rows. "work" comes once for each wave."""


class Outside(Protocol):
    """What a query asks of the world; tests have one of their own, in which time stands still and epochs fail."""

    def elapsed(self) -> float:
        """Return seconds since some moment; only differences count."""
        ...

    def now(self) -> dt.datetime:
        """Return the time of day, UTC, without a zone."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def about_to(self, moment: str) -> None:
        """Look on at one of `MOMENTS`; what is raised here is an error of the epoch."""
        ...


class World:
    """The world as it is."""

    def elapsed(self) -> float:
        return wall.monotonic()

    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC).replace(tzinfo=None)

    def sleep(self, seconds: float) -> None:
        wall.sleep(seconds)

    def about_to(self, moment: str) -> None:
        """Nobody looks on."""

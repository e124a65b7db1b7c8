"""How far live inputs have come, and which of them, or of their partitions, are idle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from squill.plan.nodes.live import LiveSource
from squill.runtime.live.orders import Seen
from squill.runtime.live.outside import Outside
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["InputTimes"]

Clocks = dict[int, int]
Peaks = dict[int, dict[int, int]]
"""By input of partitions: the latest start in each."""


class InputTimes:
    """The clocks of the inputs of one query; inputs go by number."""

    def __init__(self, sources: Mapping[int, LiveSource], outside: Outside) -> None:
        self._sources = sources
        self._outside = outside
        self._last_news = dict.fromkeys(sources, outside.elapsed())
        self._last_rows: dict[tuple[int, int], float] = {}
        """When each partition, by input, last had rows."""

    def had_news(self, number: int) -> None:
        """Take note that an input is not idle."""
        self._last_news[number] = self._outside.elapsed()

    def carried(self, clocks: Clocks) -> Clocks:
        """Return the clocks with which an epoch begins; an input that is idle is carried along by the others."""
        now = self._outside.elapsed()
        idle = [
            number
            for number, source in self._sources.items()
            if source.idle_after is not None and now - self._last_news[number] > source.idle_after
        ]
        # One that has ended is at the end of time, and nobody is to be carried there.
        awake = [clock for number, clock in clocks.items() if number not in idle and clock < INFINITY]
        if not awake:
            return clocks
        return {number: max(clock, min(awake)) if number in idle else clock for number, clock in clocks.items()}

    def come_to(
        self, before: Mapping[int, int], peaks: Mapping[int, Mapping[int, int]], seen: Iterable[tuple[int, Seen]]
    ) -> tuple[Clocks, Peaks]:
        """Return how far the inputs have come by what shards have seen, and the latest start of every partition.

        An input of partitions has come as far as the one that is furthest behind, of those that are not idle.
        """
        clocks = dict(before)
        latest = {number: dict(known) for number, known in peaks.items()}
        for number, item in seen:
            clocks[number] = max(clocks.get(number, MINUS_INFINITY), item.clock)
            for partition, peak in item.peaks.items():
                known = latest.setdefault(number, {})
                known[partition] = max(known.get(partition, MINUS_INFINITY), peak)
                self._last_rows[number, partition] = self._outside.elapsed()
        for number, known in latest.items():
            clocks[number] = max(clocks[number], self._least_peak(number, known))
        return clocks, latest

    def _least_peak(self, number: int, peaks: Mapping[int, int]) -> int:
        source, now = self._sources[number], self._outside.elapsed()
        assert source.time is not None
        awake = [
            peaks.get(partition, MINUS_INFINITY)
            for partition in range(source.live.count)
            if source.idle_after is None
            or now - self._last_rows.setdefault((number, partition), now) <= source.idle_after
        ]
        wait = source.time.ticks(source.disorder.wait, "stream: wait")
        least = min(awake, default=max(peaks.values()))
        return least - wait if least > MINUS_INFINITY + wait else MINUS_INFINITY

"""What flows out of a plan as single events: points, intervals, edges and punctuations."""

from __future__ import annotations

from typing import Any

import numpy as np

from squill.engine.batch import Batch, Int64s
from squill.engine.expressions import time_series
from squill.engine.operator import Operator
from squill.plan.events import EndEdge, Event, Interval, Point, Punctuation, StartEdge
from squill.plan.node import Node
from squill.time import INFINITY

__all__ = ["EventsSink"]


class EventsSink(Operator):
    """Keeps every row as an event, and every advance of the clock as a punctuation."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.events: list[Event] = []

    def push(self, batch: Batch, port: int = 0) -> None:
        syncs, others = self._values(batch.sync), self._values(batch.other)
        is_end = (batch.other < batch.sync).tolist()
        is_point = (batch.other - batch.sync == 1).tolist()
        payloads = _payloads(batch)
        for sync, other, ends, point, payload in zip(syncs, others, is_end, is_point, payloads, strict=True):
            if ends:
                self.events.append(EndEdge(sync, other, payload))
            elif point:
                self.events.append(Point(sync, payload))
            elif other is None and not self.node.properties.ends_known:
                self.events.append(StartEdge(sync, payload))
            else:
                self.events.append(Interval(sync, other, payload))

    def advance(self, t: int, port: int = 0) -> None:
        if t > self.clock:
            self.clock = t
            self.events.append(Punctuation(None if t == INFINITY else self._values(np.array([t]))[0]))

    def _values(self, ticks: Int64s) -> list[Any]:
        if self.node.time is None:
            return [None] * len(ticks)
        return time_series("time", ticks, self.node.time).to_list()


def _payloads(batch: Batch) -> list[dict[str, Any]]:
    names = list(batch.columns)
    lists = [series.to_list() for series in batch.columns.values()]
    if not names:
        return [{} for _ in range(len(batch))]
    return [dict(zip(names, values, strict=True)) for values in zip(*lists, strict=True)]

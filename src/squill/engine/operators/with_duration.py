"""WithDuration and AlterLifetime: lifetimes set from the start, whatever they were."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.batch import Batch, Int64s
from squill.engine.columns import as_int64
from squill.engine.expressions import Evaluator
from squill.engine.operator import STARTS, Belongs, Operator, register
from squill.engine.times import refuse_beginningless, shifted, time_overflow
from squill.errors import InputError
from squill.plan.expressions import Expression
from squill.plan.nodes import AlterLifetime, WithDuration
from squill.time import INFINITY, MINUS_INFINITY, NANOSECONDS, TimeType

__all__ = ["AlterLifetimeOperator", "WithDurationOperator"]


@register(WithDuration)
class WithDurationOperator(Operator):
    """end := start + duration; end edges are dropped; an expression's duration ≤ 0 removes the event."""

    demands = STARTS

    def __init__(self, node: WithDuration | AlterLifetime) -> None:
        super().__init__(node)
        self._duration = node.duration
        self._lengths = (
            Evaluator([node.duration], node.parent.time, node.name) if isinstance(node.duration, Expression) else None
        )

    def push(self, batch: Batch, port: int = 0) -> None:
        if not self.node.inputs[0].properties.ends_known:
            batch = batch.filter(batch.other > batch.sync)
        self.emit(self._altered(batch))

    def _altered(self, batch: Batch) -> Batch:
        return self._with_duration(batch) if self._lengths is None else self._with_lengths(batch, batch.sync)

    def _with_duration(self, batch: Batch) -> Batch:
        """Return the rows, all of which live equally long."""
        if self._duration is None:
            return batch.with_duration(INFINITY)
        assert isinstance(self._duration, int)
        if len(batch):
            refuse_beginningless(np.array([batch.first_sync]), self.node)
            shifted(np.array([batch.last_sync]), self._duration, self.node)
        return batch.with_duration(self._duration)

    def _with_lengths(self, batch: Batch, starts: Int64s) -> Batch:
        """Return the rows with other starts, and with ends as far after these as each row says."""
        lengths, known = self._ticks(batch)
        stays = ~known | (lengths > 0)
        if not stays.all():
            batch, starts, lengths, known = batch.filter(stays), starts[stays], lengths[stays], known[stays]
        refuse_beginningless(starts[known], self.node)
        # Unsigned: from a start below zero a length of 64 bits may lead to a time of 63.
        beyond = known & (lengths > np.uint64(INFINITY - 1) - starts.astype(np.uint64))
        if beyond.any():
            raise time_overflow(self.node, int(starts[np.argmax(beyond)]))
        ends = np.where(known, (starts.astype(np.uint64) + lengths).astype(np.int64), INFINITY)
        return batch.with_lifetimes(starts, ends)

    def _ticks(self, batch: Batch) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        """The lengths in ticks, 0 for those below; and where there is one: a null is for ever, as a null end is."""
        assert self._lengths is not None
        (lengths,) = self._lengths(batch).values()
        values, valid = as_int64(lengths)
        # Under a null the value is whatever the buffer holds.
        values = np.where(valid, values, 0)
        if isinstance(lengths.dtype, pl.Duration):
            ticks = self._from_duration(values, lengths.dtype, batch.sync)
        else:
            ticks = (values if isinstance(lengths.dtype, pl.UInt64) else np.maximum(values, 0)).astype(np.uint64)
        return ticks, valid.view(np.bool_)

    def _from_duration(self, values: Int64s, dtype: pl.Duration, starts: Int64s) -> npt.NDArray[np.uint64]:
        time = self.node.time
        assert time is not None
        unit, tick = NANOSECONDS[dtype.time_unit], time.tick_nanoseconds
        if unit >= tick:
            lengths = np.maximum(values, 0).astype(np.uint64)
            too_long = lengths > np.uint64((2**64 - 1) // (unit // tick))
            if too_long.any():
                raise time_overflow(self.node, int(starts[np.argmax(too_long)]))
            return lengths * np.uint64(unit // tick)
        if (values % (tick // unit)).any():
            raise InputError(
                f"{self.node.name}: a duration is not a whole number of ticks of {time}",
                "round it, or make the ticks finer with cast_time(…).",
            )
        return np.maximum(values // (tick // unit), 0).astype(np.uint64)


@register(AlterLifetime)
class AlterLifetimeOperator(WithDurationOperator):
    """start := f(start) with f monotone, which is checked as rows go by."""

    def __init__(self, node: AlterLifetime) -> None:
        super().__init__(node)
        self._start_of = Evaluator([node.start], node.parent.time, node.name)
        self._last: tuple[int, int] = (MINUS_INFINITY, MINUS_INFINITY)
        assert node.parent.time is not None
        self._time: TimeType = node.parent.time

    def _map(self, starts: Int64s) -> Int64s:
        (new,) = self._start_of(Batch(starts, INFINITY)).values()
        values, valid = as_int64(new)
        if not valid.all():
            raise InputError(
                f"alter_lifetime: the new start of {self._time.show(int(starts[np.argmin(valid)]))} is null",
                "the expression must give a time for every start.",
            )
        return values

    def _altered(self, batch: Batch) -> Batch:
        starts = self._starts(batch)
        if self._lengths is None:
            return self._with_duration(batch.with_lifetimes(starts, INFINITY))
        return self._with_lengths(batch, starts)

    def _starts(self, batch: Batch) -> Int64s:
        if not len(batch):
            return batch.sync
        new = self._map(batch.sync)
        falls = np.flatnonzero(new[1:] < new[:-1])
        if len(falls) or new[0] < max(self._last[1], self.clock):
            row = int(falls[0]) + 1 if len(falls) else 0
            raise InputError(
                f"alter_lifetime: the new start is not monotone: {self._time.show(int(batch.sync[row]))} becomes "
                f"{self._time.show(int(new[row]))}, earlier than an event before it",
                "use an expression of sq.start() that never decreases.",
            )
        self._last = (int(batch.sync[-1]), int(new[-1]))
        return new

    def advance(self, t: int, port: int = 0) -> None:
        if t in (INFINITY, MINUS_INFINITY):
            self.emit_clock(t)
        else:
            self.emit_clock(max(int(self._map(np.array([t]))[0]), self.clock))

    def save(self) -> dict[str, object]:
        return {"clock": self.clock, "last": self._last}

    def load(self, state: dict[str, object]) -> None:
        self.clock = state["clock"]  # type: ignore[assignment]
        self._last = state["last"]  # type: ignore[assignment]

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        return True  # what it remembers is of no key

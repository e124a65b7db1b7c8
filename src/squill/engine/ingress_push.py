"""The ingress of a pushed source: rows come from the program, go through the policy, wait for company, go on.

A push is checked as a whole before anything changes, so a push that raises leaves the source as it was. Rows
that may leave are gathered until there are enough of them or the first has waited for `max_delay`; time is
looked at whenever the source is called, and by the timers of its subscriptions.

Two locks: `_mutex` guards what waits in the source, and is never held while queries run; the turn is held by
the thread that runs the queries. So rows gather while a batch is under way, and the slower the queries are,
the larger the next batch is.
"""

from __future__ import annotations

import threading
import time as wall
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import polars as pl

from squill.engine.batch import DEFAULT_BATCH_ROWS, Batch
from squill.engine.columns import has_parameters
from squill.engine.disorder import DisorderBuffer
from squill.engine.flush_timer import FlushTimer
from squill.engine.ingress import RowReader
from squill.engine.late_rows import late_frame
from squill.engine.operator import OperatorState
from squill.engine.turns import Turn, raise_first
from squill.errors import InputError, SourceStateError, SquillError
from squill.plan.nodes import PushSource
from squill.plan.nodes.sources import KEEP_LATE
from squill.time import INFINITY, MINUS_INFINITY
from squill.wording import kind_of, shortened

__all__ = ["Failure", "Feed", "Listener"]


class Listener(Protocol):
    """What hangs below a feed: one source of one running query."""

    def push(self, batch: Batch) -> None: ...
    def advance(self, t: int) -> None: ...
    def settle(self) -> None:
        """Hand out what has come of the rows and the time given so far."""


class Failure:
    """An error that met nobody, to be raised once, by whatever uses the query next."""

    def __init__(self, error: BaseException) -> None:
        self._error: BaseException | None = error

    def raise_once(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


class Feed:
    """The running side of one pushed source; `PushedSource` is its face."""

    def __init__(
        self,
        *,
        max_delay: float | None = None,
        keep_late: int = KEEP_LATE,
        now: Callable[[], float] = wall.monotonic,
    ) -> None:
        self._keep_late = keep_late
        self._max_delay = max_delay
        self._now = now
        self.turn = Turn()
        self._mutex = threading.Lock()
        self._listeners: list[Listener] = []
        self._timers: list[FlushTimer] = []
        self._failures: list[Failure] = []
        self._begun = False
        self._completed = False
        self._pushes = 0
        self._resumed_at: int | None = None
        self._moved_on = False
        self._pending: list[Batch] = []
        self._pending_rows = 0
        self._news = False
        self._news_since = 0.0
        self._last_punctuation = MINUS_INFINITY
        self._punctuated = MINUS_INFINITY
        self._first_row_left = False

    def bind(self, node: PushSource) -> None:
        """Take the plan node that says what rows look like."""
        assert node.time is not None
        self.node = node
        self._time = node.time
        self._names = list(node.columns)
        self._types = list(node.columns.values())
        self._expected = [
            (name, dtype, None if has_parameters(dtype) else type(dtype)) for name, dtype in node.columns.items()
        ]
        self._reader = RowReader(node)
        self._buffer = self._new_buffer()

    def _new_buffer(self) -> DisorderBuffer:
        policy, wait = self.node.disorder.policy, self._time.ticks(self.node.disorder.wait, "source: wait")
        return DisorderBuffer(policy, wait, self.node.label, self._time, keep_late=self._keep_late)

    # -- listeners ----------------------------------------------------------------------------------------

    def attach(self, listener: Listener) -> None:
        """Add a running query; all must be there before the first row."""
        self._refuse_completed("subscribe to")
        if self._begun:
            raise SourceStateError(
                f"source {self.node.label!r} has begun: a new subscription would miss the rows pushed before it",
                "subscribe before the first push.",
            )
        self._listeners.append(listener)

    def check_resumable(self, state: OperatorState) -> None:
        """Raise when the source cannot go on from this state."""
        fresh = not (self._begun or self._completed or self._listeners)
        together = self._resumed_at == state["pushes"] and not self._moved_on
        if not (fresh or together):
            raise SourceStateError(
                f"source {self.node.label!r} cannot be restored: it has begun, or other queries over it have not "
                "been restored to the same point",
                "make the source anew, restore all its queries, each from a checkpoint taken between the same two "
                "pushes, then push the rows that come after.",
            )

    def resume(self, listener: Listener, state: OperatorState) -> None:
        """Add a running query that was saved together with this state, which becomes the source's."""
        if self._resumed_at is None:
            self.load(state)
            self._resumed_at, self._moved_on = self._pushes, False
        self._gather(None)  # those that were told the time before this one came are told again
        self._listeners.append(listener)

    def detach(self, listener: Listener) -> None:
        with self._mutex:
            self._listeners = [item for item in self._listeners if item is not listener]

    def watch(self, timer: FlushTimer) -> None:
        """Let the timer know when rows begin to wait."""
        with self._mutex:
            self._timers = [*self._timers, timer]

    def unwatch(self, timer: FlushTimer) -> None:
        with self._mutex:
            self._timers = [item for item in self._timers if item is not timer]

    # -- driven by the program ----------------------------------------------------------------------------

    def push(self, data: Any) -> None:
        self._refuse_rows()
        columns, size = self._columns(data)
        with self._mutex:
            self._refuse_rows()
            self._gather(self._admit(columns, size))
            self._begun = self._moved_on = True
            self._pushes += 1
            full = self._max_delay is None or self._pending_rows >= DEFAULT_BATCH_ROWS
        if full:
            self.turn.run(self._send)
        elif self._is_due():
            # Who is running the queries takes these rows next; they gain company meanwhile.
            self.turn.run(self._send, wait=False)
        else:
            self._wake_timers()

    def _refuse_rows(self) -> None:
        self._raise_kept()
        self._refuse_completed("push to")
        if not self._listeners:
            raise SourceStateError(
                f"source {self.node.label!r} is not connected: nothing would take the rows",
                "subscribe(fn) to a query over it first.",
            )

    def _admit(self, columns: dict[str, pl.Series], size: int) -> Batch | None:
        self._reader.first_row = 0
        empty = self._reader.empty
        try:
            return self._buffer.push(self._reader.read(columns, size))
        except SquillError:
            self._reader.empty = empty
            raise

    def punctuate(self, t: object) -> None:
        self._raise_kept()
        ticks = self._time.instant(t, f"source {self.node.label!r}: punctuation")
        with self._mutex:
            self._refuse_completed("punctuate")
            self._begun = self._moved_on = True
            self._gather(self._buffer.punctuate(ticks))
            self._punctuated = self._buffer.clock
        self.turn.run(self._send)

    def complete(self) -> None:
        self._raise_kept()
        with self._mutex:
            self._refuse_completed("complete")
            self._gather(self._buffer.complete())
            self._completed = self._moved_on = True
        try:
            self.turn.run(self._send)
        finally:
            self._wake_timers()

    def flush(self) -> None:
        """Send everything that may leave, and the time."""
        self._raise_kept()
        self.turn.run(self._send)

    def _send(self) -> None:
        """Let the queries run over what waits; this thread has the turn."""
        with self._mutex:
            rows = Batch.concat(self._pending) if self._pending else None
            self._pending, self._pending_rows = [], 0
            clock = INFINITY if self._completed else self._buffer.clock
            listeners = tuple(self._listeners)
            if not self._news:
                return
            self._news = False
            self._moved_on |= rows is not None
            segments = self._segments(rows) if rows is not None else []
            self._last_punctuation = max(self._last_punctuation, self._punctuated)
        errors: list[BaseException] = []
        for listener in listeners:
            _try(errors, _drive, listener, segments, clock)
        # All have the rows before the first gets results: its function may save the others.
        for listener in listeners:
            _try(errors, listener.settle)
        raise_first(errors)

    def _gather(self, rows: Batch | None) -> None:
        """Take what may leave; though nothing may, time may have moved, and early answers may have changed."""
        if not self._news:
            self._news_since = self._now()
            self._news = True
        if rows is not None and len(rows):
            self._pending.append(rows)
            self._pending_rows += len(rows)

    # -- rows that wait -----------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether rows wait for company at all."""
        return self._max_delay is not None

    @property
    def done(self) -> bool:
        return self._completed

    def remaining(self) -> float | None:
        if self._max_delay is None or not self._news:
            return None
        return self._news_since + self._max_delay - self._now()

    def _is_due(self) -> bool:
        remaining = self.remaining()
        return remaining is not None and remaining <= 0

    def send_due(self) -> None:
        if self._is_due():
            self.turn.run(self._send_if_due)

    def _send_if_due(self) -> None:
        if self._is_due():
            self._send()

    def poll(self) -> None:
        self._raise_kept()
        self.send_due()

    def _wake_timers(self) -> None:
        for timer in self._timers:
            if timer.idle:
                timer.wake()

    def keep(self, error: BaseException) -> None:
        self.keep_failure(Failure(error))

    def keep_failure(self, failure: Failure) -> None:
        self._failures.append(failure)

    def _raise_kept(self) -> None:
        while self._failures:
            self._failures.pop(0).raise_once()

    def waiting_rows(self) -> Batch | None:
        """Return all rows that have not gone on, in the order in which they would if the source ended here."""
        with self._mutex:
            buffer = self._new_buffer()
            buffer.load(self._buffer.save())
            stragglers = buffer.complete()
            batches = [*self._pending, *([] if stragglers is None else [stragglers])]
            return Batch.concat(batches) if batches else None

    def _segments(self, rows: Batch) -> list[tuple[Batch, int | None]]:
        """Cut rows where a punctuation is generated; each piece comes with the one that goes before it."""
        every = self.node.punctuate_every
        if every is None:
            return [(rows, None)]
        snapped = rows.sync // every * every
        cuts = np.flatnonzero(np.diff(snapped)) + 1
        bounds = [0, *cuts.tolist(), len(rows)]
        segments: list[tuple[Batch, int | None]] = []
        for low, high in pairwise(bounds):
            mark = int(snapped[low])
            above = mark > self._last_punctuation
            segments.append((rows.slice(low, high), mark if above and self._first_row_left else None))
            self._first_row_left = True
            self._last_punctuation = max(self._last_punctuation, mark)
        return segments

    def _refuse_completed(self, what: str) -> None:
        if self._completed:
            raise SourceStateError(
                f"source {self.node.label!r} is completed: you cannot {what} it any more", "make a new source."
            )

    # -- what the program gives ---------------------------------------------------------------------------

    def _columns(self, data: Any) -> tuple[dict[str, pl.Series], int]:
        """Return rows or a frame as one-chunk columns of the source's types."""
        if isinstance(data, pl.DataFrame):
            given = data.get_columns()
        elif isinstance(data, Mapping):
            given = self._from_mapping(data)
        elif isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
            given = self._from_rows(data)
        elif hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
            given = pl.DataFrame(data).get_columns()
        else:
            raise InputError(
                f"source {self.node.label!r}: {kind_of(data)} cannot be pushed",
                "push a frame (Polars, Arrow), a dict of columns, a row as a dict, or a list of such rows.",
            )
        columns = self._checked(given)
        return columns, len(columns[self._names[0]])

    def _checked(self, given: list[pl.Series]) -> dict[str, pl.Series]:
        columns = {series.name: series for series in given}
        if list(columns) != self._names:
            self._check_names(columns)
            columns = {name: columns[name] for name in self._names}
        for name, dtype, plain in self._expected:
            series = columns[name]
            found = series.dtype
            # Comparing two types runs Python code; most types are all alike.
            if type(found) is not plain and found != dtype:
                columns[name] = series = self._cast(series, dtype)
            if series.n_chunks() != 1:
                columns[name] = series.rechunk()
        return columns

    def _check_names(self, found: Mapping[Any, object]) -> None:
        missing = [name for name in self._names if name not in found]
        extra = [name for name in found if name not in self._names]
        if missing or extra:
            what = f"has no column {missing[0]!r}" if missing else f"has a column {extra[0]!r} too many"
            raise InputError(
                f"source {self.node.label!r}: what is pushed {what}; the source's columns are: "
                f"{', '.join(self._names)}",
                "push exactly the columns that the source was made with.",
            )

    def _cast(self, series: pl.Series, dtype: pl.DataType) -> pl.Series:
        if series.dtype == pl.Null():
            return series.cast(dtype)
        raise InputError(
            f"source {self.node.label!r}: the pushed column {series.name!r} is {series.dtype}, the source's is {dtype}",
            f"cast it before: .cast(pl.{dtype}).",
        )

    def _from_mapping(self, data: Mapping[Any, Any]) -> list[pl.Series]:
        self._check_names(data)
        if all(isinstance(value, pl.Series) for value in data.values()):
            return [series.alias(name) for name, series in data.items()]
        start = self.node.lifetime and self.node.lifetime.start.source_column
        if isinstance(data[start], (list, tuple, np.ndarray, pl.Series)):
            return self._typed({name: data[name] for name in self._names})
        return self._typed({name: [data[name]] for name in self._names})

    def _from_rows(self, rows: Sequence[Any]) -> list[pl.Series]:
        expected = set(self._names)
        for row in rows:
            # Asking for the abstract Mapping costs a microsecond, asking for a dict nothing.
            if type(row) is not dict and not isinstance(row, Mapping):
                raise InputError(
                    f"source {self.node.label!r}: {shortened(row)} is not a row",
                    "give rows as dicts, {'column': value, …}.",
                )
            if row.keys() != expected:
                self._check_names(row)
        return self._typed({name: [row[name] for row in rows] for name in self._names})

    def _typed(self, columns: Mapping[str, Any]) -> list[pl.Series]:
        result = []
        for name, dtype in zip(self._names, self._types, strict=True):
            try:
                result.append(pl.Series(name, columns[name], dtype))
            except (pl.exceptions.PolarsError, TypeError, OverflowError, ValueError) as error:
                raise InputError(
                    f"source {self.node.label!r}: the values of the pushed column {name!r} do not fit its type "
                    f"{dtype}: {str(error).splitlines()[0]}",
                    "correct the values, or the schema that the source was made with.",
                ) from error
        if len({len(series) for series in result}) > 1:
            lengths = ", ".join(f"{series.name}: {len(series)}" for series in result)
            raise InputError(f"source {self.node.label!r}: the pushed columns are not equally long ({lengths})")
        return result

    # -- what came too late -------------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        """How many rows were late, have an empty lifetime, and wait."""
        return {
            "late": self._buffer.late.total,
            "empty": self._reader.empty,
            "waiting": len(self._buffer) + self._pending_rows,
        }

    def late(self) -> pl.DataFrame:
        return late_frame(self._buffer.late, self.node)

    def forget_late(self) -> None:
        self._buffer.late.clear()

    # -- state --------------------------------------------------------------------------------------------

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Let no row come in: what `save` returns is the state itself, not a copy."""
        with self._mutex:
            yield

    def send(self) -> None:
        """Send what is pending; this thread has the turn."""
        self._send()

    def save(self) -> OperatorState:
        """Return what is needed to go on."""
        return {
            "buffer": self._buffer.save(),
            "pushes": self._pushes,
            "empty": self._reader.empty,
            "begun": self._begun,
            "completed": self._completed,
            "last_punctuation": self._last_punctuation,
            "first_row_left": self._first_row_left,
            "pending": list(self._pending),
        }

    def load(self, state: OperatorState) -> None:
        self._buffer.load(state["buffer"])
        self._begun, self._completed = state["begun"], state["completed"]
        self._pushes, self._reader.empty = state["pushes"], state["empty"]
        self._last_punctuation, self._first_row_left = state["last_punctuation"], state["first_row_left"]
        # Also where nothing is pending: a query that was saved half way has yet to be told the time.
        for rows in state["pending"] or [None]:
            self._gather(rows)


def _drive(listener: Listener, segments: list[tuple[Batch, int | None]], clock: int) -> None:
    for batch, punctuation in segments:
        if punctuation is not None:
            listener.advance(punctuation)
        listener.push(batch)
    listener.advance(clock)


def _try(errors: list[BaseException], call: Callable[..., None], *arguments: object) -> None:
    """Call, and put the error aside: other queries go on."""
    try:
        call(*arguments)
    except BaseException as error:  # noqa: BLE001 - raised when all have been called
        errors.append(error)

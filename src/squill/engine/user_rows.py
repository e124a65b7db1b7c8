"""Rows that a user's code returned, gathered call by call and made into columns together.

Rows come as dicts or as frames. The values of dicts are put into one list per column, so that a call that
returns a row or two costs little; types are checked when the lists become columns, and a value that does not
fit is looked for then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from squill.engine.batch import Int64s
from squill.engine.codecs import encode_value, encoded
from squill.engine.user_code import Call, UserCode
from squill.errors import SquillError, UserFunctionError
from squill.plan.nodes import SnapshotApply, UserOperator
from squill.plan.nodes.user import INTERVAL
from squill.time import INFINITY, MINUS_INFINITY, TimeType
from squill.wording import kind_of, shortened

__all__ = ["UserRows"]

MISFITS = (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError)
"""What Polars raises for values that a column cannot hold."""


class UserRows:
    """The rows of the calls since the last `take`."""

    def __init__(self, node: UserOperator | SnapshotApply, code: UserCode) -> None:
        self._code = code
        self._own = node.own
        self._encoders = dict(node.encoded)
        self._has_times = isinstance(node, UserOperator) and node.lifetime == INTERVAL
        self._time = node.time
        self._required = frozenset([*self._own, "end"] if self._has_times else self._own)
        self._optional = frozenset([*node.keys, "start"] if self._has_times else node.keys)
        self._clear()

    def _clear(self) -> None:
        self._lists: dict[str, list[Any]] = {name: [] for name in self._own}
        self._frames: list[dict[str, pl.Series]] = []
        self._calls: list[tuple[int, Call]] = []
        self._in_lists = 0
        self._count = 0
        self.starts: list[int] = []
        self.ends: list[int] = []

    def __len__(self) -> int:
        return self._count

    # -- what comes in ------------------------------------------------------------------------------------

    def add(self, returned: Mapping[str, Any] | pl.DataFrame | Sequence[Any], call: Call) -> int:
        """Take what a call returned; say how many rows that is."""
        before = self._count
        self._calls.append((before, call))
        if isinstance(returned, pl.DataFrame):
            self._add_frame(returned, call)
        elif type(returned) is not list and isinstance(returned, Mapping):
            self._add_row(returned, call)
        else:
            for row in returned:
                if type(row) is not dict and not isinstance(row, Mapping):
                    raise self._code.wrong(f"returned a row that is {kind_of(row)}, not a dict", call)
                self._add_row(row, call)
        return self._count - before

    def _add_row(self, row: Mapping[str, Any], call: Call) -> None:
        if row.keys() != self._required:
            self._check_names(row, call)
        for name, values in self._lists.items():
            values.append(row[name])
        if self._has_times:
            start = call.t if "start" not in row else ticks(row["start"], "start", self._time, self._code, call)
            end = row["end"]
            self._add_times(start, INFINITY if end is None else ticks(end, "end", self._time, self._code, call), call)
        self._in_lists += 1
        self._count += 1

    def _add_times(self, start: int, end: int, call: Call) -> None:
        if start < call.t:
            raise self._code.wrong(f"returned a row that starts at {self._shown(start)}, in the past", call, PAST)
        if end <= start:
            lifetime = f"from {self._shown(start)} to {self._shown(end)}"
            raise self._code.wrong(f"returned a row that lives {lifetime}, which is not at all", call, ENDS)
        self.starts.append(start)
        self.ends.append(end)

    def _shown(self, t: int) -> str:
        return str(t) if self._time is None else self._time.show(t)

    def _check_names(self, names: Any, call: Call) -> None:
        given = set(names)
        for name in sorted(self._required - given):
            raise self._code.wrong(f"returned a row without {name!r}", call)
        for name in sorted(given - self._required - self._optional, key=repr):
            if name in ("start", "end"):
                hint = 'rows say their lifetime with lifetime = "interval" in the class.'
                raise self._code.wrong(f"returned a row with {name!r}", call, hint)
            raise self._code.wrong(f"returned a row with {name!r}, which the schema does not name", call)

    def _add_frame(self, frame: pl.DataFrame, call: Call) -> None:
        self._check_names(frame.columns, call)
        self._close_lists()
        columns = {}
        for name, dtype in self._own.items():
            series = frame.get_column(name).rechunk()
            if name in self._encoders:
                series = encoded(series, self._encoders[name])
            if series.dtype != dtype:
                raise self._code.wrong(f"returned the column {name!r} as {series.dtype}, not {dtype}", call)
            columns[name] = series
        if self._has_times:
            self._add_frame_times(frame, call)
        self._frames.append(columns)
        self._count += frame.height

    def _add_frame_times(self, frame: pl.DataFrame, call: Call) -> None:
        starts = self._column_ticks(frame["start"], call) if "start" in frame.columns else [call.t] * frame.height
        ends = self._column_ticks(frame["end"], call)
        for start, end in zip(starts, ends, strict=True):
            if start is None:
                raise self._code.wrong("returned a row whose start is null", call)
            self._add_times(start, INFINITY if end is None else end, call)

    def _column_ticks(self, series: pl.Series, call: Call) -> list[int | None]:
        assert self._time is not None
        if series.dtype != self._time.dtype and not series.dtype.is_integer() and series.dtype != pl.Null:
            hint = f"give ticks (integers) or {self._time}."
            raise self._code.wrong(f"returned the column {series.name!r} as {series.dtype}", call, hint)
        return series.to_physical().cast(pl.Int64).to_list()

    # -- what goes out ------------------------------------------------------------------------------------

    def take(self) -> dict[str, pl.Series]:
        """Return all rows as columns, and forget them; read `starts` and `ends` before."""
        self._close_lists()
        frames = self._frames
        if not frames:
            columns = {name: pl.Series(name, [], dtype) for name, dtype in self._own.items()}
        elif len(frames) == 1:
            columns = frames[0]
        else:
            columns = {name: pl.concat([frame[name] for frame in frames], rechunk=True) for name in self._own}
        self._clear()
        return columns

    def take_times(self) -> tuple[Int64s, Int64s]:
        return np.array(self.starts, np.int64), np.array(self.ends, np.int64)

    def _close_lists(self) -> None:
        if not self._in_lists:
            return
        self._frames.append({name: self._column(name, values) for name, values in self._lists.items()})
        self._lists = {name: [] for name in self._own}
        self._in_lists = 0

    def _column(self, name: str, values: list[Any]) -> pl.Series:
        try:
            if name in self._encoders:
                values = [encode_value(value, self._encoders[name]) for value in values]
            return pl.Series(name, values, self._own[name], strict=True)
        except MISFITS as error:
            raise self._misfit(name, values, error) from error
        except UserFunctionError as error:
            raise self._misfit(name, values, error) from error

    def _misfit(self, name: str, values: list[Any], error: Exception) -> SquillError:
        """Return the error for the first value that does not fit alone, or for the whole column."""
        first = self._count - len(values)
        for number, value in enumerate(values):
            try:
                pl.Series(name, [encode_value(value, self._encoders.get(name))], self._own[name], strict=True)
            except (*MISFITS, UserFunctionError) as cause:
                call = [call for row, call in self._calls if row <= first + number][-1]
                if isinstance(cause, UserFunctionError):
                    return self._code.wrong(f"returned for {name!r} what its codec refuses: {cause.what}", call)
                shown = f"{shortened(value)} ({type(value).__name__})"
                return self._code.wrong(f"returned {name!r} as {shown}, not {self._own[name]}", call)
        return self._code.wrong(f"returned values for {name!r} that do not fit together: {error}", self._calls[-1][1])


PAST = "time does not go back: results start at the instant t of the call, or later."
ENDS = "the end is after the start; None is for ever."


def ticks(value: Any, name: str, time: TimeType | None, code: UserCode, call: Call) -> int:
    """Return a time that the user's code gave: a number of ticks, or a date or datetime on calendar time."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        number = int(value)
    else:
        try:
            assert time is not None
            number = time.instant(value, name)
        except SquillError as error:
            raise code.wrong(f"gave {name} as {shortened(value)}", call, "times are ticks, as t is.") from error
    if not MINUS_INFINITY < number < INFINITY:
        raise code.wrong(f"gave {name} as {shortened(value)}, outside the 64-bit range", call, "use None for no end.")
    return number

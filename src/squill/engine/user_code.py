"""Calls of a user's code: what goes wrong names the operator, the method, the instant, the key and a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from squill.engine.keyed import KeySlots
from squill.errors import UserFunctionError
from squill.plan.nodes import SnapshotApply, UserOperator
from squill.wording import kind_of

__all__ = ["Call", "UserCode", "hand_over"]

ANY_ROWS = "it must take whatever rows the input may have, nulls too: handle such rows in it, or filter them before."
MEND = "the error that it raised is the cause of this one: mend the method, or handle the error in it."


class Call(NamedTuple):
    """One call: its method ("" for a function), when and for which slot; the rows it was given, if any."""

    method: str
    t: int
    slot: int
    rows: pl.DataFrame | None = None


def hand_over(fn: Callable[[pl.DataFrame], object], frame: pl.DataFrame) -> None:
    """Give a subscriber rows, one at least; what it raises is told with its name and a row."""
    try:
        fn(frame)
    except Exception as error:
        name = getattr(fn, "__qualname__", type(fn).__qualname__)
        raise UserFunctionError(
            f"subscribe({name}): it raised {type(error).__name__}: {error}; the first of the {frame.height} rows "
            f"that it was given is {frame.row(0, named=True)}"
        ) from error


class UserCode:
    """Calls the user's functions of one node."""

    def __init__(self, node: UserOperator | SnapshotApply, keys: KeySlots) -> None:
        self._time = node.time
        self._keys = keys
        self._what = f"{node.name}({node.label})"
        wanted = ", ".join(f"{name}: {dtype}" for name, dtype in node.own.items())
        self._hint = f"return None, a dict, an iterable of dicts or a frame, with the columns {wanted}."

    def call(self, function: Callable[..., Any], call: Call, *arguments: Any) -> Any:
        """Return what the function returns: None, a mapping, a frame or a list."""
        try:
            returned = function(*arguments)
            # Exact types first: asking whether something is a Mapping takes longer than most calls.
            if returned is None or type(returned) in (dict, list) or isinstance(returned, (pl.DataFrame, Mapping)):
                return returned
            if isinstance(returned, Iterable):
                return list(returned)  # a generator runs here
        except Exception as error:
            raise self.failed(error, call) from error
        raise self.wrong(f"returned {kind_of(returned)}, not rows", call)

    def failed(self, error: Exception, call: Call) -> UserFunctionError:
        hint = ANY_ROWS if call.method in ("", "on_instant") else MEND
        return self.wrong(f"raised {type(error).__name__}: {error}", call, hint)

    def wrong(self, what: str, call: Call, hint: str | None = None) -> UserFunctionError:
        """Return the error for a call; without a hint it says what may be returned."""
        place = "" if self._time is None else f", at {self._time.show(call.t)}"
        sample = (
            f"; the first row was {call.rows.row(0, named=True)}" if call.rows is not None and len(call.rows) else ""
        )
        return UserFunctionError(
            f"{self._what}: {call.method or 'it'} {what}{place}{self._key(call.slot)}{sample}",
            self._hint if hint is None else hint,
        )

    def _key(self, slot: int) -> str:
        columns = self._keys.columns(np.array([slot], np.int32))
        shown = ", ".join(f"{name}={column[0]!r}" for name, column in columns.items())
        return f" for the key {shown}" if shown else ""

"""Every error Squill raises on purpose.

::

    SquillError
    ├── PlanError (ValueError)             the query is wrong; raised while it is built
    │   ├── ColumnNotFoundError (KeyError)     a column that is not there; near names are listed
    │   ├── DatasetNotFoundError (KeyError)    a dataset that the catalog has not; near names are listed
    │   ├── RunNotFoundError (KeyError)        a run that nobody knows; those that can be resumed are listed
    │   ├── NotRowWiseError                    an expression that looks beyond its own row
    │   ├── TimeTypeError (TypeError)          time columns that do not fit each other
    │   └── DurationError                      a duration that is no whole number of ticks
    ├── UnsupportedOperatorError           this runtime cannot run it; names one that can
    ├── InputError (ValueError)            the data is wrong: null start, end before start, broken promise
    │   ├── LateEventError                     an event below the current time under throw()
    │   ├── SourceReadError (OSError)          a file that cannot be read
    │   └── SchemaChangedError                 files of one input that do not agree
    ├── SourceStateError (RuntimeError)    a source used after it was completed
    ├── StateFormatError                   saved state that does not belong to this plan or version
    ├── CheckpointError (RuntimeError)     a checkpoint that is not there, damaged, of another plan or format
    ├── NumericOverflowError (OverflowError)   an answer that its type cannot hold
    │   └── TimeOverflowError                  a finite time outside the range of its type
    ├── UnboundedResultError               an answer without end
    ├── UserFunctionError                  a user's function raised; names the operator, carries a row
    ├── ClusterError (RuntimeError)        a cluster that cannot be started, or lacks what the plan needs
    │   └── ShardError                         a shard failed for a reason outside the query; names the shard
    ├── BudgetExceededError (MemoryError)  more was asked for than the budget holds
    └── InternalError (RuntimeError)       our bug

A message says what, where, what was found and what would be accepted; `hint` says what to do. The
constructor arguments are kept raw, so that errors survive pickling between processes.
"""

from __future__ import annotations

from collections.abc import Iterable

from squill.wording import near_names, shortened

__all__ = [
    "BudgetExceededError",
    "CheckpointError",
    "ClusterError",
    "ColumnNotFoundError",
    "DatasetNotFoundError",
    "DurationError",
    "InputError",
    "InternalError",
    "LateEventError",
    "NotRowWiseError",
    "NumericOverflowError",
    "PlanError",
    "RunNotFoundError",
    "SchemaChangedError",
    "ShardError",
    "SourceReadError",
    "SourceStateError",
    "SquillError",
    "StateFormatError",
    "TimeOverflowError",
    "TimeTypeError",
    "UnboundedResultError",
    "UnsupportedOperatorError",
    "UserFunctionError",
]


LISTED_NAMES = 20


class SquillError(Exception):
    """Base of all errors: `what` went wrong, and a `hint` on what would be accepted.

    Examples
    --------
    >>> print(PlanError("hopping_window: hop is 0", "give a hop of at least one tick"))
    hopping_window: hop is 0
    Hint: give a hop of at least one tick
    """

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what, hint)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return self.what if self.hint is None else f"{self.what}\nHint: {self.hint}"


class PlanError(SquillError, ValueError):
    """The query cannot mean anything: raised while the plan is built."""


class ColumnNotFoundError(PlanError, KeyError):
    """A column that the stream does not have."""

    def __init__(self, operator: str, column: str, columns: Iterable[str], *, has_time: bool = False) -> None:
        present = tuple(columns)
        near = near_names(column, present)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "check the name, or add the column before."
        if has_time and not near:
            hint += " The time is sq.start(), or stays a column too where it is read with keep_time=True."
        listed = ", ".join(present) if present else "none"
        super().__init__(f"{operator}: there is no column {column!r}; the columns are: {listed}", hint)
        self.args = (operator, column, present)


class DatasetNotFoundError(PlanError, KeyError):
    """A dataset that the catalog does not have."""

    def __init__(self, operator: str, name: str, names: Iterable[str]) -> None:
        present = tuple(names)
        near = near_names(str(name), present)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "cluster.datasets() lists them all."
        shown = ", ".join(present[:LISTED_NAMES]) + (", …" if len(present) > LISTED_NAMES else "")
        super().__init__(
            f"{operator}: there is no dataset {shortened(name)}; the datasets are: {shown or 'none'}", hint
        )
        self.args = (operator, name, present)


class RunNotFoundError(PlanError, KeyError):
    """A run that neither the catalog nor any folder knows."""

    def __init__(self, operator: str, run_id: str, ids: Iterable[str]) -> None:
        present = tuple(ids)
        near = near_names(str(run_id), present)
        listed = "say where it was: folder=, warehouse= or catalog= as sq.spark had them; cluster.runs() lists runs."
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else listed
        shown = ", ".join(present[:LISTED_NAMES]) + (", …" if len(present) > LISTED_NAMES else "")
        super().__init__(
            f"{operator}: there is no run {shortened(run_id)}; those that have not ended are: {shown or 'none'}", hint
        )
        self.args = (operator, run_id, present)


class NotRowWiseError(PlanError):
    """An expression that needs more than its own row."""

    def __init__(self, operator: str, kind: str, expression: str) -> None:
        super().__init__(
            f"{operator}: {kind!r} in {expression} looks beyond its own row; expressions here see one event at a time",
            "use aggregate(...) with sq.sum, sq.mean, … for values over several events, "
            "or map_batches(...) for your own row-wise function.",
        )
        self.args = (operator, kind, expression)


class TimeTypeError(PlanError, TypeError):
    """A time column of a type that does not fit."""


class DurationError(PlanError):
    """A duration that is not a whole number of this stream's ticks, or not a duration at all."""


class UnsupportedOperatorError(SquillError, NotImplementedError):
    """This runtime cannot run the plan."""


class InputError(SquillError, ValueError):
    """Data that cannot be taken as events."""


class LateEventError(InputError):
    """An event below the current time on a source that does not allow it."""

    def __init__(self, source: str, event: str, event_time: object, current_time: object) -> None:
        super().__init__(
            f"source {source!r}: event {event} has time {event_time}, before the current time {current_time}",
            "sort the input, or let stragglers in with disorder=sq.drop(wait=…) or sq.adjust(wait=…).",
        )
        self.args = (source, event, event_time, current_time)


class SourceReadError(InputError, OSError):
    """A file that cannot be read as what it should be."""


class SchemaChangedError(InputError):
    """Files of one input whose columns or types differ."""


class SourceStateError(SquillError, RuntimeError):
    """A source that is used after it was completed, or before it is connected."""


class StateFormatError(SquillError):
    """Saved state that this plan or this version cannot take."""


class CheckpointError(SquillError, RuntimeError):
    """A checkpoint that cannot be written or restored: missing, damaged, or of another plan or format."""


class NumericOverflowError(SquillError, OverflowError):
    """The true value of an answer does not fit its type."""


class TimeOverflowError(NumericOverflowError):
    """A finite time that leaves the range of its time type."""


class UnboundedResultError(SquillError):
    """An answer with infinitely many rows."""


class UserFunctionError(SquillError, RuntimeError):
    """A user's function failed; the original error is the cause."""


class ClusterError(SquillError, RuntimeError):
    """A cluster that cannot be started, is closed, or lacks what the plan needs."""


class ShardError(ClusterError):
    """A shard failed for a reason outside the query, such as a full disk; the original error is the cause."""


class BudgetExceededError(SquillError, MemoryError):
    """More was needed than the budget holds."""


class InternalError(SquillError, RuntimeError):
    """A broken invariant of Squill itself."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "this is a bug in Squill; please report it with the plan's explain().")
        self.args = (what,)

"""The payload columns of a stream: names in order, each with its type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import polars as pl

from squill.errors import ColumnNotFoundError, PlanError
from squill.wording import shortened

__all__ = ["TIME_COLUMNS", "Schema", "checked_schema", "require_type"]

TIME_COLUMNS = ("start", "end")
"""Names a payload column may not have: results carry the lifetime under them."""


def require_type(given: object, what: str) -> pl.DataType:
    """Return a type of Polars, or raise when `given` is none or lacks its arguments, as `pl.List` does.

    >>> require_type(pl.Int64, "source: column 'x'")
    Int64
    """
    if isinstance(given, pl.DataType):
        return given
    if isinstance(given, type) and issubclass(given, pl.DataType):
        try:
            return given()
        except TypeError:
            raise PlanError(f"{what} is {given}, which needs arguments", "say of what: pl.List(pl.Int64).") from None
    raise PlanError(f"{what} is {shortened(given)}, which is no type", "use Polars types such as pl.Int64.")


def checked_schema(given: object, operator: str) -> Schema:
    """Return the columns that a user says, names with types, or raise."""
    if not isinstance(given, Mapping):
        raise PlanError(f"{operator}: schema is {shortened(given)}", 'map names to types: {"ts": pl.Datetime("us")}.')
    for name in given:
        if not isinstance(name, str):
            raise PlanError(f"{operator}: the schema has {shortened(name)} for a column's name", "names are text.")
    return Schema({name: require_type(dtype, f"{operator}: column {name!r}") for name, dtype in given.items()})


class Schema(Mapping[str, pl.DataType]):
    """Immutable, hashable, ordered columns.

    Examples
    --------
    >>> schema = Schema({"user": pl.Int64(), "term": pl.String()})
    >>> schema["term"]
    String
    >>> schema.require("usr", "where")
    Traceback (most recent call last):
        ...
    squill.errors.ColumnNotFoundError: where: there is no column 'usr'; the columns are: user, term
    Hint: did you mean 'user'?
    """

    __slots__ = ("_types",)

    def __init__(self, columns: Mapping[str, pl.DataType] | Iterable[tuple[str, pl.DataType]] = ()) -> None:
        pairs = columns.items() if isinstance(columns, Mapping) else columns
        self._types = {name: dtype if isinstance(dtype, pl.DataType) else dtype() for name, dtype in pairs}

    def __getitem__(self, name: str) -> pl.DataType:
        return self._types[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and list(self.items()) == list(other.items())

    def __hash__(self) -> int:
        return hash(tuple((name, str(dtype)) for name, dtype in self._types.items()))

    def __repr__(self) -> str:
        return ", ".join(f"{name}: {dtype}" for name, dtype in self._types.items()) or "(no columns)"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._types)

    def require(self, name: str, operator: str, *, has_time: bool = False) -> pl.DataType:
        """Return the column's type, or raise with the near names."""
        if name not in self._types:
            raise ColumnNotFoundError(operator, name, self._types, has_time=has_time)
        return self._types[name]

    def only(self, names: Iterable[str]) -> Schema:
        return Schema((name, self._types[name]) for name in names)

    def without_time_names(self, operator: str) -> Schema:
        """Return self, or raise when a payload column would hide the lifetime."""
        for name in TIME_COLUMNS:
            if name in self._types:
                raise PlanError(
                    f"{operator}: a payload column may not be called {name!r}: results carry the lifetime there",
                    f"rename it, for instance to '{name}_value'; to use it as the time say start= or end=.",
                )
        return self

    def empty_frame(self) -> pl.DataFrame:
        return pl.DataFrame(schema=dict(self._types))

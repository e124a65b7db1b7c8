"""How rows of two inputs find each other: by the keys of the group around them, by key columns, by a condition."""

from __future__ import annotations

from dataclasses import dataclass

from squill.plan.expressions import Expression

__all__ = ["Matching"]


@dataclass(frozen=True, kw_only=True)
class Matching:
    """Rows match when all keys are equal and `where` is true.

    ``keys``      columns of both inputs: the keys of the group around the operator. Null equals null.
    ``left_on``   columns of the left input, ``right_on`` those of the right one they equal. Null equals nothing.
    ``where``     a condition over a pair: the left columns under their names, the right ones under `right_as`.
    ``right_as``  the right input's columns in a pair, as (name in the pair, name in the right input).
    """

    keys: tuple[str, ...] = ()
    left_on: tuple[str, ...] = ()
    right_on: tuple[str, ...] = ()
    where: Expression | None = None
    right_as: tuple[tuple[str, str], ...] = ()

    @property
    def left_keys(self) -> tuple[str, ...]:
        return (*self.keys, *self.left_on)

    @property
    def right_keys(self) -> tuple[str, ...]:
        return (*self.keys, *self.right_on)

    @property
    def is_keyed(self) -> bool:
        return bool(self.keys or self.left_on)

    def __str__(self) -> str:
        equal = [*self.keys]
        equal += [
            left if left == right else f"{left} = {right}"
            for left, right in zip(self.left_on, self.right_on, strict=True)
        ]
        if self.where is not None:
            equal.append(self.where.text)
        return "[" + ", ".join(equal) + "]"

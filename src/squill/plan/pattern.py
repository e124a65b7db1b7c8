"""Patterns for `Stream.detect`: elements that take events, put together by combinators.

An *element* takes one event that meets all its conditions. A *register* is a named value that a match carries:
the keywords of an element say what it becomes when the element takes an event, and the registers are the
columns that `detect` returns.

>>> A, B, C = (sq.col("kind") == kind for kind in "ABC")
>>> p = sq.pattern
>>> summed = p.seq(A, p.star(p.one(B, total=lambda total, x: total + x)), C).with_registers(total=0)
>>> events = sq.from_frame({"t": [1, 2, 3, 4], "kind": list("ABBC"), "x": [7, 1, 2, 7]}, start="t")
>>> events.detect(summed, within=10).collect().rows()
[(4, 11, 3)]

Conditions and updates are row-wise expressions over the event, or plain functions. The parameters of a
function are names: of registers, of columns, and `start` for the event's start in ticks; those with a default
are left alone. Expressions are computed for whole batches beforehand, functions are compiled into the matching
loop; what Numba cannot compile, text for instance, runs as plain Python, with a warning. A function is never
called with a null: a condition is then not met, and an update leaves its register as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from squill.errors import PlanError
from squill.wording import articled, shortened

__all__ = ["Pattern", "alt", "any", "none", "one", "opt", "plus", "seq", "star"]

Condition = pl.Expr | Callable[..., Any]
Update = pl.Expr | Callable[..., Any] | str
ELEMENTS = ("one", "any", "none")


@dataclass(frozen=True, eq=False)
class Pattern:
    """What `detect` looks for; its columns are looked up when it is given to a stream.

    ``kind`` is one, any or none for an element, and seq, alt, star, plus or opt for a combination of `parts`.
    """

    kind: str
    parts: tuple[Pattern, ...] = ()
    conditions: tuple[Condition, ...] = ()
    updates: Mapping[str, Any] = field(default_factory=dict)
    initial: Mapping[str, Any] = field(default_factory=dict)

    def with_registers(self, **initial: object) -> Pattern:
        """Return the pattern with these values in its registers before the first event.

        The value also gives the register its type: ``total=0`` is Int64, ``total=0.0`` Float64, ``text=""``
        String; ``pl.lit(None, pl.Date)`` is a null of another type. A register that no function computes need
        not be given: it is null at first and has the type of the expressions that set it.

        >>> sq.pattern.one(sq.col("x") > 3).with_registers(n=0)
        one([(col("x")) > (dyn int: 3)]).with_registers(n=0)
        """
        if not initial:
            raise PlanError("pattern.with_registers: no register is given", "name its first value: total=0.")
        return replace(self, initial=_merged(self.initial, initial))

    def __repr__(self) -> str:
        inside = [_shown(item) for item in (*self.parts, *self.conditions)]
        inside += [f"{name}={_shown(update)}" for name, update in self.updates.items()]
        text = f"{self.kind}({', '.join(inside)})"
        if not self.initial:
            return text
        return f"{text}.with_registers({', '.join(f'{name}={value!r}' for name, value in self.initial.items())})"


def _shown(item: object) -> str:
    return getattr(item, "__name__", None) or str(item)


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    for name in first.keys() & second.keys():
        if repr(first[name]) != repr(second[name]):
            raise PlanError(
                f"pattern: the register {name!r} has two first values, {first[name]!r} and {second[name]!r}",
                "give it once, with .with_registers(…) around the whole pattern.",
            )
    return {**first, **second}


# -- elements -----------------------------------------------------------------------------------------------


def one(*conditions: Condition, **updates: Update) -> Pattern:
    """Return an element that takes one event for which every condition is true; null is not true.

    Keywords set registers: a column name, an expression or a function gives the new value. All of them see the
    registers as they were before the event. Without ``order_by=`` it takes no event of an instant at which the
    key has several.

    >>> sq.pattern.one(sq.col("kind") == "A", opened=sq.start(), price="price")
    one([(col("kind")) == ("A")], opened=col("__squill_start__"), price=price)
    """
    return _element("one", conditions, updates)


def any(*conditions: Condition, **updates: Update) -> Pattern:
    """Return an element that takes all events of an instant, one of which must meet every condition.

    ``any()`` takes whatever comes. The updates are made for each event of the instant, in the order of the
    payload. With ``order_by=`` events are read one by one, and it is the same as `one`.
    """
    return _element("any", conditions, updates)


def none(*conditions: Condition, **updates: Update) -> Pattern:
    """Return an element that takes all events of an instant, none of which may meet every condition."""
    if not conditions:
        raise PlanError("pattern.none: no condition is given, so it could never take an event", "none(sq.col('x') > 0)")
    return _element("none", conditions, updates)


def _element(kind: str, conditions: tuple[Condition, ...], updates: Mapping[str, Update]) -> Pattern:
    if kind == "one" and not conditions:
        raise PlanError("pattern.one: no condition is given", "use sq.pattern.any() for whatever comes.")
    for condition in conditions:
        if not isinstance(condition, pl.Expr) and not callable(condition):
            raise PlanError(
                f"pattern.{kind}: the condition {shortened(condition)} is neither an expression nor a function",
                "write sq.col('x') > 0, or lambda x, total: x > total.",
            )
    return Pattern(kind, conditions=conditions, updates=dict(updates))


# -- combinations -------------------------------------------------------------------------------------------


def seq(*parts: Pattern | pl.Expr) -> Pattern:
    """Return the parts one after the other, with no event between; a bare expression stands for `one` of it."""
    return _combined("seq", parts)


def alt(*parts: Pattern | pl.Expr) -> Pattern:
    """Return a choice of the parts; an event that two of them take gives two matches."""
    return _combined("alt", parts)


def star(*parts: Pattern | pl.Expr) -> Pattern:
    """Return the parts in sequence, any number of times, also not at all."""
    return _combined("star", parts)


def plus(*parts: Pattern | pl.Expr) -> Pattern:
    """Return the parts in sequence, at least once."""
    return _combined("plus", parts)


def opt(*parts: Pattern | pl.Expr) -> Pattern:
    """Return the parts in sequence, once or not at all."""
    return _combined("opt", parts)


def _combined(kind: str, parts: tuple[Pattern | pl.Expr, ...]) -> Pattern:
    if not parts:
        raise PlanError(f"pattern.{kind}: it has no parts, so it could take no event", f"{kind}(sq.col('x') > 0)")
    checked = tuple(as_pattern(part, f"pattern.{kind}") for part in parts)
    initial: dict[str, Any] = {}
    for part in checked:
        initial = _merged(initial, part.initial)
    inner = tuple(replace(part, initial={}) for part in checked)
    return Pattern(kind, parts=inner, initial=initial)


def as_pattern(given: object, operator: str) -> Pattern:
    """Return a pattern, also of a bare expression; anything else is refused."""
    if isinstance(given, Pattern):
        return given
    if isinstance(given, pl.Expr):
        return one(given)
    raise PlanError(
        f"{operator}: {shortened(given)} is {articled(type(given).__name__)}, not a pattern",
        "build one with sq.pattern.one, any, none, seq, alt, star, plus and opt.",
    )

"""Build the nodes that run a user's own algorithm.

A user's operator is any class with the right names in it; nothing is to be inherited. Whatever can be known
without rows is checked here, by making one object as the engine will make one for each key.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl

from squill.errors import PlanError
from squill.plan.build.payload import returned_columns
from squill.plan.node import Node
from squill.plan.nodes import SnapshotApply, UserOperator
from squill.plan.nodes.user import LIFETIMES, POINT
from squill.wording import kind_of, shortened

__all__ = ["operator", "snapshot_apply"]

EXAMPLE = "class Score: schema = {'score': pl.Float64}; def on_instant(self, t, starts): …"


def operator(node: Node, keys: Sequence[str], cls: Any, arguments: Mapping[str, Any]) -> Node:
    if not callable(cls):
        raise PlanError(
            f"operator: {type(cls).__name__} is given as an object, not as a class",
            f"each key needs an object of its own: operator({type(cls).__name__}, …), arguments by name.",
        )
    if node.time is None:
        raise PlanError(
            "operator: relational data has no instants",
            "give the input a start=, or use snapshot_apply(fn), which needs no time.",
        )
    make = partial(cls, **arguments) if arguments else cls
    probe = _probe(make, _name(cls))
    what = f"operator({type(probe).__name__})"
    takes_ends = _check_methods(probe, what)
    schema = _require_schema(getattr(probe, "schema", None), what, "schema = {'score': pl.Float64} in the class.")
    output, encoded = returned_columns(node, keys, schema, what)
    shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return UserOperator(
        parent=node,
        make=make,
        function_id=id(make),
        label=f"{type(probe).__name__}({shown})" if shown else type(probe).__name__,
        output=output,
        encoded=encoded,
        keys=tuple(keys),
        lifetime=_lifetime(probe, what),
        takes_ends=takes_ends,
    )


def _name(cls: Any) -> str:
    """Return what to call a class or function in an error; a partial is called what it calls."""
    return _name(cls.func) if isinstance(cls, partial) else getattr(cls, "__name__", type(cls).__name__)


def _probe(make: Callable[[], Any], label: str) -> Any:
    try:
        probe, another = make(), make()
    except Exception as error:
        raise PlanError(
            f"operator({label}): making an object raised {type(error).__name__}: {error}",
            "one is made for each key, with the arguments given by name: operator(Score, alpha=0.1).",
        ) from error
    if probe is another:
        raise PlanError(
            f"operator({label}): the function gives the same object twice", "each key needs an object of its own."
        )
    return probe


def _check_methods(probe: Any, what: str) -> bool:
    """Return whether `on_instant` wants to know what ends; raise when a method is missing or takes other arguments."""
    takes_ends = _accepts(probe, "on_instant", 3)
    if not takes_ends and not _accepts(probe, "on_instant", 2):
        _refuse_method(probe, "on_instant", "(self, t, starts[, ends])", what, EXAMPLE)
    if not _accepts(probe, "save", 0):
        hint = "return what load needs as plain data: def save(self): return [self.n, self.mean]."
        _refuse_method(probe, "save", "(self)", what, hint)
    if not _accepts(probe, "load", 1):
        hint = "take what save returned: def load(self, state): self.n, self.mean = state."
        _refuse_method(probe, "load", "(self, state)", what, hint)
    if hasattr(probe, "on_time") and not _accepts(probe, "on_time", 1):
        _refuse_method(probe, "on_time", "(self, t)", what, "it is called at the time that wake_at says.")
    if callable(getattr(probe, "alive", None)):
        raise PlanError(f"{what}: alive is a method", "put @property above it, or set self.alive.")
    return takes_ends


def _accepts(probe: Any, method: str, count: int) -> bool:
    function = getattr(probe, method, None)
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # compiled functions may have no signature
        return True
    return True


def _refuse_method(probe: Any, method: str, expected: str, what: str, hint: str) -> None:
    function = getattr(probe, method, None)
    if not callable(function):
        raise PlanError(f"{what}: there is no method {method}{expected}", hint)
    raise PlanError(f"{what}: {method}{inspect.signature(function)} does not take {expected}", hint)


def _require_schema(schema: object, what: str, hint: str) -> Mapping[str, Any]:
    if not isinstance(schema, Mapping):
        found = "missing" if schema is None else shortened(schema)
        raise PlanError(f"{what}: the schema is {found}", f"map the columns of its rows to types: {hint}")
    for name in schema:
        if not isinstance(name, str):
            raise PlanError(f"{what}: the schema has {shortened(name)} for a column's name", "names are text.")
    if not schema:
        raise PlanError(f"{what}: the schema names no column", f"name at least one: {hint}")
    return schema


def _lifetime(probe: Any, what: str) -> str:
    lifetime = getattr(probe, "lifetime", POINT)
    if not isinstance(lifetime, str) or lifetime not in LIFETIMES:
        raise PlanError(
            f"{what}: lifetime is {shortened(lifetime)}",
            'use "point" (each row lives for its instant), "interval" (rows say their end) or "until_next" (rows live '
            "until the key's next answer).",
        )
    return lifetime


def snapshot_apply(
    node: Node, keys: Sequence[str], function: Callable[..., Any], schema: Mapping[str, Any] | None
) -> Node:
    if not callable(function):
        raise PlanError(f"snapshot_apply: {shortened(function)} is not a function", "give a function of a frame.")
    label = getattr(function, "__name__", type(function).__name__)
    what = f"snapshot_apply({label})"
    example = "schema={'n': pl.Int64}."
    given = _inferred(node, function, what) if schema is None else schema
    output, encoded = returned_columns(node, keys, _require_schema(given, what, example), what)
    return SnapshotApply(
        parent=node,
        function=function,
        function_id=id(function),
        label=label,
        output=output,
        encoded=encoded,
        keys=tuple(keys),
    )


def _inferred(node: Node, function: Callable[..., Any], what: str) -> Mapping[str, Any]:
    """Return the columns of what the function makes of no rows."""
    hint = "name what it returns: snapshot_apply(fn, schema={'n': pl.Int64})."
    types = {**node.schema, **dict.fromkeys(node.codecs, pl.Object())}
    try:
        returned = function(pl.DataFrame(schema=types))
    except Exception as error:
        raise PlanError(
            f"{what}: called with no rows, to learn its columns, it raised {type(error).__name__}: {error}", hint
        ) from error
    if not isinstance(returned, pl.DataFrame):
        raise PlanError(
            f"{what}: called with no rows, to learn its columns, it returned {kind_of(returned)}, not a frame",
            hint,
        )
    # An object column that comes back is the one that went in, with its codec.
    codecs = node.codecs
    return {name: codecs.get(name, dtype) if dtype == pl.Object else dtype for name, dtype in returned.schema.items()}

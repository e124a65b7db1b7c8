"""Build nodes that change lifetimes."""

from __future__ import annotations

import polars as pl

from squill.arguments import is_one_of
from squill.errors import DurationError, PlanError, TimeTypeError
from squill.plan.build.checks import refuse_objects
from squill.plan.expressions import END, START, Expression, Scope, bind_one
from squill.plan.node import Node
from squill.plan.nodes import (
    AlterLifetime,
    CastTime,
    Chop,
    ClipDuration,
    Extend,
    PointAtEnd,
    Quantize,
    Shift,
    Stitch,
    WaitForEnds,
    WithDuration,
)
from squill.time import Duration, TimeType
from squill.wording import shortened

__all__ = [
    "alter_lifetime", "cast_time", "chop", "clip", "extend", "point_at_end", "quantize", "shift", "stitch",
    "temporal", "wait_for_ends", "with_duration",
]  # fmt: skip


def temporal(node: Node, operator: str) -> TimeType:
    """Return the stream's time type, or refuse relational data."""
    if node.time is None:
        raise PlanError(
            f"{operator}: relational data is alive at every instant and has no lifetimes to change",
            "give the input a time: sq.from_frame(frame, start='ts').",
        )
    return node.time


def _duration(node: Node, given: Duration | pl.Expr | None, operator: str) -> int | Expression | None:
    if given is None:
        return None
    time = temporal(node, operator)
    if not isinstance(given, pl.Expr):
        return time.positive(given, f"{operator}: duration")
    scope = Scope(node.schema, node.time, ends_known=False)
    expression = bind_one(given, scope, operator)
    if not (expression.dtype.is_integer() or isinstance(expression.dtype, pl.Duration)):
        raise DurationError(
            f"{operator}: the duration {expression} is {expression.dtype}, not an integer or a Duration",
            "count ticks as integers, or make a Duration with pl.duration(…).",
        )
    if time.is_integer != expression.dtype.is_integer():
        raise DurationError(
            f"{operator}: the duration is {expression.dtype} but this stream's time is {time}",
            "integer time takes integer durations, calendar time takes Durations.",
        )
    return expression


def with_duration(node: Node, duration: Duration | pl.Expr | None) -> Node:
    temporal(node, "with_duration")
    return WithDuration(parent=node, duration=_duration(node, duration, "with_duration"))


def alter_lifetime(node: Node, start: pl.Expr | None, duration: Duration | pl.Expr | None) -> Node:
    time = temporal(node, "alter_lifetime")
    if start is None:
        return with_duration(node, duration)
    expression = bind_one(start, Scope(node.schema, node.time, ends_known=False), "alter_lifetime")
    if set(expression.roots) - {START}:
        raise PlanError(
            f"alter_lifetime: the new start {expression} uses {', '.join(set(expression.roots) - {START, END})}; "
            "it may use sq.start() only, so that time keeps its order",
            "use shift(…) for constants, with_duration(…) for lengths that depend on the payload.",
        )
    if TimeType.of(expression.dtype) != time:
        raise TimeTypeError(
            f"alter_lifetime: the new start is {expression.dtype}, this stream's time is {time}",
            f"keep the type{'' if time.is_integer else '; .cast_time(…) afterwards counts in another unit'}.",
        )
    return AlterLifetime(parent=node, start=expression, duration=_duration(node, duration, "alter_lifetime"))


def shift(node: Node, by: Duration) -> Node:
    return Shift(parent=node, by=temporal(node, "shift").ticks(by, "shift"))


def extend(node: Node, by: Duration) -> Node:
    return Extend(parent=node, by=temporal(node, "extend").ticks(by, "extend"))


def clip(node: Node, limit: Duration) -> Node:
    return ClipDuration(parent=node, limit=temporal(node, "clip").positive(limit, "clip: limit"))


def point_at_end(node: Node) -> Node:
    temporal(node, "point_at_end")
    return PointAtEnd(parent=node)


def chop(node: Node, period: Duration, offset: Duration) -> Node:
    time = temporal(node, "chop")
    return Chop(parent=node, period=time.positive(period, "chop: period"), offset=time.ticks(offset, "chop: offset"))


def stitch(node: Node) -> Node:
    temporal(node, "stitch")
    refuse_objects("stitch", node)
    return Stitch(parent=node)


def quantize(node: Node, size: Duration, period: Duration, offset: Duration, progress: Duration | None) -> Node:
    time = temporal(node, "quantize")
    step = time.positive(period, "quantize: period")
    fine = None if progress is None else time.positive(progress, "quantize: progress")
    if fine is not None and step % fine:
        raise DurationError(
            f"quantize: progress {progress!r} does not divide the period {period!r}",
            "choose a progress step of which the period is a multiple.",
        )
    return Quantize(
        parent=node,
        size=time.positive(size, "quantize: size"),
        period=step,
        offset=time.ticks(offset, "quantize: offset"),
        progress=fine,
    )


def wait_for_ends(node: Node) -> Node:
    temporal(node, "wait_for_ends")
    return node if node.properties.ends_known else WaitForEnds(parent=node)


def cast_time(node: Node, unit: str) -> Node:
    time = temporal(node, "cast_time")
    if time.is_integer:
        raise TimeTypeError(
            f"cast_time: this stream's time is {time}; integer ticks have no unit",
            "convert the column to a Datetime before giving it as start=.",
        )
    if not is_one_of(unit, ("ns", "us", "ms", "d")):
        raise DurationError(f"cast_time: unit is {shortened(unit)}", 'use "ns", "us", "ms" (Datetime) or "d" (Date).')
    return node if time.unit == unit else CastTime(parent=node, unit=unit)

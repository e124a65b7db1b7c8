"""What failed, and where: every error that leaves a shard names the fragment, the shard and the operator."""

from __future__ import annotations

import errno
from types import TracebackType

from squill.engine.operator import Operator
from squill.errors import ShardError, SquillError
from squill.plan.fragments import Fragment

__all__ = ["failed_operator", "located"]

DISK_FULL = "make room: rows that move between machines are in folder=, stored answers where they are written to."


def located(error: Exception, fragment: Fragment, shard: int) -> SquillError:
    """Return the error with the place in its message: the same error when it is ours, else a `ShardError`.

    Whoever catches an `InputError` in-process catches it from a cluster too.
    """
    where = f"{fragment.title}, shard {shard} of {fragment.layout.shards}"
    operator = failed_operator(error)
    if operator is not None:
        where += f", {operator}"
    if isinstance(error, SquillError):
        error.what = f"{where}: {error.what}"
        return error
    hint = DISK_FULL if isinstance(error, OSError) and error.errno == errno.ENOSPC else "the error above is the cause."
    wrapped = ShardError(f"{where}: {type(error).__name__}: {error}", hint)
    wrapped.__cause__ = error
    return wrapped


def failed_operator(error: BaseException) -> str | None:
    """Return the name of the innermost operator that was running, read off the traceback."""
    found: str | None = None
    step: TracebackType | None = error.__traceback__
    while step is not None:
        owner = step.tb_frame.f_locals.get("self")
        if isinstance(owner, Operator):
            found = owner.node.name
        step = step.tb_next
    return found

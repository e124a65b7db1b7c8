"""Spark jobs that end with the run they belong to, and what is said when one fails."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from squill.errors import ShardError
from squill.plan.fragments import Fragment
from squill.runtime.spark.kinds import is_connect

__all__ = ["failed_without_a_word", "jobs_of_one_run"]


@contextmanager
def jobs_of_one_run(session: Any) -> Iterator[None]:
    """Mark the jobs that are started in context; when it is left by an error, also Ctrl-C, they are cancelled.

    A job that nobody waits for any more would go on, and write into a folder that is gone.
    """
    tag = f"squill-{uuid.uuid4().hex}"
    # Spark Connect has no context, and tags of its own; elsewhere only those of the context stop a job.
    context = None if is_connect(session) else session.sparkContext
    add = session.addTag if context is None else context.addJobTag
    remove = session.removeTag if context is None else context.removeJobTag
    cancel = session.interruptTag if context is None else context.cancelJobsWithTag
    add(tag)
    try:
        yield
    except BaseException as error:
        cancel(tag)
        if _was_interrupted(error):
            raise KeyboardInterrupt from None
        raise
    finally:
        remove(tag)


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is what began it: Spark cancels the job then, and raises an error about that in its place."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def failed_without_a_word(error: Exception, fragments: Sequence[Fragment] = ()) -> ShardError:
    """Return the error for a task that died before it could say why: what Spark says, and of which fragments."""
    where = ", ".join(fragment.title for fragment in fragments)
    return ShardError(
        f"{where}{': ' if where else ''}a Spark task failed: {_reason(error)}",
        "a worker that exits without an error was killed, often for want of memory; Spark's own error is the cause.",
    )


def _reason(error: Exception) -> str:
    """Return the line of Spark's error that says why; the first ones say which Java method was called."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line for line in lines if "Job aborted" in line or "Job cancelled" in line or "SparkException: " in line]
    return (reasons or lines or [type(error).__name__])[0]

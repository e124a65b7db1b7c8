"""Ctrl-C: what came of it, and how it waits while something is put in order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

__all__ = ["came_of_an_interrupt", "to_the_end"]


def to_the_end(step: Callable[[], object]) -> None:
    """Take a step that may be taken twice; when Ctrl-C stops it, it is taken again before the interrupt goes on.

    Examples
    --------
    >>> to_the_end(lambda: print("tidy"))
    tidy
    """
    before = sys.exception()
    try:
        step()
    except BaseException as error:
        # Who tidies up after Ctrl-C may fail too, as `shutil.rmtree` does.
        if not came_of_an_interrupt(error, before):
            raise
        step()
        raise KeyboardInterrupt from error


def came_of_an_interrupt(error: BaseException, before: BaseException | None) -> bool:
    """Whether an error is Ctrl-C, or came of it.

    `before` is what was being handled when the work began that has failed. Python hangs it on all that the work
    raises, but the work is not what it has stopped.

    Examples
    --------
    >>> try:
    ...     raise KeyboardInterrupt
    ... except KeyboardInterrupt as earlier:
    ...     try:
    ...         1 / 0
    ...     except ZeroDivisionError as error:
    ...         [came_of_an_interrupt(error, before) for before in (None, earlier)]
    [True, False]
    """
    return any(isinstance(part, KeyboardInterrupt) for part in _chain(error, before))


def _chain(error: BaseException, before: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and all that it came of, but for what there was before."""
    seen = set[int]()
    left = [error]
    while left:
        part = left.pop()
        if part is not before and id(part) not in seen:
            seen.add(id(part))
            yield part
            left += [cause for cause in (part.__cause__, part.__context__) if cause is not None]

"""Ctrl-C while something is put in order: it waits until that is done."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["to_the_end"]


def to_the_end(step: Callable[[], object]) -> None:
    """Take a step that may be taken twice; when Ctrl-C stops it, it is taken again before the interrupt goes on.

    Examples
    --------
    >>> to_the_end(lambda: print("tidy"))
    tidy
    """
    try:
        step()
    except BaseException as error:
        if not _is_interrupt(error):
            raise
        step()
        raise KeyboardInterrupt from error


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether it is Ctrl-C, or came of it: who tidies up after Ctrl-C may fail too, as `shutil.rmtree` does."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None

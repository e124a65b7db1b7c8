"""Arguments as users give them: what many methods take is checked, and refused, in one way.

Anything may be given by mistake, an expression, an array or a table too, whose comparison with a text is no Boolean
and whose truth is an error of Polars' or NumPy's: so what an argument is comes before what it equals.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any, TypeGuard

from squill.errors import PlanError
from squill.wording import shortened

__all__ = ["URLS_HINT", "check_takes_streams", "checked_flag", "checked_label", "is_one_of"]

URLS_HINT = "write sqlite:///folder/catalog.sqlite or postgresql://user:password@host/database."
"""What `catalog=` may be; a cluster says so without loading SQLAlchemy, which takes its time."""


def is_one_of(given: object, choices: Collection[str | None]) -> TypeGuard[str]:
    """Return whether one of the words was given that an argument may be.

    Examples
    --------
    >>> is_one_of("left", ("left", "inner")), is_one_of(sq.col("left"), ("left", "inner")), is_one_of([], {"left": 1})
    (True, False, False)
    """
    return (given is None or isinstance(given, str)) and given in choices


def checked_flag(given: object, what: str) -> bool:
    """Return a Boolean, or raise: a text or a list that was meant for something else is no yes.

    Examples
    --------
    >>> checked_flag("ad", "collect: sort")
    Traceback (most recent call last):
        ...
    squill.errors.PlanError: collect: sort is 'ad'
    Hint: use True or False.
    """
    if not isinstance(given, bool):
        raise PlanError(f"{what} is {shortened(given)}", "use True or False.")
    return given


def checked_label(given: object, operator: str) -> str | None:
    """Return the name of an input; None, or no text at all, is for the one that Squill gives."""
    if given is not None and not isinstance(given, str):
        raise PlanError(f"{operator}: name is {shortened(given)}", 'give text such as "clicks", or leave it out.')
    return given or None


def check_takes_streams(fn: Callable[..., Any], streams: int, operator: str, example: str) -> None:
    """Raise for a function that cannot be called with so many streams."""
    try:
        inspect.signature(fn).bind(*range(streams))
    except ValueError:
        return  # nobody knows what it takes
    except TypeError as error:
        raise PlanError(
            f"{operator}: the function cannot be called with {streams} stream{'s' * (streams > 1)}: {error}", example
        ) from error

"""How errors speak of what they were given: in a few words, whatever it is."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from difflib import get_close_matches

import polars as pl

__all__ = ["articled", "kind_of", "near_names", "shortened"]

LONGEST = 300
"""Characters of a value in a message; a path is shown whole, a table is not."""


def articled(noun: str) -> str:
    """Return a word with its article.

    Examples
    --------
    >>> articled("frame"), articled("events source")
    ('a frame', 'an events source')
    """
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def near_names(name: str, names: Iterable[str], most: int = 3) -> list[str]:
    """Return the names that this one may have been meant to be, the nearest first, written in whatever case.

    Examples
    --------
    >>> near_names("CLICK", ["costs", "clicks", "Clicks"])
    ['clicks', 'Clicks']
    """
    written: dict[str, list[str]] = {}
    for one in names:
        written.setdefault(one.casefold(), []).append(one)
    near = get_close_matches(name.casefold(), written, n=most, cutoff=0.5)
    return [one for found in near for one in written[found]][:most]


def kind_of(value: object) -> str:
    """Return what a value is, in place of the value.

    Examples
    --------
    >>> kind_of(5), kind_of([1, 2]), kind_of(None)
    ('an int', 'a list', 'None')
    """
    return "None" if value is None else articled(type(value).__name__)


def shortened(value: object) -> str:
    """Return a value as a message shows it: as Python writes it when that is short, else its beginning, or its type.

    Of tables and arrays only the shape is told: a frame that was given by mistake is no help in a message.

    Examples
    --------
    >>> shortened("out/"), shortened(["a", 5])
    ("'out/'", "['a', 5]")
    >>> shortened(pl.DataFrame({"x": [1, 2]}))
    'a DataFrame of shape (2, 1)'
    >>> shortened(sq.col("x") > 3)
    '[(col("x")) > (dyn int: 3)]'
    >>> shortened(list(range(1000)))
    '[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …]'
    """
    text = _SHORTENER.repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


class _Shortener(reprlib.Repr):
    """Python's own, which looks at the first of many values only, with an eye for tables and long numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxtuple = self.maxlist = self.maxset = self.maxfrozenset = self.maxdict = 10
        self.maxstring = self.maxother = LONGEST
        self.fillvalue = "…"

    def repr_int(self, value: int, level: int) -> str:
        # Python refuses to write numbers of more than some thousand digits.
        return repr(value) if value.bit_length() < LONGEST else f"an int of {value.bit_length()} bits"

    def repr_instance(self, value: object, level: int) -> str:
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple) and shape:  # that of one number of numpy's is empty
            return f"{kind_of(value)} of shape {shape}"
        try:
            # Of an expression Python's own form has an address in it.
            text = str(value) if isinstance(value, pl.Expr) else repr(value)
        except Exception:  # noqa: BLE001  (whatever a user's class does wrong, it is not the mistake to be told of)
            return kind_of(value)
        return kind_of(value) if "\n" in text else text


_SHORTENER = _Shortener()

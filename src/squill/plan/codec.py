"""Columns of Python objects: kept as bytes, so that they cross shards, files and checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import isclass
from typing import Any

from squill.errors import PlanError
from squill.wording import shortened

__all__ = ["Codec", "codec"]


@dataclass(frozen=True)
class Codec:
    """How values of `type` become bytes and come back."""

    type: type
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]

    def __str__(self) -> str:
        return f"codec({self.type.__name__})"


def codec(type: type, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]) -> Codec:  # noqa: A002
    """Return a column type for `map_batches(fn, schema=…)` whose values are Python objects.

    The function sees the objects (a column of Polars' Object type); between functions they are bytes. Objects are equal
    where their bytes are, in keys and `distinct`; they have no order, and expressions see the bytes.

    Examples
    --------
    >>> import squill as sq
    >>> numbers = sq.codec(complex, lambda z: repr(z).encode(), lambda b: complex(b.decode()))
    >>> def turn(frame):
    ...     return pl.DataFrame({"z": pl.Series([complex(x, 1) for x in frame["x"]], dtype=pl.Object)})
    >>> stream = sq.from_frame({"t": [1, 2], "x": [3, 4]}, start="t").map_batches(turn, schema={"z": numbers})
    >>> stream.collect()["z"].to_list()
    [(3+1j), (4+1j)]
    """
    if not isclass(type):
        raise PlanError(f"codec: {shortened(type)} is not a type", "sq.codec(Model, pickle.dumps, pickle.loads)")
    for name, function in (("encode", encode), ("decode", decode)):
        if not callable(function):
            raise PlanError(f"codec: {name} is {shortened(function)}, not a function", "give a function of one value.")
    return Codec(type, encode, decode)

"""Where Polars has the bytes of a column of text, told by the column itself.

Text lies in views, 16 bytes a row, that point into any number of buffers: a frame read from files has some for every
row group, 1,100 for 20 M rows, and each part of it still names them all. An Arrow array makes a Python object of each,
0.5 ms in all and with the interpreter's lock in hand, for every batch. The C form of the column is one list of
addresses, read in 20 µs.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

__all__ = ["TextBuffers"]

Int64s = npt.NDArray[np.int64]

# Words of 8 bytes of Arrow's two C structures; the second begins behind the first.
_OFFSET, _BUFFER_COUNT, _BUFFERS, _ARRAY_RELEASE, _ARRAY_WORDS = 2, 3, 5, 8, 10
_SCHEMA_RELEASE, _SCHEMA_WORDS = 7, 9
# Called with the interpreter's lock: to let it go would take longer.
_Release = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class TextBuffers:
    """The buffers of a column of text or bytes in one chunk, which stay as long as this does.

    ``offset``    the first row is so many views and bits behind the beginning of their buffers.
    ``validity``  address of the bits that say which rows are not null; 0 where all are.
    ``views``     address of the views.
    ``data``      addresses of the buffers that views point into.
    ``sizes``     how many bytes each of these has.

    Examples
    --------
    >>> buffers = TextBuffers(pl.Series(["short", "more than twelve bytes"]))
    >>> buffers.validity, len(buffers.data), buffers.sizes.tolist()
    (0, 1, [22])
    """

    def __init__(self, series: pl.Series) -> None:
        # Arrow's array and its schema; from here on the two are to be released, whatever happens.
        words = np.zeros(_ARRAY_WORDS + _SCHEMA_WORDS, np.int64)
        array = words.ctypes.data
        schema = array + 8 * _ARRAY_WORDS
        weakref.finalize(self, _release, words, array, schema).atexit = False
        _export(series, array, schema)
        count = int(words[_BUFFER_COUNT])
        # The first two are bits and views; the last one has the sizes of those between.
        addresses = _int64s_at(int(words[_BUFFERS]), count)
        self.offset = int(words[_OFFSET])
        self.validity, self.views = int(addresses[0]), int(addresses[1])
        self.data = addresses[2:-1]
        self.sizes = _int64s_at(int(addresses[-1]), count - 3)

    def range_at(self, begin: int, size: int) -> pa.Buffer:
        """Return memory that is part of this, and holds on to it."""
        return pa.foreign_buffer(begin, size, self)


def _release(words: Int64s, array: int, schema: int) -> None:
    for address, call in ((array, words[_ARRAY_RELEASE]), (schema, words[_ARRAY_WORDS + _SCHEMA_RELEASE])):
        if call:
            _Release(int(call))(address)


def _export(series: pl.Series, array: int, schema: int) -> None:
    direct: Any = getattr(series, "_export_arrow_to_c", None)
    if direct is None:  # it is none of the calls that Polars promises to keep
        direct = series.to_arrow(compat_level=pl.CompatLevel.newest())._export_to_c
    direct(array, schema)


def _int64s_at(address: int, count: int) -> Int64s:
    """Return a copy of words in memory."""
    if not count:
        return np.empty(0, np.int64)
    return np.frombuffer(pa.foreign_buffer(address, 8 * count), np.int64).copy()

"""Arrays of saved state that change hands: what was read from a file need not be copied by the operator that loads it.

An operator's `load` may be given arrays that somebody else goes on changing (early answers load what `save` of the
running query returned), so that it takes copies. Arrays that were made for it are offered first; whoever asks
for one gets the array itself, once. With a gigabyte of state that is a gigabyte less to touch in a restart.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

__all__ = ["offer", "owned", "withdraw"]

Array = npt.NDArray[Any]
_offered: WeakValueDictionary[int, Array] = WeakValueDictionary()


def _memory(array: Array) -> Array:
    return array.base if isinstance(array.base, np.ndarray) else array


def offer(array: Array) -> None:
    """Let the next one who asks have this array; nobody else may hold it, or a part of it, to read or to change."""
    memory = _memory(array)
    _offered[id(memory)] = memory


def owned(array: Array) -> Array:
    """Return the array itself when it was offered and nobody has had it, else a copy.

    Examples
    --------
    >>> array = np.arange(3)
    >>> owned(array) is array
    False
    >>> offer(array)
    >>> owned(array) is array, owned(array) is array
    (True, False)
    """
    memory = _memory(array)
    return array if _offered.pop(id(memory), None) is memory else array.copy()


def withdraw() -> None:
    """Take back what nobody asked for: from now on it may be part of a running query."""
    _offered.clear()

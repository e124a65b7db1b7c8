"""Ordered multisets of codes, one per slot, and the codes that keep the order of floats.

`Multisets` owns the arrays; the kernels in ``squill.engine.kernels.multiset`` work on its `state`.
A fold kernel takes the state and calls ``insert``, ``remove``, ``kth`` and the others by slot::

    multisets.ensure_slots(capacity)
    multisets.reserve(deltas)
    fold(multisets.state, ...)

The arena is virtual memory until it is touched, so a generous promise by `reserve` costs no memory.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from squill.engine.columns import read_only
from squill.engine.kernels import multiset as kernels
from squill.errors import InternalError, StateFormatError

__all__ = ["Multisets", "float_codes", "float_values", "uint64_codes", "uint64_values"]

Ints = NDArray[np.int64]

_LEAST_SLOTS = 16
_LEAST_WORDS = 1 << 12
_WASTE_WORDS = 1 << 16
_BLOCK_SIZES = (4, 8, 16, 32, 64, 128, 256, 512)


def _words(count: int) -> Ints:
    if count > kernels.MOST_WORDS:
        raise InternalError(f"ordered values would take {count * 8 / 2**30:.0f} GiB; 64 GiB can be addressed")
    # Aligned, so that a block lies in as few lines of the cache as can be.
    words = np.empty(count + kernels.LINE, np.int64)
    start = -words.ctypes.data // 8 % kernels.LINE
    return words[start : start + count]


def _empty_arena(slots: int, words: int) -> Ints:
    slots = -(-slots // 4) * 4
    arena = _words(words)
    top = kernels.HEADER + 2 * slots
    arena[:top] = 0
    arena[kernels.TOP] = top
    arena[kernels.SLOTS] = kernels.HEADER
    arena[kernels.CAPACITY] = slots
    return arena


class Multisets:
    """A family of ordered multisets of int64 codes, one per slot.

    A slot with nothing in it holds no memory beyond its two words. Blocks that were freed are reused,
    and given back when they are more than what is alive.

    Parameters
    ----------
    byte_order
        Codes are ids of byte strings, ordered by their bytes; see `set_bytes`.

    Examples
    --------
    >>> family = Multisets()
    >>> family.apply([0, 0, 0, 1], [1, 1, 1, 1], [30, 10, 20, 7])
    >>> family.codes(0).tolist()
    [10, 20, 30]
    >>> family.apply([0], [-1], [10])
    >>> family.codes(0).tolist(), family.size(1)
    ([20, 30], 1)
    """

    def __init__(self, *, byte_order: bool = False) -> None:
        text = None
        if byte_order:
            text = kernels.ByteStrings(np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64))
        self._state = kernels.MultisetState(_empty_arena(_LEAST_SLOTS, _LEAST_WORDS), text)

    @property
    def state(self) -> kernels.MultisetState:
        """The arrays for kernels; valid until the next call that reserves, ensures, sets or loads."""
        return self._state

    @property
    def slot_capacity(self) -> int:
        """How many slots there are."""
        return int(self._state.arena[kernels.CAPACITY])

    @property
    def used_bytes(self) -> int:
        """How much memory is touched: all slots, and the blocks alive or waiting for reuse."""
        return 8 * int(self._state.arena[kernels.TOP])

    def set_bytes(self, data: NDArray[np.uint8], starts: Ints, lengths: Ints) -> None:
        """Let codes be ids of the strings ``data[starts[id] : starts[id] + lengths[id]]``.

        Call it again whenever the arrays were replaced. The order among ids that are held must stay.
        """
        if self._state.text is None:
            raise InternalError("byte strings for a family of multisets that orders by number")
        self._state = self._state._replace(text=kernels.ByteStrings(data, starts, lengths))
        self._state.arena[kernels.VERSION] += 1  # an id may have become another string

    def ensure_slots(self, capacity: int) -> None:
        """Make the slots ``0 .. capacity - 1`` usable; new ones are empty."""
        if capacity > self.slot_capacity:
            self._rebuild(max(capacity, 2 * self.slot_capacity), 0)

    def reserve(self, operations: int) -> None:
        """Make the next `operations` inserts or removes, in any mix and on any slots, safe.

        Reading, ``clear`` and removes of absent codes count as nothing. Constant time, except when the
        arena is moved: to grow, or because blocks that wait for reuse outweigh all that is alive.
        """
        arena = self._state.arena
        top = int(arena[kernels.TOP])
        live = self._live_words()
        need = self._worst_case(operations)
        if top - live > live + _WASTE_WORDS:
            self._rebuild(self.slot_capacity, operations)
        elif top + need + kernels.LANES > arena.size:
            grown = _words(2 * (top + need))
            grown[:top] = arena[:top]
            self._state = self._state._replace(arena=grown)

    def apply(self, slots: ArrayLike, signs: ArrayLike, codes: ArrayLike) -> None:
        """Insert the codes whose sign is positive and remove the others, row by row.

        Raises
        ------
        InternalError
            A code to remove is not there; the rows before it were applied.
        """
        rows = read_only(np.asarray(slots, np.int32))
        self.reserve(rows.size)
        row = kernels.apply_changes(
            self._state, rows, read_only(np.asarray(signs, np.int8)), read_only(np.asarray(codes, np.int64))
        )
        if row >= 0:
            raise InternalError(f"row {row} removes a code that slot {rows[row]} does not hold")

    def size(self, slot: int) -> int:
        """Return how many codes `slot` holds."""
        return int(self._sizes()[slot])

    def codes(self, slot: int) -> Ints:
        """Return the codes of `slot`, in order."""
        return self.read([slot])[1]

    def read(self, slots: ArrayLike) -> tuple[Ints, Ints]:
        """Return the codes of many slots: the offsets of each slot's codes, and the codes.

        Examples
        --------
        >>> family = Multisets()
        >>> family.ensure_slots(3)
        >>> family.apply([0, 2, 2], [1, 1, 1], [5, 9, 8])
        >>> offsets, codes = family.read([2, 1, 0])
        >>> offsets.tolist(), codes.tolist()
        ([0, 2, 2, 3], [8, 9, 5])
        """
        rows = read_only(np.asarray(slots, np.int32))
        offsets = np.zeros(rows.size + 1, np.int64)
        np.cumsum(self._sizes()[rows], out=offsets[1:])
        out = np.empty(int(offsets[-1]), np.int64)
        kernels.read_slots(self._state, rows, read_only(offsets), out)
        return offsets, out

    def save(self) -> dict[str, Ints]:
        """Return the arrays that `load` takes, as they are; byte strings are not among them."""
        arena = self._state.arena
        return {"arena": arena[: arena[kernels.TOP]]}

    def load(self, saved: Mapping[str, Ints]) -> None:
        """Become what was saved: the same codes, in the same layout.

        Raises
        ------
        StateFormatError
            This is no saved family of multisets.
        """
        arena = saved.get("arena")
        if arena is None or arena.size < kernels.HEADER or arena[kernels.TOP] != arena.size:
            raise StateFormatError("no saved family of multisets")
        words = _words(arena.size + kernels.LANES)
        words[: arena.size] = arena
        self._state = self._state._replace(arena=words)

    def _sizes(self) -> Ints:
        arena = self._state.arena
        table = arena[arena[kernels.SLOTS] :][: 2 * arena[kernels.CAPACITY]]
        return table[1::2] >> 16

    def _blocks(self) -> dict[int, int]:
        """Return how many blocks of each size are in use."""
        arena = self._state.arena
        return {words: int(arena[kernels.BLOCKS + words // 4]) for words in _BLOCK_SIZES}

    def _live_words(self) -> int:
        blocks = sum(words * count for words, count in self._blocks().items())
        return kernels.HEADER + 2 * self.slot_capacity + blocks

    def _rebuild(self, slots: int, operations: int) -> None:
        """Move all that is alive to a new arena with that many slots."""
        old = self._state.arena
        words = 2 * (self._live_words() + 2 * slots + self._worst_case(operations))
        arena = _empty_arena(slots, words)
        kernels.compact(old, arena)
        self._state = self._state._replace(arena=arena)

    def _worst_case(self, operations: int) -> int:
        """Return how many new words that many operations can take, even if nothing freed is reused.

        The costliest that an operation finds is a block which is full already. Doubling a small group
        takes twice its words. Splitting a leaf takes a leaf and a new or larger root, and a full leaf
        can be split twice, once after its end and once inside. So the operations are spent on the
        largest blocks first. Thereafter a block must be filled, or emptied to a quarter, before it
        costs again: 4 words per operation in small groups, 4 for new groups, fewer in trees. Each
        larger node is doubled, or split under a new root, once; refilling them is among the fewer.
        """
        blocks = self._blocks()
        words = 24 * operations + 4 * kernels.NODE
        words += sum(2 * size * blocks[size] for size in _BLOCK_SIZES if size > kernels.LEAF)
        left = operations
        for size in (64, 32, 16, 8, 4):
            is_leaf = size == kernels.LEAF
            turns = min(left, blocks[size] * (2 if is_leaf else 1))
            words += turns * size * (4 if is_leaf else 2)
            left -= turns
        return words


def float_codes(values: NDArray[np.float64]) -> Ints:
    """Return integers in the order of the floats: -0.0 is 0.0, every NaN is the same and largest.

    Examples
    --------
    >>> codes = float_codes(np.array([-np.inf, -1.5, -0.0, 0.0, 2.0, np.inf, np.nan]))
    >>> bool(np.all(np.diff(codes) >= 0)), float_values(codes).tolist()
    (True, [-inf, -1.5, 0.0, 0.0, 2.0, inf, nan])
    """
    bits = read_only(values).view(np.int64)
    codes = np.empty(bits.size, np.int64)
    kernels.code_floats(bits, codes)
    return codes


def float_values(codes: Ints) -> NDArray[np.float64]:
    """Return the floats of `float_codes`."""
    bits = np.empty(codes.size, np.int64)
    kernels.decode_floats(read_only(codes), bits)
    return bits.view(np.float64)


def uint64_codes(values: NDArray[np.uint64]) -> Ints:
    """Return signed integers in the order of the unsigned ones.

    Examples
    --------
    >>> uint64_codes(np.array([0, 2**63, 2**64 - 1], np.uint64)).tolist()
    [-9223372036854775808, 0, 9223372036854775807]
    """
    return np.asarray(values, np.uint64).view(np.int64) ^ np.int64(-(2**63))


def uint64_values(codes: Ints) -> NDArray[np.uint64]:
    """Return the unsigned integers of `uint64_codes`."""
    return (codes ^ np.int64(-(2**63))).view(np.uint64)

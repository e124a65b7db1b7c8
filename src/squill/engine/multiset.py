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
from squill.engine.kernels import float_codes as float_kernels
from squill.engine.kernels import multiset as kernels
from squill.engine.kernels import multiset_blocks as layout
from squill.engine.kernels.memory import LANES
from squill.engine.kernels.multiset_tree import LEAF, MOST_CODES
from squill.errors import InternalError, StateFormatError

__all__ = ["Multisets", "float_codes", "float_values", "uint64_codes", "uint64_values"]

Ints = NDArray[np.int64]

_LEAST_SLOTS = 16
_LEAST_WORDS = 1 << 12
_WASTE_WORDS = 1 << 16
_MUCH = 1 << 26
_BLOCK_SIZES = (4, 8, 16, 32, LEAF, 64, 128, 256, 512)


def _words(count: int) -> Ints:
    if count > layout.MOST_WORDS:
        raise InternalError(f"ordered values would take {count * 8 / 2**30:.0f} GiB; 64 GiB can be addressed")
    # Aligned, so that a block lies in as few lines of the cache as can be.
    words = np.empty(count + layout.LINE, np.int64)
    start = -words.ctypes.data // 8 % layout.LINE
    return words[start : start + count]


def _rounded(slots: int) -> int:
    """Return so many slots that they are whole lines of the cache."""
    return -(-slots // 4) * 4


def _empty_arena(slots: int, words: int) -> Ints:
    slots = _rounded(slots)
    arena = _words(words)
    top = layout.HEADER + 2 * slots
    arena[:top] = 0
    arena[layout.TOP] = top
    arena[layout.SLOTS] = layout.HEADER
    arena[layout.CAPACITY] = slots
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
            text = layout.ByteStrings(np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64))
        self._state = layout.MultisetState(_empty_arena(_LEAST_SLOTS, _LEAST_WORDS), text)
        self._most_codes = 0  # a slot holds at most so many

    @property
    def state(self) -> layout.MultisetState:
        """The arrays for kernels; valid until the next call that reserves, ensures, sets or loads."""
        return self._state

    @property
    def slot_capacity(self) -> int:
        """How many slots there are."""
        return int(self._state.arena[layout.CAPACITY])

    @property
    def used_bytes(self) -> int:
        """How much memory is touched: all slots, and the blocks alive or waiting for reuse."""
        return 8 * int(self._state.arena[layout.TOP])

    def set_bytes(self, data: NDArray[np.uint8], starts: Ints, lengths: Ints) -> None:
        """Let codes be ids of the strings ``data[starts[id] : starts[id] + lengths[id]]``.

        Call it again whenever the arrays were replaced. The order among ids that are held must stay.
        """
        if self._state.text is None:
            raise InternalError("byte strings for a family of multisets that orders by number")
        self._state = self._state._replace(text=layout.ByteStrings(data, starts, lengths))
        self._state.arena[layout.VERSION] += 1  # an id may have become another string

    def ensure_slots(self, capacity: int) -> None:
        """Make the slots ``0 .. capacity - 1`` usable; new ones are empty."""
        if capacity > self.slot_capacity:
            slots = _rounded(max(capacity, 2 * self.slot_capacity))
            self._make_room(2 * slots)
            kernels.move_table(self._state.arena, slots)

    def reserve(self, operations: int) -> None:
        """Make the next `operations` inserts or removes, in any mix and on any slots, safe.

        Reading, ``clear`` and removes of absent codes count as nothing. Constant time, except when the
        arena is moved: to grow, or because blocks that wait for reuse outweigh all that is alive.
        """
        self._check_sizes(operations)
        top = int(self._state.arena[layout.TOP])
        live = self._live_words()
        need = self._worst_case(operations)
        if top - live > live + _WASTE_WORDS:
            self._rebuild(self.slot_capacity, operations)
        else:
            self._make_room(need)

    def apply(self, slots: ArrayLike, signs: ArrayLike, codes: ArrayLike) -> None:
        """Insert the codes whose sign is positive and remove the others, row by row.

        Raises
        ------
        InternalError
            A code to remove is not there; the rows before it were applied.
        """
        rows = np.asarray(slots, np.int64)
        changes = np.column_stack((rows << 1 | (np.asarray(signs) > 0), np.asarray(codes, np.int64))).ravel()
        self.reserve(rows.size)
        row = kernels.apply_changes(self._state, changes)
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

    def keep_slots(
        self, kept: NDArray[np.integer], number_of: Ints | None = None, strings: layout.ByteStrings | None = None
    ) -> None:
        """Forget all but these slots, of which the i-th is slot i from now on.

        Codes that are ids of `strings` have these new numbers.

        Examples
        --------
        >>> family = Multisets()
        >>> family.apply([0, 1, 1], [1, 1, 1], [5, 9, 8])
        >>> family.keep_slots(np.array([1]))
        >>> family.codes(0).tolist(), family.size(1)
        ([8, 9], 0)
        """
        offsets, codes = self.read(kept)
        self._state = self._state._replace(arena=_empty_arena(_LEAST_SLOTS, _LEAST_WORDS))
        self._most_codes = 0
        self.ensure_slots(len(kept))
        if strings is not None:
            self.set_bytes(*strings)
        codes = codes if number_of is None else number_of[codes]
        self.apply(np.repeat(np.arange(len(kept)), np.diff(offsets)), np.ones(len(codes), np.int8), codes)

    def save(self) -> dict[str, Ints]:
        """Return the arrays that `load` takes, as they are; byte strings are not among them."""
        arena = self._state.arena
        return {"arena": arena[: arena[layout.TOP]]}

    def load(self, saved: Mapping[str, Ints]) -> None:
        """Become what was saved: the same codes, in the same layout.

        Raises
        ------
        StateFormatError
            This is no saved family of multisets.
        """
        arena = saved.get("arena")
        if arena is None or arena.size < layout.HEADER or arena[layout.TOP] != arena.size:
            raise StateFormatError("no saved family of multisets")
        words = _words(arena.size + LANES)
        words[: arena.size] = arena
        self._state = self._state._replace(arena=words)
        self._most_codes = int(self._sizes().max())

    def _sizes(self) -> Ints:
        arena = self._state.arena
        table = arena[arena[layout.SLOTS] :][: 2 * arena[layout.CAPACITY]]
        return table[1::2] >> 16

    def _blocks(self) -> dict[int, int]:
        """Return how many blocks of each size are in use."""
        arena = self._state.arena
        return {words: int(arena[layout.BLOCKS + words // 4]) for words in _BLOCK_SIZES}

    def _live_words(self) -> int:
        blocks = sum(words * count for words, count in self._blocks().items())
        return layout.HEADER + 2 * self.slot_capacity + blocks

    def _check_sizes(self, operations: int) -> None:
        """Raise before a slot may hold more codes than can be counted; seldom looks at all slots."""
        self._most_codes += operations
        if self._most_codes > MOST_CODES:
            self._most_codes = int(self._sizes().max()) + operations
            if self._most_codes > MOST_CODES:
                raise InternalError(f"ordered values: more than {MOST_CODES} under one key cannot be held")

    def _make_room(self, words: int) -> None:
        """Let there be so many words above those that were taken."""
        arena = self._state.arena
        top = int(arena[layout.TOP])
        if top + words + LANES > arena.size:
            # Moving costs more than memory that is not touched; of very much the system may not promise more.
            grown = _words((4 if top + words < _MUCH else 2) * (top + words))
            grown[:top] = arena[:top]
            self._state = self._state._replace(arena=grown)

    def _rebuild(self, slots: int, operations: int) -> None:
        """Move all that is alive to a new arena with that many slots."""
        old = self._state.arena
        words = 2 * (self._live_words() + 2 * slots + self._worst_case(operations))
        arena = _empty_arena(slots, words)
        kernels.compact(old, arena)
        self._state = self._state._replace(arena=arena)

    def _worst_case(self, operations: int) -> int:
        """Return how many new words that many operations can take, even if nothing freed is reused.

        The costliest that an operation finds is a block which is full already. Doubling a run, or the root of
        a low tree, takes twice its words, and a root comes with a new leaf. A run of 256 becomes a root of 64 and up
        to twelve leaves. A full leaf is split, and once more when the first time only its last code went; a tree
        of few codes becomes a run of at most 32 words, which is less than a leaf. So the operations are spent on the
        costliest blocks first. Each node of 512 is split, or gets a new root, once, whatever the operations.

        Thereafter a block must be filled or emptied before it costs again: in runs 4 words per operation, 8 for
        a new one; 127 inserts from a run of 129 to a tree; 8 inserts from a leaf that was purged to one that is
        split, which is 6 words per operation, and hundreds of them until a node is full again.
        """
        blocks = self._blocks()
        words = 24 * operations + (4 + 2 * blocks[512]) * 512
        left = operations
        for size, turns, cost in (
            (256, 1, 64 + 12 * LEAF), (128, 1, 256 + LEAF), (64, 1, 128 + LEAF), (32, 1, 64), (LEAF, 2, LEAF),
            (16, 1, 32), (8, 1, 16), (4, 1, 8),
        ):  # fmt: skip
            spent = min(left, blocks[size] * turns)
            words += spent * cost
            left -= spent
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
    float_kernels.code_floats(bits, codes)
    return codes


def float_values(codes: Ints) -> NDArray[np.float64]:
    """Return the floats of `float_codes`."""
    bits = np.empty(codes.size, np.int64)
    float_kernels.decode_floats(read_only(codes), bits)
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

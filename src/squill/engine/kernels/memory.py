"""What a loop may ask of memory beyond loads and stores: several bytes at once, move, compare, fetch ahead.

None of these is bounds-checked: callers keep inside their arrays. In the checked run (``NUMBA_BOUNDSCHECK=1``)
those over bytes are loops of checked loads and stores.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

__all__ = [
    "LANES", "copy_bytes", "count_at_most", "load_byte", "load_half", "load_word", "memmove",
    "memmove_halves", "prefetch_word",
    "same_bytes", "store_half", "store_word",
]  # fmt: skip

LANES = 16
"""How many words `count_at_most` looks at."""

Bytes = NDArray[np.uint8]

if numba.config.DISABLE_JIT:

    def memmove(arena: NDArray[np.int64], source: int, target: int, words: int) -> None:
        arena[target : target + words] = arena[source : source + words]

    def memmove_halves(arena: NDArray[np.int64], source: int, target: int, halves: int) -> None:
        view = arena.view(np.int32)
        view[target : target + halves] = view[source : source + halves].copy()

    def prefetch_word(arena: NDArray[np.int64], at: int) -> None:
        pass

    def count_at_most(arena: NDArray[np.int64], at: int, code: int) -> int:
        return int(np.argmax(np.append(arena[at : at + LANES] > code, True)))

else:

    @intrinsic
    def memmove(_typing: Any, arena: Any, source: Any, target: Any, words: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            _, source, target, words = arguments
            to, of = builder.gep(data, [target]), builder.gep(data, [source])
            cgutils.raw_memmove(builder, to, of, words, 8)
            return context.get_dummy_value()

        return types.void(arena, types.int64, types.int64, types.int64), generate

    @intrinsic
    def memmove_halves(_typing: Any, arena: Any, source: Any, target: Any, halves: Any) -> Any:
        """Move half words, which are counted from the front of the arena."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            data = builder.bitcast(data, ir.IntType(32).as_pointer())
            _, source, target, halves = arguments
            to, of = builder.gep(data, [target]), builder.gep(data, [source])
            cgutils.raw_memmove(builder, to, of, halves, 4)
            return context.get_dummy_value()

        return types.void(arena, types.int64, types.int64, types.int64), generate

    @intrinsic
    def prefetch_word(_typing: Any, arena: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            pointer = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)
            word = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, word, word, word])
            call = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
            builder.call(call, [pointer, word(0), word(3), word(1)])
            return context.get_dummy_value()

        return types.void(arena, types.int64), generate

    @intrinsic
    def count_at_most(_typing: Any, arena: Any, at: Any, code: Any) -> Any:
        """Return how many of the `LANES` words from `at` on come before the first that is greater than `code`."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array, at, code = arguments
            data = context.make_array(signature.args[0])(context, builder, array).data
            vector = ir.VectorType(ir.IntType(64), LANES)
            pointer = builder.bitcast(builder.gep(data, [at]), vector.as_pointer())
            words = builder.load(pointer, align=8)
            lane = ir.Constant(ir.IntType(32), 0)
            undefined = ir.Constant(vector, ir.Undefined)
            one = builder.insert_element(undefined, code, lane)
            every = builder.shuffle_vector(
                one, undefined, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
            )
            greater = builder.bitcast(builder.icmp_signed(">", words, every), ir.IntType(LANES))
            wide = builder.or_(builder.zext(greater, ir.IntType(64)), ir.Constant(ir.IntType(64), 1 << LANES))
            return builder.cttz(wide, ir.Constant(ir.IntType(1), 1))

        return types.int64(arena, types.int64, types.int64), generate


def _load(data: Bytes, at: int, size: int) -> np.uint64:
    word = np.uint64(0)
    for k in range(size):
        word |= np.uint64(data[np.int64(at) + k]) << np.uint64(8 * k)
    return word


def _store(data: Bytes, at: int, size: int, word: int) -> None:
    for k in range(size):
        data[np.int64(at) + k] = np.uint8((np.uint64(word) >> np.uint64(8 * k)) & np.uint64(255))


if numba.config.DISABLE_JIT or numba.config.BOUNDSCHECK:
    _load, _store = numba.njit(_load), numba.njit(_store)

    @numba.njit
    def load_word(data: Bytes, at: int) -> np.uint64:
        return _load(data, at, 8)

    @numba.njit
    def load_byte(data: Bytes, at: int) -> np.uint64:
        return np.uint64(data[at])

    @numba.njit
    def load_half(data: Bytes, at: int) -> np.uint64:
        return _load(data, at, 4)

    @numba.njit
    def store_word(data: Bytes, at: int, word: int) -> None:
        _store(data, at, 8, word)

    @numba.njit
    def store_half(data: Bytes, at: int, word: int) -> None:
        _store(data, at, 4, word)

    @numba.njit
    def copy_bytes(source: Bytes, start: int, length: int, target: Bytes, at: int) -> None:
        for k in range(length):
            target[at + k] = source[start + k]

    @numba.njit
    def same_bytes(a: Bytes, a_start: int, b: Bytes, b_start: int, length: int) -> bool:
        for k in range(length):
            if a[a_start + k] != b[b_start + k]:
                return False
        return True

else:
    # Written out in Python each of these is dozens of operations, and it is their number that compiling takes.

    def _pointer(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
        return builder.gep(context.make_array(kind)(context, builder, array).data, [at])

    def _loader(bits: int) -> Any:
        def load(_typing: Any, data: Any, at: Any) -> Any:
            """Return little-endian bytes, the first at `at`, as an unsigned number."""

            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                pointer = _pointer(context, builder, signature.args[0], *arguments)
                number = builder.load(builder.bitcast(pointer, ir.IntType(bits).as_pointer()), align=1)
                return number if bits == 64 else builder.zext(number, ir.IntType(64))

            return types.uint64(data, types.int64), generate

        return intrinsic(load)

    def _storer(bits: int) -> Any:
        def store(_typing: Any, data: Any, at: Any, word: Any) -> Any:
            """Write the low bytes of a number, the lowest at `at`."""

            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                array, at, word = arguments
                pointer = _pointer(context, builder, signature.args[0], array, at)
                number = word if bits == 64 else builder.trunc(word, ir.IntType(bits))
                builder.store(number, builder.bitcast(pointer, ir.IntType(bits).as_pointer()), align=1)
                return context.get_dummy_value()

            return types.void(data, types.int64, types.uint64), generate

        return intrinsic(store)

    load_word, load_half, load_byte = _loader(64), _loader(32), _loader(8)
    store_word, store_half = _storer(64), _storer(32)

    @intrinsic
    def copy_bytes(_typing: Any, source: Any, start: Any, length: Any, target: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source, start, length, target, at = arguments
            of = _pointer(context, builder, signature.args[0], source, start)
            to = _pointer(context, builder, signature.args[3], target, at)
            cgutils.raw_memcpy(builder, to, of, length, 1)
            return context.get_dummy_value()

        return types.void(source, types.int64, types.int64, target, types.int64), generate

    @intrinsic
    def same_bytes(_typing: Any, a: Any, a_start: Any, b: Any, b_start: Any, length: Any) -> Any:
        """Compare `length` bytes, none when it is negative."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            a, a_start, b, b_start, length = arguments
            left = _pointer(context, builder, signature.args[0], a, a_start)
            right = _pointer(context, builder, signature.args[2], b, b_start)
            length = builder.select(builder.icmp_signed(">", length, length.type(0)), length, length.type(0))
            kind = ir.FunctionType(ir.IntType(32), [cgutils.voidptr_t, cgutils.voidptr_t, ir.IntType(64)])
            call = cgutils.get_or_insert_function(builder.module, kind, "memcmp")
            return builder.icmp_signed("==", builder.call(call, [left, right, length]), ir.IntType(32)(0))

        return types.boolean(a, types.int64, b, types.int64, types.int64), generate

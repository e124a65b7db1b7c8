"""What a loop may ask of memory beyond loads and stores: move, borrow, fetch ahead.

None of these is bounds-checked: callers keep inside their arrays.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

__all__ = ["borrow", "memmove", "prefetch_word"]

if numba.config.DISABLE_JIT:

    def memmove(arena: NDArray[np.int64], source: int, target: int, words: int) -> None:
        arena[target : target + words] = arena[source : source + words]

    def borrow(array: NDArray[Any]) -> NDArray[Any]:
        return array

    def prefetch_word(arena: NDArray[np.int64], at: int) -> None:
        pass

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
    def borrow(_typing: Any, array: Any) -> Any:
        """Return a view that owns nothing: counting its references is a test for null, not an atomic."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            view = context.make_array(signature.args[0])(context, builder, arguments[0])
            view.meminfo = cgutils.get_null_value(view.meminfo.type)
            view.parent = cgutils.get_null_value(view.parent.type)
            return view._getvalue()

        return array(array), generate

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

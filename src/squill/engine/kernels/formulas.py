"""Formulas over 64-bit words that are written straight into the code of the kernels that use them.

Compiled as a function, every operation of a formula is typed, lowered and optimised on its own, and the function
once more in each caller: most of the time that the kernels of a hash take to compile. A formula is instead run
once per place that uses it, on numbers that write down the instructions. So it has no branches and no loops.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from inspect import Signature, signature
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

__all__ = ["formula"]

WORD = ir.IntType(64)


def formula(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let kernels use a formula over uint64: ``+ - * & | ^``, and shifts, of its arguments and of constants."""
    if numba.config.DISABLE_JIT:
        return lambda *words: function(*map(np.uint64, words))

    def typed(_typing: Any, *arguments: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            return function(*(_Word(builder, value) for value in values)).value

        return types.uint64(*(types.uint64 for _ in arguments)), generate

    typed.__name__ = function.__name__
    # Numba would otherwise take the arguments for one tuple.
    typing, *_ = signature(typed).parameters.values()
    typed.__signature__ = Signature([typing, *signature(function).parameters.values()])  # type: ignore[attr-defined]
    found: Callable[..., Any] = intrinsic(typed)
    return found


class _Word:
    """A number in code that is being written; arithmetic on it writes instructions."""

    __array_ufunc__ = None  # a NumPy constant on the left leaves the operation to the word

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder = builder
        self.value = value


def _value(number: Any) -> Any:
    return number.value if isinstance(number, _Word) else WORD(int(number))


def _writer(instruction: str, *, is_reflected: bool) -> Callable[[_Word, Any], _Word]:
    def write(self: _Word, other: Any) -> _Word:
        left, right = (_value(other), self.value) if is_reflected else (self.value, _value(other))
        return _Word(self.builder, getattr(self.builder, instruction)(left, right))

    return write


_INSTRUCTIONS = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.lshift: "shl", operator.rshift: "lshr",
    operator.and_: "and_", operator.or_: "or_", operator.xor: "xor",
}  # fmt: skip
for _operation, _instruction in _INSTRUCTIONS.items():
    _name = _operation.__name__.strip("_")
    setattr(_Word, f"__{_name}__", _writer(_instruction, is_reflected=False))
    setattr(_Word, f"__r{_name}__", _writer(_instruction, is_reflected=True))

"""Kernels around users' functions, generated so that their code is found again in other processes.

A compiled loop that calls a function can be kept on disk only under a name that stands for that function.
So the functions are taken apart (bytecode, constants, closures, the globals they use) and built again
inside a module whose name is the hash over all of it; in that module the loop is written and compiled. The
same functions in another process, notebook or Spark worker give the same name and find the code.
Functions that use what cannot be told by value, as arrays or objects, are compiled for this process only.
"""

from __future__ import annotations

import builtins
import dis
import hashlib
import sys
import threading
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numba
import numpy as np
from numba.core.errors import NumbaError, TypingError, UnsupportedBytecodeError
from numba.extending import overload

from squill.engine.kernels.jit import inlined, kernel
from squill.wording import kind_of

__all__ = ["ROW", "NotCompilableError", "StateTypeError", "compile_beside", "compile_loop", "put"]

ROW, CELL = 0, 1
MISMATCH = "squill cannot keep this value: "

Function = Callable[..., Any]
_making = threading.Lock()

CHANGES = """
def loop(
    d_slot, d_sign, d_row, n_deltas, i_delta, i_cell, n_instants, c_slot, c_alive,
    times, valid, {inputs}, {states}, {initials}, at, {outs}, out_valid,
):
    d = 0
    c = 0
    for i in range(n_instants + 1):
        stop = i_delta[i] if i < n_instants else n_deltas
        while d < stop:
            row = d_row[d]
            if valid[row]:
                slot = d_slot[d]
                at[0] = row
                if d_sign[d] > 0:
                    more = accumulate({state}, times[row], {values})
                    {keep_more}
                else:
                    less = deaccumulate({state}, times[row], {values})
                    {keep_less}
            d += 1
        if i < n_instants:
            while c < i_cell[i]:
                slot = c_slot[c]
                out_valid[c] = 0
                if c_alive[c] > 0:
                    at[0] = -1
                    at[1] = c
                    {answer}
                else:
                    {reset}
                c += 1
"""

LISTS = """
def loop(offsets, c_alive, times, {inputs}, {states}, {initials}, at, {outs}, out_valid):
    slot = 0
    for c in range(len(offsets) - 1):
        out_valid[c] = 0
        if c_alive[c] > 0:
            {reset}
            for row in range(offsets[c], offsets[c + 1]):
                at[0] = row
                more = {added}
                {keep_more}
            at[0] = -1
            at[1] = c
            {answer}
"""

ANSWER = [
    "value = result({state})",
    "if value is not None:",
    "    put(out, c, value, -1)",
    "    out_valid[c] = 1",
]


class NotCompilableError(Exception):
    """Numba cannot compile the functions; the message is its own, shortened."""


class StateTypeError(Exception):
    """The functions give a float where `init` (element ≥ 0) or `dtype` (element −1) promised an integer."""

    def __init__(self, element: int) -> None:
        super().__init__(element)
        self.element = element


class _NotPortableError(Exception):
    """A function depends on something that cannot be told by value."""


def put(array: Any, at: int, value: Any, element: int) -> None:
    """Write array[at] = value; compiled, it refuses a float for an integer instead of cutting it."""
    array[at] = value


@overload(put, prefer_literal=True)
def _put(array: Any, at: Any, value: Any, element: Any) -> Any:
    plain = value.type if isinstance(value, numba.types.Optional) else value
    whole = isinstance(array.dtype, (numba.types.Integer, numba.types.Boolean))
    if whole and isinstance(plain, numba.types.Float):
        raise TypingError(f"{MISMATCH}{getattr(element, 'literal_value', -1)};")

    def write(array: Any, at: Any, value: Any, element: Any) -> None:
        array[at] = value

    return write


def compile_loop(user: Mapping[str, Function], inputs: Sequence[np.dtype[Any]], initial: Sequence[float]) -> Function:
    """Return the loop over these functions, not yet compiled for any types.

    With `deaccumulate` it goes over deltas, without over lists of rows; with `merge` the rows are states. Without
    `result` it gives the states themselves.
    """
    source = _source(user.keys(), [kind == np.bool_ for kind in inputs], len(initial))
    return compile_beside(user, source, lambda namespace: namespace["loop"])


def compile_beside(user: Mapping[str, Function], source: str, choose: Callable[[dict[str, Any]], Function]) -> Function:
    """Run `source` beside the compiled functions and return what `choose` takes from there, to be compiled.

    It is kept on disk where the functions can be told by value, and is compiled for this process elsewhere.
    """
    try:
        return _kept_loop(user, source, choose)
    except _NotPortableError:
        _refuse_other_callables(user)
        functions = {name: numba.njit(nogil=True)(function) for name, function in user.items()}
        namespace: dict[str, Any] = {"put": put, "inlined": inlined, **functions}
        exec(compile(source, "squill_user.py", "exec"), namespace)  # noqa: S102 (our own text)
        loop: Function = numba.njit(nogil=True)(choose(namespace))
        return loop


def _refuse_other_callables(user: Mapping[str, Function]) -> None:
    """Raise for what can be called but has no bytecode of its own: partials, bound methods, builtins, objects."""
    for name, function in user.items():
        if not isinstance(_written(function), types.FunctionType):
            raise NotCompilableError(f"{name} is {kind_of(function)}, not a function that def or lambda has made")


def compile_now(loop: Function, arguments: Sequence[Any]) -> None:
    """Compile the loop for the types of these arguments, by a call that has nothing to do."""
    try:
        loop(*arguments)
    except (NumbaError, UnsupportedBytecodeError) as error:  # the latter is none of the former
        text = str(error)
        if MISMATCH in text:
            raise StateTypeError(int(text.partition(MISMATCH)[2].partition(";")[0])) from error
        lines = [line for line in text.splitlines() if line.strip()]
        raise NotCompilableError(lines[1] if len(lines) > 1 else text) from error


def _source(given: Collection[str], are_flags: Sequence[bool], elements: int) -> str:
    has_deaccumulate = "deaccumulate" in given
    state = f"({', '.join(f's{k}[slot]' for k in range(elements))},)"
    indent = "\n" + " " * 20
    values = ", ".join(f"x{k}[row] != 0" if flag else f"x{k}[row]" for k, flag in enumerate(are_flags))
    template = CHANGES if has_deaccumulate else LISTS
    if not has_deaccumulate:
        indent = "\n" + " " * 16
    outer_indent = "\n" + " " * (20 if has_deaccumulate else 12)
    answer = (
        ANSWER if "result" in given else [f"out{k}[c] = s{k}[slot]" for k in range(elements)] + ["out_valid[c] = 1"]
    )
    return template.format(
        inputs=", ".join(f"x{k}" for k in range(len(are_flags))) or "nothing",
        states=", ".join(f"s{k}" for k in range(elements)),
        initials=", ".join(f"z{k}" for k in range(elements)),
        outs="out" if "result" in given else ", ".join(f"out{k}" for k in range(elements)),
        state=state,
        values=values,
        added=f"merge({state}, ({values},))" if "merge" in given else f"accumulate({state}, times[row], {values})",
        answer=outer_indent.join(line.format(state=state) for line in answer),
        keep_more=indent.join(f"put(s{k}, slot, more[{k}], {k})" for k in range(elements)),
        keep_less=indent.join(f"put(s{k}, slot, less[{k}], {k})" for k in range(elements)),
        reset=outer_indent.join(f"s{k}[slot] = z{k}" for k in range(elements)),
    )


# -- functions by value -------------------------------------------------------------------------------------


def _kept_loop(user: Mapping[str, Function], source: str, choose: Callable[[dict[str, Any]], Function]) -> Function:
    described = {name: _describe(function, ()) for name, function in user.items()}
    text = repr((source, sorted(described.items()), sys.version_info[:2]))
    name = f"squill_user_{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"
    # Shards on threads may ask for the same loop at once, and must not find a module that is half made.
    with _making:
        if name not in sys.modules:
            sys.modules[name] = module = types.ModuleType(name)
            module.__dict__.update(put=put, inlined=inlined)
            for own_name, function in user.items():
                module.__dict__[own_name] = _rebuilt(function, name)
            exec(compile(source, f"{name}.py", "exec"), module.__dict__)  # noqa: S102 (our own text)
            module.__dict__["kept_loop"] = kernel(choose(module.__dict__))
        kept: Function = sys.modules[name].__dict__["kept_loop"]
    return kept


def _written(function: Any) -> Any:
    """Return what was given, of a function that is compiled already the one that was written."""
    return getattr(function, "py_func", function)


def _plain(function: Any) -> types.FunctionType:
    """Return the Python function, also of one that is compiled already."""
    plain = _written(function)
    if not isinstance(plain, types.FunctionType):
        raise _NotPortableError
    return plain


def _global_names(code: types.CodeType) -> set[str]:
    names = {item.argval for item in dis.get_instructions(code) if item.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names


def _outside(function: types.FunctionType) -> tuple[dict[str, Any], list[Any]]:
    """Return the globals that a function uses and what is in its closure."""
    wanted = _global_names(function.__code__)
    used = {name: function.__globals__[name] for name in sorted(wanted) if name in function.__globals__}
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError as error:  # a cell that is not filled yet
        raise _NotPortableError from error
    return used, cells


def _describe(given: Any, above: tuple[int, ...]) -> object:
    """Return something whose text is the same for functions that do the same."""
    function = _plain(given)
    if id(function) in above:
        raise _NotPortableError
    used, cells = _outside(function)
    inside = (*above, id(function))
    return (
        _describe_code(function.__code__),
        _describe_value(function.__defaults__, inside),
        [(name, _describe_value(value, inside)) for name, value in used.items()],
        [_describe_value(value, inside) for value in cells],
    )


def _describe_code(code: types.CodeType) -> object:
    constants = [_describe_code(item) if isinstance(item, types.CodeType) else repr(item) for item in code.co_consts]
    shape = (code.co_argcount, code.co_flags, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return code.co_code.hex(), constants, shape


def _describe_value(value: Any, above: tuple[int, ...]) -> object:
    if value is None or isinstance(value, (bool, int, float, str, complex)):
        return type(value).__name__, repr(value)
    if isinstance(value, np.generic):
        return str(value.dtype), repr(value.item())
    if isinstance(value, tuple):
        return [_describe_value(item, above) for item in value]
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, types.FunctionType) or hasattr(value, "py_func"):
        return _describe(value, above)
    where, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if where and name and getattr(sys.modules.get(where), name, None) is value:
        return where, name
    raise _NotPortableError


def _rebuilt(given: Any, module: str) -> Any:
    """Return the function compiled anew, with globals of its own, as a member of `module`."""
    function = _plain(given)
    used, cells = _outside(function)
    outside = {name: _rebuilt_value(value, module) for name, value in used.items()}
    namespace = {"__name__": module, "__builtins__": builtins, **outside}
    closure = tuple(types.CellType(_rebuilt_value(value, module)) for value in cells) or None
    copy = types.FunctionType(function.__code__, namespace, function.__name__, function.__defaults__, closure)
    return numba.njit(nogil=True)(copy)


def _rebuilt_value(value: Any, module: str) -> Any:
    is_function = isinstance(value, types.FunctionType) or hasattr(value, "py_func")
    return _rebuilt(value, module) if is_function else value

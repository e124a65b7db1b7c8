"""How every kernel is compiled, and where the compiled code is kept.

A kernel is a tight loop over plain arrays. It never raises: it returns a code, and the operator
that called it raises. ``@kernel`` compiles without the GIL and caches the machine code on disk.

Numba's own cache asks only whether the *one* source file changed on this path, so an edited helper
in another file, a fresh clone or ``NUMBA_BOUNDSCHECK=1`` would meet stale code. Our cache folder is
named by a hash over the text of all kernel sources, the numba version, the CPU and the flags; inside
it nothing is ever stale, and two clones of one version share it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numba
from llvmlite import binding as llvm
from numba.core import caching
from numba.core.options import DefaultOptions

__all__ = ["CACHE_ENVIRONMENT_VARIABLE", "allocating", "always_inlined", "cache_folder", "inlined", "kernel"]

CACHE_ENVIRONMENT_VARIABLE = "SQUILL_KERNEL_CACHE"
PACKAGE = Path(__file__).resolve().parents[2]

Kernel = Callable[..., Any]


def _base_folder() -> Path:
    chosen = os.environ.get(CACHE_ENVIRONMENT_VARIABLE)
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(home) if home else Path.home() / ".cache") / "squill" / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written, as on many executors
        return Path(tempfile.gettempdir()) / f"squill-kernels-{os.getuid()}"
    return folder


@cache
def cache_folder() -> Path:
    """Return the folder of compiled kernels for exactly these sources, compiler, CPU and flags."""
    digest = hashlib.blake2b(digest_size=12)
    for source in sorted(PACKAGE.rglob("kernels/*.py")):
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    flags = (numba.__version__, llvm.get_host_cpu_name(), numba.config.BOUNDSCHECK, numba.config.OPT)
    digest.update(repr(flags).encode())
    return _base_folder() / digest.hexdigest()


class _ContentLocator(caching._CacheLocator):
    """Keeps a function's code under `cache_folder`, or under the folder its module names.

    The folder's name already stands for the content, so the stamp is constant.
    """

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        self._py_file = py_file
        self._lineno = py_func.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(cache_folder())

    def get_source_stamp(self) -> tuple[str]:
        return ("content",)

    def get_disambiguator(self) -> str:
        return str(self._lineno)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _ContentLocator:
        return cls(py_func, py_file)


class _KernelCacheImpl(caching.CompileResultCacheImpl):
    _locator_classes: ClassVar = [_ContentLocator]


class _KernelCache(caching.FunctionCache):
    _impl_class = _KernelCacheImpl


# Numba without its counting of references to arrays. Not public, so done without where it is gone.
_UNCOUNTED = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}


def kernel(function: Kernel) -> Kernel:
    """Compile `function` on first call, without the GIL, with its code cached on disk.

    It may not make arrays (`allocating` may): so nothing in it counts references, which is work to compile, and a
    call need not borrow every array it is given, which is half of what a call costs.
    """
    return _compiled(function, **_UNCOUNTED)


def allocating(function: Kernel) -> Kernel:
    """Compile a kernel, or a helper of kernels, that makes arrays."""
    return _compiled(function)


def inlined(function: Kernel) -> Kernel:
    """Compile `function` as a helper that becomes part of the kernels that call it; Python cannot call it.

    It is cached too, for the kernels that a later process compiles.
    """
    return _helper(function, **_UNCOUNTED)


def always_inlined(function: Kernel) -> Kernel:
    """Compile a short helper of kernels that is never called: LLVM is left no choice.

    An array is seven arguments, so that a call may cost more than what it does.
    """
    return _helper(function, forceinline=True, **_UNCOUNTED)


def _helper(function: Kernel, **options: bool) -> Kernel:
    compiled = _compiled(function, no_cpython_wrapper=True, **options)
    if not numba.config.DISABLE_JIT:
        # Numba must not enter it among what Python calls: without a wrapper that would be a jump to nowhere.
        compiled._insert = _enter_nothing  # type: ignore[attr-defined]
        compiled._compile_for_args = _refuse  # type: ignore[attr-defined]
    return compiled


def _compiled(function: Kernel, **options: bool) -> Kernel:
    # Wrappers for callers in C and Python, which Numba makes for every function, are half of a small helper's time.
    compiled: Kernel = numba.njit(nogil=True, no_cfunc_wrapper=True, **options)(function)
    if not numba.config.DISABLE_JIT:
        compiled._cache = _KernelCache(function)  # type: ignore[attr-defined]
    return compiled


def _enter_nothing(*_: object, **__: object) -> None:
    pass


def _refuse(*_: object, **__: object) -> None:
    raise TypeError("this is a helper of kernels, which Python cannot call; see numba.njit(helper.py_func) for tests")

"""Helpers of kernels have no way in from Python; tests give them one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

__all__ = ["called_from_python"]


def called_from_python(helper: Any) -> Callable[..., Any]:
    """Return the helper compiled once more, so that a test can call it."""
    compiled: Callable[..., Any] = numba.njit(getattr(helper, "py_func", helper))
    return compiled

"""The kernel cache: keyed by content and flags, shared between clones, never stale."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import numpy.typing as npt
import pytest

from squill.engine.kernels.jit import allocating, inlined, kernel

PROBE = """
import numpy as np
from squill.engine.kernels.jit import cache_folder, kernel

@kernel
def beyond(values):
    return values[len(values) + 3]

print(cache_folder().name)
try:
    beyond(np.zeros(2))
    print("read beyond the end")
except IndexError:
    print("refused")
"""


def run_probe(tmp_path: Path, **flags: str) -> list[str]:
    script = tmp_path / "probe.py"
    script.write_text(PROBE)
    environment = {**os.environ, "SQUILL_KERNEL_CACHE": str(tmp_path / "cache"), **flags}
    environment.pop("NUMBA_DISABLE_JIT", None)
    result = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    return result.stdout.split("\n")


def test_out_of_bounds_kernel_raises_in_the_checked_run(tmp_path: Path) -> None:
    run_probe(tmp_path, NUMBA_BOUNDSCHECK="0")
    assert run_probe(tmp_path, NUMBA_BOUNDSCHECK="1")[1] == "refused"


def test_checked_and_unchecked_code_are_kept_apart(tmp_path: Path) -> None:
    assert run_probe(tmp_path, NUMBA_BOUNDSCHECK="0")[0] != run_probe(tmp_path, NUMBA_BOUNDSCHECK="1")[0]


def test_second_process_finds_the_compiled_kernel(tmp_path: Path) -> None:
    run_probe(tmp_path, NUMBA_BOUNDSCHECK="1")
    compiled = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.nbc")}
    assert compiled
    run_probe(tmp_path, NUMBA_BOUNDSCHECK="1")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.nbc")} == compiled


def test_a_helper_of_kernels_refuses_to_be_called_from_python() -> None:
    @inlined
    def doubled(x: int) -> int:
        return 2 * x

    @kernel
    def quadrupled(x: int) -> int:
        return int(doubled(doubled(x)))

    if numba.config.DISABLE_JIT:
        pytest.skip("not compiled")
    for _ in range(2):
        with pytest.raises(TypeError, match="a helper of kernels"):
            doubled(3)
        assert quadrupled(3) == 12


def test_only_an_allocating_kernel_makes_arrays() -> None:
    @allocating
    def allowed(size: int) -> npt.NDArray[np.float64]:
        return np.zeros(size)

    @kernel
    def refused(size: int) -> npt.NDArray[np.float64]:
        return np.zeros(size)

    if numba.config.DISABLE_JIT:
        pytest.skip("not compiled")
    assert allowed(2).tolist() == [0.0, 0.0]
    with pytest.raises(numba.core.errors.TypingError, match="Only accept returning of array passed into the function"):
        refused(2)

"""The allocator's settings: taken once, and left alone where somebody wants it so."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from squill.polars_memory import KEEP_ENVIRONMENT_VARIABLE

# In a process of its own: settings cannot be taken back.
ASK = "from squill.runtime.allocation import keep_freed_memory as keep; print(keep(), keep())"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
@pytest.mark.parametrize(("wanted", "said"), [("", "True True"), ("0", "False False")])
def test_freed_memory_is_kept_unless_the_allocator_is_to_be_left_alone(wanted: str, said: str) -> None:
    environment = os.environ | {KEEP_ENVIRONMENT_VARIABLE: wanted}
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == said

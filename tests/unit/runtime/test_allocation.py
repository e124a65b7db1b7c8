"""The allocator's settings: taken once, and left alone where somebody wants it so."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from squill.runtime.allocation import KEEP_ENVIRONMENT_VARIABLE, KEPT_FOR, POLARS_OWN, keeping_environment

POLARS = ",".join(POLARS_OWN)

# In a process of its own: settings cannot be taken back.
ASK = "from squill.runtime.allocation import keep_freed_memory as keep; print(keep(), keep())"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
@pytest.mark.parametrize(("wanted", "said"), [("", "True True"), ("0", "False False")])
def test_freed_memory_is_kept_unless_the_allocator_is_to_be_left_alone(wanted: str, said: str) -> None:
    environment = os.environ | {KEEP_ENVIRONMENT_VARIABLE: wanted}
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == said


def test_processes_to_be_started_are_told_unless_somebody_has_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEEP_ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.delenv("_RJEM_MALLOC_CONF", raising=False)
    assert keeping_environment() == {"_RJEM_MALLOC_CONF": KEPT_FOR}
    monkeypatch.setenv("_RJEM_MALLOC_CONF", f"{POLARS},{POLARS}")
    assert keeping_environment() == {"_RJEM_MALLOC_CONF": KEPT_FOR}
    monkeypatch.setenv("_RJEM_MALLOC_CONF", f"{POLARS},dirty_decay_ms:0")
    assert keeping_environment() == {"_RJEM_MALLOC_CONF": f"{KEPT_FOR},dirty_decay_ms:0"}
    monkeypatch.setenv(KEEP_ENVIRONMENT_VARIABLE, "0")
    assert keeping_environment() == {}


def test_what_polars_says_itself_is_known() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("_RJEM_MALLOC_CONF", "POLARS_THP")}
    code = "import os, polars; print(os.environ['_RJEM_MALLOC_CONF'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == POLARS

"""What Polars is told of memory that it has freed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from squill.polars_memory import KEEP_ENVIRONMENT_VARIABLE, KEPT_FOR, POLARS_OWN, keeping_environment

POLARS = ",".join(POLARS_OWN)
KEPT = ",".join(KEPT_FOR)
ALLOCATOR = "_RJEM_MALLOC_CONF"


def test_processes_to_be_started_are_told_unless_somebody_has_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEEP_ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.delenv(ALLOCATOR, raising=False)
    assert keeping_environment() == {ALLOCATOR: KEPT}
    for said in (f"{POLARS},{POLARS}", f"{POLARS},{KEPT}", KEPT):
        monkeypatch.setenv(ALLOCATOR, said)
        assert keeping_environment() == {ALLOCATOR: KEPT}
    for said in (f"{POLARS},dirty_decay_ms:0", f"{POLARS},{KEPT},dirty_decay_ms:0"):
        monkeypatch.setenv(ALLOCATOR, said)
        assert keeping_environment() == {ALLOCATOR: f"{KEPT},dirty_decay_ms:0"}
    monkeypatch.setenv(KEEP_ENVIRONMENT_VARIABLE, "0")
    assert keeping_environment() == {}


def told(imports: str, **environment: str) -> str:
    """Return what Polars is told in a new process."""
    names = (ALLOCATOR, "POLARS_THP", KEEP_ENVIRONMENT_VARIABLE)
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    code = f"import os, {imports}; print(os.environ[{ALLOCATOR!r}])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=inherited | environment)
    return done.stdout.strip()


def test_what_polars_says_itself_is_known() -> None:
    assert told("polars") == POLARS


def test_polars_is_told_by_whoever_imports_squill_first() -> None:
    assert told("squill, polars") == f"{POLARS},{KEPT}"
    assert told("polars, squill") == POLARS, "too late: what is told to processes would not be what this one does"


def test_what_somebody_has_said_themselves_counts() -> None:
    assert told("squill", **{ALLOCATOR: "dirty_decay_ms:0"}) == f"{POLARS},{KEPT},dirty_decay_ms:0"
    assert told("squill", **{KEEP_ENVIRONMENT_VARIABLE: "0"}) == POLARS

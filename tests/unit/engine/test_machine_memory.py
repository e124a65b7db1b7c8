from __future__ import annotations

import subprocess
import sys

import pytest

from squill.engine import machine_memory as module
from squill.engine.machine_memory import MEMORY_ENVIRONMENT_VARIABLE, machine_memory, one_of, sharing, state_share


@pytest.fixture(autouse=True)
def gigabyte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEMORY_ENVIRONMENT_VARIABLE, str(1 << 30))
    monkeypatch.setattr(module, "_sharers", type(module._sharers)())


def test_the_environment_may_say_less_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine_memory() == 1 << 30
    monkeypatch.setenv(MEMORY_ENVIRONMENT_VARIABLE, "much")
    assert machine_memory() > 1 << 30


def test_shards_share_it_as_long_as_they_run() -> None:
    alone = state_share()
    with sharing(2), sharing(2):
        assert state_share() == alone // 4
    assert state_share() == alone == (1 << 30) // module.STATE_PART


def test_processes_share_it_with_their_like() -> None:
    one_of(8)
    with sharing(4):
        assert state_share() == (1 << 27) // module.STATE_PART


def test_a_process_that_may_take_less_address_space_has_less() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29));"
        "from squill.engine.machine_memory import state_share, STATE_PART; print(state_share() * STATE_PART)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 1 << 29

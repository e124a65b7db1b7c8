"""Files written past the page cache: every byte arrives, also where the file system refuses, and errors are heard."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from squill.engine.state import direct
from squill.engine.state.direct import BUFFER, DIRECT, PAGE, SHORT, BufferedFile

SIZES = (0, 64, PAGE, BUFFER - 64, BUFFER, BUFFER + 64, SHORT, SHORT + BUFFER + 3 * PAGE + 64)


def content_of(size: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(size).integers(0, 2**63, size // 8).astype(np.uint64)


def put(file: BufferedFile, content: np.ndarray[Any, Any], step: int = 100_000) -> None:
    first = 0
    while first < len(content):
        room = file.room(min(step, len(content) - first))
        room[:] = content[first : first + len(room)]
        first += len(room)


def check_written(path: Path, size: int, *, is_long: bool = True) -> None:
    content, file = content_of(size), BufferedFile(path, is_long=is_long)
    put(file, content)
    file.finish()
    assert file.size == size
    assert np.array_equal(np.fromfile(path, np.uint64), content)


@pytest.mark.parametrize("is_long", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_every_byte_arrives(size: int, is_long: bool, tmp_path: Path) -> None:
    check_written(tmp_path / "file", size, is_long=is_long)


@pytest.mark.parametrize("size", SIZES)
def test_a_file_system_without_direct_writes(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def refuse(path: Any, flags: int, mode: int = 0o777, **rest: Any) -> int:
        if DIRECT and flags & DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return opened(path, flags, mode, **rest)

    monkeypatch.setattr(os, "open", refuse)
    check_written(tmp_path / "file", size)


@pytest.mark.parametrize("size", SIZES)
def test_a_file_system_that_cannot_allocate(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "_fallocate", lambda: lambda *_: -1)
    check_written(tmp_path / "file", size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("taken", [0, 512, PAGE])
def test_a_disk_that_refuses_direct_writes(
    size: int, taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, calls = os.pwrite, []

    def refuse(file: int, data: memoryview, offset: int) -> int:
        if not is_direct(file):
            return write(file, data, offset)
        calls.append(len(data))
        if taken and len(calls) == 1:
            return write(file, data[:taken], offset)
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "pwrite", refuse)
    check_written(tmp_path / "file", size)
    assert not calls or size > BUFFER


def test_an_error_of_a_writing_thread_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: memoryview, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    file = BufferedFile(tmp_path / "file", is_long=True)
    with pytest.raises(OSError, match="No space left"):
        put(file, content_of(6 * BUFFER))
    file.abandon()
    assert list(tmp_path.iterdir()) == []


def test_an_abandoned_file_is_gone(tmp_path: Path) -> None:
    file = BufferedFile(tmp_path / "file", is_long=True)
    put(file, content_of(3 * BUFFER))
    file.abandon()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_long", [True, False])
def test_long_files_do_not_fill_the_page_cache(
    is_long: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    try:
        os.close(os.open(tmp_path / "probe", os.O_WRONLY | os.O_CREAT | DIRECT))
    except OSError:
        pytest.skip("this file system has no direct writes")
    write, writes = os.pwrite, []

    def noted(file: int, data: memoryview, offset: int) -> int:
        writes.append((offset, len(data), is_direct(file)))
        time.sleep(0.1)  # a slow disk: buffers still wait when direct writes begin
        return write(file, data, offset)

    monkeypatch.setattr(os, "pwrite", noted)
    check_written(tmp_path / "file", SHORT + BUFFER + PAGE + 64, is_long=is_long)
    cached = [offset for offset, _, direct in sorted(writes) if not direct]
    assert cached == ([] if is_long else list(range(0, SHORT - BUFFER, BUFFER))) + [SHORT + BUFFER + PAGE]
    assert sum(size for _, size, _ in writes) == SHORT + BUFFER + PAGE + 64


def is_direct(file: int) -> bool:
    return bool(fcntl.fcntl(file, fcntl.F_GETFL) & DIRECT)

"""Files that tasks hold open: not longer than they say, and not more than they may."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from squill.runtime.spark import held_files
from squill.runtime.spark.held_files import HeldFiles


def open_below(folder: Path) -> list[str]:
    """Return the files of a folder that this process has open, also those without a name by now."""
    found = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if os.path.lexists(link)]
    return sorted(name for name in found if name.startswith(str(folder)))


pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="who has what open is not told")


def test_a_removed_file_is_held_until_a_moment_later(tmp_path: Path) -> None:
    held, path = HeldFiles(), tmp_path / "a"
    path.write_bytes(b"rows")
    held.hold(str(path))
    path.unlink()
    closing = held.close_later(3_600)
    assert open_below(tmp_path) == [f"{path} (deleted)"]
    assert closing.daemon, "or a worker would not end"
    closing.cancel()
    held.close_later(0.0).join()
    assert open_below(tmp_path) == []


def test_a_file_that_is_not_there_is_left_to_who_reads_it(tmp_path: Path) -> None:
    held = HeldFiles()
    held.hold(str(tmp_path / "none"))
    assert not held.are_open


def test_few_files_are_held_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_files, "MOST_FILES", 3)
    held = HeldFiles()
    for number in range(5):
        (tmp_path / str(number)).write_bytes(b"rows")
        held.hold(str(tmp_path / str(number)))
    assert len(open_below(tmp_path)) == 3
    held.close_later(0.0).join()
    assert open_below(tmp_path) == []

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from squill.runtime.removal import FileRemoval, remove_folder


def test_folder_goes_while_somebody_adds_and_takes_away_files(tmp_path: Path) -> None:
    folder = tmp_path / "attempts"
    folder.mkdir()
    began = threading.Event()

    def write() -> None:
        for number in range(20_000):
            file = folder / f"{number}.whole"
            try:
                file.touch()
                file.unlink(missing_ok=number % 3 == 0)
            except FileNotFoundError:
                if not folder.exists():
                    return
            began.set()

    writer = threading.Thread(target=write)
    writer.start()
    began.wait()
    remove_folder(folder)
    writer.join()
    assert not folder.exists()


def test_files_are_gone_when_their_removal_is_over(tmp_path: Path) -> None:
    files = [tmp_path / str(number) for number in range(50)]
    for file in files[1:]:
        file.touch()
    with FileRemoval() as removal:
        removal.remove(map(str, files[:25]))
        removal.remove(map(str, files[25:]))
    assert not list(tmp_path.iterdir())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("removal")]


def test_file_that_cannot_be_removed_is_told_unless_something_else_went_wrong(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"), FileRemoval() as removal:
        removal.remove([str(tmp_path / "folder")])

    def fail() -> None:
        with FileRemoval() as removal:
            removal.remove([str(tmp_path / "folder")])
            raise ValueError("before")

    with pytest.raises(ValueError, match="before"):
        fail()

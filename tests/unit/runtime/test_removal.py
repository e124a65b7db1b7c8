from __future__ import annotations

import threading
from pathlib import Path

from squill.runtime.removal import remove_folder


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

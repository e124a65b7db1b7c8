"""What is kept of files: never of one that is another by now."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.plan.build import unchanged_files
from squill.plan.build.unchanged_files import SETTLED, KeptByFile

LONG_AGO = time.time() - 1_000


class Reader:
    """Reads whole files, and knows which."""

    def __init__(self, room: int = 100) -> None:
        self.read: list[str] = []
        self.kept = KeptByFile(self._read, room, len)

    def _read(self, path: str) -> str:
        self.read.append(Path(path).name)
        return Path(path).read_text()

    def __call__(self, path: Path) -> str:
        return self.kept(str(path))


@pytest.fixture(autouse=True)
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every file have been changed some time ago: the times of a file's place cannot be set."""
    monkeypatch.setattr(unchanged_files, "SETTLED", -1_000.0)


def written(path: Path, text: str, at: float = LONG_AGO) -> Path:
    path.write_text(text)
    os.utime(path, (at, at))
    return path


def test_a_file_is_read_once(tmp_path: Path) -> None:
    reader, path = Reader(), written(tmp_path / "a", "one")
    assert [reader(path), reader(path)] == ["one", "one"]
    assert reader.read == ["a"]


def test_a_path_is_the_file_that_it_leads_to_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader()
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        written(tmp_path / name / "a", name)
    found = []
    for name in ("x", "y", "x"):
        monkeypatch.chdir(tmp_path / name)
        found.append(reader(Path("a")))
    assert found == ["x", "y", "x"]


@pytest.mark.parametrize("change", ["longer", "later", "replaced", "in place, its time set back"])
def test_a_changed_file_is_read_again(tmp_path: Path, change: str) -> None:
    reader, path = Reader(), written(tmp_path / "a", "one")
    assert reader(path) == "one"
    time.sleep(0.02)  # as coarse as the times of files are
    if change == "longer":
        written(path, "other", LONG_AGO)
    elif change == "later":
        written(path, "two", LONG_AGO + 1)
    elif change == "replaced":
        written(tmp_path / "b", "two", LONG_AGO).replace(path)
    else:
        written(path, "two", LONG_AGO)
    assert reader(path) == path.read_text() != "one"


def test_nothing_is_kept_of_a_file_that_was_just_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged_files, "SETTLED", SETTLED)
    reader, path = Reader(), tmp_path / "a"
    path.write_text("one")
    before = path.stat()
    assert reader(path) == "one"
    path.write_text("two")  # may well be within the same step of the clock
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert reader(path) == "two"
    assert reader(path) == "two"
    assert reader.read == ["a", "a", "a"]


def test_a_file_from_the_future_is_read_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged_files, "SETTLED", SETTLED)
    reader, path = Reader(), written(tmp_path / "a", "one", time.time() + 1_000)
    assert [reader(path), reader(path)] == ["one", "one"]
    assert len(reader.read) == 2


def test_a_change_while_it_is_read_is_seen_the_next_time(tmp_path: Path) -> None:
    path = written(tmp_path / "a", "one")
    texts = iter(["longer by some", "and longer by some more"])

    def read(name: str) -> str:
        text = Path(name).read_text()
        Path(name).write_text(next(texts))
        return text

    kept = KeptByFile(read, 100, len)
    assert [kept(str(path)), kept(str(path))] == ["one", "longer by some"]


def test_the_files_asked_for_last_are_kept(tmp_path: Path) -> None:
    reader = Reader(room=10)
    a, b, c = (written(tmp_path / name, name * 4) for name in "abc")
    for path in (a, b, a, c, a, b):
        reader(path)
    assert reader.read == ["a", "b", "c", "b"]
    assert reader(written(tmp_path / "d", "d" * 11)) == "d" * 11  # more than there is room for
    assert reader(a) == "aaaa"


def test_a_file_that_is_gone_is_not_there(tmp_path: Path) -> None:
    reader, path = Reader(), written(tmp_path / "a", "one")
    assert reader(path) == "one"
    path.unlink()
    with pytest.raises(FileNotFoundError):
        reader(path)


def test_that_nothing_was_found_is_not_kept(tmp_path: Path) -> None:
    path = written(tmp_path / "a", "one")
    answers = iter([None, "one", "two"])
    kept: KeptByFile[str | None] = KeptByFile(lambda _: next(answers), 100)
    assert [kept(str(path)) for _ in range(3)] == [None, "one", "one"]


def test_threads_may_ask_at_once(tmp_path: Path) -> None:
    reader = Reader(room=20)
    paths = [written(tmp_path / f"{number}", f"{number}" * 4) for number in range(10, 20)]
    wrong: list[Path] = []

    def ask() -> None:
        wrong.extend(path for _ in range(50) for path in paths if reader(path) != path.name * 4)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_query_sees_files_as_they_are(tmp_path: Path, suffix: str) -> None:
    """Other columns, and as many rows as there are now, be it the second query of a process or the first."""
    path = tmp_path / f"a.{suffix}"

    def asked(frame: pl.DataFrame) -> pl.DataFrame:
        frame.write_parquet(path) if suffix == "parquet" else frame.write_ipc(path)
        os.utime(path, (LONG_AGO, LONG_AGO))
        return sq.local(cores=2).scan(path).collect()

    for frame in (
        pl.DataFrame({"x": [1, 2, 3]}),
        pl.DataFrame({"x": [1, 2, 4]}),
        pl.DataFrame({"x": list(range(100))}),
        pl.DataFrame({"y": ["a"]}),
    ):
        time.sleep(0.02)
        for _ in range(2):
            assert sorted(asked(frame).rows()) == sorted(frame.rows())

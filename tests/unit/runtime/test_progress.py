from __future__ import annotations

import io
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.errors import InputError, PlanError
from squill.runtime import progress
from squill.runtime.progress import Progress, ProgressBar, progress_bar, reporting

HALF = Progress(stage=1, stages=2, done=3, shards=6)
HIDE, SHOW, ERASE = "\x1b[?25l", "\x1b[?25h", "\x1b[2K"
"""What rich writes to hide and show the cursor, and to erase a line."""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_reads_as_a_sentence() -> None:
    assert str(HALF) == "stage 1 of 2, 3 of 6 shards"
    assert str(Progress(stage=1, stages=1, done=3, shards=6, rows=1_000)) == "stage 1 of 1, 3 of 6 shards, 1,000 rows"
    known = Progress(stage=1, stages=1, done=0, shards=6, rows=1_000, total=4_000)
    assert str(known) == "stage 1 of 1, 0 of 6 shards, 1,000 of 4,000 rows"


def test_fraction_goes_by_rows_then_by_shards_of_equal_stages() -> None:
    assert HALF.fraction == 0.25
    assert Progress(stage=2, stages=2, done=6, shards=6).fraction == 1
    assert Progress(stage=1, stages=1, done=0, shards=6, rows=10, total=40).fraction == 0.25
    assert Progress(stage=1, stages=1, done=3, shards=6, rows=10).fraction == 0.5


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0)
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.005)


def test_bar_is_shown_and_taken_away(impatient: None) -> None:
    stream = Terminal()
    bar = ProgressBar(stream)
    bar(HALF)
    shown = stream.getvalue()
    assert "stage 1 of 2, 3 of 6 shards" in shown
    assert shown.startswith(HIDE)
    bar.clear()
    after = stream.getvalue()[len(shown) :]
    assert SHOW in after
    assert after.endswith(ERASE)
    length = len(stream.getvalue())
    bar(HALF)
    bar.clear()
    assert len(stream.getvalue()) == length, "nothing is shown after the end"


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 60)
    stream = Terminal()
    bar = ProgressBar(stream)
    bar(HALF)
    bar.clear()
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("terminal", "setting", "term", "is_shown"),
    [
        (True, None, "xterm", True),
        (True, "off", "xterm", False),
        (True, None, "dumb", False),
        (False, None, "xterm", False),
        (False, "on", "xterm", True),
    ],
)
def test_bar_is_for_terminals_unless_told(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, setting: str | None, term: str, is_shown: bool
) -> None:
    monkeypatch.setattr("sys.stderr", Terminal() if terminal else io.StringIO())
    monkeypatch.setenv("TERM", term)
    monkeypatch.delenv("SQUILL_PROGRESS", raising=False)
    if setting is not None:
        monkeypatch.setenv("SQUILL_PROGRESS", setting)
    with progress_bar() as bar:
        assert (bar is not None) == is_shown


def test_unknown_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUILL_PROGRESS", "maybe")
    with pytest.raises(PlanError, match="SQUILL_PROGRESS is 'maybe'"), progress_bar():
        pass


def test_nobody_looks_when_nobody_asks() -> None:
    def look() -> Progress:
        raise AssertionError

    with reporting(look, None, lambda: None) as tell:
        tell()


def test_total_is_asked_once_by_the_thread_that_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.001)
    seen: list[Progress] = []
    asked: list[int] = []

    def total() -> int:
        asked.append(1)
        return 7

    with reporting(lambda: HALF, seen.append, total):
        while len(seen) < 3:
            time.sleep(0.001)
    assert asked == [1]
    assert {item.total for item in seen} == {7}


def test_local_run_shows_rows_shards_and_stages(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")

    def slowly(frame: pl.DataFrame) -> pl.DataFrame:
        time.sleep(0.05)
        return frame

    with sq.local(cores=2) as cluster:
        source = cluster.from_frame({"t": list(range(1_000))}, start="t", shards=2, keep_time=True)
        slow = source.query(lambda s: s.map_batches(slowly, schema={"t": pl.Int64}))
        slow.collect()
        assert "of 1,000 rows" in terminal.getvalue()
        assert "of 2 shards" in terminal.getvalue()
        assert "stage 1 of 1" in terminal.getvalue()
        assert terminal.getvalue().count(HIDE) == terminal.getvalue().count(SHOW) == 1


def test_error_takes_the_bar_away(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with sq.local(cores=2) as cluster, pytest.raises(InputError):
        cluster.from_frame({"t": [1, 2, None]}, start="t", shards=3).collect()
    assert terminal.getvalue().count(HIDE) == terminal.getvalue().count(SHOW)


SCRIPT = """
import time
import polars as pl
import squill as sq

def slowly(frame):
    time.sleep(5)
    return frame

with sq.local(cores=2) as cluster:
    source = cluster.from_frame({"t": [1, 2]}, start="t", shards=2, keep_time=True)
    source.query(lambda s: s.map_batches(slowly, schema={"t": pl.Int64})).collect()
"""


@pytest.mark.slow
def test_ctrl_c_leaves_the_terminal_clean(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150"}
    environment.pop("SQUILL_PROGRESS", None)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with subprocess.Popen([sys.executable, script], stderr=theirs, env=environment) as process:
        os.close(theirs)
        written = ""
        while "shards" not in written:
            written += os.read(ours, 4_096).decode()
        process.send_signal(signal.SIGINT)
        try:
            while block := os.read(ours, 4_096):
                written += block.decode()
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    assert "KeyboardInterrupt" in written
    assert written.count(HIDE) == written.count(SHOW) == 1
    assert written.index(SHOW) < written.index("Traceback")

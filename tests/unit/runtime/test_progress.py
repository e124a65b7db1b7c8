from __future__ import annotations

import io

import pytest

from squill.runtime.progress import Progress, ProgressLine, progress_line

HALF = Progress(stage=1, stages=2, done=3, shards=6)


def test_progress_reads_as_a_sentence() -> None:
    assert str(HALF) == "stage 1 of 2: 3 of 6 shards"


def test_line_writes_over_itself_and_clears() -> None:
    stream = io.StringIO()
    line = ProgressLine(stream, patience_seconds=0)
    line(HALF)
    line.clear()
    assert stream.getvalue() == "\r\033[Kstage 1 of 2: 3 of 6 shards, 0 s\r\033[K"


def test_short_work_shows_nothing() -> None:
    stream = io.StringIO()
    line = ProgressLine(stream, patience_seconds=60)
    line(HALF)
    line.clear()
    assert stream.getvalue() == ""


def test_there_is_no_line_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with progress_line() as line:
        assert line is None

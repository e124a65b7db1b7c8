"""Checkpoints that stand elsewhere when their query goes on: moved, or a copy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import CheckpointError, UserFunctionError
from squill.testing import LiveTest, scripted


@pytest.fixture
def cluster() -> Iterator[sq.Cluster]:
    with sq.local(cores=2) as made:
        yield made


def run(
    cluster: sq.Cluster, root: Path, checkpoint: str, sink: Callable[..., None], times: list[int], **how: Any
) -> None:
    (root / "in").mkdir(exist_ok=True)
    pl.DataFrame({"t": times}).write_parquet(root / "in" / f"{times[0]}.parquet")
    counted = cluster.stream(root / "in", start="t").query(lambda s: s.tumbling_window(10).count())
    counted.start(sink, checkpoint=root / checkpoint, until_now=True, **how).wait()


def refuse(frame: pl.DataFrame) -> None:
    raise ValueError("not now")


def test_rows_that_the_sink_has_refused_are_given_to_it_from_there(cluster: sq.Cluster, tmp_path: Path) -> None:
    with pytest.raises(UserFunctionError, match="not now"):
        run(cluster, tmp_path, "ck", refuse, [1, 40], complete=False)
    (tmp_path / "ck").rename(tmp_path / "moved")
    given: list[pl.DataFrame] = []
    run(cluster, tmp_path, "moved", given.append, [55])
    assert pl.concat(given).rows() == [(10, 20, 1), (50, 60, 1), (60, 70, 1)]


def test_early_answers_go_on_there(cluster: sq.Cluster, tmp_path: Path) -> None:
    given: list[pl.DataFrame] = []
    run(cluster, tmp_path, "ck", given.append, [1, 40], complete=False, emit="changes", speculate=True)
    (tmp_path / "ck").rename(tmp_path / "moved")
    run(cluster, tmp_path, "moved", given.append, [44], emit="changes", speculate=True)
    total: Counter[tuple[int, int]] = Counter()
    for time, diff, count in pl.concat(given).rows():
        total[time, count] += diff
    assert +total == {(10, 1): 1, (50, 2): 1}
    assert -total == {(20, 1): 1, (60, 2): 1}


def test_an_early_answer_that_is_gone_is_an_error(cluster: sq.Cluster, tmp_path: Path) -> None:
    run(cluster, tmp_path, "ck", print, [1, 40], complete=False, emit="changes", speculate=True)
    for early in (tmp_path / "ck" / "answers").glob("*.early"):
        early.unlink()
    with pytest.raises(CheckpointError, match=r"early' is damaged: FileNotFoundError.*\n.*from a copy"):
        run(cluster, tmp_path, "ck", print, [44], emit="changes", speculate=True)


def test_a_query_that_goes_on_knows_its_time_and_what_was_late() -> None:
    clicks = scripted({"t": pl.Int64}, start="t", disorder=sq.drop())
    with LiveTest(lambda s: s.query(lambda q: q.tumbling_window(10).count()), {"clicks": clicks}) as test:
        for times in ([1, 40], [20, 60]):
            test.push("clicks", {"t": times})
            test.step()
        test.restart()
        assert (test.progress.epoch, test.progress.clock, test.progress.late) == (2, 60, {"clicks": 1})

"""Every worked case as a stream in random epochs on Spark: the answer of one run."""

from __future__ import annotations

from pathlib import Path
from random import Random

import polars as pl
import pytest

import squill as sq
from tests.conformance.cases import CASES, QUERIES
from tests.live_plans import EMITS, AsLive, assert_folded, cut_rows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:detect. the functions of the pattern run as plain Python"),
]


def check(name: str, emit: str, cluster: sq.Cluster, folder: Path) -> None:
    """Let the rows of each source be files, of which every epoch takes some, and compare what the sink was given."""
    stream = QUERIES[name].stream(CASES[name])
    live, random = AsLive(stream), Random(name + emit)
    inputs = []
    for number, frame in enumerate(live.frames()):
        inbox = folder / str(number)
        inbox.mkdir()
        for place, part in enumerate(cut_rows(frame, random)):
            part.write_ipc(inbox / f"{place}.arrow")
        some = random.randint(1, 2)
        inputs.append(cluster.stream(inbox, start="start", end="end", files_per_epoch=some, idle_after=None))
    given: list[pl.DataFrame] = []
    query = live.query(*inputs).start(given.append, checkpoint=folder / "ck", emit=emit, until_now=True)
    query.wait()
    assert_folded(pl.concat(given) if given else pl.DataFrame(), emit, stream.collect())


@pytest.mark.parametrize("number", range(len(QUERIES)), ids=list(QUERIES))
def test_epochs_give_the_answer_of_one_run(spark_cluster: sq.Cluster, tmp_path: Path, number: int) -> None:
    # Closed rows of one case, changes of the next: both of all take twice as long.
    check(list(QUERIES)[number], EMITS[number % len(EMITS)], spark_cluster, tmp_path)


@pytest.mark.faults
@pytest.mark.parametrize("number", range(len(QUERIES)), ids=list(QUERIES))
def test_so_they_do_in_the_other_form(spark_cluster: sq.Cluster, tmp_path: Path, number: int) -> None:
    check(list(QUERIES)[number], EMITS[(number + 1) % len(EMITS)], spark_cluster, tmp_path)

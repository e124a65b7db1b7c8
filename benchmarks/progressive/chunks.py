"""What people do without progress: every chunk of the rows is a job of its own, with the counts before it kept."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.harness import Measured, Outcome, Settings, assert_same_rows, timed
from benchmarks.peers import spark_session
from benchmarks.progressive.answers import FAMILY, last_answer
from benchmarks.progressive.queries import click_through_rate
from benchmarks.progressive.tables import STEPS, clicks_and_impressions
from squill.plan.assignment import STEP

__all__ = ["CHUNKS", "JOBS", "PIPES", "Chunks"]

CHUNKS = "click-through rate, a Spark job for each chunk"
PIPES, JOBS = "100 answers, one run", "100 jobs"
CHECK_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Chunks:
    """Both on one Spark session, over the same files; without peers Squill alone, in this process."""

    family: str = FAMILY
    name: str = CHUNKS

    def check(self, settings: Settings) -> None:
        if settings.peers:
            folder = clicks_and_impressions(CHECK_ROWS)
            jobs = _by_jobs(folder, 3)
            assert_same_rows(click_through_rate(folder).collect(), jobs, f"{self.family}, {self.name}: {JOBS}")

    def measure(self, settings: Settings) -> Outcome:
        rows = settings.events
        folder = clicks_and_impressions(rows)
        cluster: Any = spark_session.cluster_of() if settings.peers else None
        query = click_through_rate(folder)
        mine, theirs = [], []
        for _ in range(settings.runs):
            mine.append(timed(lambda: last_answer(query, cluster)))
            if settings.peers:
                theirs.append(timed(lambda: _by_jobs(folder, STEPS)))
        measured = [Measured(name=PIPES, values=tuple(mine), events=rows)]
        measured += [Measured(name=JOBS, values=tuple(theirs), events=rows)] if theirs else []
        return Outcome(family=self.family, name=self.name, measured=tuple(measured))


def _by_jobs(folder: Path, chunks: int) -> pl.DataFrame:
    """Count chunk by chunk; the counts so far are a table in a file, as the next job finds them."""
    session = spark_session.session()
    answer = pl.DataFrame()
    with tempfile.TemporaryDirectory(prefix="squill-bench-") as kept:
        for chunk in range(chunks):
            low, high = chunk * STEPS // chunks, (chunk + 1) * STEPS // chunks
            for table in ("impressions", "clicks"):
                rows = session.read.parquet(str(folder / table / "*.parquet"))
                counts = rows.where(f"{STEP} >= {low} and {STEP} < {high}").groupBy("ad").count()
                if chunk:
                    counts = counts.unionByName(session.read.parquet(f"{kept}/{table}-{chunk - 1}"))
                    counts = counts.groupBy("ad").sum("count").withColumnRenamed("sum(count)", "count")
                counts.write.parquet(f"{kept}/{table}-{chunk}")
            shown, clicked = (session.read.parquet(f"{kept}/{table}-{chunk}") for table in ("impressions", "clicks"))
            both = clicked.withColumnRenamed("count", "clicked").join(shown, "ad")
            answer = pl.DataFrame(both.selectExpr("ad", "clicked / count as rate").toArrow())
    return answer

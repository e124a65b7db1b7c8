"""How a live query is killed again and again, for the tests of crashes; they are in two files, to run side by side."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

import squill as sq
from tests.unit.runtime.live import crashing

PROJECT = Path(__file__).parents[4]


@dataclass(frozen=True, kw_only=True)
class Killed:
    """A query, and the moments at which it is killed one after the other: a step, and at which call of it."""

    plan: str
    shards: int
    moments: tuple[tuple[str, int], ...]
    sink: str = "folder"
    emit: str = "closed"
    begun_with: int | None = None
    """With how many shards the first process ran, where the later ones have more."""

    @property
    def inputs(self) -> list[str]:
        return ["a", "b"] if self.plan == "joined" else ["a"]

    def run(self, root: Path) -> int:
        """Run the query, kill it at all moments, let it complete; return how often it was really killed."""
        for name in self.inputs:
            (root / name).mkdir()
            (root / "staged" / name).mkdir(parents=True)
            for number, rows in enumerate(crashing.rows_of(name)):
                rows.write_parquet(root / "staged" / name / f"{number:03}.parquet")
        first = self.shards if self.begun_with is None else self.begun_with
        kills = sum(
            self._live(root, moment, call, self.shards if number else first)
            for number, (moment, call) in enumerate(self.moments)
        )
        for name in self.inputs:
            for item in (root / "staged" / name).iterdir():
                item.rename(root / name / item.name)
        assert not self._live(root, None, 0, self.shards)
        return kills

    def _live(self, root: Path, moment: str | None, call: int, shards: int) -> bool:
        """Let a process run; return whether it was killed."""
        task = {
            "root": str(root), "inputs": self.inputs, "plan": self.plan, "shards": shards, "sink": self.sink,
            "emit": self.emit, "moment": moment, "call": call,
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", crashing.__name__, json.dumps(task)],
            cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": str(PROJECT / "src")},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode != 0

    def expected(self) -> list[tuple[Any, ...]]:
        """Return what an uninterrupted run over all rows gives, as closed rows, sorted."""
        with sq.local(cores=self.shards) as cluster:
            whole = crashing.PLANS[self.plan](
                lambda name: cluster.from_frame(pl.concat(crashing.rows_of(name)), start="t")
            )
            return sorted(whole.collect().rows())

"""Run the benchmarks: `python benchmarks/run.py [family ...] [--events N] [--runs 5] [--no-peers] [--no-save]`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.harness import Experiment, Outcome, Settings

FAMILIES = (
    "startup",
    "stateless",
    "windows",
    "patterns",
    "relational",
    "joins",
    "batches",
    "push",
    "memory",
    "checkpoint",
    "cluster",
    "live",
    "progressive",
)
FOLDER = Path(__file__).resolve().parent


def main() -> int:
    # Before Polars is imported: all tools are compared on one core, and Squill uses one.
    os.environ["POLARS_MAX_THREADS"] = "1"
    # The modules are named `benchmarks.…`, whatever folder this is started from.
    sys.path[0] = str(FOLDER.parent)
    given = _arguments()
    from benchmarks import data, report, targets
    from benchmarks.harness import DifferentAnswerError, Settings

    settings = Settings(events=given.events or data.FULL, runs=given.runs, peers=given.peers)
    experiments = _experiments(given.families or FAMILIES, given.only)
    try:
        _check(experiments, settings)
        outcomes = _measure(experiments, settings)
    except DifferentAnswerError as error:
        print(f"\nStopped, as the figures would mean nothing.\n{error}", file=sys.stderr)
        return 1
    verdicts = list(targets.verdicts(outcomes))
    print(f"\n{report.verdict_table(verdicts)}")
    if settings.events != data.FULL:
        print(f"\nThe targets are for {data.FULL:,} events; these were {settings.events:,}.")
    if given.save:
        print(f"\nkept in {report.save(FOLDER / 'results', settings, outcomes, verdicts)}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Squill beside other tools.")
    parser.add_argument("families", nargs="*", metavar="family", help=f"of {', '.join(FAMILIES)}; all when left out")
    parser.add_argument("--events", type=int, help="how many events; the targets are for 10 M, the default")
    parser.add_argument("--runs", type=int, default=5, help="rounds, of which the median is taken (5)")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="ask other tools too")
    parser.add_argument("--save", action=argparse.BooleanOptionalAction, default=True, help="keep the results")
    parser.add_argument("--only", default="", metavar="TEXT", help="only experiments whose name holds TEXT")
    given = parser.parse_args()
    for name in given.families:
        if name not in FAMILIES:
            parser.error(f"there is no family {name!r}; there are {', '.join(FAMILIES)}")
    return given


def _experiments(families: Sequence[str], only: str) -> list[Experiment]:
    modules = [importlib.import_module(f"benchmarks.{name}") for name in families]
    return [item for module in modules for item in module.experiments() if only in item.name]


def _check(experiments: Sequence[Experiment], settings: Settings) -> None:
    """Let every side of everything answer a small input first: a wrong answer must not cost an hour."""
    for number, experiment in enumerate(experiments, 1):
        print(f"[check {number}/{len(experiments)}] {experiment.family}: {experiment.name}", flush=True)
        experiment.check(settings)


def _measure(experiments: Sequence[Experiment], settings: Settings) -> list[Outcome]:
    from benchmarks.report import outcome_table

    outcomes = []
    for number, experiment in enumerate(experiments, 1):
        began = time.perf_counter()
        print(f"\n[{number}/{len(experiments)}] ", end="", flush=True)
        outcomes.append(experiment.measure(settings))
        print(f"{outcome_table(outcomes[-1])}\n  ({time.perf_counter() - began:.0f} s)", flush=True)
    return outcomes


if __name__ == "__main__":
    sys.exit(main())

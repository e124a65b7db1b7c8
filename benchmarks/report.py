"""Outcomes as tables to read and as JSON to keep."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.harness import Measured, Outcome, Settings, Spread
from benchmarks.targets import Verdict

__all__ = ["outcome_table", "save", "verdict_table"]

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("polars", "duckdb", "bytewax", "numba", "numpy")


def outcome_table(outcome: Outcome) -> str:
    """Return one line per side; the ratio is the first side's time per event over this side's."""
    head = ["", "events", "median", "ns/event", "M events/s", f"{outcome.measured[0].name} takes"]
    lines = [_line(outcome, measured) for measured in outcome.measured]
    missing = "".join(f"\n  skipped  {reason}" for reason in outcome.missing)
    return f"{outcome.family}: {outcome.name}\n{_aligned([head, *lines])}{missing}"


def _line(outcome: Outcome, measured: Measured) -> list[str]:
    median = measured.spread.median
    if measured.unit != "s":
        return [measured.name, "", f"{median:,.0f} {measured.unit}", "", "", ""]
    if measured.events is None:
        return [measured.name, "", f"{_spread(measured.spread)} s", "", "", ""]
    per_event = median / measured.events
    relative = "" if measured is outcome.measured[0] else f"{_spread(outcome.ratio(measured.name))} × its time"
    return [
        measured.name,
        f"{measured.events:,}",
        f"{median:.3f} s",
        f"{per_event * 1e9:,.1f}",
        f"{1e-6 / per_event:,.2f}",
        relative,
    ]


def verdict_table(verdicts: Iterable[Verdict]) -> str:
    """Return one line per target."""
    lines = [["target", "figure", "limit", "measured", "reached"]]
    for verdict in verdicts:
        target = verdict.target
        limit = f"{'≥' if target.at_least else '≤'} {target.limit:g} {target.unit}"
        measured = "-" if verdict.measured is None else _spread(verdict.measured)
        reached = {True: "yes", False: "NO", None: "not measured"}[verdict.reached]
        lines.append([f"{target.family}: {target.name}", target.what, limit, measured, reached])
    return _aligned(lines)


def _spread(spread: Spread) -> str:
    return f"{spread.median:.3g} ({spread.low:.3g}–{spread.high:.3g})"


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def save(folder: Path, settings: Settings, outcomes: Sequence[Outcome], verdicts: Sequence[Verdict]) -> Path:
    """Write everything that was measured, with commit, machine and date."""
    now, commit = datetime.now(UTC), _commit()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{now:%Y-%m-%d-%H%M}-{commit}.json"
    content = {
        "date": now.isoformat(timespec="seconds"),
        "commit": commit,
        "machine": _machine(),
        "events": settings.events,
        "runs": settings.runs,
        "outcomes": [_outcome(outcome) for outcome in outcomes],
        "targets": [_verdict(verdict) for verdict in verdicts],
    }
    path.write_text(_json(content), encoding="utf-8")
    return path


def _json(content: dict[str, Any]) -> str:
    """Return JSON with one line per entry, and per item of a list: small, and a diff can be read."""

    def text(value: Any) -> str:
        if isinstance(value, list):
            return "[\n" + ",\n".join(f"  {json.dumps(item, ensure_ascii=False)}" for item in value) + "\n ]"
        return json.dumps(value, ensure_ascii=False)

    return "{\n" + ",\n".join(f' "{name}": {text(value)}' for name, value in content.items()) + "\n}\n"


def _outcome(outcome: Outcome) -> dict[str, Any]:
    sides = {
        measured.name: {
            "unit": measured.unit,
            **({} if measured.events is None else {"events": measured.events}),
            "values": [float(f"{value:.4g}") for value in measured.values],
        }
        for measured in outcome.measured
    }
    return {"family": outcome.family, "name": outcome.name, "sides": sides, "missing": list(outcome.missing)}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    target = verdict.target
    return {
        "target": f"{target.family}: {target.name}, {target.what}",
        "limit": f"{'>=' if target.at_least else '<='} {target.limit:g} {target.unit}",
        "measured": None if verdict.measured is None else float(f"{verdict.measured.median:.4g}"),
        "reached": verdict.reached,
    }


def _commit() -> str:
    command = ["git", "--no-optional-locks", "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _machine() -> dict[str, Any]:
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{tool: _version(tool) for tool in TOOLS},
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _version(tool: str) -> str | None:
    try:
        return version(tool)
    except PackageNotFoundError:
        return None

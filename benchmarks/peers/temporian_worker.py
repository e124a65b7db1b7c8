"""Runs under Temporian's own Python: holds one input, answers one query as often as it is asked.

Lines on stdin: `ready`, `run`, `write FILE`. Each is answered by `done` on stdout. Squill is not importable here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

tp: Any = import_module("temporian")
SECOND_US = 1_000_000
HALF_TICK = 0.5 / SECOND_US


def main() -> None:
    path, text = sys.argv[1:]
    query = json.loads(text)
    columns = dict(np.load(path))
    # Seconds since the data's beginning: there float64 tells microseconds apart well, since 1970 only just.
    seconds = (columns.pop("ts") - query["epoch"]) / SECOND_US
    given = tp.event_set(seconds, features=columns, indexes=[query["key"]] if query.get("key") else [])
    answer: Any = None
    for line in sys.stdin:
        match line.split():
            case ["run"]:
                answer = QUERIES[query["name"]](given, query)
            case ["write", target]:
                write(answer, query, target)
        sys.stdout.write("done\n")
        sys.stdout.flush()


def hopping(given: Any, query: dict[str, Any]) -> Any:
    """Return each window's answer per key, zeros included."""
    hops = np.arange(1, query["ticks"] + 1) * query["hop"] - HALF_TICK
    sampling = tp.event_set(timestamps=hops)
    if query.get("key"):
        sampling = sampling.propagate(given)
    count = given.moving_count(query["size"], sampling=sampling).rename("n")
    if not query.get("value"):
        return count.filter(count > 0)
    total = given[query["value"]].moving_sum(query["size"], sampling=sampling).rename("s")
    return total.filter(count > 0)


def write(answer: Any, query: dict[str, Any], target: str) -> None:
    """Write the columns as numpy arrays, with times in microseconds since 1970."""
    columns = {name: column.to_numpy() for name, column in tp.to_pandas(answer).items()}
    is_window = query["name"] == "hopping"
    seconds = columns.pop("timestamp") + (HALF_TICK if is_window else 0)
    columns["window_end" if is_window else "start"] = np.round(seconds * SECOND_US).astype("int64") + query["epoch"]
    np.savez(target, **{name: text(column) for name, column in columns.items()})


def text(column: Any) -> Any:
    return column.astype("U") if column.dtype == object else column


QUERIES: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "hopping": hopping,
    "filter": lambda given, query: given.filter(given["x"] >= query["least"]),
    "project": lambda given, _: tp.glue(given["user"], (given["x"] * 2.0 + 1.0).rename("y")),
}

if __name__ == "__main__":
    main()

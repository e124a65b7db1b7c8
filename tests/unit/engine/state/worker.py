"""The other process: restores queries of `queries` from folders, pushes the rest, and sends the rows back.

Reads lines of JSON from its input, so that one process serves many tests: name, folder, seed, first piece.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

from tests.unit.engine.state.queries import pieces, started


def answer(name: str, folder: str, seed: int, first: int) -> list[str]:
    rows: list[str] = []
    source, _ = started(name, lambda frame: rows.extend(map(repr, frame.rows())), folder)
    for piece in pieces(name, seed)[first:]:
        source.push(piece)
    source.complete()
    return rows


def main() -> None:
    for line in sys.stdin:
        task: list[Any] = json.loads(line)
        try:
            found: Any = answer(*task)
        except Exception:  # noqa: BLE001  (the test shows it)
            found = traceback.format_exc()
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

"""Whose state it is: the plan, how results are given out, and the versions that state depends on."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from squill.engine.hashing import HASH_VERSION
from squill.errors import CheckpointError
from squill.plan.fingerprint import difference, fingerprint
from squill.plan.node import Node

__all__ = ["STATE_VERSION", "Belonging"]

STATE_VERSION = 6
"""Raised whenever what a source or an operator saves has other fields or another meaning."""


@dataclass(frozen=True, slots=True)
class Belonging:
    """What must be the same for saved state to be taken."""

    nodes: list[Any]
    emit: str

    @classmethod
    def of(cls, root: Node, emit: str) -> Belonging:
        return cls(fingerprint(root), emit)

    def to_json(self) -> dict[str, Any]:
        return {
            "nodes": self.nodes,
            "emit": self.emit,
            "state": STATE_VERSION,
            "hash": HASH_VERSION,
            "versions": _versions(),
        }

    def check(self, stored: dict[str, Any], folder: Path) -> None:
        """Raise, saying where they part, when the state is of another plan or version."""
        where = f"the checkpoint in {str(folder)!r}"
        for what, version in (("state", STATE_VERSION), ("hash", HASH_VERSION)):
            if stored[what] != version:
                raise CheckpointError(
                    f"{where} holds {what} version {stored[what]}, this version of Squill has {version}",
                    "restore it with the version of Squill that wrote it; it is left as it is.",
                )
        found = difference(stored["nodes"], self.nodes)
        if found is not None:
            raise CheckpointError(
                f"{where} is of another query:\n  there: {found[0]}\n  here:  {found[1]}", self._hint(stored)
            )
        if stored["emit"] != self.emit:
            raise CheckpointError(
                f'{where} is of a query with emit="{stored["emit"]}", this one has emit="{self.emit}"',
                "subscribe as before; the checkpoint is left as it is.",
            )

    @staticmethod
    def _hint(stored: dict[str, Any]) -> str:
        versions = _versions()
        other = [f"{name} {then}" for name, then in stored["versions"].items() if then != versions[name]]
        if other:
            return f"it was written with {' and '.join(other)}, which may tell expressions or functions apart."
        return "restore the query that was saved; the checkpoint is left as it is."


def _versions() -> dict[str, str]:
    return {"Python": platform.python_version(), "Polars": pl.__version__}

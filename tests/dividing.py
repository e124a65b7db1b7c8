"""Makes operators take every state for one that is more than memory holds."""

from __future__ import annotations

import pytest

from squill.engine import lookup, parts
from squill.engine.operators import in_parts, relational_aggregate

__all__ = ["divide_early"]


def divide_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide relational groups, joins and distinct rows with the first row, twice; put rows on disk a few at a time."""
    monkeypatch.setattr(relational_aggregate, "_may_outgrow_memory", lambda _: True)
    monkeypatch.setattr(relational_aggregate, "HELD_BYTES", 0)
    monkeypatch.setattr(parts, "HELD_BYTES", 300)
    for module in (in_parts, lookup):
        monkeypatch.setattr(module, "state_share", lambda: 1)
        monkeypatch.setattr(module, "MOST_DEPTH", 2)

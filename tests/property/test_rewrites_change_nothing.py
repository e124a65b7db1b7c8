"""Whatever moves into scans, the answer is what the query means."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, note, settings

from squill.errors import SquillError
from squill.plan.node import Node, walk
from squill.plan.nodes import FileSource, FrameSource
from squill.plan.nodes.sources import Source
from squill.plan.rebuild import substitute
from squill.plan.rewrite import rewrite
from squill.stream import Stream
from squill.testing import assert_same_events, reference
from tests.strategies import RELATIONAL_STEPS, describe, queries, relations, streams

STEPS = (
    "where", "where", "select", "with_columns", "drop", "rename", "union", "union", "aggregate", "group_aggregate",
    "group_apply", "distinct", "select_many", "with_duration", "tumbling_window", "session_window", "per_window",
    "chop",
)  # fmt: skip


def from_files(query: Stream, folder: Path) -> Stream:
    """Return the query with its frames written to files and scanned."""

    def scanned(node: Node) -> Node | None:
        if not isinstance(node, FrameSource):
            return None
        path = folder / "rows.parquet"
        node.frame.write_parquet(path)
        common = {entry.name: getattr(node, entry.name) for entry in fields(Source)}
        return FileSource(**common, paths=(str(path),), format="parquet")

    return Stream(substitute(query.plan, scanned))


def assert_same_from_files(query: Stream, folder: Path) -> bool:
    """Compare with the meaning of the query; say whether anything moved into the scan."""
    note(describe(query))
    try:
        expected = reference.frame(query)
    except SquillError:
        return False  # what fails may fail no more once nobody asks for it
    scanning = from_files(query, folder)
    note(scanning.explain("rewritten"))
    assert_same_events(scanning.collect(), expected, scale=1e3)
    scans = [node for node in walk(rewrite(scanning.plan)) if isinstance(node, FileSource)]
    return any(node.read is not None or node.predicate is not None for node in scans)


@pytest.mark.parametrize("relational", [False, True])
def test_queries_over_files(tmp_path: Path, *, relational: bool) -> None:
    moved = 0
    sources = relations() if relational else streams(edges=False)
    steps = tuple(name for name in STEPS if not relational or name in RELATIONAL_STEPS)

    @settings(
        max_examples=150,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(queries(steps=steps, sources=sources, most=6))
    def same(query: Stream) -> None:
        nonlocal moved
        moved += assert_same_from_files(query, tmp_path)

    same()
    assert moved >= 40  # the rules have had something to do

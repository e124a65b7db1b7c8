"""A query over time, run on the rows of one step after the other: any batches, saved and loaded between them."""

from __future__ import annotations

from dataclasses import replace

import pytest

import squill as sq
from squill.engine.compile import compile_plan
from squill.engine.egress_changes import ChangeRowsSink
from squill.engine.progress.tally import Tally
from squill.engine.run import source_arrivals, steps
from squill.plan.build.progress import inputs_of
from squill.plan.each_step import each_step, over_steps
from squill.plan.node import Node, walk
from squill.plan.nodes.progress import ProgressSource
from squill.plan.rebuild import substitute
from squill.plan.rewrite import rewrite
from squill.stream import Stream

ROWS = {"t": [5, 1, 4, 2, 9, 1], "user": [1, 2, 1, 3, 2, 3], "step": [0, 2, 0, 1, 2, 1]}
NAMES = {"user": [1, 2, 3], "name": ["a", "b", "c"]}


def named() -> Stream:
    events = sq.from_frame(ROWS, start="t", name="events")
    sums = events.group_apply("user", lambda user: user.sliding_window(5).count())
    return sums.join(sq.from_frame(NAMES, name="names"), on="user")


def plan() -> Node:
    query = named()
    node = rewrite(query.plan)
    given = {"events": sq.progress.columns("step", together="user"), "names": sq.progress.at_start()}

    def counted(node: Node) -> Node | None:
        return replace(node, tally=Tally()) if isinstance(node, ProgressSource) else None

    return each_step(substitute(over_steps(node, inputs_of(node, given), 1), counted))


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
@pytest.mark.parametrize("saves", [False, True])
def test_each_step_adds_the_answer_over_its_rows(batch_rows: int, saves: bool) -> None:
    root = plan()
    pipeline = compile_plan(root, sink := ChangeRowsSink(root))
    heads = [entry for _, entry in pipeline.entries]
    inputs = [(source_arrivals(source, batch_rows), entry) for source, entry in pipeline.entries]
    for _ in steps(inputs, clocks=True):
        if saves:
            states = pipeline.save()
            pipeline = compile_plan(root, sink := ChangeRowsSink(root))
            pipeline.load(states)
            for head, (_, entry) in zip(heads, pipeline.entries, strict=True):
                head.consumers = entry.consumers
    rows = sink.take_rows()
    assert rows is not None
    frame = {name: series.to_list() for name, series in rows.columns.items()}
    found = sorted(zip(rows.sync.tolist(), frame["start"], frame["end"], frame["name"], frame["count"], strict=True))
    assert found == [
        (0, 4, 5, "a", 1), (0, 5, 9, "a", 2), (0, 9, 10, "a", 1),
        (1, 1, 2, "c", 1), (1, 2, 6, "c", 2), (1, 6, 7, "c", 1),
        (2, 1, 6, "b", 1), (2, 9, 14, "b", 1),
    ]  # fmt: skip


def test_nothing_of_a_step_is_kept_but_what_every_step_has() -> None:
    root = plan()
    pipeline = compile_plan(root, ChangeRowsSink(root))
    inputs = [(source_arrivals(source, 1), entry) for source, entry in pipeline.entries]
    assert max(pipeline.state_rows for _ in steps(inputs, clocks=True)) <= 3 + 3
    assert not any(isinstance(node, ProgressSource) for node in walk(root.query.root))  # type: ignore[attr-defined]

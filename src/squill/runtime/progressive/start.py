"""Begin progressive queries: check them, give each input its progress, and choose how they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from squill.arguments import checked_flag
from squill.engine.progress.ingress import pieces_of_progress, ready_to_read
from squill.engine.progress.points import points_of
from squill.engine.progress.stored import stored_counts
from squill.engine.progress.tally import Tally
from squill.errors import UnsupportedOperatorError
from squill.plan.apart import check_apart, deciding
from squill.plan.assignment import AtStart, Columns
from squill.plan.build.checks import refuse_objects
from squill.plan.build.confidence import has_intervals, with_intervals
from squill.plan.build.progress import ProgressInput, check_coarsen, inputs_of, over_progress
from squill.plan.build.together import broken_promise, promised_together, promises_broken
from squill.plan.each_step import each_step, each_step_on_shards, over_steps
from squill.plan.explain import explain
from squill.plan.fragments import explain_fragments, fragments_of
from squill.plan.late_columns import without_late_columns
from squill.plan.node import Node, walk
from squill.plan.nodes import FrameSource, TwoInputs
from squill.plan.nodes.movement import Split
from squill.plan.nodes.progress import ProgressSource, shown_schema
from squill.plan.past_steps import forget_past_steps, join_by_step
from squill.plan.rebuild import substitute
from squill.plan.rewrite import rewrite
from squill.plan.rewrite.compute_after_step_join import compute_after_step_join
from squill.runtime.progressive.answers import EarlyAnswers, Step, checked_until
from squill.runtime.progressive.in_process import in_process
from squill.runtime.progressive.late import late_rows
from squill.runtime.progressive.on_shards import on_shards
from squill.runtime.progressive.points import Counted
from squill.runtime.progressive.provenance import ProvenanceOf
from squill.runtime.progressive.status import Watch
from squill.runtime.progressive.whole import whole_answer
from squill.runtime.runtime import Runtime

__all__ = ["start_progressive"]

ONE_SCAN = "the first answer costs one scan of the inputs: their rows are sorted by progress before"
STEP_BY_STEP = "the query is over time: every fragment runs on the rows of one step after the other"
IN_ORDER = "the inputs are stored in the order of progress: an answer costs the reading of what it adds"


def _first_cost(inputs: list[ProgressInput]) -> str:
    promised = ", ".join(item.name for item in promised_together(inputs))
    checked = f"\nbefore, one scan of {promised} checks that rows come together as promised" if promised else ""
    return _sorting_cost(inputs) + checked


def _sorting_cost(inputs: list[ProgressInput]) -> str:
    others = [item.name for item in inputs if not item.in_order]
    if not others:
        return IN_ORDER
    if len(others) == len(inputs):
        return ONE_SCAN
    return (
        f"the first answer costs one scan of {', '.join(others)}; the other inputs are stored in the order of progress"
    )


def start_progressive(
    root: Node,
    assignment: Any,
    *,
    coarsen: int | None,
    until: Any,
    ha: bool = False,
    runtime: Runtime | None = None,
    sharded: Callable[[Node], Node] = lambda node: node,
    spread: Callable[[Node], Node] = lambda node: node,
) -> EarlyAnswers:
    """Return the early answers of a plan, which runs in this process or, sharded, on a runtime.

    `sharded` puts the plan onto shards, where it is not yet: once its inputs have their progress. `spread` does so with
    what else is to be asked of the inputs.
    """
    checked_flag(ha, "progressive: ha")
    if runtime is not None:
        runtime.refuse_early(ha=ha)
    checked = checked_until(until)
    step = check_coarsen(coarsen)
    if has_intervals(root):
        # Before columns that nobody else needs are left out.
        root = with_intervals(root, inputs_of(root, assignment), step)
    node = rewrite(root)
    inputs = inputs_of(node, assignment)
    _check_points(inputs)
    early: Callable[..., EarlyAnswers] = _relational
    if any(item.source.lifetime is not None for item in inputs):
        early = _temporal
    promised = partial(_check_promised, promised_together(inputs), runtime, spread)
    return early(node, inputs, step, checked, runtime, sharded, promised, ha=ha)


def _check_points(inputs: list[ProgressInput]) -> None:
    """Refuse rows with progress that cannot be, where rows are at hand; those of files are seen when they are read."""
    for item in inputs:
        if isinstance(item.source, FrameSource) and isinstance(item.assignment, Columns):
            reading = ProgressSource(
                label=item.name,
                columns=item.source.columns,
                lifetime=None,
                source=item.source,
                assignment=item.assignment,
            )
            for piece in pieces_of_progress(ready_to_read(reading)):
                points_of(piece)


def _check_promised(promised: list[ProgressInput], runtime: Runtime | None, spread: Callable[[Node], Node]) -> None:
    if not promised:
        return
    broken = whole_answer(spread(promises_broken(promised)), runtime)
    if broken.height:
        raise broken_promise(promised, broken.sort(broken.columns).row(0))


def _relational(
    node: Node,
    inputs: list[ProgressInput],
    coarsen: int,
    until: Any,
    runtime: Runtime | None,
    sharded: Callable[[Node], Node],
    check_promised: Callable[[], None],
    *,
    ha: bool,
) -> EarlyAnswers:
    for item in walk(node):
        if isinstance(item, TwoInputs):
            refuse_objects(f"progressive {item.name}", *item.inputs)
    flowing, late = without_late_columns(node)
    forgetting = sharded(forget_past_steps(over_progress(flowing, inputs, coarsen)))
    plan = compute_after_step_join(join_by_step(forgetting))
    watch = Watch()
    provenance = ProvenanceOf(node, inputs, coarsen)

    def steps() -> Iterator[Step]:
        provenance.begin()
        check_promised()
        counted_plan, counted = _counted(plan)
        if runtime is None:
            return in_process(counted_plan, counted)
        return on_shards(runtime, fragments_of(counted_plan), counted, watch, ha=ha)

    def text() -> str:
        shown = explain(plan) if runtime is None else explain_fragments(plan)
        finish = "" if late is None else f"when somebody looks at an answer:\n{explain(late)}\n"
        return f"{shown}\n{finish}{_first_cost(inputs)}"

    return EarlyAnswers(
        node=node,
        flowing=flowing.schema,
        late=None if late is None else partial(late_rows, late),
        steps=steps,
        until=until,
        provenance=provenance,
        explain=text,
        watch=watch,
    )


def _counted(plan: Node) -> tuple[Node, Counted]:
    """Return the plan with fresh tallies, each told how many shards read its source."""
    readers = {id(node.parent): node.layout.shards for node in walk(plan) if isinstance(node, Split)}
    sources: list[ProgressSource] = []

    def counting(node: Node) -> Node | None:
        if not isinstance(node, ProgressSource):
            return None
        # What is stored in order says itself how many rows come when.
        tally = stored_counts(node) if node.in_order else Tally(readers.get(id(node), 1))
        sources.append(replace(node, tally=tally))
        return sources[-1]

    return substitute(plan, counting), Counted(sources)


def _temporal(
    node: Node,
    inputs: list[ProgressInput],
    coarsen: int,
    until: Any,
    runtime: Runtime | None,
    sharded: Callable[[Node], Node],
    check_promised: Callable[[], None],
    *,
    ha: bool,
) -> EarlyAnswers:
    for item in inputs:
        given = item.assignment
        if not isinstance(given, AtStart) and not deciding(given, item.source.columns):
            raise UnsupportedOperatorError(
                f"progressive: the query is over time, and its input {item.name!r} has {given}",
                "over time give sq.progress.hashed(columns, steps) of columns that all keys contain, "
                "sq.progress.columns(step, together=columns) of such, or sq.progress.at_start().",
            )
    check_apart(node, {id(item.source): item.assignment for item in inputs if not isinstance(item.assignment, AtStart)})
    plan = sharded(over_steps(node, inputs, coarsen))
    watch = Watch()
    provenance = ProvenanceOf(node, inputs, coarsen)

    def steps() -> Iterator[Step]:
        provenance.begin()
        check_promised()
        counted_plan, counted = _counted(plan)
        if runtime is None:
            return in_process(each_step(counted_plan), counted)
        return on_shards(runtime, each_step_on_shards(fragments_of(counted_plan)), counted, watch, ha=ha)

    def text() -> str:
        shown = explain(plan) if runtime is None else explain_fragments(plan)
        return f"{shown}\n{STEP_BY_STEP}\n{_first_cost(inputs)}"

    return EarlyAnswers(
        node=node,
        flowing=shown_schema(node),
        steps=steps,
        until=until,
        provenance=provenance,
        explain=text,
        watch=watch,
    )

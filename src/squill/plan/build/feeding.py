"""Build the plan of a query that is fed by somebody else's task."""

from __future__ import annotations

import polars as pl

from squill.arguments import is_one_of
from squill.errors import PlanError
from squill.plan.node import Node, walk
from squill.plan.nodes import EventsSource, PushSource, Source
from squill.plan.nodes.sources import FedSource
from squill.plan.rebuild import substitute
from squill.wording import shortened

__all__ = ["fed"]

OPERATOR = "as_arrow_function"


def fed(root: Node, label: str | None) -> Node:
    """Return the plan with its only input, or the one of this label, replaced by rows that come from outside."""
    sources = [node for node in walk(root) if isinstance(node, Source)]
    chosen = _chosen(sources, label)
    if isinstance(chosen, EventsSource):
        raise PlanError(
            f"{OPERATOR}: the input {chosen.label!r} is a list of single events, not of rows",
            "declare what comes with sq.source(schema, start=…) or sq.from_frame(…).",
        )
    for other in sources:
        if other is not chosen and isinstance(other, PushSource):
            raise PlanError(
                f"{OPERATOR}: the input {other.label!r} is pushed by the program, and a task has no program to do so",
                "only the input that the function is fed may be a pushed one.",
            )
    for name, dtype in root.schema.items():
        if isinstance(dtype, pl.Object):
            raise PlanError(
                f"{OPERATOR}: the column {name!r} holds Python objects, which have no form in Arrow",
                "turn it into a number or text with map_batches(…), or leave it out.",
            )
    rows = FedSource(
        label=chosen.label,
        columns=chosen.columns,
        lifetime=chosen.lifetime,
        promises=chosen.promises,
        disorder=chosen.disorder if isinstance(chosen, PushSource) else None,
    )
    return substitute(root, lambda node: rows if node is chosen else None)


def _chosen(sources: list[Source], label: str | None) -> Source:
    labels = ", ".join(repr(source.label) for source in sources)
    if label is None:
        if len(sources) != 1:
            raise PlanError(
                f"{OPERATOR}: the query has {len(sources)} inputs: {labels}",
                f"say which one the function is fed: input={sources[0].label!r}; name= gives an input a name.",
            )
        return sources[0]
    found = [source for source in sources if is_one_of(label, (source.label,))]
    if len(found) != 1:
        what = "is no input" if not found else f"are {len(found)} inputs"
        raise PlanError(
            f"{OPERATOR}: there {what} called {shortened(label)}; the inputs are {labels}", "name one of them."
        )
    return found[0]

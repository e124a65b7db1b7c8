"""Names of columns that users may not give, since rewrites and operators add columns of these names."""

from __future__ import annotations

from squill.errors import PlanError
from squill.plan.assignment import STEP
from squill.plan.node import Node
from squill.plan.nodes import Source
from squill.wording import shortened

__all__ = ["with_free_names"]


def with_free_names(node: Node) -> Node:
    """Return the node, or raise when a column of a user's has a name as rewrites and operators give to their own.

    Nor may a name be one that Polars takes for many columns, or for none.
    Only the steps in files of datasets, which users may read as they are, have such a name and are seen.
    """
    for name in node.columns if isinstance(node, Source) else node.schema:
        if name.startswith("__squill_") and name.endswith("__") and name != STEP:
            raise PlanError(
                f"{_shown(node)}: a column is called {name!r}; names that begin with __squill_ and end with __ are "
                "those of columns that Squill adds for itself",
                "rename it before.",
            )
        if name == "*" or (name.startswith("^") and name.endswith("$")) or "\0" in name:
            raise PlanError(
                f"{_shown(node)}: a column is called {shortened(name)}, which Polars "
                + ("takes for a pattern of names" if "\0" not in name else "cannot have in a struct"),
                "rename it before.",
            )
    return node


def _shown(node: Node) -> str:
    return f"input {node.label!r}" if isinstance(node, Source) else node.name

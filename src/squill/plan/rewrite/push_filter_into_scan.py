"""Let files be read without the rows that a filter would drop."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from squill.plan.expression_text import load_tree, serialise
from squill.plan.expressions import END, START, Expression
from squill.plan.node import Node
from squill.plan.nodes import FileSource, Where
from squill.plan.rebuild import consumer_counts, rebuild
from squill.plan.row_wise import walk as walk_expression

__all__ = ["push_filter_into_scan"]

CANNOT_FAIL = frozenset({"Column", "Literal", "Alias", "KeepName", "BinaryExpr", "Ternary"})


def push_filter_into_scan(root: Node) -> Node:
    """Move a filter that stands on a scan into it.

    ::

        where(predicate=x > 1)            file_source(…, only x > 1)
          file_source(…)             →
    """
    consumers = consumer_counts(root)

    def change(node: Node, original: Node) -> Node:
        if not isinstance(node, Where) or not isinstance(node.parent, FileSource):
            return node
        # A scan that others read too would be read twice.
        if any(consumers[id(item)] > 1 for item in _chain(original)):
            return node
        return _pushed(node, node.parent)

    return rebuild(root, change)


def _chain(where: Node) -> list[Node]:
    """Return the nodes from below the filter down to the source."""
    chain = []
    while where.inputs:
        (where,) = where.inputs
        chain.append(where)
    return chain


def _pushed(where: Where, source: FileSource) -> Node:
    predicate = where.predicate
    if START in predicate.roots or END in predicate.roots:
        return where  # the times are made after reading
    if source.predicate is None:
        return replace(source, predicate=predicate)
    # Together both see every row, and a cast that fails must not meet rows that the first filter drops.
    if not _cannot_fail(predicate):
        return where
    return replace(source, predicate=_both(source.predicate, predicate))


def _cannot_fail(predicate: Expression) -> bool:
    return all(kind in CANNOT_FAIL for kind, _ in walk_expression(load_tree(predicate.serialised)))


def _both(first: Expression, second: Expression) -> Expression:
    text = serialise(first.expr & second.expr)
    roots = tuple(dict.fromkeys((*first.roots, *second.roots)))
    return Expression(text, first.name, pl.Boolean(), roots)

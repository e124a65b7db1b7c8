"""Filters that Polars may hold against what parquet files say of their row groups.

A file says the least and the greatest value of a column in each row group. From them Polars tells whether a filter may
keep a row, also where it computes with the values before it compares them: ``x * 2 < 0`` of whole numbers that wrap
around, ``-x`` of the smallest number, texts against an Enum, which has an order of its own. Rows are lost there that
the filter keeps. So only comparisons of the values themselves are left to it.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from squill.plan.expression_text import load_tree
from squill.plan.expressions import Expression
from squill.plan.row_wise import walk

__all__ = ["compares_values"]

OWN_ORDER = (pl.Categorical, pl.Enum)
OPERATIONS = frozenset(
    {"Eq", "NotEq", "Lt", "LtEq", "Gt", "GtEq", "EqValidity", "NotEqValidity", "And", "Or", "LogicalAnd", "LogicalOr"}
)


def compares_values(predicate: Expression, columns: Mapping[str, pl.DataType]) -> bool:
    """Return whether a filter compares values as they are stored, in the order that least and greatest are of.

    Examples
    --------
    >>> from squill.plan.expressions import Scope, bind_predicate
    >>> from squill.plan.schema import Schema
    >>> scope = Scope(Schema({"x": pl.Int64()}), None, ends_known=False)
    >>> tried = [pl.col("x") > 5, pl.col("x").is_between(1, 9) | (pl.col("x") == 0), pl.col("x") * 2 > 5]
    >>> [compares_values(bind_predicate(item, scope, "where"), scope.schema) for item in tried]
    [True, True, False]
    """
    types = [columns[name] for name in predicate.roots if name in columns]
    if any(isinstance(dtype, OWN_ORDER) for dtype in types):
        return False
    if any(dtype.__name__ in predicate.serialised for dtype in OWN_ORDER):
        return False
    return all(_compares(kind, content) for kind, content in walk(load_tree(predicate.serialised)))


def _compares(kind: str, content: object) -> bool:
    match kind, content:
        case "BinaryExpr", {"op": operation}:
            return operation in OPERATIONS
        case "Function", {"function": {"Boolean": _}}:
            return True
    return kind in ("Column", "Literal", "Alias", "KeepName")

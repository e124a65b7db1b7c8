"""Which Polars expressions look at one row only.

Polars cannot be asked: its own ``is_row_separable`` accepts ``a - a.mean()``. So the serialised tree is
walked and only the node kinds listed here are admitted; a kind that is not listed is refused by name.
A list, not a ban: a function that a later Polars adds is refused until somebody has looked at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__all__ = [
    "expand_arguments", "first_offence", "function_name", "guesses_format", "is_byte_string", "selectors_of",
    "substitute_selectors", "walk",
]  # fmt: skip

Tree = Any
"""One node of a serialised Polars expression: a string, a list, or a one-entry dict."""

ELEMENT_FUNCTIONS = frozenset(
    "Abs AsStruct Atan2 BitwiseNot Ceil Clip Coalesce Conjugate Cut Exp FillNull Floor Hash Log Log1p "
    "MaxHorizontal MeanHorizontal MinHorizontal Negate Not NullIf Pow Reinterpret RepeatBy Replace "
    "ReplaceStrict Round RoundSF Sign SumHorizontal ToPhysical Trigonometry Truncate".split()
)
BOOLEAN_FUNCTIONS = frozenset(
    "AllHorizontal AnyHorizontal IsBetween IsClose IsEmpty IsFinite IsIn IsInfinite IsNan IsNotNan IsNotNull "
    "IsNull Not".split()
)
BITWISE_FUNCTIONS = frozenset("CountOnes CountZeros LeadingOnes LeadingZeros TrailingOnes TrailingZeros".split())
RANGE_FUNCTIONS = frozenset("IntRanges DateRanges DatetimeRanges TimeRanges LinearSpaces".split())
# Whole namespaces work element by element, but for the members named here.
NAMESPACES = {
    "StringExpr": frozenset({"ConcatVertical"}),
    "BinaryExpr": frozenset[str](),
    "TemporalExpr": frozenset[str](),
    "ListExpr": frozenset({"Sample"}),
    "ArrayExpr": frozenset[str](),
    "StructExpr": frozenset[str](),
    "CategoricalExpr": frozenset({"GetCategories"}),
    "Business": frozenset[str](),
    "BusinessExpr": frozenset[str](),
}
SELECTED_MEMBERS = {
    "Boolean": BOOLEAN_FUNCTIONS,
    "Bitwise": BITWISE_FUNCTIONS,
    "Range": RANGE_FUNCTIONS,
}
# Their later arguments are tables to look things up in; a column there would be read as a whole.
TABLE_ARGUMENTS = frozenset(
    "IsIn Replace ReplaceStrict ContainsAny ContainsMany ReplaceMany ExtractMany FindMany".split()
)
# A selector among their arguments stands for several arguments, not for several results.
HORIZONTAL_FUNCTIONS = frozenset(
    "AllHorizontal AnyHorizontal AsStruct Coalesce Concat ConcatHorizontal Format MaxHorizontal MeanHorizontal "
    "MinHorizontal SumHorizontal".split()
)
PYTHON_CODE = frozenset({"AnonymousFunction", "AnonymousAgg", "FoldHorizontal", "ReduceHorizontal"})


def is_byte_string(values: list[Tree]) -> bool:
    """True for a serialised literal, which is a list of bytes: long, and not worth a look at each."""
    return bool(values) and isinstance(values[0], int)


def walk(tree: Tree) -> Iterator[tuple[str, Tree]]:
    """Yield (kind, content) for every expression node of a serialised tree, parents first."""
    if isinstance(tree, str):
        yield tree, None
        return
    (kind, content), *_ = tree.items()
    yield kind, content
    for child in _children(kind, content):
        yield from walk(child)


def _children(kind: str, content: Tree) -> list[Tree]:
    match kind:
        case "Alias":
            return [content[0]]
        case "KeepName":
            return [content]
        case "Cast" | "RenameAlias":
            return [content["expr"]]
        case "BinaryExpr":
            return [content["left"], content["right"]]
        case "Ternary":
            return [content["predicate"], content["truthy"], content["falsy"]]
        case "Function":
            return list(content["input"])
        case "Eval":
            return [content["expr"]]
        case "StructEval":
            return [content["expr"], *content["evaluation"]]
        case _:
            return []


def first_offence(tree: Tree) -> str | None:
    """Return the name of the first node that looks beyond its row, or None when there is none."""
    for kind, content in walk(tree):
        offence = _offence(kind, content)
        if offence is not None:
            return offence
    return None


def _offence(kind: str, content: Tree) -> str | None:
    match kind:
        case "Column" | "Selector" | "Alias" | "KeepName" | "Cast" | "BinaryExpr" | "Ternary" | "Field" | "StructEval":
            return None
        case "RenameAlias":
            return "name.map" if "Map" in content["function"] else None
        case "Literal":
            return "literal Series" if isinstance(content, dict) and "Series" in content else None
        case "Function":
            return _function_offence(content)
        case "Eval":
            # Inside a list everything may happen, the list is one row's value; code and chance may not.
            text = repr(content["evaluation"])
            return next((name for name in (*PYTHON_CODE, "Random") if f"'{name}'" in text), None)
        case "Agg":
            return next(iter(content)) if isinstance(content, dict) else "Agg"
        case _:
            return kind


def _function_offence(content: Tree) -> str | None:
    name, member = function_name(content["function"])
    if name in NAMESPACES:
        if member in NAMESPACES[name]:
            return member
    elif name in SELECTED_MEMBERS:
        if member not in SELECTED_MEMBERS[name]:
            return member
    elif name not in ELEMENT_FUNCTIONS:
        return "Python function" if name in PYTHON_CODE else name
    if (member in TABLE_ARGUMENTS or name in TABLE_ARGUMENTS) and member != "IsIn":
        for argument in content["input"][1:]:
            if any(kind in ("Column", "Selector") for kind, _ in walk(argument)):
                return f"{member or name} with a column as its table"
    return None


def function_name(function: Tree) -> tuple[str, str]:
    """Return (name, member) of a serialised function, e.g. ("StringExpr", "Contains")."""
    if isinstance(function, str):
        return function, ""
    (name, inner), *_ = function.items()
    if isinstance(inner, str):
        return name, inner
    if isinstance(inner, dict) and inner and name in (*NAMESPACES, *SELECTED_MEMBERS):
        return name, next(iter(inner))
    return name, ""


def guesses_format(function: Tree) -> bool:
    """True for text read as a time without a format: Polars takes it from the first value of each batch."""
    if function_name(function) != ("StringExpr", "Strptime"):
        return False
    _, options = function["StringExpr"]["Strptime"]
    return options["format"] is None


def expand_arguments(tree: Tree, names_of: Callable[[list[Tree]], tuple[str, ...]]) -> Tree:
    """Return the tree with the selectors among the arguments of horizontal functions replaced by columns.

    `names_of` says which columns the selectors of one argument stand for.
    """
    if isinstance(tree, list):
        return tree if is_byte_string(tree) else [expand_arguments(value, names_of) for value in tree]
    if not isinstance(tree, dict):
        return tree
    if "Function" in tree and HORIZONTAL_FUNCTIONS & set(function_name(tree["Function"]["function"])):
        arguments: list[Tree] = []
        for given in tree["Function"]["input"]:
            argument = expand_arguments(given, names_of)
            selectors = selectors_of(argument)
            names = names_of(selectors) if selectors else ()
            arguments += [substitute_selectors(argument, name) for name in names] if selectors else [argument]
        return {"Function": {**tree["Function"], "input": arguments}}
    return {key: expand_arguments(value, names_of) for key, value in tree.items()}


def selectors_of(tree: Tree) -> list[Tree]:
    """Return every selector of a serialised tree."""
    return [content for kind, content in walk(tree) if kind == "Selector"]


def substitute_selectors(tree: Tree, name: str) -> Tree:
    """Return the tree with every selector replaced by the column `name`."""
    if isinstance(tree, dict):
        if "Selector" in tree:
            return {"Column": name}
        return {key: substitute_selectors(value, name) for key, value in tree.items()}
    if isinstance(tree, list):
        return tree if is_byte_string(tree) else [substitute_selectors(value, name) for value in tree]
    return tree

"""Row-wise expressions as plan data.

A `pl.Expr` can be neither hashed nor compared, may stand for several columns and may look at the whole
column. `bind` turns what the user wrote into `Expression` values that are none of these: wildcards and
selectors expanded against the payload, checked to be row-wise, with name, type and root columns known.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, reduce

import polars as pl

from squill.errors import NotRowWiseError, PlanError
from squill.plan.expression_text import LostLiteralError, deserialise, dump_tree, load_tree, serialise
from squill.plan.row_wise import (
    expand_arguments,
    first_offence,
    function_name,
    guesses_format,
    selectors_of,
    substitute_selectors,
    walk,
)
from squill.plan.schema import Schema
from squill.time import TimeType
from squill.wording import articled, shortened

__all__ = [
    "END",
    "START",
    "Expression",
    "IntoExpression",
    "Scope",
    "bind",
    "bind_one",
    "column",
    "combined",
    "end",
    "start",
]

START = "__squill_start__"
END = "__squill_end__"

IntoExpression = str | pl.Expr
# An unnamed sq.start() is called "start", which a payload column may not be: the error says to name it.
TIME_NAMES = {START: "start", END: "end"}
LITERAL_TYPES = (bool, int, float, bytes)
CANNOT_FAIL = frozenset({"Column", "Literal", "Alias", "KeepName", "BinaryExpr", "Ternary"})


def start() -> pl.Expr:
    """Return the event's start time, as an expression of the stream's time type."""
    return pl.col(START)


def end() -> pl.Expr:
    """Return the event's end time (null = endless); only where ends are known on arrival."""
    return pl.col(END)


@dataclass(frozen=True)
class Scope:
    """What an expression may name: the payload, and the times where there are any."""

    schema: Schema
    time: TimeType | None
    ends_known: bool

    def require(self, name: str, operator: str) -> pl.DataType:
        """Return the type of a payload column, or raise with the near names."""
        return self.schema.require(name, operator, has_time=self.time is not None)

    @cached_property
    def frame(self) -> pl.DataFrame:
        """An empty frame of everything nameable; expressions are typed by running them on it."""
        times = {} if self.time is None else {START: self.time.dtype, END: self.time.dtype}
        return pl.DataFrame(schema={**self.schema, **times})


@dataclass(frozen=True)
class Expression:
    """One output column: hashable, comparable by its serialised form (`expression_text`), its type known."""

    serialised: str
    name: str
    dtype: pl.DataType = field(compare=False)
    roots: tuple[str, ...] = field(compare=False)

    @cached_property
    def expr(self) -> pl.Expr:
        return deserialise(self.serialised).alias(self.name)

    @cached_property
    def source_column(self) -> str | None:
        return _source_column(self.serialised)

    @property
    def uses_end(self) -> bool:
        return END in self.roots

    def can_fail(self, schema: Mapping[str, pl.DataType]) -> bool:
        """Whether it may raise on some row: then it may not see rows that it would not have seen, nor miss any.

        `schema` has the columns it is over. Decimals overflow, and lists of different lengths cannot be added.
        """
        kinds = {kind for kind, _ in walk(load_tree(self.serialised))}
        if not kinds <= CANNOT_FAIL:
            return True
        types = [schema[name] for name in self.roots if name in schema]
        is_plain = "Decimal" not in self.serialised and not any(map(_has_failing_arithmetic, types))
        return "BinaryExpr" in kinds and not is_plain

    def renamed(self, name: str) -> Expression:
        return Expression(self.serialised, name, self.dtype, self.roots)

    def over(self, names: Mapping[str, str]) -> Expression:
        """Return the same computation over columns of other names."""
        text = dump_tree(_with_column_names(load_tree(self.serialised), names))
        return replace(self, serialised=text, roots=tuple(names.get(name, name) for name in self.roots))

    @property
    def text(self) -> str:
        """What it computes, without its name."""
        text = str(deserialise(self.serialised))
        return text.replace(f'col("{START}")', "start()").replace(f'col("{END}")', "end()")

    def __str__(self) -> str:
        text = self.text
        source = self.source_column
        if source is not None:
            return self.name if source == self.name else f"{self.name}={source}"
        return f"{self.name}={text}"


def _has_failing_arithmetic(dtype: pl.DataType) -> bool:
    return dtype.is_nested() or isinstance(dtype, (pl.Decimal, pl.Object))


def column(name: str, dtype: pl.DataType) -> Expression:
    """Return the expression that is just the payload column `name`."""
    return Expression(_column_text(name), name, dtype, (name,))


def combined(predicates: Sequence[Expression], how: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Expression:
    """Return one predicate made of several by `operator.and_`, or by `operator.or_`."""
    text = serialise(reduce(how, (deserialise(item.serialised) for item in predicates)))
    roots = tuple(dict.fromkeys(root for item in predicates for root in item.roots))
    return replace(predicates[0], serialised=text, roots=roots)


# A plan names few columns many times, and each time would be a text written, or read, by Polars and by JSON.


@lru_cache(maxsize=1024)
def _column_text(name: str) -> str:
    return serialise(pl.col(name))


@lru_cache(maxsize=1024)
def _source_column(serialised: str) -> str | None:
    tree = load_tree(serialised)
    while isinstance(tree, dict) and ("Alias" in tree or "KeepName" in tree or "RenameAlias" in tree):
        tree = tree["Alias"][0] if "Alias" in tree else tree.get("KeepName") or tree["RenameAlias"]["expr"]
    name = tree.get("Column") if isinstance(tree, dict) else None
    return None if name in (START, END) else name


def _with_column_names(tree: object, names: Mapping[str, str]) -> object:
    if isinstance(tree, list):
        return [_with_column_names(item, names) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if set(tree) == {"Column"}:
        return {"Column": names.get(tree["Column"], tree["Column"])}
    return {key: _with_column_names(item, names) for key, item in tree.items()}


def bind(
    expressions: Iterable[object], named: Mapping[str, object], scope: Scope, operator: str
) -> tuple[Expression, ...]:
    """Return the single-column expressions that the user's arguments stand for, checked."""
    bound: list[Expression] = []
    for given in expressions:
        for item in given if isinstance(given, (list, tuple)) else (given,):
            bound.extend(_bind_any(item, scope, operator))
    for name, given in named.items():
        if not isinstance(name, str):
            raise PlanError(f"{operator}: {shortened(name)} is no name of a column", "names are text.")
        several = _bind_any(given, scope, operator)
        if len(several) != 1:
            raise PlanError(f"{operator}: {name}= stands for {len(several)} columns, not one", "name one column.")
        bound.append(several[0].renamed(name))
    _refuse_duplicates(bound, operator)
    return tuple(bound)


def bind_one(given: object, scope: Scope, operator: str) -> Expression:
    """Return the one column that `given` stands for."""
    several = _bind_any(given, scope, operator)
    if len(several) != 1:
        raise PlanError(
            f"{operator}: {given} stands for {len(several)} columns, not one", "name one column, not a wildcard."
        )
    return several[0]


def bind_predicate(given: object, scope: Scope, operator: str) -> Expression:
    """Return a boolean expression."""
    expression = bind_one(given, scope, operator)
    if expression.dtype != pl.Boolean:
        raise PlanError(
            f"{operator}: the condition {expression} is {expression.dtype}, not Boolean",
            "compare it with something, as in sq.col('x') > 0.",
        )
    return expression


def _refuse_duplicates(bound: list[Expression], operator: str) -> None:
    seen: set[str] = set()
    for expression in bound:
        if expression.name in seen:
            raise PlanError(
                f"{operator}: two output columns are called {expression.name!r}", "rename one with .alias(…)."
            )
        seen.add(expression.name)


def _bind_any(given: object, scope: Scope, operator: str) -> list[Expression]:
    if isinstance(given, str):
        if given in scope.schema:
            return [column(given, scope.schema[given])]
        if given == "*" or (given.startswith("^") and given.endswith("$")):
            return _bind_expr(pl.col(given), scope, operator)
        scope.require(given, operator)
    if isinstance(given, pl.Expr):
        return _bind_expr(given, scope, operator)
    if given is None or isinstance(given, LITERAL_TYPES):
        return _bind_expr(pl.lit(given), scope, operator)
    raise PlanError(
        f"{operator}: {shortened(given)} is {articled(type(given).__name__)}, not an expression",
        "give a column name or an expression like sq.col('x') + 1.",
    )


def _bind_expr(expr: pl.Expr, scope: Scope, operator: str) -> list[Expression]:
    with warnings.catch_warnings():
        # Serialising a Python function warns before we can refuse it by name.
        warnings.simplefilter("ignore")
        try:
            text = serialise(expr)
        except LostLiteralError as error:
            raise PlanError(
                f"{operator}: {expr} holds a number that is not finite where a plan cannot keep it: {error}",
                "ask with .is_nan(), .is_infinite() or .is_finite(), or compare with a finite bound.",
            ) from error
        except Exception as error:
            what = f"{operator}: {expr} cannot be kept in a plan: {error}"
            raise PlanError(what, "use built-in functions.") from error
    tree = load_tree(text)
    match tree:
        case {"Column": str(name)} if name in scope.schema:
            return [column(name, scope.schema[name])]  # its type is known: nothing need be run to find it
    _refuse_whole_columns(tree, expr, scope, operator)
    tree = expand_arguments(tree, lambda selectors: _selected_names(selectors, scope, operator))
    selectors = selectors_of(tree)
    if not selectors:
        return [_typed(tree, scope, operator)]
    names = _selected_names(selectors, scope, operator)
    return [_typed(substitute_selectors(tree, name), scope, operator) for name in names]


def _refuse_whole_columns(tree: object, expr: pl.Expr, scope: Scope, operator: str) -> None:
    offence = first_offence(tree)
    if offence is not None:
        raise NotRowWiseError(operator, offence, str(expr))
    for function in (content for kind, content in walk(tree) if kind == "Function"):
        if function_name(function["function"])[1] == "IsIn":
            _check_membership(function["input"][1], expr, scope, operator)
        if guesses_format(function["function"]):
            raise PlanError(
                f"{operator}: {expr} guesses the format from the first text of a batch, so batches would matter",
                "give the format, as in sq.col('ts').str.to_datetime('%Y-%m-%d %H:%M:%S').",
            )


def _check_membership(table: object, expr: pl.Expr, scope: Scope, operator: str) -> None:
    """`x.is_in(column)` asks whether x stands anywhere in that column, unless the column holds lists."""
    if not any(kind == "Column" for kind, _ in walk(table)):
        return
    dtype = _typed(table, scope, operator).dtype
    if not isinstance(dtype, (pl.List, pl.Array)):
        raise NotRowWiseError(operator, "is_in of a whole column", str(expr))


def _selected_names(selectors: list[object], scope: Scope, operator: str) -> tuple[str, ...]:
    payload = scope.schema.empty_frame().lazy()
    expansions = []
    for selector in selectors:
        try:
            expansions.append(payload.select(deserialise(dump_tree({"Selector": selector}))).collect_schema().names())
        except pl.exceptions.ColumnNotFoundError as error:
            raise _missing_column(error, scope, operator) from None
    if any(names != expansions[0] for names in expansions):
        raise PlanError(
            f"{operator}: one expression holds selectors of different columns: {expansions}",
            "write one expression per column.",
        )
    return tuple(expansions[0])


def _typed(tree: object, scope: Scope, operator: str) -> Expression:
    text = dump_tree(tree)
    expr = deserialise(text)
    _check_names(expr, scope, operator)
    try:
        result = scope.frame.select(expr)
    except pl.exceptions.ColumnNotFoundError as error:
        raise _missing_column(error, scope, operator) from None
    except pl.exceptions.PolarsError as error:
        first_line = str(error).splitlines()[0]
        raise PlanError(
            f"{operator}: {expr} does not fit the columns ({scope.schema!r}): {first_line}",
            "check the types of the columns it uses; .cast(…) changes them.",
        ) from error
    if result.width != 1:
        raise PlanError(
            f"{operator}: {expr} stands for {result.width} columns ({', '.join(result.columns)}), not one",
            "write one expression per column, as in sq.col('s').struct.field('a').",
        )
    series = result.to_series()
    roots = tuple(dict.fromkeys(expr.meta.root_names()))
    return Expression(text, TIME_NAMES.get(series.name, series.name), series.dtype, roots)


def _missing_column(error: Exception, scope: Scope, operator: str) -> PlanError:
    words = str(error).splitlines()[0].replace('"', "'")
    name = words.split("'")[1] if "'" in words else words.split()[-1]
    try:
        scope.require(name, operator)
    except PlanError as missing:
        return missing
    return PlanError(f"{operator}: {words}")


def _check_names(expr: pl.Expr, scope: Scope, operator: str) -> None:
    for name in expr.meta.root_names():
        if name in (START, END):
            _check_time_use(name, scope, operator)
        else:
            scope.require(name, operator)


def _check_time_use(name: str, scope: Scope, operator: str) -> None:
    if scope.time is None:
        raise PlanError(
            f"{operator}: sq.start() and sq.end() have no meaning on relational data",
            "give the input a time with start=.",
        )
    if name == END and not scope.ends_known:
        raise PlanError(
            f"{operator}: sq.end() is not known yet when an event arrives on this stream",
            "put .wait_for_ends() before it.",
        )

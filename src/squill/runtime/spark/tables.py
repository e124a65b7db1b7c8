"""Spark DataFrames as sources and as answers.

A DataFrame's rows become Arrow files, written by Spark's tasks, or parcels where there is no folder for files; its
columns are chosen, and its rows filtered as far as Spark says the same as Polars, by Catalyst.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import polars as pl
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    GeographyType,
    GeometryType,
    MapType,
    StringType,
    StructType,
    VariantType,
)

from squill.errors import InputError, PlanError
from squill.plan.arrow_frames import from_arrow
from squill.plan.expression_text import load_tree
from squill.plan.expressions import column
from squill.plan.fragments import Fragment, ShardedPlan, sources_of
from squill.plan.node import Node
from squill.plan.nodes import FileSource, FrameSource, Select
from squill.plan.nodes.tables import TableSource
from squill.plan.rebuild import substitute
from squill.plan.schema import Schema
from squill.wording import kind_of

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

__all__ = [
    "answer_schema",
    "answer_types",
    "as_frames",
    "columns_of",
    "map_rows",
    "read_names",
    "rows_for",
    "spark_frame",
    "tables_of",
    "wanted_rows",
]

OfBatches: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def columns_of(table: Any, operator: str) -> Schema:
    """Return a DataFrame's columns with the types that their rows have here."""
    names = getattr(getattr(table, "schema", None), "names", None)
    if names is None or not hasattr(table, "mapInArrow"):
        raise PlanError(f"{operator}: {kind_of(table)} is no DataFrame of Spark", "from_frame takes other tables.")
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise PlanError(f"{operator}: two columns are called {twice!r}", "rename one of them, or drop it, before.")
    if not names:
        raise PlanError(f"{operator}: the DataFrame has no columns", "select one at least; rows without any are lost.")
    fields = [_arrow_field(field, operator) for field in table.schema.fields]
    return Schema(from_arrow(pa.schema(fields).empty_table()).schema)


def _arrow_field(field: Any, operator: str) -> pa.Field:
    refused = PlanError(
        f"{operator}: the column {field.name!r} is {field.dataType.simpleString()}, which has no counterpart here",
        "cast it before, for instance to string, or leave it out.",
    )
    if any(isinstance(part, PACKED) for part in _with_parts(field.dataType)):
        raise refused
    try:
        # Polars panics where a struct has two fields of one name.
        schema = to_arrow_schema(StructType([field]), timezone="UTC", error_on_duplicated_field_names_in_struct=True)
    except Exception as error:  # Spark raises errors of several kinds for types that Arrow has not
        raise refused from error
    return schema.field(0)


PACKED = (VariantType, GeometryType, GeographyType)
"""Types of which Spark gives the bytes that only it can read, as structs."""


def _with_parts(kind: DataType) -> Iterator[DataType]:
    """Yield a type of Spark's and all that is in it."""
    yield kind
    match kind:
        case ArrayType():
            parts = [kind.elementType]
        case MapType():
            parts = [kind.keyType, kind.valueType]
        case StructType():
            parts = [field.dataType for field in kind.fields]
        case _:
            parts = []
    for part in parts:
        yield from _with_parts(part)


def tables_of(plan: ShardedPlan) -> list[tuple[Fragment, int, TableSource]]:
    """Return the DataFrames that a plan reads: fragment, leaf, source."""
    return [
        (fragment, leaf, source)
        for fragment in plan.fragments
        for leaf, source in enumerate(sources_of(fragment.root))
        if isinstance(source, TableSource)
    ]


def wanted_rows(source: TableSource) -> Any:
    """Return the DataFrame with the columns that are read, and without rows that the plan drops anyway."""
    return rows_for(source, source.table)


def rows_for(source: FileSource, table: Any) -> Any:
    """Return of a DataFrame the columns that a source reads, without rows that its plan drops anyway."""
    names = read_names(source)
    at = {name: f"c{place}" for place, name in enumerate(source.columns)}
    rows = _by_place(table).select(*(at[name] for name in names))
    if source.predicate is not None:
        fields = zip(names, rows.schema.fields, strict=True)
        columns = {name: _Column(rows[at[name]], _comparable(source.columns[name], field)) for name, field in fields}
        condition = _condition(load_tree(source.predicate.serialised), columns)
        rows = rows if condition is None else rows.where(condition)
    return rows.toDF(*names)


def map_rows(rows: Any, function: OfBatches, ddl: str) -> Any:
    """Return a DataFrame of what the function makes of the rows of each partition, as Arrow batches."""
    return _by_place(rows).mapInArrow(partial(_map_named, function, rows.columns), ddl)


def _by_place(table: Any) -> Any:
    """Return the DataFrame with names that tell places.

    Spark looks columns up by name, also where they are all that is asked for, and finds neither names with dots and
    backticks nor those that differ in case only. Renaming all of them looks nothing up.
    """
    return table.toDF(*(f"c{place}" for place in range(len(table.columns))))


def _map_named(
    function: OfBatches, names: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    return function(batch.rename_columns(names) for batch in batches)


def read_names(source: FileSource) -> list[str]:
    # One column at least, also where rows are only counted: without any nothing tells how many there are.
    needed = {*source.needed, *(source.predicate.roots if source.predicate is not None else ())}
    return [name for name in source.columns if name in needed]


def as_frames(plan: ShardedPlan) -> ShardedPlan:
    """Return the plan with frames in place of its DataFrames, whose rows are still to be sent (`table_parcels`)."""
    made: dict[int, Node] = {}
    for _, _, source in tables_of(plan):
        made.setdefault(id(source), _as_frame(source))

    def read_frames(fragment: Fragment) -> Fragment:
        return replace(fragment, root=substitute(fragment.root, lambda node: made.get(id(node))))

    return ShardedPlan(fragments=tuple(map(read_frames, plan.fragments))) if made else plan


def _as_frame(source: TableSource) -> Node:
    columns = source.columns.only(read_names(source))
    frame = pl.DataFrame(schema=dict(columns))
    read = FrameSource(
        label=source.label,
        columns=columns,
        lifetime=source.lifetime,
        promises=source.promises,
        frame=frame,
        frame_id=id(frame),
        predicate=source.predicate,
        stored=source.stored,
    )
    if read.schema.names == source.schema.names:
        return read
    return Select(parent=read, columns=tuple(column(name, dtype) for name, dtype in source.schema.items()))


# -- filters that Spark understands as Polars does --------------------------------------------------------------

COMPARED = {
    "Eq": lambda a, b: a == b,
    "NotEq": lambda a, b: a != b,
    "Lt": lambda a, b: a < b,
    "LtEq": lambda a, b: a <= b,
    "Gt": lambda a, b: a > b,
    "GtEq": lambda a, b: a >= b,
}


SAME_MEANING: dict[type[pl.DataType], tuple[type, ...]] = {
    pl.Int8: (int,),
    pl.Int16: (int,),
    pl.Int32: (int,),
    pl.Int64: (int,),
    pl.Float64: (int, float),
    pl.String: (str,),
    pl.Boolean: (bool,),
}
"""The values that Spark compares with a column as Polars does. Of Float32, for instance, there are none: Polars takes
the value as a Float32 too, Spark the column as a double."""
PADDED = "__CHAR_VARCHAR_TYPE_STRING"
"""The note that Spark has on columns of type char(n), whose spaces at the end it does not compare."""


class _Column(NamedTuple):
    """A column of a DataFrame, and the types of the values that it may be compared with."""

    column: Any
    comparable: tuple[type, ...]


def _comparable(dtype: pl.DataType, field: Any) -> tuple[type, ...]:
    """Return the types of the values whose comparison with a column means the same in Spark; see `SAME_MEANING`."""
    # Any other text of Spark has a collation, by which 'a' may be 'A'.
    if isinstance(dtype, pl.String) and (field.dataType != StringType() or PADDED in field.metadata):
        return ()
    return SAME_MEANING.get(type(dtype), ())


def _condition(tree: Any, columns: Mapping[str, _Column]) -> Any | None:
    """Return the filter, or as much of it as can only keep more rows, as a column of Spark's; None is nothing of it.

    What is left out, and all the rest, is looked at again when the rows are read.
    """
    match tree:
        case {"BinaryExpr": {"left": left, "op": "And", "right": right}}:
            parts = [part for part in (_condition(left, columns), _condition(right, columns)) if part is not None]
            return reduce(lambda one, other: one & other, parts) if parts else None
        case {"BinaryExpr": {"left": left, "op": "Or", "right": right}}:
            one, other = _condition(left, columns), _condition(right, columns)
            return None if one is None or other is None else one | other
        case {"BinaryExpr": {"left": {"Column": name}, "op": op, "right": right}} if op in COMPARED:
            value = _literal(right)
            return COMPARED[op](columns[name].column, value) if type(value) in columns[name].comparable else None
        case {"Function": {"input": [{"Column": name}], "function": {"Boolean": "IsNull"}}}:
            return columns[name].column.isNull()
        case {"Function": {"input": [{"Column": name}], "function": {"Boolean": "IsNotNull"}}}:
            return columns[name].column.isNotNull()
    return None


def _literal(tree: Any) -> int | float | str | bool | None:
    """Return a plain value; None when it is anything else, such as a date, which need not mean the same."""
    match tree:
        case {"Literal": {"Dyn": {"Int": int(value)}}} if abs(value) < 2**63:
            return value
        case {"Literal": {"Dyn": {"Float": float(value)}}}:
            return value
        case {"Literal": {"Scalar": {"String": str(value)}}}:
            return value
        case {"Literal": {"Scalar": {"Boolean": bool(value)}}}:
            return value
    return None


# -- answers as DataFrames --------------------------------------------------------------------------------------

WIDER: dict[type[pl.DataType], pl.DataType] = {
    pl.UInt8: pl.Int16(),
    pl.UInt16: pl.Int32(),
    pl.UInt32: pl.Int64(),
    pl.UInt64: pl.Decimal(20, 0),
    pl.Categorical: pl.String(),
    pl.Enum: pl.String(),
}
"""Types that Spark has not, and what holds all their values there."""


def spark_type(dtype: pl.DataType) -> pl.DataType:
    """Return the type in which Spark has a column's values; times become microseconds.

    Examples
    --------
    >>> spark_type(pl.Struct({"a": pl.UInt8(), "b": pl.List(pl.Enum(["x"]))}))
    Struct({'a': Int16, 'b': List(String)})
    """
    match dtype:
        case pl.Datetime():
            return pl.Datetime("us", dtype.time_zone)
        case pl.Duration():
            return pl.Duration("us")
        case pl.List():
            return pl.List(spark_type(_instance(dtype.inner)))
        case pl.Array():
            return pl.Array(spark_type(_instance(dtype.inner)), dtype.size)
        case pl.Struct():
            return pl.Struct({field.name: spark_type(_instance(field.dtype)) for field in dtype.fields})
        case pl.Map():
            return pl.Map(spark_type(_instance(dtype.key)), spark_type(_instance(dtype.value)))
    return WIDER.get(type(dtype), dtype)


def _instance(dtype: PolarsDataType) -> pl.DataType:
    return dtype if isinstance(dtype, pl.DataType) else dtype()


def _with_inner(dtype: pl.DataType) -> Iterator[pl.DataType]:
    """Yield a type and all that is in it."""
    yield dtype
    match dtype:
        case pl.List() | pl.Array():
            inner = [dtype.inner]
        case pl.Struct():
            inner = [field.dtype for field in dtype.fields]
        case pl.Map():
            inner = [dtype.key, dtype.value]
        case _:
            inner = []
    for part in inner:
        yield from _with_inner(_instance(part))


def spark_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with types that Spark has; see `spark_type`. Raise for times of day that it would cut."""
    for series in frame.get_columns():
        if (cut := _time_with_nanoseconds(series)) is not None:
            raise InputError(
                f"to_spark: the column {series.name!r} has the time of day {cut}, and Spark has no nanoseconds",
                "cut it before, for instance with (sq.col('t').cast(pl.Int64) // 1_000 * 1_000).cast(pl.Time).",
            )
    wanted = {name: spark_type(dtype) for name, dtype in frame.schema.items()}
    casts = [pl.col(name).cast(dtype) for name, dtype in wanted.items() if dtype != frame.schema[name]]
    return frame.with_columns(casts) if casts else frame


def _time_with_nanoseconds(series: pl.Series) -> str | None:
    """Return a time of day that is no whole number of microseconds; `pl.Time`, unlike other types, has no unit."""
    match series.dtype:
        case pl.Time():
            cut = series.filter(series.to_physical() % 1_000 != 0)
            return str(cut.head(1).dt.to_string("%H:%M:%S%.9f")[0]) if cut.len() else None
        case (pl.List() | pl.Array()) as dtype if pl.Time() in _with_inner(dtype):
            return _time_with_nanoseconds(series.explode())
        case pl.Struct() as dtype if pl.Time() in _with_inner(dtype):
            fields = (_time_with_nanoseconds(series.struct.field(field.name)) for field in dtype.fields)
            return next((found for found in fields if found is not None), None)
    return None


def answer_types(frame: pl.DataFrame) -> pa.Schema:
    """Return the types in which Spark takes the rows of an answer, of which `frame` is an empty one."""
    return pa.schema([_for_spark(field) for field in spark_frame(frame).to_arrow().schema])


def _for_spark(field: pa.Field) -> pa.Field:
    """Return the field with lists as Spark reads them: it knows neither large ones nor those of one length."""
    kind = field.type
    if pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind):
        return field.with_type(pa.list_(_for_spark(kind.value_field)))
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_for_spark(inner) for inner in kind]))
    if pa.types.is_map(kind):
        return field.with_type(pa.map_(_for_spark(kind.key_field), _for_spark(kind.item_field)))
    return field


def answer_schema(frame: pl.DataFrame, payload: Collection[str]) -> Any:
    """Return the Spark schema of an answer, of which `frame` is an empty one; what is not of the `payload` is times."""
    for name, dtype in frame.schema.items():
        _refuse_nanoseconds(name, dtype, is_time=name not in payload)
        if not _has_counterpart(frame.select(name), dtype):
            raise PlanError(
                f"to_spark: the column {name!r} is {dtype}, which has no counterpart in Spark",
                "cast it before, or leave it out.",
            )
    return from_arrow_schema(answer_types(frame))


def _has_counterpart(column: pl.DataFrame, dtype: pl.DataType) -> bool:
    # Polars casts the values of maps, but not their keys.
    maps = [part for part in _with_inner(dtype) if isinstance(part, pl.Map)]
    if any(spark_type(_instance(part.key)) != _instance(part.key) for part in maps):
        return False
    # Nor does it look into maps for times that Spark would cut.
    if any(pl.Time() in _with_inner(part) for part in maps):
        return False
    try:
        from_arrow_schema(answer_types(column))
    except Exception:  # noqa: BLE001  (Spark raises errors of several kinds for types that it has not)
        return False
    return True


def _refuse_nanoseconds(name: str, dtype: pl.DataType, *, is_time: bool) -> None:
    kinds = [part for part in _with_inner(dtype) if isinstance(part, (pl.Datetime, pl.Duration))]
    if all(kind.time_unit != "ns" for kind in kinds):
        return
    cast = f"cast it before, for instance with sq.col({name!r}).cast(pl.{spark_type(dtype)})."
    raise PlanError(
        f"to_spark: the column {name!r} has nanoseconds, which Spark has not",
        'use cast_time("us") before.' if is_time else cast,
    )

"""Tasks as a plain RDD job: numbers in, Arrow batches out, once all tasks are done.

A DataFrame's `mapInArrow` does the same and hands rows out as tasks finish, but has to be analysed, planned and turned
into a query first, for each job anew: about a tenth of a second, which is most of a job that does little.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.core.rdd import _prepare_for_python_RDD
from pyspark.serializers import NoOpSerializer
from pyspark.util import _load_from_socket

__all__ = ["Task", "collected"]

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What a task runs: it is given its number in a batch of one row."""

NUMBER = pa.schema([("id", pa.int64())])
WORKERS_OF_SQL = {"SPARK_SIMPLIFIED_TRACEBACK": "1"}
"""Spark keeps workers by their environment, and this is what those of DataFrames have; so they are the same ones."""
SIMPLIFIED = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"


def collected(session: Any, task: Task, tasks: int, *, at_once: bool = False) -> Iterator[pa.RecordBatch]:
    """Run so many tasks; yield what they return, in their order. The job is that of the calling thread.

    `at_once` all of them run, or none: Spark calls it a barrier stage, and ends all of them when one fails.
    """
    context = session.sparkContext
    as_it_is = NoOpSerializer()
    command = (partial(_returned, task), None, as_it_is, as_it_is)
    pickled, broadcasts, environment, includes = _prepare_for_python_RDD(context, command)
    if session.conf.get(SIMPLIFIED) == "true":
        environment = {**environment, **WORKERS_OF_SQL}
    java = _java_of(context)
    function = java.function(
        bytearray(pickled), environment, includes, context.pythonExec, context.pythonVer, broadcasts,
        context._javaAccumulator,
    )  # fmt: skip
    served = java.rdd.collectAndServe(java.rdd(java.empty(tasks), function, False, at_once))
    with _load_from_socket(served, as_it_is) as stream:
        for content in stream:
            with pa.ipc.open_stream(content) as batches:
                yield from batches


class _Java:
    """Classes and objects of a context's Java, which are a question to it, and a millisecond, each."""

    def __init__(self, context: Any) -> None:
        self.function = context._jvm.SimplePythonFunction
        self.rdd = context._jvm.PythonRDD
        self._list = context._jvm.java.util.ArrayList
        self._parallelize = context._jsc.parallelize
        self._empty: dict[int, Any] = {}

    def empty(self, parts: int) -> Any:
        """Return an RDD of so many parts without rows."""
        if parts not in self._empty:
            self._empty[parts] = self._parallelize(self._list(), parts).rdd()
        return self._empty[parts]


_known: WeakKeyDictionary[Any, _Java] = WeakKeyDictionary()


def _java_of(context: Any) -> _Java:
    if context not in _known:
        _known[context] = _Java(context)
    return _known[context]


def _returned(task: Task, number: int, nothing: Iterator[object]) -> Iterator[bytes]:
    """The function of the task: yields what it returns as one Arrow stream."""
    batches = task(iter([pa.RecordBatch.from_pydict({"id": [number]}, schema=NUMBER)]))
    first = next(batches, None)
    sink = pa.BufferOutputStream()
    if first is not None:
        with pa.ipc.new_stream(sink, first.schema) as writer:
            writer.write_batch(first)
            for batch in batches:
                writer.write_batch(batch)
    # A worker is used again only when its input was read to the end. That there is none is told in a packet of its
    # own, which TCP holds back for 40 ms, until the one before is acknowledged: by now it has come.
    for _ in nothing:
        pass
    if first is not None:
        yield sink.getvalue().to_pybytes()
    _settle()


@cache
def _settle() -> None:
    """Once in a worker, let what its first task has loaded be looked at no more when garbage is collected.

    PySpark collects it after every task, and all that Numba has of its types takes 40 ms then.
    """
    gc.collect()
    gc.freeze()

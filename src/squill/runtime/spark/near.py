"""Tasks near their files: Hadoop says which hosts have them, and Spark is asked to run the tasks there.

Neither pyarrow nor fsspec tells where the blocks of a file are; Spark's own Java does, for filesystems that keep files
on the cluster's hosts. Spark Connect has none of this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame

from squill.runtime.hosts import HostsOf
from squill.runtime.spark.kinds import is_connect, is_one_host

__all__ = ["HadoopHosts", "hadoop_hosts", "task_rows"]

SCHEMES = ("hdfs", "viewfs")
"""Filesystems on hosts that may be the executors'."""


def hadoop_hosts(session: Any) -> HostsOf | None:
    """Return who knows where files are, or None where nobody does or all is on one host."""
    return None if is_connect(session) or is_one_host(session) else HadoopHosts(session)


class HadoopHosts:
    """Asks Hadoop's name node, once for each file."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._known: dict[str, tuple[str, ...]] = {}

    def __call__(self, path: str) -> tuple[str, ...]:
        if path.partition("://")[0] not in SCHEMES:
            return ()
        if path not in self._known:
            held = self.bytes_held(path)
            self._known[path] = tuple(sorted(held, key=lambda host: (-held[host], host)))
        return self._known[path]

    def bytes_held(self, path: str) -> Counter[str]:
        """Return how much of a file each host has; nothing when Hadoop cannot say: whoever reads it may."""
        context = self._session.sparkContext
        held: Counter[str] = Counter()
        try:
            place = context._jvm.org.apache.hadoop.fs.Path(path)
            system = place.getFileSystem(context._jsc.hadoopConfiguration())
            blocks = system.getFileBlockLocations(place, 0, system.getFileStatus(place).getLen())
            for block in blocks:
                held.update(dict.fromkeys(block.getHosts(), block.getLength()))
        except Py4JJavaError:
            return Counter()
        return held


def task_rows(session: Any, hosts: Sequence[Sequence[str]]) -> Any:
    """Return a DataFrame of the tasks' numbers, one in each partition; Spark runs each on one of its hosts if it can.

    It waits for a free slot there as long as ``spark.locality.wait`` says, and takes any other then.
    """
    tasks = len(hosts)
    if not any(hosts):
        return session.range(0, tasks, 1, tasks)
    context = session.sparkContext
    jvm = context._jvm
    items = []
    for number, names in enumerate(hosts):
        values = context._gateway.new_array(jvm.java.lang.Object, 1)
        values[0] = number
        items.append(jvm.scala.Tuple2(jvm.org.apache.spark.sql.RowFactory.create(values), _scala(jvm, names)))
    any_class = getattr(jvm, "scala.reflect.ClassTag$")
    rows = context._jsc.sc().makeRDD(_scala(jvm, items), getattr(any_class, "MODULE$").Any())
    schema = jvm.org.apache.spark.sql.types.StructType.fromDDL("id int")
    return DataFrame(session._jsparkSession.createDataFrame(rows.toJavaRDD(), schema), session)


def _scala(jvm: Any, items: Sequence[Any]) -> Any:
    found = jvm.java.util.ArrayList()
    for item in items:
        found.add(item)
    return jvm.PythonUtils.toSeq(found)

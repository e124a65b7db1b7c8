"""What kind of session it is: in this process's Java, on a cluster, or behind Spark Connect."""

from __future__ import annotations

import importlib
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from squill.errors import ClusterError

__all__ = ["functions_of", "has_lost_java", "is_connect", "is_one_host", "is_stopped", "java_is_gone", "master_of"]


def is_connect(session: Any) -> bool:
    """Whether it is a session of Spark Connect, which has no context."""
    return "connect" in type(session).__module__


def functions_of(session: Any) -> Any:
    """Return Spark's functions for this session; the common module gives all sessions of a process the same ones."""
    return importlib.import_module("pyspark.sql.connect.functions" if is_connect(session) else "pyspark.sql.functions")


def is_stopped(session: Any) -> bool:
    """Whether somebody has stopped the session, or its Java is gone."""
    if is_connect(session):
        return bool(session.is_stopped)
    java = session.sparkContext._jsc
    try:
        return java is None or bool(java.sc().isStopped())
    except (Py4JError, OSError):
        return True


def has_lost_java(context: Any) -> bool:
    """Whether the process of a context's Java has ended, and nobody has stopped the context."""
    java = context._jsc
    try:
        return java is not None and java.sc() is None
    except (Py4JError, OSError):
        return True


def java_is_gone() -> ClusterError:
    return ClusterError(
        "the Java process of the Spark session has ended",
        "where it was for want of memory, spark.driver.memory gives it more. Start Python anew: PySpark starts no "
        "second one in a process.",
    )


def master_of(session: Any) -> str:
    return str(session.conf.get("spark.master", ""))


def is_one_host(session: Any) -> bool:
    """Whether tasks run on this host, so that they have its folders and its Python.

    A server of Spark Connect may have a local master too, and be anywhere.
    """
    master = master_of(session)
    return not is_connect(session) and master.startswith("local") and not master.startswith("local-cluster")

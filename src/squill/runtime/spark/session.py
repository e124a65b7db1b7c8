"""Spark sessions: start one that suits us, or take one as it is and say what it lacks."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from squill.arguments import checked_flag, is_one_of
from squill.errors import ClusterError, PlanError
from squill.exchange.codec import COMPRESSIONS
from squill.plan.paths import written_path
from squill.plan.routing import CHANNELS
from squill.polars_memory import keeping_environment
from squill.runtime.spark.kinds import has_lost_java, is_connect, is_one_host, is_stopped, java_is_gone, master_of
from squill.runtime.spark.runtime import SparkRuntime
from squill.runtime.spark.shipping import ship_package
from squill.runtime.spark.slots import check_shards, slots_of
from squill.wording import shortened

__all__ = ["start_runtime", "start_session"]

CONNECT = "sc://"
LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\s*(\d+))?\])?")
MANY_SLOTS = 1 << 16
TASK_ATTEMPTS = 4
"""Spark's default everywhere but on local masters, where a task has one attempt unless the master says more."""
PACKAGE_FOLDER = Path(__file__).resolve().parents[3]
QUIET_LOG = Path(__file__).resolve().with_name("log4j2.properties")


def start_runtime(
    session: Any,
    *,
    master: str | None,
    machines: int | None,
    cores: int,
    folder: str | os.PathLike[str] | None,
    channel: str | None,
    compression: str | None,
    tls: bool = False,
) -> SparkRuntime:
    """Return a runtime on the session, or on one started for it."""
    for name, value in (("machines", 1 if machines is None else machines), ("cores", cores)):
        if type(value) is not int or value < 1:
            raise PlanError(f"spark: {name} is {shortened(value)}", "give a whole number of at least 1.")
    check_shards((machines or 1) * cores)
    checked_flag(tls, "spark: tls")
    if not is_one_of(compression, (None, *COMPRESSIONS)):
        raise PlanError(
            f"spark: compression is {shortened(compression)}", f"use None or one of {', '.join(COMPRESSIONS)}."
        )
    if not is_one_of(channel, (None, *CHANNELS)):
        raise PlanError(
            f"spark: channel is {shortened(channel)}", f"use one of {', '.join(CHANNELS)}, or leave it out."
        )
    if session is not None and master is not None:
        raise PlanError("spark: both a session and a master are given", "give one; a session has its master.")
    if session is not None and not hasattr(session, "createDataFrame"):
        raise PlanError(f"spark: {shortened(session)} is no Spark session", 'give one, or sq.spark(master="local[4]").')
    if session is not None and is_stopped(session):
        raise ClusterError(
            "spark: the session has been stopped", 'start another one, or leave it to sq.spark(master="local[4]").'
        )
    owned = session is None
    if owned:
        session = start_session(master or "local[*]", cores)
    try:
        runtime = SparkRuntime(
            session,
            machines=_machines(session, machines, cores),
            cores=cores,
            folder=_folder(session, folder, channel),
            channel=channel,
            compression=compression,
            owns_session=owned,
            tls=tls,
        )
        ship_package(session)
    except BaseException:
        if owned:
            session.stop()
        raise
    return runtime


def start_session(master: str, cores: int) -> SparkSession:
    """Start a session: quiet, in UTC, with this Python, tasks of `cores` cores, and workers forked ready.

    What is behind an address of Spark Connect is started already, and has its settings.
    """
    if not isinstance(master, str):
        raise PlanError(f"spark: master is {shortened(master)}", "give one such as local[4] or spark://host:7077.")
    if master.startswith(CONNECT):
        return _session_at(master)
    _check_java()
    _check_local_cores(master, cores)
    _check_none_is_running()
    is_local = LOCAL.fullmatch(master) is not None
    # Elsewhere the package is unpacked where executors start Python.
    package = str(PACKAGE_FOLDER) if is_local else "."
    python_path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    settings = {
        "spark.app.name": "squill",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.task.cpus": str(cores),
        "spark.driver.memory": f"{_driver_gibibytes()}g",
        "spark.python.daemon.module": "squill.runtime.spark.daemon",
        "spark.executorEnv.POLARS_MAX_THREADS": str(cores),
        "spark.executorEnv.PYTHONPATH": python_path,
        # Over TCP Java and a worker that exchange short messages wait 40 ms for each other. Elsewhere sockets would be
        # in folders of the cluster's, whose names may be longer than those of sockets can be.
        "spark.python.unix.domain.socket.enabled": str(is_local and hasattr(socket, "AF_UNIX")).lower(),
    }
    settings |= {f"spark.executorEnv.{name}": value for name, value in keeping_environment().items()}
    builder = SparkSession.builder.master(_with_attempts(master))
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with _environment():
            session: SparkSession = builder.getOrCreate()
    except (Py4JJavaError, PySparkException) as error:
        raise _not_started(master, error) from error
    except (Py4JError, OSError) as error:
        # Of a session that ended with its Java PySpark keeps the address.
        raise java_is_gone() from error
    return session


def _not_started(master: str, error: Exception) -> ClusterError:
    # Java that does not even start has said why on its own way out, before this.
    said = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error
    return ClusterError(
        f"spark: no session could be started on {master!r}: {str(said).splitlines()[0]}",
        "check the master: local[4], spark://host:7077, yarn, k8s://… or sc://host:15002, and its cores.",
    )


def _check_none_is_running() -> None:
    """Raise where a session would be one that others use, and stop: who makes another is given the one of the process.

    Which session is active is known of each thread by itself; the context that sessions share is one for all threads.
    """
    _check_no_context()
    # Of Spark Connect there is no context, and Spark knows the session of this thread, or the first one.
    session = _connect_session()
    if session is not None:
        raise _is_running(session.client.host)


def _check_no_context() -> None:
    context = SparkContext._active_spark_context
    if context is not None and has_lost_java(context):
        raise java_is_gone()
    if context is not None and context._jsc is not None:
        raise _is_running(str(context.master))


def _connect_session() -> Any:
    module = sys.modules.get("pyspark.sql.connect.session")
    if module is None:
        return None
    return module.SparkSession.getActiveSession() or module.SparkSession._get_default_session()


def _is_running(where: str) -> ClusterError:
    return ClusterError(
        f"spark: a Spark session is running already (master {where})",
        "give it to us, sq.spark(session), or stop it first.",
    )


CONNECT_PACKAGES = ("pandas", "grpc", "grpc_status", "google.rpc", "zstandard")
CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
"""Where the environment has it, PySpark takes whatever is asked of it for something of Spark Connect."""
CONNECT_SECONDS = 10.0
PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")


def _session_at(address: str) -> SparkSession:
    shown = address.partition("/;")[0]  # behind it may be a token
    is_connected = CONNECT_MODE in os.environ
    try:
        # Asked here: PySpark, where it takes the program for a test of its own, ends it when one is missing.
        for name in CONNECT_PACKAGES:
            importlib.import_module(name)
        _check_no_context()
        _check_answers(address, shown)
        # Not the one that there may be already, at whatever address: ours is stopped when the cluster is closed.
        session: SparkSession = SparkSession.builder.remote(address).create()
    except ImportError as error:
        raise ClusterError(
            f"spark: {shown} is Spark Connect, which needs packages that are not here: {error}",
            "pip install 'squill[connect]'",
        ) from error
    except (PySparkException, ValueError) as error:
        if not is_connected:
            os.environ.pop(CONNECT_MODE, None)
        raise _not_started(shown, error) from error
    return session


def _check_answers(address: str, shown: str) -> None:
    """Raise where nobody listens: PySpark would try again and again, for ten minutes, without a word."""
    if any(os.environ.get(name) or os.environ.get(name.upper()) for name in PROXIES):
        return  # then it is another host that knows
    from pyspark.sql.connect.client import DefaultChannelBuilder

    host, _, port = DefaultChannelBuilder(address).endpoint.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise ClusterError(
            f"spark: nobody answers at {shown}: {error}",
            "is the server of Spark Connect started, and is its port, 15002 unless told, open to this host?",
        ) from error


def _driver_gibibytes() -> int:
    """Return a quarter of this machine's memory, 8 GiB at most: on a local master tasks' rows pass through it."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(8, total // 4 // 2**30))


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java") if not home else shutil.which(str(Path(home) / "bin" / "java"))
    if java is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise ClusterError(
            f"spark: there is no java {where}, and Spark needs Java 17 or newer",
            "on Debian or Ubuntu: apt-get install openjdk-17-jre-headless; or let JAVA_HOME name a JDK's folder.",
        )


def _check_local_cores(master: str, cores: int) -> None:
    """Raise where a task needs more cores than the local master has; Spark would not start."""
    match = LOCAL.fullmatch(master)
    if match is not None and match.group(1) != "*" and int(match.group(1) or 1) < cores:
        raise _too_few_slots(cores, int(match.group(1) or 1))


def _too_few_slots(cores: int, slots: int) -> ClusterError:
    return ClusterError(
        f"spark: a task needs {cores} cores, but the master has {slots}",
        f"use fewer cores, or a master with more, such as local[{cores}].",
    )


def _with_attempts(master: str) -> str:
    """Let failed tasks be tried again on local masters too: ``local[2]`` becomes ``local[2,4]``."""
    match = LOCAL.fullmatch(master)
    if match is None or match.group(2) is not None:
        return master
    return f"local[{match.group(1) or 1},{TASK_ATTEMPTS}]"


@contextmanager
def _environment() -> Iterator[None]:
    """Let workers run the driver's interpreter, unless somebody has chosen one, and let Java start quietly.

    Spark reads both from the environment while it starts; afterwards it is as it was.
    """
    before = {name: os.environ.get(name) for name in ("PYSPARK_PYTHON", "SPARK_SUBMIT_OPTS")}
    options = [before["SPARK_SUBMIT_OPTS"] or "", f"-Dlog4j2.configurationFile={QUIET_LOG.as_uri()}"]
    os.environ["PYSPARK_PYTHON"] = before["PYSPARK_PYTHON"] or sys.executable
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(filter(None, options))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _machines(session: Any, machines: int | None, cores: int) -> int:
    """Return how many tasks make up the cluster, after checking that one task may use `cores` cores."""
    allowed = int(session.conf.get("spark.task.cpus", "1"))
    if cores > allowed:
        raise ClusterError(
            f"spark: cores is {cores}, but the session gives a task {allowed}",
            f"start the session with --conf spark.task.cpus={cores}, or let cores be at most {allowed}.",
        )
    if not is_connect(session):
        slots = slots_of(session, allowed, count_all=machines is None)
        return slots if machines is None else machines
    if machines is not None:
        return machines
    slots = _slots_of_connect(session)
    if slots < allowed:
        raise _too_few_slots(allowed, slots)
    return slots // allowed


def _slots_of_connect(session: Any) -> int:
    """Return how many cores there are: there is no context to ask, but a range is cut into as many parts."""
    parts = session.range(MANY_SLOTS).selectExpr("spark_partition_id() as part")
    return 1 + int(parts.selectExpr("max(part)").first()[0])


def _folder(session: Any, folder: str | os.PathLike[str] | None, channel: str | None) -> Path | None:
    """Return the folder that all machines see, or None when there is none: rows then go through the shuffle."""
    if folder is not None:
        return written_path(folder, "spark: folder").resolve()
    if is_one_host(session):
        return Path(tempfile.gettempdir())
    if channel == "files":
        where = "Spark Connect" if is_connect(session) else master_of(session) or "this session"
        raise ClusterError(
            f"spark: the machines of {where} need a folder that they and this process see",
            'give one: sq.spark(session, folder="/mnt/shared"), or leave channel out.',
        )
    return None

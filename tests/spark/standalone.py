"""A standalone Spark cluster of this machine's own: a master and workers in processes of their own."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

__all__ = ["executor_pids", "python_without", "standalone_cluster"]

SPARK_HOME = Path(pyspark.__file__).parent
LIMIT_SECONDS = 300


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def standalone_cluster(folder: Path, *, workers: int, cores: int) -> Iterator[str]:
    """Start a master and workers on free ports; yield the master's address; stop what was started.

    Each worker has a loopback address of its own, 127.0.0.1 and on, and so is a host of its own to Spark.
    """
    port = _free_port()
    address = f"spark://127.0.0.1:{port}"
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes.append(_start(folder, "master", ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]))
        _wait_for(folder / "master.log", "I have been elected leader|New state: ALIVE", processes)
        for number in range(workers):
            name = f"worker-{number}"
            options = ["--host", f"127.0.0.{1 + number}", "--webui-port", "0", "--cores", str(cores), "--memory", "1g"]
            processes.append(_start(folder, name, [*options, "--work-dir", str(folder / name), address]))
        for number in range(workers):
            _wait_for(folder / f"worker-{number}.log", "Successfully registered with master", processes)
        yield address
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(timeout=LIMIT_SECONDS)


def _start(folder: Path, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
    role = "master.Master" if name == "master" else "worker.Worker"
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *arguments]
    environment = {**os.environ, "SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": sys.executable}
    # Executors inherit it, and what they can import is for the driver to say.
    environment.pop("PYTHONPATH", None)
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)


def _wait_for(log: Path, pattern: str, processes: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        if log.exists() and re.search(pattern, log.read_text(errors="replace")):
            return
        if any(process.poll() is not None for process in processes):
            break
        time.sleep(0.2)
    raise TimeoutError(f"{log.name} never said {pattern!r}:\n{log.read_text(errors='replace')[-2_000:]}")


def executor_pids(folder: Path) -> list[int]:
    """Return the Java processes of the executors: the children of the workers that were started in the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
                working = (entry / "cwd").readlink()
            except OSError:
                continue
            if b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in command and folder in working.parents:
                found.append(int(entry.name))
    return sorted(found)


def python_without(folder: Path, *packages: str) -> Path:
    """Return a Python that has what this one has, but for some packages."""
    kept = folder / "packages"
    kept.mkdir(parents=True)
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.suffix != ".pth" and entry.name.partition("-")[0] not in packages:
            (kept / entry.name).symlink_to(entry)
    command = folder / "python"
    # -S: without the installed packages, which are in the folder.
    command.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{kept}" exec {sys.executable} -S "$@"\n')
    command.chmod(0o755)
    return command

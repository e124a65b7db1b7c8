"""The driver's own package for executors that have none, or another.

Spark unpacks an archive into a folder of each executor, where Python looks before it looks at what is installed: a
folder called squill is all it takes. As these are files, not a zip, compiled kernels are found and kept as
everywhere; their cache is keyed by content, so all executors of a host share it.
"""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from squill.runtime.spark.kinds import is_connect, is_one_host

__all__ = ["package_archive", "ship_package"]

PACKAGE = Path(__file__).resolve().parents[2]
UNPACKED = "squill"
"""The folder on the executors, and so the name by which it is imported."""
EPOCH = (1980, 1, 1, 0, 0, 0)


def ship_package(session: Any) -> None:
    """Give the executors the driver's package, unless they run on its host or a cluster of this session has already."""
    if is_one_host(session):
        return
    archive = package_archive()
    if is_connect(session):
        _ship_to_server(session, archive)
        return
    context = session.sparkContext
    # An archive of the context, not of the session: those of a session would hide the files that users have added.
    if not any(Path(sent).name == f"{archive.name}#{UNPACKED}" for sent in context.listArchives):
        context.addArchive(f"{archive}#{UNPACKED}")


def _ship_to_server(session: Any, archive: Path) -> None:
    session.addArtifacts(f"{archive}#{UNPACKED}", archive=True)


@cache
def package_archive() -> Path:
    """Return the package as an archive that stands as long as this process: executors may ask for it late."""
    folder = tempfile.TemporaryDirectory(prefix="squill-package-")
    _FOLDERS.append(folder)
    files = [path for path in sorted(PACKAGE.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    digest = hashlib.blake2b(digest_size=12)
    unnamed = Path(folder.name) / "package.zip"
    with zipfile.ZipFile(unnamed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in files:
            entry = zipfile.ZipInfo(str(path.relative_to(PACKAGE)), EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            content = path.read_bytes()
            digest.update(entry.filename.encode() + b"\0" + content)
            archive.writestr(entry, content)
    return unnamed.rename(unnamed.with_name(f"squill-{digest.hexdigest()}.zip"))


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []
"""Removed when the interpreter ends."""

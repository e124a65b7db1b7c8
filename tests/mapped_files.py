"""Counts the files without names that this process maps."""

from __future__ import annotations

from pathlib import Path

__all__ = ["mapped_files"]


def mapped_files(folder: Path) -> int:
    """Return how many files of the folder, which are to have no names there, are held on disk."""
    assert list(folder.iterdir()) == []
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return len({line.split(maxsplit=5)[4] for line in lines if f" {folder}/" in line})

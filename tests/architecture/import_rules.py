"""Which module of squill may import what, read from the sources without running them.

Layers stand in one order and imports point downwards. An import counts wherever it is written: at module
level, inside a function, under ``TYPE_CHECKING`` or as ``import_module("...")`` of a literal name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "squill"

SURFACE = ("ci", "ingest", "listed", "pushed", "stream", "stream_actions", "sharded", "cluster", "progress", "warming")
BASE = ("time", "errors", "wording", "arguments", "polars_memory", "polars_signals")

# From the top down. A layer may import itself and every layer below it.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("cli", "dashboard"),
    ("sql",),
    SURFACE,
    ("runtime",),
    ("catalog",),
    ("bubbles",),
    ("joins",),
    ("exchange",),
    ("engine",),
    ("plan",),
    BASE,
)
ROOT = "__init__"
TESTING = "testing"

# These use the library as a user does, so they may import the package itself and little else.
PUBLIC_API = frozenset({ROOT, *SURFACE, *BASE})
MAY_IMPORT_ONLY = {
    "cli": PUBLIC_API | {"cli"},
    "dashboard": PUBLIC_API | {"dashboard"},
    TESTING: PUBLIC_API | {"plan", TESTING},
}

RANK = {unit: rank for rank, units in enumerate(LAYERS) for unit in units}


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One imported name, and where it is written."""

    path: Path
    line: int
    importer: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """An import that breaks a rule."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


def violations(src: Path) -> list[Violation]:
    """Return every broken rule in the package below `src`, in the order of files and lines."""
    found = []
    for path in sorted((src / PACKAGE).rglob("*.py")):
        unit = unit_of(module_name(path, src))
        if unit not in RANK and unit not in {ROOT, TESTING}:
            reason = f"{unit!r} stands in no layer; add it to LAYERS in {Path(__file__).name}"
            found.append(Violation(path=path, line=1, reason=reason))
            continue
        for item in imports(path, src):
            broken = internal_reason(item) if is_internal(item) else external_reason(item)
            if broken:
                found.append(Violation(path=path, line=item.line, reason=broken))
    return found


def internal_reason(item: Import) -> str | None:
    """Return why an import inside squill is refused, or None when it is allowed."""
    importer, target = unit_of(item.importer), unit_of(item.target)
    if target == TESTING and importer != TESTING:
        return f"{item.importer} imports {item.target}, but testing is imported by nobody"
    if importer in MAY_IMPORT_ONLY and target not in MAY_IMPORT_ONLY[importer]:
        return f"{item.importer} imports {item.target}, which is not part of the public API"
    if importer in MAY_IMPORT_ONLY or importer == ROOT:
        return None
    if target == ROOT:
        return f"{item.importer} imports the package itself; import the module that defines the name"
    if target in RANK and RANK[target] < RANK[importer]:
        return f"{item.importer} imports {item.target}, but {target!r} stands above {importer!r}"
    return None


def external_reason(item: Import) -> str | None:
    """Return why an import of another library is refused, or None when it is allowed."""
    library = item.target.partition(".")[0]
    folders = item.importer.split(".")[1:]
    if library in {"pyspark", "py4j"} and folders[:2] != ["runtime", "spark"]:
        return f"{item.importer} imports {library}; only runtime/spark may"
    if library in {"numba", "llvmlite"} and "kernels" not in folders:
        return f"{item.importer} imports {library}; only folders named kernels may"
    if library == "sqlalchemy" and folders[:1] != ["catalog"]:
        return f"{item.importer} imports {library}; only catalog may"
    if library == "pandas":
        return f"{item.importer} imports pandas; it is there for PySpark's sake alone"
    return None


def imports(path: Path, src: Path) -> Iterator[Import]:
    """Yield what the file imports, a ``from`` import of a submodule as that submodule."""
    importer = module_name(path, src)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
        for target in targets(node, importer, path, src):
            yield Import(path=path, line=getattr(node, "lineno", 1), importer=importer, target=target)


def targets(node: ast.AST, importer: str, path: Path, src: Path) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = absolute_base(node, importer, path)
        for alias in node.names:
            submodule = f"{base}.{alias.name}"
            yield submodule if is_module(submodule, src) else base
    elif isinstance(node, ast.Call) and called_name(node) in {"import_module", "__import__"}:
        for name in node.args[:1]:
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield name.value


def absolute_base(node: ast.ImportFrom, importer: str, path: Path) -> str:
    """Return the module a ``from`` import names, with leading dots resolved."""
    if node.level == 0:
        return node.module or ""
    package = importer.split(".") if path.name == "__init__.py" else importer.split(".")[:-1]
    parents = package[: len(package) - node.level + 1]
    return ".".join([*parents, node.module] if node.module else parents)


def called_name(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def module_name(path: Path, src: Path) -> str:
    """Return ``squill.plan.schema`` for ``src/squill/plan/schema.py``."""
    parts = path.relative_to(src).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name: str, src: Path) -> bool:
    place = src.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def is_internal(item: Import) -> bool:
    return item.target.partition(".")[0] == PACKAGE


def unit_of(module: str) -> str:
    """Return the folder or module directly below squill that `module` belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ROOT

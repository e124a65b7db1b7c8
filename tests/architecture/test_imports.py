"""Imports point downwards, heavy libraries stay where they belong, and ``import squill`` stays light."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.import_rules import violations

SRC = Path(__file__).parents[2] / "src"


def test_source_tree_keeps_the_import_rules() -> None:
    found = violations(SRC)
    assert not found, "\n" + "\n".join(map(str, found))


def test_importing_squill_loads_no_heavy_library() -> None:
    code = "import json, sys, squill; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    heavy = {"llvmlite", "numba", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "sqlalchemy"} & loaded
    assert not heavy, f"import squill loads {', '.join(sorted(heavy))}; import it where it is used"


def write_tree(src: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = src / "squill" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


TARGETS = {"engine/batch.py": "", "plan/schema.py": "", "errors.py": "", "testing/reference.py": ""}

REFUSED = {
    "upwards": ("plan/nodes.py", "from squill.engine.batch import Batch", "'engine' stands above 'plan'"),
    "upwards, submodule": ("plan/nodes.py", "from squill import engine", "'engine' stands above 'plan'"),
    "upwards, relative": ("plan/nodes.py", "from ..engine import batch", "'engine' stands above 'plan'"),
    "upwards, package": ("plan/__init__.py", "from ..engine import batch", "'engine' stands above 'plan'"),
    "upwards, lazy": ("plan/nodes.py", "def f():\n    import squill.engine", "'engine' stands above 'plan'"),
    "upwards, by name": ("plan/nodes.py", "import_module('squill.engine')", "'engine' stands above 'plan'"),
    "package itself": ("engine/run.py", "import squill", "imports the package itself"),
    "public name": ("engine/run.py", "from squill import col", "imports the package itself"),
    "testing": ("engine/run.py", "from squill.testing import reference", "testing is imported by nobody"),
    "testing, in root": ("__init__.py", "from squill import testing", "testing is imported by nobody"),
    "reference on engine": ("testing/run.py", "import squill.engine", "not part of the public API"),
    "people below the API": ("cli/run.py", "import squill.plan", "not part of the public API"),
    "pyspark": ("runtime/local/run.py", "import pyspark.sql", "only runtime/spark may"),
    "numba": ("engine/run.py", "from numba import njit", "only folders named kernels may"),
    "sqlalchemy": ("runtime/store.py", "import sqlalchemy", "only catalog may"),
    "pandas": ("runtime/spark/run.py", "import pandas as pd", "for PySpark's sake alone"),
    "unknown unit": ("misc.py", "", "'misc' stands in no layer"),
}


@pytest.mark.parametrize(("name", "text", "reason"), REFUSED.values(), ids=REFUSED)
def test_broken_rule_names_file_and_line(tmp_path: Path, name: str, text: str, reason: str) -> None:
    lines_before = "" if name == "misc.py" else "import json\n"
    write_tree(tmp_path, {**TARGETS, name: lines_before + text})
    (found,) = violations(tmp_path)
    assert reason in str(found)
    line = (lines_before + text).count("\n") + 1
    assert str(found).startswith(f"{tmp_path / 'squill' / name}:{line}: ")


ALLOWED = {
    "downwards": ("engine/run.py", "from squill.plan.schema import Schema"),
    "own layer": ("time.py", "from squill.errors import SquillError"),
    "relative": ("engine/run.py", "from . import batch"),
    "root": ("__init__.py", "from squill.engine import batch"),
    "testing on plan": ("testing/run.py", "import squill as sq\nfrom squill.plan import schema"),
    "people": ("cli/run.py", "import squill as sq"),
    "pyspark": ("runtime/spark/run.py", "def f():\n    import pyspark"),
    "numba": ("joins/local/kernels/band.py", "import numba"),
}


@pytest.mark.parametrize(("name", "text"), ALLOWED.values(), ids=ALLOWED)
def test_allowed_import_is_not_reported(tmp_path: Path, name: str, text: str) -> None:
    write_tree(tmp_path, {**TARGETS, name: text})
    assert violations(tmp_path) == []

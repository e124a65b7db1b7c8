"""Every docstring example in squill runs. `sq` (squill) and `pl` (polars) are there without an import."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import polars as pl
import pytest

import squill as sq

SRC = Path(__file__).parents[2] / "src"
PROMPT = re.compile(r"^\s*>>> ", re.MULTILINE)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")


# How many prompts each module's text has, of the modules that have any.
PROMPTS = {
    module_name(path): len(prompts)
    for path in sorted((SRC / "squill").rglob("*.py"))
    if (prompts := PROMPT.findall(path.read_text(encoding="utf-8")))
}


@pytest.mark.parametrize("name", PROMPTS)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctest.DocTestFinder().find(importlib.import_module(name), extraglobs={"sq": sq, "pl": pl})
    examples = sum(len(test.examples) for test in found)
    assert examples == PROMPTS[name], f"doctest finds {examples} of the {PROMPTS[name]} examples in {name}"
    output: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for test in found:
        runner.run(test, out=output.append)
    assert not runner.failures, "".join(output)


def test_modules_with_examples_were_found() -> None:
    assert len(PROMPTS) >= FEWEST_MODULES, "the search for docstring examples has lost some modules"


# Raised as modules gain examples, so that a search that finds nothing cannot pass.
FEWEST_MODULES = 5

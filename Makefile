# Each command sets up what it needs, so any of them can be the first. The work is done by scripts/*.sh.

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format bench faults docs clean

python := .venv/bin/python

help: ## say what the commands do
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make .venv with pinned packages, and see that Java 17 is there
	@scripts/setup.sh

demo: setup ## show the library at work on an embedded Spark
	@$(python) examples/demo.py

test: setup ## run every check, and every test but those of make faults
	@scripts/test.sh

check: setup ## lint, types, import rules and size figures: the part that takes seconds
	@scripts/check.sh

format: setup ## format the code and mend what the linter can mend
	@$(python) -m ruff check --fix --quiet
	@$(python) -m ruff format --quiet

bench: setup ## measure against Polars, DuckDB, Bytewax, Temporian and a bare loop (ARGS= for options)
	@scripts/bench.sh $(ARGS)

faults: setup ## run the tests that take long: kill tasks, workers and drivers, try a thousand random queries
	@$(python) -m pytest -m faults
	@SQUILL_RANDOM=1 $(python) -m pytest -q tests/property -n 2 -m "not spark and not faults"

docs: setup ## run every example of the docs and docstrings, and check the links
	@$(python) -m pytest tests/docs -m "not faults"

clean: ## remove caches and build output; the environments stay
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	@find . -path "./.venv*" -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

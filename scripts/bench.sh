#!/usr/bin/env bash
# Install what only the benchmarks need, then run them; arguments go to benchmarks/run.py.
set -euo pipefail
cd "$(dirname "$0")/.."

printf '[1/3] '
scripts/environment.sh .venv requirements-bench.lock
# Temporian needs numpy 1 and Squill numpy 2, so it runs in a process and an environment of its own.
printf '[2/3] '
scripts/environment.sh .venv-temporian requirements-temporian.lock
echo "[3/3] benchmarks"
SQUILL_TEMPORIAN_PYTHON=$PWD/.venv-temporian/bin/python exec .venv/bin/python benchmarks/run.py "$@"

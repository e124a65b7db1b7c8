#!/usr/bin/env bash
# The checks that take seconds: lint, format, types, import rules. Ends with the size figures, which gate nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly python=.venv/bin/python

"$python" -m ruff check --quiet
"$python" -m ruff format --check --quiet || {
    echo "the files above are not formatted; run:  make format" >&2
    exit 1
}
"$python" -m mypy --no-error-summary
"$python" -m pytest -q --no-header tests/architecture
"$python" scripts/figures.py

#!/usr/bin/env bash
# Make everything that the other commands need. Running it again costs a fraction of a second.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly begin=$SECONDS

java=$(scripts/java.sh)
echo "[1/3] $java"
printf '[2/3] '
scripts/environment.sh .venv requirements.lock --with-squill
ready=$(.venv/bin/python -c '
import importlib.metadata, platform
print("squill", importlib.metadata.version("squill"), "on Python", platform.python_version())')
echo "[3/3] $ready, ready after $((SECONDS - begin)) s"

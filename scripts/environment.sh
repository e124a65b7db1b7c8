#!/usr/bin/env bash
# usage: environment.sh FOLDER LOCK [--with-squill]
# Bring the virtual environment in FOLDER to the pinned packages of LOCK; do nothing when it is there already.
# --with-squill adds the package itself, editable, so that changes under src/ need no second setup.
set -euo pipefail

readonly folder=$1 lock=$2 squill=${3:-}
readonly python=$folder/bin/python
readonly stamp=$folder/.stamp-$(basename "$lock")

# The place counts too: an environment that was copied or moved still points to the old one.
wanted() { { cat "$lock" pyproject.toml; pwd; } | sha256sum; }

# Turns pip's "Collecting numpy==2.4.6 (from ...)" into a count; on a terminal it stays on one line.
show_progress() {
    local tty=0
    if [[ -t 1 ]]; then tty=1; fi
    awk -v total="$(grep -c == "$lock")" -v tty="$tty" '
        /^(Collecting|Processing|Requirement already satisfied:) / {
            sub(/^(Collecting|Processing|Requirement already satisfied:) /, ""); sub(/ .*/, ""); sub(/.*\//, "")
            count++
            if (tty) printf "\r\033[K      %d of %d: %s", count, total, $0
            else if (count == total || count % 10 == 0) printf "      %d of %d\n", count, total
        }
        /^Installing/ { printf "%s      unpacking\n", tty ? "\r\033[K" : "" }
        { fflush() }
        END { if (tty) printf "\r\033[K" }'
}

pip_install() {
    "$python" -m pip --disable-pip-version-check --require-virtualenv install --no-deps "$@"
}

if [[ -f $stamp && $(cat "$stamp") == "$(wanted)" ]] && "$python" -c '' 2>/dev/null; then
    echo "$folder is up to date with $lock"
    exit
fi
echo "$folder: $(grep -c == "$lock") pinned packages from $lock (the first time, a few minutes)"
if ! "$python" -m pip --version >/dev/null 2>&1; then
    base=$(scripts/python.sh)
    echo "      making $folder with $base"
    "$base" -m venv --clear "$folder"
fi
pip_install -r "$lock" | show_progress
if [[ $squill == --with-squill ]]; then
    pip_install --quiet --no-build-isolation --editable .
fi
wanted >"$stamp"

#!/usr/bin/env bash
# Print the path of a Python that can make our virtual environment, or say what to install.
# $PYTHON chooses one; otherwise 3.11, which the locks are made for, comes first.
set -euo pipefail

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
can_make_venv() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

new_enough=()
for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3 python}; do
    path=$(command -v "$candidate") || continue
    is_new_enough "$path" || continue
    if can_make_venv "$path"; then
        echo "$path"
        exit
    fi
    new_enough+=("$path")
done

if ((${#new_enough[@]} == 0)); then
    {
        echo "error: no Python 3.11 or newer found (looked for: ${PYTHON:-python3.11 python3.12 python3.13 python3 python})."
        echo "On Debian 12:  sudo apt-get install python3 python3-venv"
        echo "Elsewhere: install it and name it, for instance:  make setup PYTHON=/opt/python3.11/bin/python3"
    } >&2
    exit 1
fi

# Debian keeps ensurepip in a package of its own, one per Python version.
python=${new_enough[0]}
package="python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
if [[ $EUID -eq 0 ]] && command -v apt-get >/dev/null; then
    echo "      installing $package with apt-get" >&2
    {
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package"
    } >/dev/null || true # the check below says what is missing
fi
if can_make_venv "$python"; then
    echo "$python"
    exit
fi
{
    echo "error: $python cannot make virtual environments: its module ensurepip is missing."
    echo "On Debian or Ubuntu:  sudo apt-get install $package"
} >&2
exit 1

#!/usr/bin/env bash
# Every test, the quick ones first. Failing checks end the run at once, as they are cheap to repeat; the test
# stages all run, so that one run tells everything that is wrong.
set -uo pipefail
cd "$(dirname "$0")/.."

readonly pytest=(.venv/bin/python -m pytest -q --no-header)
readonly stages=4
number=0
report=()
failed=0

# stage TITLE COMMAND...: run the command under a numbered heading and keep its result and time.
stage() {
    local title=$1 begin=$SECONDS result=passed
    shift
    number=$((number + 1))
    printf '\n[%d/%d] %s\n' "$number" "$stages" "$title"
    "$@" || { result=FAILED && failed=1; }
    report+=("$(printf '%-6s %4d s  %s' "$result" $((SECONDS - begin)) "$title")")
    [[ $result == passed ]]
}

finish() {
    printf '\n'
    printf '%s\n' "${report[@]}"
    if ((number < stages)); then echo "the other stages were not run"; fi
    exit "$failed"
}

kernel_tests() {
    local folders
    mapfile -t folders < <(find tests/unit -type d -name kernels | sort)
    if ((${#folders[@]} == 0)); then
        echo "error: no folder tests/unit/**/kernels, so no kernel was checked" >&2
        return 1
    fi
    # The operators and folds reach the loops that have no test of their own.
    NUMBA_BOUNDSCHECK=1 "${pytest[@]}" -n 2 --dist loadfile -m "not spark and not faults" "${folders[@]}" \
        tests/unit/engine/operators tests/unit/engine/aggregation
}

stage "checks: lint, format, types, import rules" scripts/check.sh || finish
stage "unit, property and conformance tests, doctests and snippets" \
    "${pytest[@]}" -n 2 --dist loadfile -m "not spark and not faults" --ignore tests/architecture
stage "kernel tests again, with array bounds checked" kernel_tests
stage "Spark tests" "${pytest[@]}" -m "spark and not faults"
finish

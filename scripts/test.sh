#!/bin/sh
# scripts/test.sh PYTHON: all tests but tests/tools, in two halves side by side, file by file, the
# longest first (tests/conftest.py). One waits for Slurm's daemons, in processes with clusters of their own; the
# other computes, with what the first leaves of the processors: nothing in it waits for a daemon.
# The report of Slurm's half comes last. Exit: 0 = all passed.
set -u
python=$1
"$python" -m rltuned.lab.cli.compile || exit # once: else each process compiles for itself
report=$(mktemp)
RLTUNED_TEST_SHARED=$(mktemp -d) # of both halves, for tests/accounting.py
export RLTUNED_TEST_SHARED
chmod 711 "$RLTUNED_TEST_SHARED"
slurm=
# a shell without a terminal starts what runs beside it deaf to Ctrl-C
trap '[ -z "$slurm" ] || kill "$slurm" 2>/dev/null; rm -rf "$report" "$RLTUNED_TEST_SHARED"' EXIT
trap 'exit 130' INT TERM
set -- tests/contract tests/e2e tests/faults tests/integration tests/backtest/test_slurm.py
"$python" -m pytest -q -n 4 --dist loadfile --no-loadscope-reorder "$@" >"$report" 2>&1 &
slurm=$!
# shellcheck disable=SC2046 # words without spaces
nice "$python" -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder \
    $(printf -- '--ignore=%s ' tests/tools "$@")
computed=$?
wait $slurm
waited=$?
slurm=
cat "$report"
exit $((computed > waited ? computed : waited))

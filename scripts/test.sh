#!/bin/sh
# scripts/test.sh PYTHON: the whole suite in two halves side by side: one computes, the other waits for
# Slurm's daemons, file by file in three processes with clusters of their own, in the order of
# tests/conftest.py. Its report comes last. Exit: 0 = all passed.
set -u
python=$1
"$python" -m rltuned.train.compile || exit # once, before tests have time limits
report=$(mktemp)
RLTUNED_TEST_SHARED=$(mktemp -d) # of both halves, for tests/accounting.py
export RLTUNED_TEST_SHARED
chmod 711 "$RLTUNED_TEST_SHARED"
slurm=
# a shell without a terminal starts what runs beside it deaf to Ctrl-C
trap '[ -z "$slurm" ] || kill "$slurm" 2>/dev/null; rm -rf "$report" "$RLTUNED_TEST_SHARED"' EXIT
trap 'exit 130' INT TERM
"$python" -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder \
    tests/contract tests/e2e tests/faults tests/integration >"$report" 2>&1 &
slurm=$!
"$python" -m pytest -q --ignore=tests/contract --ignore=tests/e2e --ignore=tests/faults \
    --ignore=tests/integration
computed=$?
wait $slurm
waited=$?
slurm=
cat "$report"
exit $((computed > waited ? computed : waited))

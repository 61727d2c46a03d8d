#!/bin/sh
# Make the virtual environment that every make target uses, with these extras or without any:
#   sh scripts/setup.sh .venv train,dev
set -eu
venv=$1
extras=${2:+[$2]}

say() { printf 'setup: %s\n' "$*"; }

python=
for candidate in python3.11 python3.12 python3.13 python3.14 python3; do
    if command -v "$candidate" >/dev/null 2>&1 &&
        "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null; then
        python=$candidate
        break
    fi
done

on_debian_as_root() { [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ]; }

if [ -z "$python" ] || ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    if on_debian_as_root; then
        say "installing Debian packages: python3 python3-venv"
        apt-get -qq update
        DEBCONF_NOWARNINGS=yes DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
            python3 python3-venv ca-certificates >/dev/null
        python=python3
    else
        say "needs Python 3.11 to 3.14 with the venv module (Debian: python3-venv)" >&2
        exit 1
    fi
fi

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
# The ordinary index gives torch with CUDA: gigabytes. PyTorch's own index has it for the CPU alone, which
# pip prefers. A machine whose pip has another index, or none, uses that.
index=
if [ -n "$extras" ] && ! "$venv/bin/python" -m pip config list | grep -qE 'index-url|find-links|no-index'; then
    index='--extra-index-url https://download.pytorch.org/whl/cpu'
fi
say "installing rltuned$extras into $venv"
# shellcheck disable=SC2086
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check $index \
    --constraint constraints.txt --editable ".$extras"
case $extras in *train*)
    say "compiling the simulator, a minute or two"
    "$venv/bin/python" -m rltuned.lab.cli.compile
    ;;
esac
say "ready: $("$venv/bin/python" -c 'import rltuned; print("rltuned", rltuned.__version__)')"

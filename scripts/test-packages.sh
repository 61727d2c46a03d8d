#!/bin/sh
# What the tests talk to for real: Slurm, its database, munge, Prometheus, a browser, mandoc, shells. As root on
# Debian they are installed; elsewhere the tests that need them are skipped, and say so.
set -eu

packages="slurmctld slurmd slurmdbd slurm-client mariadb-server munge prometheus prometheus-alertmanager systemd chromium
    mandoc zsh fish $*"
missing=
for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
        missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
    echo "test: not installed, and not root on Debian:$missing; tests that need them are skipped"
    exit 0
fi

echo "test: installing Debian packages:$missing"
# The packages must not start services of their own: the tests start and stop what they need.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi
apt-get -qq update
# shellcheck disable=SC2086
DEBCONF_NOWARNINGS=yes DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $missing >/dev/null

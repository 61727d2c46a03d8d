#!/bin/sh
# deploy/container/Containerfile built and started without a container engine or a registry of images:
#   scripts/container.sh          root on Debian, with buildah and debootstrap
# The base is Debian's minimal system by debootstrap, the wheels are those that this checkout's pip finds,
# and buildah runs every step in a chroot. What it leaves lies in .run/container and is used the next time.
set -eu
cd "$(dirname "$0")/.."
place=$(pwd)/.run/container
base=localhost/debian:bookworm-slim
image=localhost/rltuned
port=9841
mkdir -p "$place"
store() { buildah --root "$place/store" --runroot "$place/run" --storage-driver vfs "$@"; }

if ! store inspect --type image "$base" >/dev/null 2>&1; then
    empty=$(store from scratch)
    folder=$(store mount "$empty")
    debootstrap --variant=minbase bookworm "$folder" >"$place/debootstrap.log"
    rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/*
    store commit --rm --quiet "$empty" "$base"
fi

.venv/bin/python -m pip --quiet --disable-pip-version-check download --only-binary=:all: \
    --constraint constraints.txt --dest "$place/wheels" . 'setuptools>=77'
store build --isolation chroot --pull-never --format docker \
    --build-arg "BASE=$base" --build-arg PIP_NO_INDEX=1 --build-arg PIP_FIND_LINKS=/wheels \
    --volume "$place/wheels:/wheels:ro" --tag "$image" -f deploy/container/Containerfile .

# The words of the image's own command and of its health check, each ended by a NUL.
store inspect --type image "$image" | .venv/bin/python -c '
import json, sys, pathlib
it = json.load(sys.stdin)["Docker"]["config"]
words = {"start": it["Entrypoint"] + it["Cmd"], "health": it["Healthcheck"]["Test"][1:]}
for name, those in words.items():
    pathlib.Path(sys.argv[1], name).write_text("\0".join(those))' "$place"
inside() {
    exec setsid xargs -0 -a "$place/$1" buildah --root "$place/store" --runroot "$place/run" \
        --storage-driver vfs run --isolation chroot "$box" --
}
box=$(store from --pull-never "$image")
daemon=
trap '[ -z "$daemon" ] || kill -- "-$daemon"; store rm "$box" >/dev/null' EXIT
inside start >"$place/daemon.log" 2>&1 & # a group of its own, and ended as one
daemon=$!
for _ in $(seq 30); do
    if (inside health) 2>"$place/health.log" &&
        .venv/bin/python -c "
from urllib.request import urlopen
assert b'rltuned_cycles_total' in urlopen('http://127.0.0.1:$port/metrics').read()"; then
        echo "container: $image builds, starts, is healthy and has metrics"
        exit 0
    fi
    sleep 1
done
tail -n 20 "$place/daemon.log" "$place/health.log" >&2
echo "container: it does not get healthy" >&2
exit 1

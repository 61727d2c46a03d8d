#!/bin/sh
# What is handed out, into dist/:
#   scripts/dist.sh wheel     the Python wheel
#   scripts/dist.sh deb       a Debian package with every dependency in it as a wheel
#   scripts/dist.sh all       both, a bill of materials (CycloneDX) and SHA256SUMS
# The package fits the Debian release that it is built on, for it holds wheels of one Python.
set -eu
cd "$(dirname "$0")/.."
python=.venv/bin/python
build=build/deb
version=$($python -c 'import rltuned; print(rltuned.__version__)')
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 0)
export SOURCE_DATE_EPOCH

wheel() {
    mkdir -p dist
    rm -rf build/lib build/bdist.* "dist/rltuned-$version"-*.whl
    $python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
    ls "dist/rltuned-$version"-*.whl
}

# Every wheel that rltuned[train] needs, for this Python, and a file of their names and hashes.
wheels() {
    [ -e "dist/rltuned-$version-py3-none-any.whl" ] || wheel
    rm -rf build/wheels
    mkdir -p build/wheels
    $python -m pip download --quiet --disable-pip-version-check --only-binary=:all: \
        --constraint constraints.txt --dest build/wheels \
        "dist/rltuned-$version-py3-none-any.whl[train]"
}

# An environment with nothing but these wheels: proof that they are enough, and what is listed.
sbom() {
    [ -d build/wheels ] || wheels
    rm -rf build/env build/tools
    $python -m venv build/env
    build/env/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
        --no-index --find-links build/wheels 'rltuned[train]'
    $python -m venv build/tools
    build/tools/bin/python -m pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7,<8'
    build/tools/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml \
        --output-file "dist/rltuned-$version.cdx.json" build/env/bin/python
    rm -rf build/env build/tools
    ls "dist/rltuned-$version.cdx.json"
}

deb() {
    for program in dpkg-deb fakeroot; do
        command -v $program >/dev/null || {
            echo "dist: needs $program (Debian packages dpkg, fakeroot)" >&2
            exit 1
        }
    done
    wheels
    [ -e "dist/rltuned-$version.cdx.json" ] || sbom
    rm -rf "$build"
    into() { install -D -m "$1" "$2" "$build/$3"; }
    for file in build/wheels/*.whl; do
        into 644 "$file" "usr/lib/rltuned/wheels/$(basename "$file")"
    done
    into 755 deploy/debian/rltuned usr/bin/rltuned
    for unit in rltuned.service rltuned@.service rltuned-tune.service rltuned-tune.timer; do
        into 644 systemd/$unit lib/systemd/system/$unit
        sed -i 's:/opt/rltuned/bin/rltuned:/usr/bin/rltuned:' "$build/lib/systemd/system/$unit"
    done
    into 644 systemd/rltuned.sysusers usr/lib/sysusers.d/rltuned.conf
    # no file in /etc: without one every key has its default, and dpkg asks about none at an upgrade
    mkdir -p "$build/etc/rltuned"
    into 644 systemd/slurmuser.conf usr/share/doc/rltuned/examples/slurmuser.conf
    into 644 deploy/rltuned.example.toml usr/share/doc/rltuned/examples/rltuned.toml
    for file in models/*/*; do into 644 "$file" "usr/share/rltuned/$file"; done
    for file in deploy/grafana deploy/prometheus; do
        [ ! -d $file ] || find $file -type f | while read -r one; do
            into 644 "$one" "usr/share/rltuned/${one#deploy/}"
        done
    done
    into 644 docs/runbook.md usr/share/doc/rltuned/runbook.md
    into 644 deploy/debian/copyright usr/share/doc/rltuned/copyright
    into 644 "dist/rltuned-$version.cdx.json" usr/share/doc/rltuned/sbom.cdx.json
    into 644 CHANGELOG.md usr/share/doc/rltuned/changelog
    gzip -9n "$build/usr/share/doc/rltuned/changelog"
    changelog_debian | gzip -9n >"$build/usr/share/doc/rltuned/changelog.Debian.gz"
    for page in docs/man/*.[158]; do
        [ -e "$page" ] || continue
        into 644 "$page" "usr/share/man/man${page##*.}/$(basename "$page")"
        gzip -9n "$build/usr/share/man/man${page##*.}/$(basename "$page")"
    done
    completions
    control
    dpkg_out="dist/rltuned_${version}-1_$(dpkg --print-architecture).deb"
    # the wheels are compressed already; the rest is small
    fakeroot dpkg-deb --root-owner-group -Zgzip -z1 --build "$build" "$dpkg_out" >/dev/null
    echo "$dpkg_out"
}

# Completion for three shells, as typer writes it. zsh calls the file as the function itself the
# first time, so that it must also complete then.
completions() {
    bash=$build/usr/share/bash-completion/completions/rltuned
    zsh=$build/usr/share/zsh/vendor-completions/_rltuned
    fish=$build/usr/share/fish/vendor_completions.d/rltuned.fish
    for shell in bash zsh fish; do
        eval "file=\$$shell"
        mkdir -p "$(dirname "$file")"
        _RLTUNED_COMPLETE=source_$shell .venv/bin/rltuned | sed '/./,$!d' >"$file"
        [ -s "$file" ] || { echo "dist: no completion for $shell" >&2; exit 1; }
    done
    echo '[ "$funcstack[1]" = _rltuned ] && _rltuned_completion "$@"' >>"$zsh"
}

# Who answers for this build of the package; a site that builds its own says so here.
maintainer=${DEB_MAINTAINER:-$(git log -1 --format='%an <%ae>')}

changelog_debian() {
    printf 'rltuned (%s-1) stable; urgency=medium\n\n  * What changed: changelog.gz\n\n -- %s  %s\n' \
        "$version" "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")"
}

control() {
    mkdir -p "$build/DEBIAN"
    minor=$($python -c 'import sys; print(sys.version_info.minor)')
    sed -e "s/@VERSION@/$version-1/" -e "s|@MAINTAINER@|$maintainer|" \
        -e "s/@ARCH@/$(dpkg --print-architecture)/" \
        -e "s/@SIZE_KIB@/$(du -sk "$build" | cut -f1)/" \
        -e "s/@PYTHON@/3.$minor/" -e "s/@PYTHON_NEXT@/3.$((minor + 1))/" \
        deploy/debian/control.in >"$build/DEBIAN/control"
    for script in postinst prerm postrm; do
        install -m 755 deploy/debian/$script "$build/DEBIAN/$script"
    done
    find "$build" -type d -exec chmod 755 {} +
    (cd "$build" && find usr lib -type f -print0 | sort -z |
        xargs -0 md5sum >DEBIAN/md5sums)
}

case "${1:-}" in
wheel) wheel ;;
deb) wheel; deb ;;
all)
    wheel
    wheels
    sbom
    deb
    (cd dist && sha256sum "rltuned-$version"-*.whl "rltuned_$version"_*.deb \
        "rltuned-$version.cdx.json" >SHA256SUMS)
    ;;
*) sed -n '2,6p' "$0" >&2; exit 2 ;;
esac

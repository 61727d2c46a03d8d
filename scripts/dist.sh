#!/bin/sh
# What is handed out, into dist/:
#   scripts/dist.sh wheel     the Python wheel
#   scripts/dist.sh deb       a Debian package of the base, with every dependency in it as a wheel
#   scripts/dist.sh deb-train rltuned-train: the same with torch and numba, in a place of its own
#   scripts/dist.sh rpm       the base as an RPM
#   scripts/dist.sh all       wheel, deb, a bill of materials (CycloneDX) and SHA256SUMS
# A package holds the wheels of one Python 3: of .venv's, or of another one, as in FOR_PYTHON=13 (Debian 13).
set -eu
cd "$(dirname "$0")/.."
python=.venv/bin/python
build=build/deb
version=$($python -c 'import rltuned; print(rltuned.__version__)')
own=$($python -c 'import sys; print(sys.version_info.minor)')
minor=${FOR_PYTHON:-$own}
release=1
[ "$minor" = "$own" ] || release=1+py3$minor
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 0)
export SOURCE_DATE_EPOCH

wheel() {
    mkdir -p dist
    rm -rf build/lib build/bdist.* "dist/rltuned-$version"-*.whl
    $python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
    ls "dist/rltuned-$version"-*.whl
}

# Every wheel that rltuned, or with an extra, needs: wheels FOLDER MINOR [EXTRA]
wheels() {
    [ -e "dist/rltuned-$version-py3-none-any.whl" ] || wheel
    rm -rf "$1"
    mkdir -p "$1"
    $python -m pip download --quiet --disable-pip-version-check --only-binary=:all: \
        --python-version "3.$2" --constraint constraints.txt --dest "$1" \
        "dist/rltuned-$version-py3-none-any.whl${3:+[$3]}"
}

# An environment with nothing but these wheels: proof that they are enough, and what is listed.
sbom() {
    wheels build/wheels "$own"
    rm -rf build/env build/tools
    $python -m venv build/env
    build/env/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
        --no-index --find-links build/wheels rltuned
    $python -m venv build/tools
    build/tools/bin/python -m pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7,<8'
    build/tools/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml \
        --output-file "dist/rltuned-$version.cdx.json" build/env/bin/python
    rm -rf build/env build/tools
    ls "dist/rltuned-$version.cdx.json"
}

needs() {
    for program in "$@"; do
        command -v "$program" >/dev/null || {
            echo "dist: needs $program (Debian packages dpkg, rpm)" >&2
            exit 1
        }
    done
}

into() { install -D -m "$1" "$2" "$build/$3"; }

# The tree of the base package, without the package's own scripts.
tree() {
    [ -e "dist/rltuned-$version.cdx.json" ] || sbom
    wheels build/wheels "$minor"
    rm -rf "$build"
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
    find deploy/grafana deploy/prometheus -type f | while read -r one; do
        into 644 "$one" "usr/share/rltuned/${one#deploy/}"
    done
    into 644 docs/runbook.md usr/share/doc/rltuned/runbook.md
    into 644 deploy/debian/copyright usr/share/doc/rltuned/copyright
    into 644 "dist/rltuned-$version.cdx.json" usr/share/doc/rltuned/sbom.cdx.json
    into 644 CHANGELOG.md usr/share/doc/rltuned/changelog
    gzip -9n "$build/usr/share/doc/rltuned/changelog"
    for page in docs/man/*.[158]; do
        [ -e "$page" ] || continue
        into 644 "$page" "usr/share/man/man${page##*.}/$(basename "$page")"
        gzip -9n "$build/usr/share/man/man${page##*.}/$(basename "$page")"
    done
    completions
}

deb() {
    needs dpkg-deb
    tree
    changelog_debian rltuned | gzip -9n >"$build/usr/share/doc/rltuned/changelog.Debian.gz"
    control deploy/debian/control.in
    install -m 755 deploy/debian/postinst deploy/debian/prerm deploy/debian/postrm "$build/DEBIAN"
    packed rltuned
}

deb_train() {
    needs dpkg-deb
    wheels build/wheels-train "$minor" train
    rm -rf "$build"
    for file in build/wheels-train/*.whl; do
        into 644 "$file" "usr/lib/rltuned-train/wheels/$(basename "$file")"
    done
    into 644 deploy/debian/copyright usr/share/doc/rltuned-train/copyright
    changelog_debian rltuned-train | gzip -9n >"$build/usr/share/doc/rltuned-train/changelog.Debian.gz"
    control deploy/debian/train.control.in
    install -m 755 deploy/debian/train.postinst "$build/DEBIAN/postinst"
    install -m 755 deploy/debian/train.prerm "$build/DEBIAN/prerm"
    packed rltuned-train
}

rpm() {
    needs rpmbuild
    tree
    mkdir -p "$build/usr/lib/systemd" "$build/usr/share/zsh/site-functions"
    mv "$build/lib/systemd/system" "$build/usr/lib/systemd/system"
    mv "$build"/usr/share/zsh/vendor-completions/* "$build/usr/share/zsh/site-functions/"
    rm -rf "$build/lib" "$build/usr/share/zsh/vendor-completions"
    into 755 deploy/debian/postinst usr/lib/rltuned/package/postinst
    into 755 deploy/debian/prerm usr/lib/rltuned/package/prerm
    (cd "$build" && find . \( -type f -o -path ./etc/rltuned \) -printf '"/%P"\n') >build/rpm.files
    sed -i 's:^"/etc/rltuned"$:%dir /etc/rltuned:' build/rpm.files
    rpmbuild -bb --quiet --define "_topdir $(pwd)/build/rpm" --define "tree $(pwd)/$build" \
        --define "listed $(pwd)/build/rpm.files" --define "package_version $version" \
        --define "package_release $release" --define "minor $minor" deploy/rpm/rltuned.spec
    mv build/rpm/RPMS/*/"rltuned-$version-$release".*.rpm dist/
    ls "dist/rltuned-$version-$release".*.rpm
}

packed() { # the wheels are compressed already; the rest is small
    dpkg_out="dist/$1_${version}-${release}_$(dpkg --print-architecture).deb"
    dpkg-deb --root-owner-group -Zgzip -z1 --build "$build" "$dpkg_out" >/dev/null
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
    printf '%s (%s) stable; urgency=medium\n\n  * What changed: CHANGELOG of rltuned\n\n -- %s  %s\n' \
        "$1" "$version-$release" "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")"
}

control() { # control TEMPLATE
    mkdir -p "$build/DEBIAN"
    sed -e "s/@VERSION@/$version-$release/" -e "s/@UPSTREAM@/$version/g" -e "s|@MAINTAINER@|$maintainer|" \
        -e "s/@ARCH@/$(dpkg --print-architecture)/" \
        -e "s/@SIZE_KIB@/$(du -sk "$build" | cut -f1)/" \
        -e "s/@PYTHON@/3.$minor/" -e "s/@PYTHON_NEXT@/3.$((minor + 1))/" \
        "$1" >"$build/DEBIAN/control"
    find "$build" -type d -exec chmod 755 {} +
    (cd "$build" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' |
        sort -z | xargs -0 md5sum >DEBIAN/md5sums)
}

case "${1:-}" in
wheel) wheel ;;
deb) wheel; deb ;;
deb-train) wheel; deb_train ;;
rpm) wheel; rpm ;;
all)
    wheel
    sbom
    deb
    (cd dist && sha256sum "rltuned-$version"-*.whl "rltuned_$version"_*.deb \
        "rltuned-$version.cdx.json" >SHA256SUMS)
    ;;
*) sed -n '2,9p' "$0" >&2; exit 2 ;;
esac

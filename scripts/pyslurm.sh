#!/bin/sh
# pyslurm of the package registry, built for the Slurm in a root of scripts/other-slurm.sh:
#   scripts/pyslurm.sh DIR     needs network once; DIR/bin/pyslurm-python then is a Python that has it
# The registry has pyslurm for Slurm 25.11 only. For another release the version that its setup.py
# compares is changed, and these names are given to the compiler: Slurm's own switch for callers that
# still pass job ids where 26.05 takes step ids, a function that 26.05 renamed, an error that it no
# longer has. Nothing else of pyslurm is touched. No optimisation: it is built for tests.
set -eu

[ $# = 1 ] || {
    sed -n '2,7p' "$0" >&2
    exit 2
}
dir=$(cd "$1" && pwd)
root=$dir/root
pip=$(cd "$(dirname "$0")/.." && pwd)/.venv/bin/pip
flags="-O0 -g0 -w"
compat="-DSLURM_BACKWARD_COMPAT -Dslurm_free_ctl_conf=slurm_free_conf \
-DESLURM_ERROR_ON_DESC_TO_RECORD_COPY=SLURM_ERROR"

if [ ! -e "$dir/pyslurm-made" ]; then
    rm -rf "$root/build"
    mkdir -p "$root/build/sdist"
    "$pip" -q --disable-pip-version-check download --no-deps --no-binary :all: --no-build-isolation \
        -d "$root/build/sdist" 'pyslurm>=25'
    tar -C "$root/build" -xzf "$root/build/sdist/"pyslurm-*.tar.gz
    source=$(cd "$root/build" && ls -d pyslurm-*)
    number=$(sed -n 's/^#define SLURM_VERSION_NUMBER *0x\([0-9a-fA-F]*\).*/\1/p' \
        "$root/usr/include/slurm/slurm_version.h")
    release=$((0x$number >> 16 & 255)).$((0x$number >> 8 & 255))
    case $source in
    pyslurm-"$release".*) ;;
    *)
        echo "pyslurm: $source is made to say that it is of Slurm $release"
        sed -i "s/^__version__ = .*/__version__ = \"$release.0\"/" "$root/build/$source/pyslurm/version.py"
        flags="$flags $compat"
        ;;
    esac
    chroot "$root" sh -euc '
        cd "/build/$1"
        place=$(python3 -c "import sysconfig; print(sysconfig.get_path(\"platlib\"))")
        CFLAGS=$2 SLURM_LIB_DIR=/usr/lib/x86_64-linux-gnu nice -n 10 \
            python3 setup.py build --build-lib "$place" # a word before "build", and it builds nothing
        ls "$place"/pyslurm/api.*.so
    ' sh "$source" "$flags"
    touch "$dir/pyslurm-made"
fi

cat >"$dir/bin/pyslurm-python" <<END
#!/bin/sh
[ "\$(id -u)" != 0 ] || exec chroot $root /usr/bin/python3 "\$@"
exec unshare --user --map-current-user --root=$root /usr/bin/python3 "\$@"
END
chmod 755 "$dir/bin/pyslurm-python"

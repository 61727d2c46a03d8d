#!/bin/sh
# Another Debian release's Slurm beside this machine's own, without containers:
#   scripts/other-slurm.sh make trixie DIR [PACKAGE,...]  install it, and these, into DIR/root once,
#                                             and write wrappers to DIR/bin
#   scripts/other-slurm.sh run DIR COMMAND... run a command whose PATH begins with DIR/bin
#   scripts/other-slurm.sh run DIR .venv/bin/python -m scripts.tools.record
# The mounts that a root needs live in a mount namespace of the command alone: nothing is left mounted.
# Needs root and debootstrap. Suites tried: noble and resolute (Ubuntu, 23.11 and
# 25.11), trixie (24.11), testing (26.05).
set -eu

packages=slurmctld,slurmd,slurmdbd,slurm-client,munge,util-linux
programs="squeue sinfo sprio sdiag scontrol sbatch scancel sacctmgr sacct srun salloc sshare
    munged slurmctld slurmd slurmdbd slurmrestd"

case "${1:-} $#" in
"make 3") suite=$2 dir=$3 ;;
"make 4") suite=$2 dir=$3 packages=$packages,$4 ;;
"run "[3-9]* | "run "[12][0-9]*) suite='' dir=$2 ;;
*)
    sed -n '2,9p' "$0" >&2
    exit 2
    ;;
esac
mkdir -p "$dir/bin"
dir=$(cd "$dir" && pwd)
root=$dir/root

if [ -n "$suite" ]; then
    [ -e "$dir/made" ] || {
        rm -rf "$root"
        case $suite in
        noble | resolute) # Debian's debootstrap knows neither; a package of Ubuntu's has the keys
            ubuntu=http://archive.ubuntu.com/ubuntu/pool/main/u/ubuntu-keyring
            python3 -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' \
                $ubuntu/ubuntu-keyring_2023.11.28.1_all.deb "$dir/keys.deb"
            echo "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8  $dir/keys.deb" | sha256sum --check --quiet
            dpkg-deb -x "$dir/keys.deb" "$dir/keys"
            debootstrap "--keyring=$dir/keys/usr/share/keyrings/ubuntu-archive-keyring.gpg" --variant=minbase --components=main,universe \
                "--include=$packages" "$suite" "$root" http://archive.ubuntu.com/ubuntu /usr/share/debootstrap/scripts/jammy ;;
        *) debootstrap --variant=minbase "--include=$packages" "$suite" "$root" ;;
        esac
        touch "$dir/made"
    }
    # who is not root may not chroot: they enter by a user namespace that keeps their id
    for program in $programs; do
        for folder in usr/bin usr/sbin; do
            [ -e "$root/$folder/$program" ] || continue
            cat >"$dir/bin/$program" <<END
#!/bin/sh
[ "\$(id -u)" != 0 ] || exec chroot $root /$folder/$program "\$@"
exec unshare --user --map-current-user --root=$root /$folder/$program "\$@"
END
            chmod 755 "$dir/bin/$program"
        done
    done
    exit 0
fi

shift 2
# The lab's folder has to bear the same name on both sides, and its second controller a name.
printf '127.0.0.1 localhost %s\n127.0.0.2 backup1\n' "$(hostname -s)" >"$root/etc/hosts"
cp /etc/hostname "$root/etc/"
# This checkout lies there too, for the one program of ours that runs inside (slurm/pyslurm_child.py).
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$root$here"
RLTUNED_TEST_SLURM=$dir/bin PATH=$dir/bin:$PATH exec unshare --mount --propagation private sh -euc '
    root=$1 here=$2
    shift 2
    for place in proc dev tmp; do mount --rbind "/$place" "$root/$place"; done
    mount --bind "$here" "$root$here"
    exec "$@"
' sh "$root" "$here" "$@"

#!/bin/sh
# Another Debian release's Slurm beside this machine's own, without containers:
#   scripts/other-slurm.sh up trixie DIR      install it into DIR/root, write wrappers to DIR/bin
#   python -m scripts.record --search "DIR/bin:$PATH"
#   scripts/other-slurm.sh down DIR           unmount (DIR can then be removed)
# Needs root and debootstrap. Suites tried: trixie (24.11), testing (26.05 in November 2026).
set -eu

case "${1:-} $#" in
"up 3") suite=$2 dir=$3 ;;
"down 2") suite= dir=$2 ;;
*) sed -n '2,6p' "$0" >&2; exit 2 ;;
esac
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
root=$dir/root

if [ -z "$suite" ]; then
    for place in tmp dev proc; do
        if mountpoint -q "$root/$place"; then umount "$root/$place"; fi
    done
    exit 0
fi

[ -e "$root/usr/sbin/slurmctld" ] || debootstrap --variant=minbase \
    --include=slurmctld,slurmd,slurm-client,munge,util-linux "$suite" "$root"
# The lab's folder has to bear the same name on both sides.
for place in proc dev tmp; do
    mountpoint -q "$root/$place" || mount --bind "/$place" "$root/$place"
done
cp /etc/hosts /etc/hostname "$root/etc/"
mkdir -p "$dir/bin"
for program in squeue sinfo sprio sdiag scontrol sbatch scancel sacctmgr munged slurmctld slurmd; do
    for folder in usr/bin usr/sbin; do
        if [ -e "$root/$folder/$program" ]; then
            printf '#!/bin/sh\nexec chroot %s /%s/%s "$@"\n' "$root" "$folder" "$program" >"$dir/bin/$program"
            chmod 755 "$dir/bin/$program"
        fi
    done
done
echo "$dir/bin"

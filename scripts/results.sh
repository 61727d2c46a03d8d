#!/bin/sh
# The evaluations of docs/results.md, each a page in a folder of its own; what is there is kept.
#   sh scripts/results.sh OUT RLTUNE[,RLTUNE...] [--model NAME=BUNDLE,... ]
# RLTUNE: bundles of one design, one per seed; on Philly their predictors are also fitted to the
# trace's first nine tenths. Wants .run/traces as docs/results.md makes them.
# `python -m scripts.results_table OUT` prints what is there.
set -eu
out=$1 ours=$2
shift 2
rltuned=${RLTUNED:-.venv/bin/rltuned}
loads="--load 0.7 --load 0.9 --load 1.1"
few="--rule fcfs --rule sjf --rule saf --rule multifactor"
few="$few --rule clairvoyant:sjf --rule clairvoyant:saf"

judge() { # FOLDER, then what differs
    folder=$out/$1
    shift
    if [ ! -e "$folder/results.json" ]; then
        date -u "+%T $folder" >&2
        "$rltuned" evaluate --guard both --report "$folder" --json "$@" >/dev/null
    fi
}

fitted() { # LIMITS: the bundles with predictors that know the site, comma-separated
    number=0 found=
    for bundle in $(echo "$ours" | tr , ' '); do
        number=$((number + 1))
        made=$out/fitted/$1/rltune-$number
        [ -e "$made/card.json" ] || "$rltuned" train predictor "$bundle" --until 0.9 \
            --trace ".run/traces/philly-$1.csv.gz" --out "$made" >&2
        found=$found${found:+,}$made
    done
    echo "$found"
}

# shellcheck disable=SC2086 # lists of options without spaces in them
for limits in weak none informative; do
    site="--trace .run/traces/philly-$limits.csv.gz --cluster philly-192"
    site="$site --model rltune=$ours --model rltune-fitted=$(fitted $limits)"
    judge philly-$limits $site $loads --windows 5 "$@"
    judge philly-$limits-long $site --load 0.9 $few --windows 1 --window-jobs 5800 --copies 5 "$@"
done
# shellcheck disable=SC2086
for world in testbed:testbed helios:helios-1080 pai:pai-674; do
    name=${world%%:*}
    site="--trace .run/traces/$name-weak.csv.gz --cluster ${world##*:} --part 0 1"
    site="$site --model rltune=$ours"
    judge $name $site $loads --windows 60 "$@"
    judge $name-long $site --load 0.9 $few --windows 1 --window-jobs 12000 --copies 5 "$@"
done
# shellcheck disable=SC2086
for limits in weak none informative; do
    site="--trace .run/traces/philly-$limits.csv.gz --cluster philly-192"
    site="$site --model rltune=$ours --model rltune-fitted=$(fitted $limits)"
    judge philly-$limits-paper $site $loads --windows 10 --random "$@"
done

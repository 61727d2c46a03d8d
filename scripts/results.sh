#!/bin/sh
# The evaluations of docs/results.md, each a page in a folder of its own; what is there is kept.
#   sh scripts/results.sh OUT NAME BUNDLE[,BUNDLE...] [--model NAME=BUNDLE,... ]
# The bundles are of one design, one per seed; where they have a predictor, on Philly it is also
# fitted to the trace's first nine tenths. Wants .run/traces as docs/results.md makes them.
# `python -m scripts.results_table OUT` prints what is there.
set -eu
out=$1 name=$2 ours=$3
shift 3
rltuned=${RLTUNED:-.venv/bin/rltuned}
loads="--load 0.7 --load 0.9 --load 1.1"
few="--rule fcfs --rule sjf --rule saf --rule f1 --rule multifactor"
few="$few --rule clairvoyant:sjf --rule clairvoyant:saf"

judge() { # FOLDER, then what differs
    folder=$out/$1
    shift
    if [ ! -e "$folder/results.json" ]; then
        date -u "+%T $folder" >&2
        "$rltuned" evaluate --report "$folder" --json "$@" >/dev/null
    fi
}

fitted() { # LIMITS: the model whose predictors know the site, as an option; none without one
    [ -e "${ours%%,*}/predictor.safetensors" ] || return 0
    number=0 found=
    for bundle in $(echo "$ours" | tr , ' '); do
        number=$((number + 1))
        made=$out/fitted/$1/$name-$number
        [ -e "$made/card.json" ] || "$rltuned" train predictor "$bundle" --until 0.9 \
            --trace ".run/traces/philly-$1.csv.gz" --out "$made" >&2
        found=$found${found:+,}$made
    done
    echo "--model $name-fitted=$found"
}

# shellcheck disable=SC2086 # lists of options without spaces in them
for limits in weak none informative; do
    site="--trace .run/traces/philly-$limits.csv.gz --cluster philly-192 --guard both"
    site="$site --model $name=$ours $(fitted $limits)"
    judge philly-$limits $site $loads --windows 5 "$@"
done
# shellcheck disable=SC2086
for load in 0.9 1.1 0.7; do
    for world in testbed:testbed helios:helios-1080 pai:pai-674; do
        place=${world%%:*}
        site="--trace .run/traces/$place-weak.csv.gz --cluster ${world##*:} --part 0 1"
        judge $place-$load $site --model $name=$ours --load $load $few --windows 60 --guard both "$@"
    done
done
# shellcheck disable=SC2086
{
    site="--trace .run/traces/philly-weak.csv.gz --cluster philly-192 --guard both"
    site="$site --model $name=$ours $(fitted weak)"
    judge philly-long $site --load 0.9 $few --windows 1 --window-jobs 5800 --copies 5 "$@"
    site="--trace .run/traces/testbed-weak.csv.gz --cluster testbed --part 0 1 --guard both"
    site="$site --model $name=$ours"
    judge testbed-long $site --load 0.9 $few --windows 1 --window-jobs 12000 --copies 5 "$@"
    site="--trace .run/traces/philly-weak.csv.gz --cluster philly-192"
    site="$site --model $name=$ours $(fitted weak)"
    judge philly-paper $site $loads --windows 10 --random "$@"
}

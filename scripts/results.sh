#!/bin/sh
# The evaluations of scripts/studies/results/networks.md, each in a folder of its own; what is there is kept.
#   sh scripts/results.sh OUT NAME BUNDLE[,BUNDLE...] [--model NAME=BUNDLE,... ]
# The bundles are of one design, one per seed; where they have a predictor, on Philly it is also
# fitted to the trace's first nine tenths. Wants .run/traces as scripts/studies/results/networks.md makes them.
# ONLY='philly-*' makes only those whose folder's name is like that; PAGE=1 a page beside each.
# `python -m scripts.results_table OUT --pages` makes scripts/studies/results/networks-tables.md of what is there.
set -eu
out=$1 name=$2 ours=$3
shift 3
rltuned=${RLTUNED:-.venv/bin/rltuned}
loads="--load 0.7 --load 0.9 --load 1.1"
few="--rule fcfs --rule sjf --rule saf --rule f1 --rule multifactor"
few="$few --rule clairvoyant:sjf --rule clairvoyant:saf"

wanted() { # FOLDER: whether it is asked for and not there
    # shellcheck disable=SC2254 # a pattern is what it is for
    case $1 in ${ONLY:-*}) ;; *) return 1 ;; esac
    [ ! -e "$out/$1/results.json" ]
}

judge() { # FOLDER, then what differs
    folder=$out/$1
    shift
    date -u "+%T $folder" >&2
    mkdir -p "$folder"
    if [ -n "${PAGE:-}" ]; then
        "$rltuned" evaluate --report "$folder" --json "$@" >/dev/null
        "${rltuned%rltuned}python" -m scripts.studies bound "$folder/results.json" "$@"
    else
        "$rltuned" evaluate --json "$@" >"$folder/results.json.new"
        "${rltuned%rltuned}python" -m scripts.studies bound "$folder/results.json.new" "$@"
        mv "$folder/results.json.new" "$folder/results.json"
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
    wanted philly-$limits || continue
    site="--trace .run/traces/philly-$limits.csv.gz --cluster philly-192"
    site="$site --model $name=$ours $(fitted $limits)"
    judge philly-$limits $site $loads --windows 5 "$@"
done
# shellcheck disable=SC2086
for limits in weak none informative; do
    for load in 0.9 1.1 0.7; do
        for world in testbed:testbed helios:helios-1080 pai:pai-674; do
            place=${world%%:*}
            wanted $place-$limits-$load || continue
            site="--trace .run/traces/$place-$limits.csv.gz --cluster ${world##*:} --part 0 1"
            site="$site --load $load $few --windows 60"
            judge $place-$limits-$load $site --model $name=$ours "$@"
        done
    done
done
# shellcheck disable=SC2086
for limits in weak none informative; do
    for load in 0.9 1.1 0.7; do
        long="--load $load $few --windows 1 --copies 5 --model $name=$ours"
        if wanted philly-long-$limits-$load; then
            site="--trace .run/traces/philly-$limits.csv.gz --cluster philly-192"
            site="$site --window-jobs 5800 $(fitted $limits)"
            judge philly-long-$limits-$load $site $long "$@"
        fi
        for world in testbed:testbed helios:helios-1080 pai:pai-674; do
            place=${world%%:*}-long-$limits-$load
            wanted $place || continue
            site="--trace .run/traces/${world%%:*}-$limits.csv.gz --cluster ${world##*:}"
            judge $place $site --part 0 1 --window-jobs 12000 $long "$@"
        done
    done
done
# shellcheck disable=SC2086
for limits in weak none informative; do
    wanted philly-paper-$limits || continue
    site="--trace .run/traces/philly-$limits.csv.gz --cluster philly-192 $loads --windows 10 --random"
    judge philly-paper-$limits $site --model $name=$ours $(fitted $limits) "$@"
done

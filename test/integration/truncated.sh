#!/usr/bin/env bash
# Somebody of the same user truncates, again and again, all files that a job has open for writing or leads others to: its record and
# what names its device.  The job ends as it would have, and so does one that comes meanwhile; the records are whole.  The same with
# the device as containers have it.
set -euo pipefail
# shellcheck source=test/integration/needs.inc
. test/integration/needs.inc
build=$(realpath "${TALLY_BUILD:-build}")
program=$build/workloads/jobs/train
need_built "$program" "$build/bin/tally-run" "$build/bin/tally"
need_plain "$build/lib/tally/libcuda.so.1"
[ "${1-}" = again ] || TALLY_DEVICE_SHM="file" "$0" again
scratch=$(mktemp -d)
export TALLY_DEVICE_NAME=tally-truncated-$$ TALLY_SOCKET=$scratch/tallyd.sock TALLY_CACHE=$scratch/cache
trap '"$build/bin/tally-jit" stop >/dev/null 2>&1 || :; rm -rf "$scratch" "/dev/shm/$TALLY_DEVICE_NAME".*' EXIT

# job NAME LEVEL: works until it is told to end, with a record.
job() {
    TALLY_JOB=$1 exec "$build/bin/tally-run" --device=soft --priority="$2" --report="$scratch/out" \
        "$program" --kind=short --seconds=300 >"$scratch/$1.log" 2>&1
}

# cut FILE: makes it very short, if it is not.
cut() {
    [ "$(stat -c %s "$1" 2>/dev/null || echo 0)" -gt 20 ] && truncate -s 5 "$1"
}

# cut_often NAME PID: until its record, written again each time, was cut often, and what leads to its device; or it has ended.
cut_often() {
    local times=0 is_led=no
    while { [ "$times" -lt 10 ] || [ "$is_led" = no ]; } && kill -0 "$2" 2>/dev/null; do
        ! cut "$scratch/out/$1.$2.tally" || times=$((times + 1))
        ! cut "/dev/shm/$TALLY_DEVICE_NAME.2" || is_led=yes
        sleep 0.02
    done
}

job first low &
first=$!
cut_often first "$first"
job second high &
second=$!
cut_often second "$second"
kill -TERM "$first" "$second" 2>/dev/null || :
failures=0
for name in first second; do
    status=0
    wait "${!name}" || status=$?
    if [ "$status" -ne 0 ]; then
        echo "FAIL the job '$name' ended with status $status:"
        cat "$scratch/$name.log"
        failures=$((failures + 1))
    fi
done
"$build/bin/tally" report "$scratch/out" >"$scratch/report" 2>&1 || {
    echo "FAIL the records cannot be read:"
    cat "$scratch/report"
    failures=$((failures + 1))
}
for what in first second 'somebody cut this record off'; do
    grep -q "$what" "$scratch/report" || {
        echo "FAIL the report does not say '$what':"
        cat "$scratch/report"
        failures=$((failures + 1))
    }
done
exit $((failures > 0))

#!/usr/bin/env bash
# The policies of other systems on real jobs: what each of them promises, as outcomes that do not depend on how fast the machine is.
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
tally=$build/bin/tally jobs=$build/workloads/jobs
need_built "$build/lib/tally/device/libcuda.so.1" "$build/lib/tally/libtally-effort.so" "$jobs/large" "$jobs/train"
need_plain "$build/lib/tally/device/libcuda.so.1"
scratch=$(mktemp -d /tmp/tally-policies.XXXXXX)
for name in PRIORITY SLO TURNAROUND POLICY REPORT DRIVER SOCKET JOB FAIL OFF FORCE LOG WEIGHT MIN_SHARE TOTAL DEVICE DAEMON RULES; do
    unset "TALLY_$name"
done
export XDG_RUNTIME_DIR=$scratch TALLY_DEVICE_NAME=tally-policies-test-$$ TALLY_CACHE=$scratch/cache TALLY_DEVICE_MEM=64M
export TALLY_DEVICE_SMS=2
daemon='' passed=0 failed=0

stop_daemon() {
    if [ -n "$daemon" ]; then
        kill "$daemon" 2>/dev/null || :
        wait "$daemon" 2>/dev/null || :
    fi
    daemon=''
}
finish() {
    stop_daemon
    "$build/bin/tally-jit" stop >/dev/null 2>&1 || :
    rm -rf "$scratch" "/dev/shm/$TALLY_DEVICE_NAME".*
}
trap finish EXIT

# policy NAME [PARAMETER...]: a tallyd of its own for it.
policy() {
    stop_daemon
    mkdir -p "$scratch/tally"
    "$build/bin/tallyd" --idle=0 >"$scratch/daemon" 2>&1 &
    daemon=$!
    for _ in $(seq 500); do
        "$tally" policy "$@" >/dev/null 2>&1 && return
        sleep 0.02
    done
    echo "tallyd does not take the policy $*"
    cat "$scratch/daemon"
    exit 1
}
job=("$build/bin/tally-run" -q --device=soft) # it becomes the program, so its process can be signalled
begin=$EPOCHSECONDS
ok() { # WHAT CONDITION...
    local what=$1
    shift
    if "$@"; then
        printf "ok   %4d s %s\n" $((EPOCHSECONDS - begin)) "$what"
        passed=$((passed + 1))
    else
        echo "FAIL $what"
        tail -n 5 "$scratch"/*.out "$scratch"/*.err 2>/dev/null | sed 's/^/    /' || :
        failed=$((failed + 1))
    fi
}
said() { grep -q -- "$2" "$scratch/$1"; }
# under_way FILE: waits for the line that a job writes when it has its memory.
under_way() {
    for _ in $(seq 3000); do
        if grep -qE '^(train|large|serve):' "$scratch/$1" 2>/dev/null; then
            return
        fi
        sleep 0.02
    done
    echo "a job did not get under way"
    cat "$scratch/$1"
    exit 1
}

# --- tgs: more memory than the device has ---------------------------------------------------------------------------
for name in tally tgs; do
    case $name in
    tgs) policy tgs step=20ms alone-step=20ms ;;
    *) policy "$name" ;;
    esac
    rm -f "$scratch/high.err" "$scratch/low.err"
    "${job[@]}" -p high -- "$jobs/large" --mib=40 --passes=1 --hold=3600 >"$scratch/high.out" 2>"$scratch/high.err" &
    high=$!
    under_way high.err
    "${job[@]}" -p low -- "$jobs/large" --mib=100 --passes=2 >"$scratch/low.out" 2>"$scratch/low.err" || :
    if [ $name = tgs ]; then
        ok "tgs: a job of more than the device beside a high-priority one ends with the right result" \
            said low.out '"wrong": 0'
    else
        ok "without: it fails for lack of memory" said low.err 'out of memory'
    fi
    ok "$name: the other one still holds its memory" kill -0 "$high"
    kill "$high" 2>/dev/null || :
    wait "$high" 2>/dev/null || :
done
# Pages of the best-effort job make room for a high-priority job that comes later, and lose nothing by it.
rm -f "$scratch/low.err"
"${job[@]}" -p low -- "$jobs/large" --mib=60 --passes=20 >"$scratch/low.out" 2>"$scratch/low.err" &
low=$!
under_way low.err
"${job[@]}" -p high -- "$jobs/large" --mib=50 --passes=2 >"$scratch/high.out" 2>"$scratch/high.err" || :
ok "tgs: best-effort pages make room for high priority" said high.out '"wrong": 0'
wait "$low" || :
ok "tgs: and they come back with what was in them" said low.out '"wrong": 0'
"${job[@]}" -p high -- "$jobs/large" --mib=100 --passes=2 >"$scratch/high.out" 2>"$scratch/high.err" || :
ok "tgs: not even high priority runs out of memory" said high.out '"wrong": 0'

# --- salus: who ends first --------------------------------------------------------------------------------------------
export TALLY_DEVICE_MEM=8G
# The long one lasts until the short one has started for sure; each writes its line when its work is done, before it winds up.
long=("$jobs/train" --kind=short --steps=4000) short=("$jobs/train" --kind=short --steps=400)
"${job[@]}" -- "${short[@]}" >"$scratch/alone.out" 2>/dev/null
weights=$(sed 's/.*"weights"/"weights"/' "$scratch/alone.out")
for order in fifo srtf; do
    policy salus "order=$order" lanes=no
    rm -f "$scratch/long.err"
    "${job[@]}" --total=60s -- "${long[@]}" >"$scratch/long.out" 2>"$scratch/long.err" &
    long_job=$!
    under_way long.err
    "${job[@]}" --total=1s -- "${short[@]}" >"$scratch/short.out" 2>"$scratch/short.err" &
    short_job=$!
    wait "$long_job" "$short_job"
    case $order in
    fifo) first=long second=short ;;
    srtf) first=short second=long ;;
    esac
    ok "salus: under $order the $first job ends first" [ "$scratch/$first.out" -ot "$scratch/$second.out" ]
    ok "salus: under $order the short one computes what it does alone" said short.out "$weights"
done

# --- gpulet: a part of the SMs each ---------------------------------------------------------------------------------
policy gpulet
rm -f "$scratch/a.err"
"${job[@]}" --slo=p99:1s -- "$jobs/train" --kind=long --seconds=3600 >"$scratch/a.out" 2>"$scratch/a.err" &
a=$!
under_way a.err
"${job[@]}" --slo=p99:1s -- "$jobs/train" --kind=long --steps=40 >"$scratch/b.out" 2>"$scratch/b.err" || :
for _ in $(seq 1000); do # forms are built while the job runs
    "$tally" ps >"$scratch/ps.out"
    if grep -q persistent "$scratch/ps.out"; then
        break
    fi
    sleep 0.05
done
kill -TERM $a
wait $a || :
ok "gpulet: both jobs end" grep -q weights "$scratch/a.out" "$scratch/b.out"
ok "gpulet: kernels run in the form that keeps to a part" said ps.out persistent

# --- herald: light and heavy ------------------------------------------------------------------------------------------
policy herald
rm -f "$scratch/a.err"
"${job[@]}" -- "$jobs/train" --kind=long --seconds=3600 >"$scratch/a.out" 2>"$scratch/a.err" &
a=$!
under_way a.err
"${job[@]}" --slo=p99:1s -- "${short[@]}" >"$scratch/b.out" 2>"$scratch/b.err" || :
ok "herald: a job ends beside a heavy one that does not, with the right result" said b.out "$weights"
kill -TERM $a
wait $a || :
ok "herald: and so does the heavy one when it is told to" said a.out weights

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]

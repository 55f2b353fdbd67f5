#!/usr/bin/env bash
# The shim and the best-effort part work together only if they are of one build: another one is never begun.  The job then runs
# without it, or with TALLY_FAIL=closed not at all, and the log names both files.  Driver and best-effort parts are stand-ins.
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
shim=$build/lib/tally/libcuda.so.1 standin=$build/test/standin
need_built "$shim" "$standin/libcuda.so.1" "$standin/effort.so" "$standin/stranger.so" "$build/bin/tallyd"
need_plain "$shim"
need_cc
export TALLY_CACHE=$TMPDIR/cache XDG_RUNTIME_DIR=$TMPDIR TALLY_SOCKET=$TMPDIR/tallyd.sock TALLY_DAEMON_IDLE=1 TALLY_LOG=warn
failed=0
complain() {
    echo "FAIL  $*"
    failed=1
}

cat >"$TMPDIR/program.c" <<'END'
#include <stdio.h>

int cuInit(unsigned);

/* Twice: what was refused is refused again. */
int main(void)
{
    int first = cuInit(0), second = cuInit(0);
    printf("cuInit %d %d\n", first, second);
    return 0;
}
END
cc -o "$TMPDIR/program" "$TMPDIR/program.c" -L"$standin" -l:libcuda.so.1

# run EFFORT [VARIABLE=VALUE...]: what is said goes to told and said
run() {
    local effort=$1
    shift
    env LD_PRELOAD="$shim" TALLY_DRIVER="$standin/libcuda.so.1" TALLY_EFFORT="$effort" TALLY_PRIORITY=low "$@" \
        "$TMPDIR/program" >"$TMPDIR/told" 2>"$TMPDIR/said" || complain "the program fails with $effort"
}
told() { # WHAT LINES
    printf '%b' "$2" | diff - "$TMPDIR/told" >"$TMPDIR/difference" || complain "$1: $(cat "$TMPDIR/difference" "$TMPDIR/said")"
}
names_both() { # WHAT EFFORT BUILD
    [ "$(grep -c "$2 (build $3).*$shim (build [0-9a-f]\{16\}) are not of one build; install both" "$TMPDIR/said")" -eq 1 ] ||
        complain "$1: the log does not say so, once: $(cat "$TMPDIR/said")"
}

refused=802 # CUDA_ERROR_SYSTEM_NOT_READY
run "$standin/effort.so" TALLY_DAEMON=no
told "one build" 'start\ncuInit 0 0\nstop\n'
! grep "preempted" "$TMPDIR/said" || complain "one build: that is no trouble"

run "$standin/stranger.so" TALLY_DAEMON=no
told "two builds" 'cuInit 0 0\n'
names_both "two builds" "$standin/stranger.so" 'a build of someb'

run "$standin/libcuda.so.1" TALLY_DAEMON=no
told "something else" 'cuInit 0 0\n'
names_both "something else" "$standin/libcuda.so.1" unknown

# Closed: only with tallyd there may it run at all, so what stops it here is the build.
run "$standin/effort.so" TALLY_FAIL=closed
told "one build, closed" 'start\ncuInit 0 0\nstop\n'
run "$standin/stranger.so" TALLY_FAIL=closed
told "two builds, closed" "cuInit $refused $refused\n"
names_both "two builds, closed" "$standin/stranger.so" 'a build of someb'
run "$TMPDIR/nothing.so" TALLY_FAIL=closed
told "none, closed" "cuInit $refused $refused\n"
grep -q "cannot be preempted: $TMPDIR/nothing.so" "$TMPDIR/said" || complain "none, closed: $(cat "$TMPDIR/said")"

exit $failed

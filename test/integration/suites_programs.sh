#!/usr/bin/env bash
# What scripts/suites makes of programs that others wrote, in a checkout of little ones made here: whose fault an end is, that
# repetitions are lowered where a program says which argument is their number, and that the checkout stays as it is.
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
need_nvcc
need_built "$build/lib/tally/device/libcuda.so.1" "$build/bin/tally-run"
need_plain "$build/lib/tally/device/libcuda.so.1"
scratch=$(mktemp -d)
name=test-$$
export TMPDIR=$scratch XDG_RUNTIME_DIR=$scratch TALLY_CACHE=$scratch/cache SUITE_HECBENCH=$scratch/checkout
trap 'rm -rf "$scratch" "$build/suites/$name.json"' EXIT

# program NAME ARGUMENTS DEFINITION BODY
program() {
    local folder=$SUITE_HECBENCH/src/$1-cuda
    mkdir -p "$folder"
    printf '#include <stdio.h>\n#include <stdlib.h>\nint main(int argc, char **argv)\n{\n    %s\n}\n' "$4" >"$folder/main.cu"
    # shellcheck disable=SC2016 # these are make's
    printf 'DEBUG = no\nCFLAGS = -O3 %s\nifeq ($(DEBUG),yes)\nCFLAGS += -DWRONG\nendif\nrun: main\n\t$(LAUNCHER) ./$(program) %s\n' \
        "$3" "$2" >"$folder/Makefile"
}
usage='if (argc != 3) printf("Usage: %%s <points> <repeat>\\n", argv[0]);'
program repeats "7 1000" "" "$usage return atoi(argv[1]) != 7 || atoi(argv[2]) != 2;"
program needs_all "7 1000" "" "$usage return atoi(argv[2]) != 1000;"
program writes "result.txt" "" 'FILE *f = fopen(argv[1], "w"); return f == NULL || fputs("PASS", f) < 0;'
program unread "data/points.txt" "" 'if (fopen(argv[1], "r") == NULL) perror(argv[1]); return 0;'
program crashes "" "" 'abort();'
program says_so "" "" 'puts("FAIL"); return 0;'
program endless "" "" 'for (volatile int i = 0;; i = i + 1) {}'
program defined "" "-DRIGHT=3" '
#ifdef WRONG
    return 1;
#endif
    return RIGHT != 3;'
find "$SUITE_HECBENCH" -type f -exec cksum {} + | sort >"$scratch/before"

status=0
scripts/suites --repeats=2 --seconds=2 --name="$name" hecbench >"$scratch/told" 2>&1 || status=$?
find "$SUITE_HECBENCH" -type f -exec cksum {} + | sort >"$scratch/after"
failures=0
expect() { # WHAT IS
    [ "$1" = "$2" ] || { echo "FAIL: '$2', not '$1'" && failures=$((failures + 1)); }
}
is() { # CASE RESULT
    expect "$2" "$(python3 -c 'import json, sys
print(*[r["result"] for r in json.load(open(sys.argv[1]))["rows"] if r["case"] == sys.argv[2]])' "$build/suites/$name.json" "$1-cuda")"
}
expect 1 "$status"
is repeats passed
is needs_all passed
is writes passed
is unread skipped
is crashes crashed
is says_so failed
is endless "timed out"
is defined passed
expect "" "$(diff "$scratch/before" "$scratch/after")"
[ $failures -eq 0 ] || cat "$scratch/told"
echo "8 programs"
[ $failures -eq 0 ]

#!/usr/bin/env bash
# scripts/check-rooms: the tree as it is has no edge that scripts/rooms.txt forbids, and each kind of edge that is planted in a copy
# of it is found: an include, a private header, a symbol without an include, a cycle in the table, a right that nobody uses; and so
# is a name that two files define.  docs/rooms.svg shows the tree as it is.
set -euo pipefail
. test/integration/needs.inc

command -v python3 >/dev/null || skip "no python3"
command -v nm >/dev/null || skip "no nm"
need_cc
build=$(realpath "${TALLY_BUILD:-build}")
need_built "$build/obj/intercept/shim/job.o" "$build/obj/device/driver/module.o"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tree=$scratch/tree
checks=0
fail() {
    echo "FAIL: $*"
    cat "$scratch/said"
    exit 1
}

# Sources and objects as links; what is planted is a file of the copy's own.
rooms=$(sed -n 's/^\([a-z_]*\).*/\1/p' scripts/rooms.txt | sort -u)
new_tree() {
    rm -rf "$tree"
    mkdir -p "$tree/scripts" "$tree/build/obj"
    cp scripts/check-rooms scripts/rooms.txt "$tree/scripts/"
    local room
    for room in $rooms; do
        cp -rs "$PWD/$room" "$tree/$room"
        cp -rs "$build/obj/$room" "$tree/build/obj/$room"
    done
}
compile() { # FILE.c: its object, where make would put it
    cc -fPIC -c -o "$tree/build/obj/${1%.c}.o" "$tree/$1"
}
check() { "$tree/scripts/check-rooms" "$@" >"$scratch/said" 2>&1; }
finds() { # WHAT PATTERN
    checks=$((checks + 1))
    ! check || fail "$1: not found"
    grep -qE -- "$2" "$scratch/said" || fail "$1: found, but nothing of '$2' is said:"
    [ "$(wc -l <"$scratch/said")" -eq 1 ] || fail "$1: more than that is said:"
}

new_tree
check || fail "the tree as it is:"
check --dot || fail "the picture of it:"
grep -q '"intercept" -> "runtime/job"' "$scratch/said" || fail "an arrow is missing in the picture:"
! grep -q '#cc0000' "$scratch/said" || fail "there is a red arrow in the picture of a clean tree"
# The picture in the documents has these arrows, and no others.
sed -n 's/^ *"\([^"]*\)" -> "\([^"]*\)".*/\1->\2/p' "$scratch/said" | sort >"$scratch/arrows"
sed -n 's/^<title>\(.*\)&#45;&gt;\(.*\)<\/title>$/\1->\2/p' docs/rooms.svg | sed 's/&#45;/-/g' | sort >"$scratch/drawn"
diff "$scratch/arrows" "$scratch/drawn" >"$scratch/said" ||
    fail "docs/rooms.svg is not of this tree (scripts/check-rooms --dot | dot -Tsvg >docs/rooms.svg):"

echo '#include "runtime/record/record.h"' >"$tree/sched/planted.c"
finds "an include" 'sched/planted.c:1: sched must not use runtime/record \(runtime/record/record.h\)'
! check --dot || fail "a picture with a red arrow is no success"
grep -q '"sched" -> "runtime/record".*#cc0000' "$scratch/said" || fail "the planted arrow is not red:"

new_tree
echo '#include "runtime/job/client_internal.h"' >"$tree/runtime/tallyd/planted.h"
finds "another room's private header" 'client_internal.h is runtime/job.s own; it offers admit.h'

new_tree
printf 'int tl_record_open(void);\nint tl_planted(void);\nint tl_planted(void) { return tl_record_open(); }\n' >"$tree/sched/planted.c"
compile sched/planted.c
finds "a symbol without an include" 'sched/planted.o: sched must not use runtime/record \(tl_record_open\)'

new_tree
printf 'void tl_planted(void);\nvoid tl_planted(void) {}\n' >"$tree/sim/planted.c"
compile sim/planted.c
printf 'void tl_planted(void);\nvoid tl_planted(void) {}\n' >"$tree/sched/planted.c"
compile sched/planted.c
finds "two of one name" 'sched/planted.o and sim/planted.o both define tl_planted'

new_tree
sed -i 's/^base  *|  */&sched /' "$tree/scripts/rooms.txt"
finds "a cycle in the table" 'base uses sched, which does not stand above it'

new_tree
sed -i 's/^runtime\/tally-run .*job/& sched/' "$tree/scripts/rooms.txt"
finds "a right that is not used" 'runtime/tally-run may use sched and does not'

echo "the tree is clean; $checks planted mistakes, each found"

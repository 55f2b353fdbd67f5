#!/usr/bin/env bash
# The compiler service as users meet it: the real translator, real processes, a disk that is full, kill -9.
# shellcheck disable=SC2317  # functions are called by name, through expect
set -euo pipefail

jit=$(realpath "${TALLY_BUILD:-build}/bin/tally-jit")
cases=$(realpath test/cases)
scratch=$(mktemp -d)
export XDG_RUNTIME_DIR=$scratch TALLY_CACHE=$scratch/cache TALLY_JIT_IDLE=20
unset TALLY_JIT TALLY_JIT_TEST_CRASH TALLY_CACHE_MB
trap '"$jit" stop >/dev/null 2>&1 || :; rm -rf "$scratch"' EXIT

failures=0
expect() { # expect WHAT COMMAND...: the command must succeed
    local what=$1
    shift
    if "$@"; then
        echo "ok   $what"
    else
        echo "FAIL $what"
        failures=$((failures + 1))
    fi
}
refuses() { ! "$@" >"$scratch/output" 2>&1; }
has() { grep -qF -- "$1" "$2"; }
compiled() { "$jit" status | grep -oE '[0-9]+ compiled' | cut -d' ' -f1; }
service() { "$jit" status | sed 's/^pid \([0-9]*\),.*/\1/'; }
wait_for_work() {
    for _ in $(seq 500); do
        if "$jit" status | grep -q '1 in work'; then break; fi
        sleep 0.01
    done
}
has_ended() { [ ! -e "/proc/$1" ] || grep -q '^State:.Z' "/proc/$1/status"; } # who nobody waits for stays as a zombie
# Its socket is closed a moment before it is seen to be gone; what it compiles here would go on for ever.
ends() {
    for _ in $(seq 50); do
        has_ended "$1" && return
        sleep 0.1
    done
    return 1
}
stop() { "$jit" stop >/dev/null; }

# --- the command line -----------------------------------------------------------------------------------------------
"$jit" --help >"$scratch/help"
expect "help tells the commands" has "tally-jit compile" "$scratch/help"
expect "no command is an error" refuses "$jit"
expect "no service is told" test "$("$jit" status)" = "no service is running"
"$jit" compile "$cases/grid_1d.ptx" --block 128 -o "$scratch/one.so" --ir "$scratch/one.ll"
readelf -sW "$scratch/one.so" >"$scratch/symbols"
expect "compile makes an object with the exports" has tally_blocks "$scratch/symbols"
expect "compile names the code as the kernel" has grid_1d.blocks "$scratch/symbols"
expect "compile shows LLVM's text" has tally_blocks "$scratch/one.ll"
expect "what is not PTX is refused" refuses "$jit" compile "$0" --kernel x -o "$scratch/x.so"
expect "what is not implemented is refused" refuses "$jit" compile "$cases/unknown_instruction.ptx" -o "$scratch/x.so"
expect "and named" has frobnicate "$scratch/output"

# --- the service ----------------------------------------------------------------------------------------------------
path=$("$jit" get "$cases/grid_1d.ptx" --block 128)
expect "get starts the service and fills the cache" test -f "$path"
expect "the cache is private" test "$(stat -c %a "$TALLY_CACHE")" = 700
expect "one kernel was compiled" test "$(compiled)" = 1
expect "both ways make the same code" cmp -n "$(stat -c %s "$scratch/one.so")" "$scratch/one.so" "$path"
if command -v gdb >/dev/null; then
    at=$(readelf -sW "$path" | awk '$8 == "grid_1d.blocks" { print $2; exit }')
    gdb -nx -batch -ex "info symbol 0x$at" "$path" >"$scratch/gdb" 2>&1 || :
    expect "gdb knows the kernel's name" has "grid_1d" "$scratch/gdb"
fi
stop
expect "a warm kernel needs no service" test "$("$jit" get "$cases/grid_1d.ptx" --block 128)" = "$path"
expect "and none was started" refuses "$jit" status

pids=()
for name in grid_1d grid_2d grid_3d params_none ret_several exit_plain grid_stride params_odd_layout; do
    "$jit" get "$cases/$name.ptx" --block 64 >"$scratch/$name.path" 2>"$scratch/$name.err" &
    pids+=($!)
done
bad=0
for pid in "${pids[@]}"; do wait "$pid" || bad=$((bad + 1)); done
expect "eight processes get eight kernels" test $bad = 0
expect "from one service" test "$(compiled)" = 8

# --- what dies ------------------------------------------------------------------------------------------------------
stop
export TALLY_JIT_TEST_CRASH=grid_2d@slow
"$jit" get "$cases/grid_2d.ptx" --block 32 >"$scratch/slow" 2>&1 &
asker=$!
wait_for_work
kill -9 "$(service)"
expect "a service killed while it compiles costs nothing but time" wait $asker
stop || : # there is none if a compiler that outlived its service was just quick enough
export TALLY_JIT_TEST_CRASH=grid_2d@spin
"$jit" get "$cases/grid_2d.ptx" --block 96 >/dev/null 2>&1 &
asker=$!
wait_for_work
kill $asker
wait $asker 2>/dev/null || :
service=$(service)
expect "stop does not wait for what nobody waits for" timeout -k 2 60 "$jit" stop
expect "and the service has ended when it returns" ends "$service"
export TALLY_JIT_TEST_CRASH=grid_3d
expect "a kernel that kills the compiler is an error" refuses "$jit" get "$cases/grid_3d.ptx" --block 32
expect "that names it" has "kernel grid_3d: the compiler died twice" "$scratch/output"
expect "and others go on" "$jit" get "$cases/grid_1d.ptx" --block 32
unset TALLY_JIT_TEST_CRASH
stop

# --- what LLVM does not come back from ------------------------------------------------------------------------------
# A thousand and more values that all live while lanes part again and again: what its register allocator needs grows with the square of that,
# and the first attempt runs out of time.
hopeless() {
    awk -v n=1500 'BEGIN {
        print ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry hopeless(.param .u64 a) {"
        printf ".reg .u64 %%d<4>; .reg .u32 %%t; .reg .f32 %%f<%d>; .reg .pred %%p<%d>;\n", n, n
        print "ld.param.u64 %d1, [a]; mov.u32 %t, %tid.x; mul.wide.u32 %d2, %t, 4; add.u64 %d3, %d1, %d2;"
        for (i = 0; i < n; i++) printf "ld.global.f32 %%f%d, [%%d3+%d];\n", i, 128 * i
        for (i = 0; i < n; i++) {
            x = (i * 7919 + 1) % n; y = (i * 104729 + 2) % n; z = (i * 31337 + 3) % n
            printf "setp.gt.f32 %%p%d, %%f%d, %%f%d; @%%p%d bra $a%d;\n", i, x, y, i, i
            printf "fma.rn.f32 %%f%d, %%f%d, %%f%d, %%f%d; add.f32 %%f%d, %%f%d, %%f%d; bra $b%d;\n", z, x, y, z, x, x, z, i
            printf "$a%d: sub.f32 %%f%d, %%f%d, %%f%d;\n$b%d:\n", i, y, z, x, i
        }
        for (i = 0; i < n; i++) printf "st.global.f32 [%%d3+%d], %%f%d;\n", 128 * i, i
        print "ret; }"
    }'
}
hopeless >"$scratch/hopeless.ptx"
export TALLY_JIT_SECONDS=12
"$jit" get "$scratch/hopeless.ptx" --block 32 >"$scratch/path" 2>"$scratch/output" || cat "$scratch/output"
expect "a kernel that takes LLVM too long is compiled with less of it" test -f "$(cat "$scratch/path")"
expect "after the first attempt was ended" test "$("$jit" status | grep -oE '[0-9]+ deaths')" = "1 deaths"
unset TALLY_JIT_SECONDS
stop

# --- functions of quick versions ------------------------------------------------------------------------------------
functions() { "$jit" status | grep -oE "[0-9]+ $1" | cut -d' ' -f1; } # functions WHAT
"$jit" get "$cases/mma_after_divergent_exit.ptx" --block 32 --quick >/dev/null
made=$(functions functions)
expect "a quick version makes functions" test "$made" -gt 0
expect "all of them new" test "$(functions of)" = "$made"
service=$(service)
for stat in /proc/[0-9]*/stat; do # its workers
    parent=$(sed 's/.*) . \([0-9]*\) .*/\1/' "$stat" 2>/dev/null || :)
    [ "$parent" != "$service" ] || kill -9 "$(basename "$(dirname "$stat")")"
done
"$jit" get "$cases/mma_after_divergent_exit.ptx" --block 64 --quick >/dev/null
expect "another worker does not make them again" test "$(functions functions)" = "$made"
stop
"$jit" get "$cases/mma_after_divergent_exit.ptx" --block 96 --quick >"$scratch/path"
expect "nor does another service" test "$(functions functions)$(functions of)" = "${made}0"
stop
: >"$(find "$TALLY_CACHE" -name '*.so' ! -exec grep -qa tally_info {} \; -print)"
"$jit" get "$cases/mma_after_divergent_exit.ptx" --block 128 --quick >/dev/null
expect "what was kept is made again if it is damaged" test "$(functions of)" = "$made"
stop
kept=$(find "$TALLY_CACHE" -name '*.so' | wc -l)
chmod 0777 "$TALLY_CACHE" # nobody uses it
"$jit" get "$cases/vote_with_masks_of_half_warps.ptx" --block 32 --quick >/dev/null 2>&1
chmod 0700 "$TALLY_CACHE"
stop
expect "without a cache functions are not kept, and nothing else is lost" test "$(find "$TALLY_CACHE" -name '*.so' | wc -l)" = "$kept"
chmod 0777 "$TALLY_CACHE"
"$jit" get "$cases/vote_with_masks_of_half_warps.ptx" --block 32 --quick >/dev/null 2>&1
chmod 0700 "$TALLY_CACHE"
new=$(functions of)
"$jit" get "$cases/mma_after_divergent_exit.ptx" --block 160 --quick >/dev/null
stop
"$jit" get "$cases/vote_with_masks_of_half_warps.ptx" --block 32 --quick >/dev/null
expect "they are kept when there is one" test "$new,$(functions of)" = "$new,0" -a "$new" -gt 0
stop

# --- a full disk ----------------------------------------------------------------------------------------------------
full_disk() { # in a mount namespace of its own
    mkdir -p "$TALLY_CACHE"
    mount -t tmpfs -o size=64k,mode=0700 tmpfs "$TALLY_CACHE"
    head -c 60000 /dev/zero >"$TALLY_CACHE/ballast" 2>/dev/null || :
    "$jit" get "$cases/grid_1d.ptx" --block 96 >"$scratch/path" 2>"$scratch/note"
    "$jit" stop >/dev/null
    find "$TALLY_CACHE" -name '.new-*' >"$scratch/left"
}
export -f full_disk
export jit cases scratch
unshare=(unshare -m)
[ "$(id -u)" -eq 0 ] || unshare=(unshare -rm)
if "${unshare[@]}" true 2>/dev/null; then
    export TALLY_CACHE=$scratch/small
    expect "a full disk is no error" "${unshare[@]}" bash -euc full_disk
    expect "the object is passed by descriptor" has /proc/self/fd/ "$scratch/path"
    expect "and the reason told" has "No space left" "$scratch/note"
    expect "nothing half is left" test ! -s "$scratch/left"
    export TALLY_CACHE=$scratch/cache
else
    echo "     no mount namespaces here: the full disk is left out"
fi

# --- in the foreground ----------------------------------------------------------------------------------------------
"$jit" --foreground 2>"$scratch/log" &
service=$!
for _ in $(seq 500); do
    if "$jit" status >/dev/null 2>&1; then break; fi
    sleep 0.01
done
"$jit" get "$cases/grid_1d.ptx" --block 48 >/dev/null
kill -TERM $service
expect "SIGTERM ends it well" wait $service
expect "it tells what it does" has "kernel grid_1d: compiled" "$scratch/log"
expect "its socket and lock are gone" test -z "$(find "$scratch" -name 'jit-*')"

exit $((failures > 0))

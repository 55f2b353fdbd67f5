#!/usr/bin/env bash
# Somebody of a higher level comes while a kernel in pieces is with the driver and cannot begin, because its stream waits for a word
# in memory.  What is to be told to leave cannot leave then; other kernels go on all the same, or the word would never be written.
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
shim=$build/lib/tally/libcuda.so.1 device=$build/lib/tally/device
need_built "$shim" "$build/lib/tally/libtally-effort.so" "$device/libcuda.so.1" "$build/bin/tally-jit" "$build/bin/tallyd" \
    "$build/test/preempter"
need_plain "$shim"
need_cc
export TALLY_CACHE=$TMPDIR/cache XDG_RUNTIME_DIR=$TMPDIR TALLY_SOCKET=$TMPDIR/tallyd.sock TALLY_DRIVER=$device/libcuda.so.1
export TALLY_DEVICE_NAME=tally-newcomer-$$ TALLY_JIT_IDLE=5 TALLY_LOG=error
newcomer=
# shellcheck disable=SC2317  # called by the trap
end() {
    if [ -n "$newcomer" ]; then
        kill "$newcomer" 2>/dev/null || :
        wait "$newcomer" 2>/dev/null || :
    fi
    "$build/bin/tally-jit" stop >/dev/null 2>&1 || :
    rm -f "/dev/shm/$TALLY_DEVICE_NAME"*
}
trap end EXIT

cat >"$TMPDIR/program.c" <<'END'
#include <stdio.h>
#include <stdlib.h>

int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuMemHostAlloc(void **, size_t, unsigned);
int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
int cuStreamCreate(void **, unsigned), cuStreamSynchronize(void *), cuStreamQuery(void *);
int cuStreamWaitValue32_v2(void *, unsigned long long, unsigned, unsigned);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

enum { LAUNCHES = 300, NOT_READY = 600 };

static void check(int r, const char *what)
{
    if (r != 0) {
        printf("%s: error %d\n", what, r);
        exit(1);
    }
}

int main(void)
{
    static const char text[] = ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\n.reg .b32 %r<2>;\n"
                               "mov.u32 %r1, %ctaid.x;\nret;\n}\n";
    void *context, *module, *kernel, *a, *b, *memory;
    char line[16];
    check(cuInit(0), "cuInit");
    check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuModuleLoadData(&module, text), "cuModuleLoadData");
    check(cuModuleGetFunction(&kernel, module, "k"), "cuModuleGetFunction");
    check(cuStreamCreate(&a, 1), "cuStreamCreate");
    check(cuStreamCreate(&b, 1), "cuStreamCreate");
    check(cuMemHostAlloc(&memory, 64, 3), "cuMemHostAlloc");
    volatile unsigned *word = memory;
    *word = 0;
    check(cuStreamWaitValue32_v2(a, (unsigned long long)memory, 1, 0), "cuStreamWaitValue32");
    check(cuLaunchKernel(kernel, 64, 1, 1, 32, 1, 1, 0, a, NULL, NULL), "cuLaunchKernel");
    /* What was asked of b later is done, so the kernel in a is with the driver. */
    check(cuLaunchKernel(kernel, 64, 1, 1, 32, 1, 1, 0, b, NULL, NULL), "cuLaunchKernel");
    check(cuStreamSynchronize(b), "cuStreamSynchronize");
    puts("launched");
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL)
        return 1;
    /* Somewhere among these the newcomer is noticed. */
    for (int i = 0; i < LAUNCHES; i++) {
        check(cuLaunchKernel(kernel, 64, 1, 1, 32, 1, 1, 0, b, NULL, NULL), "cuLaunchKernel");
        check(cuStreamSynchronize(b), "cuStreamSynchronize");
    }
    check(cuStreamQuery(a) != NOT_READY, "cuStreamQuery, before the word was written");
    *word = 1;
    check(cuStreamSynchronize(a), "cuStreamSynchronize");
    puts("done");
    return 0;
}
END
cc -o "$TMPDIR/program" "$TMPDIR/program.c" -L"$device" -l:libcuda.so.1

failed=0
for rung in ${RUNGS:-ticket persistent}; do
    mkfifo "$TMPDIR/to-$rung" "$TMPDIR/from-$rung" "$TMPDIR/hold-$rung" "$TMPDIR/said-$rung"
    LD_PRELOAD=$shim LD_LIBRARY_PATH=$build/lib/tally TALLY_PRIORITY=low TALLY_FORCE=$rung timeout -k 2 "${PATIENCE:-60}" "$TMPDIR/program" \
        <"$TMPDIR/to-$rung" >"$TMPDIR/from-$rung" &
    job=$!
    exec 9>"$TMPDIR/to-$rung" 8<"$TMPDIR/from-$rung"
    line=
    read -r -t 60 line <&8 || :
    if [ "$line" != launched ]; then
        echo "FAIL  $rung: the job says '$line'"
        exit 1
    fi
    "$build/test/preempter" 3600 7 <"$TMPDIR/hold-$rung" >"$TMPDIR/said-$rung" &
    newcomer=$!
    exec 7>"$TMPDIR/hold-$rung" 6<"$TMPDIR/said-$rung"
    read -r -t 60 line <&6 || :
    if [ "$line" != ready ]; then
        echo "FAIL  $rung: the newcomer cannot join tallyd"
        exit 1
    fi
    echo go >&9
    read -r -t 70 line <&8 || line=nothing
    status=0
    wait "$job" || status=$?
    if [ "$line" = "done" ] && [ $status -eq 0 ]; then
        echo "ok    $rung"
    else
        echo "FAIL  $rung: the job says '$line' and ends with $status"
        failed=1
    fi
    exec 9>&- 8<&- 7>&- 6<&-
    wait "$newcomer" 2>/dev/null || :
    newcomer=
done
exit $failed

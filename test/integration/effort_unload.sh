#!/usr/bin/env bash
# A best-effort job that loads and unloads modules and libraries for ever does not grow: what was kept and made of an image goes with
# it.  Counted by the C library (mallinfo2), after a warm-up, over 1,000 loads each.
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
shim=$build/lib/tally/libcuda.so.1 device=$build/lib/tally/device
need_built "$shim" "$build/lib/tally/libtally-effort.so" "$device/libcuda.so.1" "$build/bin/tally-jit"
need_plain "$shim"
need_cc
export TALLY_CACHE=$TMPDIR/cache XDG_RUNTIME_DIR=$TMPDIR TALLY_DEVICE_NAME=tally-unload-$$ TALLY_DRIVER=$device/libcuda.so.1
export TALLY_JIT_IDLE=5 TALLY_PRIORITY=low TALLY_DAEMON=no TALLY_LOG=error
# shellcheck disable=SC2317  # called by the trap
end() {
    "$build/bin/tally-jit" stop >/dev/null 2>&1 || :
    rm -f "/dev/shm/$TALLY_DEVICE_NAME"*
}
trap end EXIT

cat >"$TMPDIR/program.c" <<'END'
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuCtxSynchronize(void);
int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *), cuModuleUnload(void *);
int cuLibraryLoadData(void **, const void *, void *, void *, unsigned, void *, void *, unsigned), cuLibraryUnload(void *);
int cuLibraryGetKernel(void **, void *, const char *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

enum { WARM_UP = 50, LOADS = 1000, TEXT_BYTES = 20000, MOST_BYTES = 200 * 1000 };

static void check(int r, const char *what)
{
    if (r != 0) {
        printf("%s: error %d\n", what, r);
        exit(1);
    }
}

static void once(const char *text, int as_library)
{
    void *owner, *kernel;
    if (as_library) {
        check(cuLibraryLoadData(&owner, text, NULL, NULL, 0, NULL, NULL, 0), "cuLibraryLoadData");
        check(cuLibraryGetKernel(&kernel, owner, "k"), "cuLibraryGetKernel");
    } else {
        check(cuModuleLoadData(&owner, text), "cuModuleLoadData");
        check(cuModuleGetFunction(&kernel, owner, "k"), "cuModuleGetFunction");
    }
    check(cuLaunchKernel(kernel, 64, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    check(as_library ? cuLibraryUnload(owner) : cuModuleUnload(owner), "unload");
}

static long in_use(void)
{
    struct mallinfo2 m = mallinfo2();
    return (long)(m.uordblks + m.hblkhd);
}

int main(void)
{
    static const char kernel[] = "\n.version 8.0\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\n.reg .b32 %r<2>;\n"
                                 "mov.u32 %r1, %ctaid.x;\nret;\n}\n";
    char *text = malloc(TEXT_BYTES + sizeof kernel);
    void *context;
    int failed = 0;
    memset(text, '/', TEXT_BYTES); /* one long comment */
    memcpy(text + TEXT_BYTES, kernel, sizeof kernel);
    check(cuInit(0), "cuInit");
    check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (int as_library = 0; as_library < 2; as_library++) {
        for (int i = 0; i < WARM_UP; i++)
            once(text, as_library);
        long before = in_use();
        for (int i = 0; i < LOADS; i++)
            once(text, as_library);
        long more = in_use() - before;
        printf("%s: %ld bytes more after %d loads\n", as_library ? "libraries" : "modules", more, LOADS);
        failed |= more > MOST_BYTES;
    }
    return failed;
}
END
cc -o "$TMPDIR/program" "$TMPDIR/program.c" -L"$device" -l:libcuda.so.1

failed=0
for rung in ${RUNGS:-whole ticket}; do
    echo "$rung:"
    LD_PRELOAD=$shim TALLY_FORCE=$rung LD_LIBRARY_PATH=$build/lib/tally "$TMPDIR/program" || failed=1
done
exit $failed

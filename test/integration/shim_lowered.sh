#!/usr/bin/env bash
# A job of the highest level that `tally set` lowers while it runs: the best-effort part takes over without the program noticing, and
# the result is the same to the bit.  On the way tallyd sees its launches and its memory.
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
train=$build/workloads/jobs/train
need_built "$build/lib/tally/libcuda.so.1" "$build/lib/tally/libtally-effort.so" "$build/lib/tally/device/libcuda.so.1" \
    "$build/bin/tally-jit" "$build/bin/tallyd" "$build/bin/tally-run"
need_plain "$build/lib/tally/libcuda.so.1"
if ! scripts/tool nvcc >/dev/null || ! make --no-print-directory B="${TALLY_BUILD:-build}" SETUP=no "${train#"$PWD"/}" >/dev/null; then
    skip "no nvcc here (scripts/tool)"
fi
scratch=$(mktemp -d)
export TMPDIR=$scratch XDG_RUNTIME_DIR=$scratch TALLY_CACHE=$scratch/cache TALLY_JIT_IDLE=20 TALLY_DAEMON_IDLE=2
export TALLY_DEVICE_NAME=tally-shim-lowered-$$ TALLY_LOG=info
trap '"$build/bin/tally-jit" stop >/dev/null 2>&1 || :; rm -rf "$scratch" "/dev/shm/$TALLY_DEVICE_NAME".*' EXIT
weights() { grep -o '"weights": "[^"]*"' "$1"; }

LD_LIBRARY_PATH=$build/lib/tally/device "$train" --kind=short --steps=16000 >"$scratch/plain" 2>/dev/null
"$build/bin/tally-run" --quiet --priority=high --device=soft "$train" --kind=short --steps=16000 >"$scratch/job" 2>"$scratch/errors" &
job=$!

# The first client that has launched something and holds memory.
pid=
while [ -z "$pid" ] && kill -0 $job 2>/dev/null; do
    pid=$("$build/bin/tally" ps --json 2>/dev/null | python3 -c '
import json, sys
for client in json.load(sys.stdin)["clients"]:
    if client["launches"] > 100 and client["memory_bytes"] > 0:
        print(client["pid"])
' 2>/dev/null || :)
done
if [ -z "$pid" ]; then
    echo "FAIL  tallyd never saw the job's launches and memory"
    cat "$scratch/errors"
    exit 1
fi
"$build/bin/tally" set "$pid" priority=low >/dev/null || { # it may just have ended
    kill -0 "$pid" 2>/dev/null && exit 1
    skip "the job ended before it could be lowered"
}
wait $job || {
    echo "FAIL  exit status $?"
    cat "$scratch/errors"
    exit 1
}
if ! grep -q 'level -100 now, preemptible' "$scratch/errors"; then
    echo "FAIL  it was not lowered"
    cat "$scratch/errors"
    exit 1
fi
if [ "$(weights "$scratch/plain")" != "$(weights "$scratch/job")" ]; then
    echo "FAIL  other weights"
    cat "$scratch/plain" "$scratch/job"
    exit 1
fi

# Its streams, which ranked above those of others, rank below them from then on; what it is told of them stays.  The library is opened
# here and not preloaded, so that the driver itself can be asked as well.
need_cc
cat >"$scratch/streams.c" <<'END'
#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

static void *shim, *driver;
#define CALL(library, name) ((int (*)())dlsym(library, name))

static int priority(void *library, void *stream)
{
    int p = 99;
    CALL(library, "cuStreamGetPriority")(stream, &p);
    return p;
}

/* Works until the priority of its stream changes. */
int main(int argc, char **argv)
{
    static const char text[] = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n";
    void *ctx, *module, *kernel, *stream;
    driver = dlopen(argv[1], RTLD_NOW);
    shim = dlopen(argv[2], RTLD_NOW);
    if (argc < 3 || driver == NULL || shim == NULL || CALL(shim, "cuInit")(0) != 0 || CALL(shim, "cuDevicePrimaryCtxRetain")(&ctx, 0) != 0 ||
        CALL(shim, "cuCtxSetCurrent")(ctx) != 0 || CALL(shim, "cuModuleLoadData")(&module, text) != 0 ||
        CALL(shim, "cuModuleGetFunction")(&kernel, module, "k") != 0 || CALL(shim, "cuStreamCreateWithPriority")(&stream, 1, -2) != 0)
        return 1;
    printf("%d %d\n", priority(shim, stream), priority(driver, stream));
    fflush(stdout);
    for (int p = priority(driver, stream); priority(driver, stream) == p; poll(NULL, 0, 1)) {
        if (CALL(shim, "cuLaunchKernel")(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL) != 0 || CALL(shim, "cuStreamSynchronize")(stream) != 0)
            return 1;
    }
    printf("%d %d\n", priority(shim, stream), priority(driver, stream));
    return 0;
}
END
cc -w -std=gnu11 -o "$scratch/streams" "$scratch/streams.c"
export TALLY_DRIVER=$build/lib/tally/device/libcuda.so.1
TALLY_PRIORITY=high timeout -k 2 60 "$scratch/streams" "$TALLY_DRIVER" "$build/lib/tally/libcuda.so.1" >"$scratch/ranks" 2>"$scratch/errors" &
job=$!
pid=
while [ -z "$pid" ] && kill -0 $job 2>/dev/null; do
    pid=$("$build/bin/tally" ps --json 2>/dev/null | python3 -c '
import json, sys
for client in json.load(sys.stdin)["clients"]:
    if client["launches"] > 0:
        print(client["pid"])
' 2>/dev/null || :)
done
"$build/bin/tally" set "$pid" priority=low >/dev/null
wait $job || echo "exit status $?" >>"$scratch/ranks"
if [ "$(cat "$scratch/ranks")" != "$(printf '%s\n' '-2 -3' '-2 0')" ]; then
    echo "FAIL  its stream's priority, as it is told and as it is:"
    cat "$scratch/ranks" "$scratch/errors"
    exit 1
fi

#!/usr/bin/env bash
# NCCL on two devices: its device code is linked of a hundred parts, and its kernels on one device wait for those on the other.
#
# TALLY_NCCL is the folder with libnccl.so.2 (`pip download nvidia-nccl-cu12==2.22.3`, unpacked); without it the linker's cache is asked.
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
device=$build/lib/tally/device
need_built "$device/libcuda.so.1" "$build/bin/tally-run" "$build/bin/tally-jit" "$build/bin/tallyd"
need_plain "$device/libcuda.so.1"
need_nvcc
need_cc
toolkit=$(cd "$(dirname "$(realpath "$nvcc")")/.." && pwd)
nccl=${TALLY_NCCL:-$(dirname "$(/sbin/ldconfig -p | awk '$1 == "libnccl.so.2" { print $NF; exit }')")}
if [ ! -e "$nccl/libnccl.so.2" ]; then
    echo "there is no libnccl.so.2 (TALLY_NCCL)"
    exit 77
fi
scratch=$(mktemp -d)
export TMPDIR=$scratch XDG_RUNTIME_DIR=$scratch TALLY_CACHE=$scratch/cache TALLY_JIT_IDLE=20
export TALLY_DEVICE_NAME=tally-nccl-$$ TALLY_SOCKET=$scratch/tallyd.sock TALLY_DEVICES=2
trap '"$build/bin/tally-jit" stop >/dev/null 2>&1 || :; rm -rf "$scratch" "/dev/shm/$TALLY_DEVICE_NAME"*' EXIT

cat >"$scratch/reduce.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <stdint.h>

/* Of the runtime and of NCCL what is used here; the types of elements and the sum by their numbers. */
int cudaSetDevice(int), cudaMalloc(void **, size_t), cudaMemcpy(void *, const void *, size_t, int), cudaStreamCreate(void **);
int cudaStreamSynchronize(void *);
int ncclCommInitAll(void **, int, const int *), ncclGroupStart(void), ncclGroupEnd(void), ncclCommDestroy(void *);
int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *);
enum { DEVICES = 2, TO_DEVICE = 1, TO_HOST = 2, INT32 = 2, FLOAT32 = 7, SUM = 0, MOST = 300000 };

static void check(int r, const char *what)
{
    if (r != 0) {
        printf("%s: error %d\n", what, r);
        exit(1);
    }
}

static void *comms[DEVICES], *streams[DEVICES], *at[DEVICES];

/* Element i of device d is (i mod 97) + d, so that each sum is a whole number below 200. */
static int reduce(size_t n, int type)
{
    static float f[MOST];
    static int32_t w[MOST];
    void *host = type == FLOAT32 ? (void *)f : (void *)w;
    int wrong = 0;
    for (int d = 0; d < DEVICES; d++) {
        for (size_t i = 0; i < n; i++)
            f[i] = (float)(w[i] = (int32_t)(i % 97) + d);
        check(cudaSetDevice(d), "cudaSetDevice");
        check(cudaMemcpy(at[d], host, 4 * n, TO_DEVICE), "cudaMemcpy");
    }
    check(ncclGroupStart(), "ncclGroupStart");
    for (int d = 0; d < DEVICES; d++)
        check(ncclAllReduce(at[d], at[d], n, type, SUM, comms[d], streams[d]), "ncclAllReduce");
    check(ncclGroupEnd(), "ncclGroupEnd");
    for (int d = 0; d < DEVICES; d++) {
        check(cudaSetDevice(d), "cudaSetDevice");
        check(cudaStreamSynchronize(streams[d]), "cudaStreamSynchronize");
        check(cudaMemcpy(host, at[d], 4 * n, TO_HOST), "cudaMemcpy");
        for (size_t i = 0; i < n; i++)
            wrong += (type == FLOAT32 ? (int32_t)f[i] : w[i]) != 2 * (int32_t)(i % 97) + 1;
    }
    return wrong;
}

int main(void)
{
    static const size_t sizes[] = {1, 1000, MOST};
    check(ncclCommInitAll(comms, DEVICES, NULL), "ncclCommInitAll");
    for (int d = 0; d < DEVICES; d++) {
        check(cudaSetDevice(d), "cudaSetDevice");
        check(cudaMalloc(&at[d], 4 * MOST), "cudaMalloc");
        check(cudaStreamCreate(&streams[d]), "cudaStreamCreate");
    }
    for (int i = 0; i < 3; i++)
        printf("%zu: %d wrong floats, %d wrong words\n", sizes[i], reduce(sizes[i], FLOAT32), reduce(sizes[i], INT32));
    for (int d = 0; d < DEVICES; d++)
        ncclCommDestroy(comms[d]);
    return 0;
}
END
cc -o "$scratch/reduce" "$scratch/reduce.c" -L"$toolkit/lib64" -lcudart "$nccl/libnccl.so.2" -Wl,-rpath,"$toolkit/lib64:$nccl"
right="1: 0 wrong floats, 0 wrong words
1000: 0 wrong floats, 0 wrong words
300000: 0 wrong floats, 0 wrong words"
passed=0 failed=0
for algorithm in Ring Tree; do
    for priority in high low; do
        said=$(NCCL_ALGO=$algorithm timeout -k 2 100 "$build/bin/tally-run" -q --device=soft -p $priority "$scratch/reduce" 2>"$scratch/errors") ||
            said="$said, exit status $?"
        if [ "$said" = "$right" ]; then
            echo "ok    $algorithm, $priority"
            passed=$((passed + 1))
        else
            echo "FAIL  $algorithm, $priority"
            { echo "$said" && cat "$scratch/errors"; } | sed 's/^/      | /'
            failed=$((failed + 1))
        fi
    done
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]

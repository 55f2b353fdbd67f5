#!/usr/bin/env bash
# Two best-effort processes whose kernels wait for each other on the device, as NCCL's do, below a client of a high level: they come
# to their end on two GPUs, while that client is busy at random and while it is busy all the time.
set -euo pipefail
. test/integration/effort_jobs.inc
need_cc
need_built "$build/bin/tally"

cat >"$scratch/member.c" <<'END'
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuStreamCreate(void **, unsigned);
int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *), cuStreamSynchronize(void *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuMemHostRegister_v2(void *, size_t, unsigned), cuMemHostGetDevicePointer_v2(uint64_t *, void *, unsigned);
int cuMemAlloc_v2(uint64_t *, size_t), cuMemcpyDtoH_v2(void *, uint64_t, size_t), cuMemcpyHtoD_v2(uint64_t, const void *, size_t);

static void check(int r, const char *what)
{
    if (r != 0) {
        printf("%s: error %d\n", what, r);
        exit(1);
    }
}

/* member NUMBER GPU FILE ROUNDS works|meets: in each round all blocks of its kernel wait for those of the other's. */
int main(int argc, char **argv)
{
    static const char text[] =
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry ncclDevKernel_Meet(.param .u64 mine, .param .u64 theirs, .param .u32 round)\n{\n.reg .pred %p;\n.reg .b32 %r<5>;\n"
        ".reg .b64 %d<6>;\nld.param.u64 %d1, [mine];\nld.param.u64 %d2, [theirs];\nld.param.u32 %r1, [round];\nmov.u32 %r2, %ctaid.x;\n"
        "mul.wide.u32 %d3, %r2, 4;\nadd.s64 %d4, %d1, %d3;\nadd.s64 %d5, %d2, %d3;\nst.volatile.global.u32 [%d4], %r1;\nmembar.sys;\n"
        "again:\nld.volatile.global.u32 %r3, [%d5];\nsetp.lt.u32 %p, %r3, %r1;\n@%p bra again;\nret;\n}\n"
        ".visible .entry work(.param .u64 sum)\n{\n.reg .pred %p;\n.reg .b32 %r<4>;\n.reg .b64 %d<2>;\nld.param.u64 %d1, [sum];\nmov.u32 %r1, 0;\n"
        "more:\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %p, %r1, 20000;\n@%p bra more;\natom.global.add.u32 %r2, [%d1], 1;\nret;\n}\n";
    int number = atoi(argv[1]), gpu = atoi(argv[2]), file = open(argv[3], O_RDWR);
    uint32_t rounds = (uint32_t)atoi(argv[4]), sum = 0;
    int works = strcmp(argv[5], "works") == 0;
    void *ctx, *module, *meet, *work, *stream;
    uint64_t at, counter, mine, theirs;
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    check(argc != 6 || page == MAP_FAILED, "mmap");
    check(cuInit(0), "cuInit");
    check(cuDevicePrimaryCtxRetain(&ctx, gpu), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(ctx), "cuCtxSetCurrent");
    check(cuModuleLoadData(&module, text), "cuModuleLoadData");
    check(cuModuleGetFunction(&meet, module, "ncclDevKernel_Meet"), "cuModuleGetFunction");
    check(cuModuleGetFunction(&work, module, "work"), "cuModuleGetFunction");
    check(cuStreamCreate(&stream, 1), "cuStreamCreate");
    check(cuMemAlloc_v2(&counter, 4), "cuMemAlloc");
    check(cuMemcpyHtoD_v2(counter, &sum, 4), "cuMemcpyHtoD");
    check(cuMemHostRegister_v2(page, 4096, 2), "cuMemHostRegister");
    check(cuMemHostGetDevicePointer_v2(&at, page, 0), "cuMemHostGetDevicePointer");
    mine = at + 64 * (unsigned)number;
    theirs = at + 64 * (unsigned)!number;
    for (uint32_t round = 1; round <= rounds; round++) {
        void *of_work[] = {&counter}, *of_meet[] = {&mine, &theirs, &round};
        if (works)
            check(cuLaunchKernel(work, 64, 1, 1, 32, 1, 1, 0, stream, of_work, NULL), "cuLaunchKernel");
        check(cuLaunchKernel(meet, 2, 1, 1, 1, 1, 1, 0, stream, of_meet, NULL), "cuLaunchKernel");
        if (round % 8 == 0)
            check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    }
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    check(cuMemcpyDtoH_v2(&sum, counter, 4), "cuMemcpyDtoH");
    printf("%u\n", sum);
    return 0;
}
END
cc -o "$scratch/member" "$scratch/member.c" -L"$device" -l:libcuda.so.1

# gang NAME ROUNDS works|meets: a member on each GPU, which must come to their end.
gang() {
    local name=$1 rounds=$2 kind=$3 want=0 status=0 first
    [ "$kind" = meets ] || want=$((rounds * 64 * 32))
    head -c 4096 /dev/zero >"$scratch/page"
    export LD_LIBRARY_PATH=$build/lib/tally TALLY_PRIORITY=low TALLY_JOB=gang TALLY_DEVICES=2
    LD_PRELOAD=$shim timeout -k 2 60 "$scratch/member" 0 0 "$scratch/page" "$rounds" "$kind" >"$scratch/first" 2>&1 &
    first=$!
    LD_PRELOAD=$shim timeout -k 2 60 "$scratch/member" 1 1 "$scratch/page" "$rounds" "$kind" >"$scratch/second" 2>&1 || status=$?
    wait $first || status=$?
    unset LD_LIBRARY_PATH TALLY_PRIORITY TALLY_JOB TALLY_DEVICES
    if [ $status -eq 0 ] && [ "$(cat "$scratch/first" "$scratch/second")" = "$(printf '%s\n' $want $want)" ]; then
        echo "ok    $name"
        passed=$((passed + 1))
    else
        echo "FAIL  $name: exit status $status, $(cat "$scratch/first" "$scratch/second")"
        failed=$((failed + 1))
    fi
}

# A device of its own for each profile.
name=$TALLY_DEVICE_NAME
start_preempter
for profile in ${PROFILES:-soft a100-r535 h100-r580}; do
    export TALLY_DEVICE_PROFILE=$profile
    export TALLY_DEVICE_NAME=$name-$profile
    gang "$profile, now and then busy" 40 works
    TALLY_FORCE=persistent gang "$profile, now and then busy, with work in pieces" 24 works
done
stop_preempter
# Busy nearly for ever: kernels that meet must not wait for that to end.
pace=(100000000 1)
start_preempter
for profile in ${PROFILES:-soft a100-r535 h100-r580}; do
    export TALLY_DEVICE_PROFILE=$profile TALLY_DEVICE_NAME=$name-$profile
    gang "$profile, busy all the time" 16 meets
done
kill "$preempter"
wait "$preempter" 2>/dev/null || :
preempter=
exec 9>&- 8<&-
rm -f "/dev/shm/$name"*
finish

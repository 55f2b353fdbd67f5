#!/usr/bin/env bash
# Jobs where the environment is rough: no file may be written to, standard error has no reader or one that does not read, standard
# input, output and error are closed, few descriptors, few threads.  Nothing of ours ends the job or holds it up, and what the program writes goes
# where it would have gone.
set -euo pipefail
# shellcheck source=test/integration/needs.inc
. test/integration/needs.inc
build=$(realpath "${TALLY_BUILD:-build}")
need_built "$build/bin/tally-run" "$build/bin/tally"
need_plain "$build/lib/tally/libcuda.so.1"
need_cc
scratch=$(mktemp -d)
export TALLY_DEVICE_NAME=tally-rough-$$ TALLY_CACHE=$scratch/cache
trap '"$build/bin/tally-jit" stop >/dev/null 2>&1 || :; rm -rf "$scratch" "/dev/shm/$TALLY_DEVICE_NAME".*' EXIT
failures=0

# Launches a kernel a hundred times, looks at what it has counted, says so on standard output, and nothing on standard error.
cat >"$scratch/program.c" <<'END'
#include <stdio.h>
int cuInit(unsigned), cuDeviceGet(int *, int), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *), cuCtxSynchronize(void);
int cuMemAlloc_v2(unsigned long long *, size_t), cuMemsetD32_v2(unsigned long long, unsigned, size_t);
int cuMemcpyDtoH_v2(void *, unsigned long long, size_t);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                          ".visible .entry count(.param .u64 p) { .reg .u64 %a; .reg .u32 %v; ld.param.u64 %a, [p];"
                          " atom.global.add.u32 %v, [%a], 1; ret; }";
int main(void)
{
    void *context, *module, *f;
    unsigned long long p;
    unsigned n = 0;
    int device, rc = 0;
    void *arguments[] = {&p};
    rc = cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context) ||
         cuModuleLoadData(&module, ptx) || cuModuleGetFunction(&f, module, "count") || cuMemAlloc_v2(&p, 4) ||
         cuMemsetD32_v2(p, 0, 1);
    for (int i = 0; rc == 0 && i < 100; i++)
        rc = cuLaunchKernel(f, 4, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL);
    rc = rc || cuCtxSynchronize() || cuMemcpyDtoH_v2(&n, p, 4) || n != 100 * 4 * 32;
    printf("a long line of the program's own that has no place in any file of ours: %u\n", n);
    return rc != 0;
}
END
program=$scratch/program
cc -o "$program" "$scratch/program.c" "$build/lib/tally/device/libcuda.so.1" || skip "cc does not link"

# job LEVEL [OPTION...]: the program, with a tallyd of its own.
n_jobs=0
job() {
    local level=$1
    shift
    n_jobs=$((n_jobs + 1))
    TALLY_SOCKET=$scratch/$n_jobs.sock exec env --default-signal=PIPE,XFSZ \
        "$build/bin/tally-run" --device=soft --priority="$level" "$@" "$program"
}

# ends NAME WANTED STATUS: what a job ended with; `any` is any status but that of a signal.
ends() {
    if [ "$3" -ge 124 ] || { [ "$2" != any ] && [ "$3" -ne "$2" ]; }; then
        echo "FAIL $1: the job ended with status $3"
        tail -n 5 "$scratch/log"
        failures=$((failures + 1))
    fi
}

(job low) >"$scratch/plain" 2>"$scratch/log" || {
    echo "FAIL the job does not run at all"
    exit 1
}

# whole NAME FOLDER: the record there can be read, and has the kernel.
whole() {
    if ! "$build/bin/tally" report "$2" >"$scratch/report" 2>&1 || ! grep -q count "$scratch/report"; then
        echo "FAIL $1: the record is not what it should be:"
        cat "$scratch/report"
        failures=$((failures + 1))
    fi
}

# Where no more threads can be had than so many.
cat >"$scratch/threads.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    static atomic_int n;
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    return atomic_fetch_add(&n, 1) < atoi(getenv("MOST_THREADS")) ? real(thread, attributes, run, argument) : EAGAIN;
}
END
cc -shared -fPIC -o "$scratch/threads.so" "$scratch/threads.c" || skip "cc makes no libraries"

for level in low high; do
    for threads in 0 1 2 3 4 5 6 7; do
        status=0
        (LD_PRELOAD=$scratch/threads.so MOST_THREADS=$threads job "$level") >"$scratch/log" 2>&1 &
        timeout 60 tail --pid=$! -f /dev/null || kill -KILL $!
        wait $! 2>/dev/null || status=$?
        ends "$threads threads ($level)" any "$status"
    done

    # Nothing, or next to nothing, may be written to any file: memory that is handed around counts as one.
    for kilobytes in 0 2; do
        status=0
        (ulimit -f "$kilobytes" && job "$level" --report="$scratch/none") 2>&1 | cat >"$scratch/log" || status=${PIPESTATUS[0]}
        ends "files of $kilobytes KB ($level)" any "$status"
    done

    status=0
    (ulimit -n 40 && job "$level") >"$scratch/log" 2>&1 || status=$?
    ends "40 descriptors ($level)" any "$status"

    # Who reads standard error is gone.
    status=0
    rm -f "$scratch/status"
    { (TALLY_LOG=debug job "$level") 2>&1 >"$scratch/log" || echo $? >"$scratch/status"; } | true
    [ ! -e "$scratch/status" ] || status=$(cat "$scratch/status")
    ends "no reader ($level)" 0 "$status"

    # It does not read, and there is no room left.
    rm -f "$scratch/pipe"
    mkfifo "$scratch/pipe"
    exec 7<>"$scratch/pipe"
    dd if=/dev/zero of="$scratch/pipe" bs=4096 count=1000 oflag=nonblock 2>/dev/null || :
    status=0
    (export TALLY_LOG=debug && job "$level" 2>&7 >"$scratch/log") &
    timeout 60 tail --pid=$! -f /dev/null || kill -KILL $!
    wait $! 2>/dev/null || status=$?
    exec 7>&-
    ends "a reader that does not read ($level)" 0 "$status"

    # Without standard output the program's words do not get into the record; without anything; and where numbers are few.
    status=0
    (job "$level" --report="$scratch/output-$level" >&- 2>"$scratch/log") || status=$?
    ends "no standard output ($level)" 0 "$status"
    whole "no standard output ($level)" "$scratch/output-$level"
    status=0
    (job "$level" --report="$scratch/closed-$level" <&- >&- 2>&-) || status=$?
    ends "closed descriptors ($level)" 0 "$status"
    whole "closed descriptors ($level)" "$scratch/closed-$level"
    status=0
    (ulimit -n 100 && job "$level" --report="$scratch/few-$level" >&- 2>"$scratch/log") || status=$?
    ends "no standard output, and few descriptors ($level)" 0 "$status"
    whole "no standard output, and few descriptors ($level)" "$scratch/few-$level"
done
exit $((failures > 0))

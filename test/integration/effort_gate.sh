#!/usr/bin/env bash
# Programs as machine code only, as best-effort jobs with the gate forced, while a client of a high level preempts at random, on
# devices as strict as an A100 with R535 and an H100 with R580: each prints what it prints when it runs alone, and ends as it does
# then.  And who gets a gate at all: whose code, on which devices, and what the report says of the others.
#
# `make test` runs a few of them; `make test-force` (FULL=1) all.  PROGRAMS="a b" and PROFILES="a" run only these.
set -euo pipefail
. test/integration/gate_jobs.inc
need_built "$build/workloads/code/vector_add" "$build/test/standin/faulty.so"

# Blocks of turns and waits wait for each other, for which an SM with one block has no room.
few="vector_add reduce_shared scan_lookback graph_capture streams constant device_functions odd_blocks split_k events graphs per_thread"
all=$(cd "$build/workloads/code" && for f in *.known; do echo "${f%.known}"; done | grep -vE '^(turns|waits|assert_fails|train)$')
[ -n "${FULL:-}" ] && programs=${PROGRAMS:-$all} || programs=${PROGRAMS:-$few}
# Those that are not for an A100.
newer=" $(sed -n 's/^CODE_SM_90 := //p' workloads/rules.mk) "

# expect WHAT PATTERN: the report says it.
expect() {
    if "$build/bin/tally" report "$scratch/report" | tr -s ' \n' ' ' | grep -qE -- "$2"; then
        passed=$((passed + 1))
        echo "ok    $1"
    else
        failed=$((failed + 1))
        echo "FAIL  $1: no '$2' in"
        "$build/bin/tally" report "$scratch/report" | sed 's/^/      | /'
    fi
}

run_gated() {
    local name plain status gated=0 stops=0
    for name in $programs; do
        plain=0 status=0
        if [[ $TALLY_DEVICE_PROFILE == a100-* && $newer == *" $name "* ]]; then
            echo "left  $name, which has no code for $TALLY_DEVICE_PROFILE"
            continue
        fi
        learn "$build/workloads/code/$name.known"
        LD_LIBRARY_PATH=$device:$toolkit/lib timeout -k 2 120 "$build/workloads/code/$name" >"$scratch/plain" 2>/dev/null || plain=$?
        TALLY_DEVICE_PROFILE=soft LD_LIBRARY_PATH=$device:$toolkit/lib timeout -k 2 120 "$build/workloads/code/$name.known" \
            >"$scratch/soft" 2>/dev/null || status=$?
        if [ $plain -ne $status ] || ! cmp -s "$scratch/plain" "$scratch/soft"; then
            failed=$((failed + 1))
            echo "FAIL  $name plain on $TALLY_DEVICE_PROFILE: exit status $plain, as PTX $status"
            continue
        fi
        status=0
        job "$build/workloads/code/$name" TALLY_FORCE=gate || status=$?
        if [ $status -eq $plain ] && cmp -s "$scratch/plain" "$scratch/output"; then
            passed=$((passed + 1))
            printf 'ok    %-20s %-10s %5d gated, %4d stops\n' "$name" "$TALLY_DEVICE_PROFILE" "$(count gate)" "$(count preemptions)"
        else
            failed=$((failed + 1))
            echo "FAIL  $name on $TALLY_DEVICE_PROFILE: exit status $status, plain $plain"
            diff "$scratch/plain" "$scratch/output" | head -n 10 | sed 's/^/      | /' || :
            head -n 10 "$scratch/errors" | sed 's/^/      ! /'
        fi
        gated=$((gated + $(count gate))) stops=$((stops + $(count preemptions)))
    done
    # A run in which nothing was gated or stopped would show nothing.
    if [ -z "${PROGRAMS:-}" ] && { [ $gated -eq 0 ] || [ $stops -eq 0 ]; }; then
        failed=$((failed + 1))
        echo "FAIL  on $TALLY_DEVICE_PROFILE $gated launches were gated, $stops were stopped"
    fi
}

# expect_none WHAT: nothing was gated.
expect_none() {
    if [ "$(count gate)" -eq 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL  $1: $(count gate) launches were gated"
    fi
}

# expect_some WHAT: something was.
expect_some() {
    if [ "$(count gate)" -gt 0 ]; then
        passed=$((passed + 1))
        printf 'ok    %s: %d gated, %d stops\n' "$1" "$(count gate)" "$(count preemptions)"
    else
        failed=$((failed + 1))
        echo "FAIL  $1: no launch was gated"
        "$build/bin/tally" report "$scratch/report" | sed 's/^/      | /'
    fi
}

# Kernels whose blocks wait for blocks that are not begun yet, which no verdict tells of machine code: what stands still is rescued.
run_waits() {
    local again program=$build/workloads/code/waits
    export TALLY_DEVICE_BLOCKS_PER_SM=4
    learn "$program.known"
    LD_LIBRARY_PATH=$device:$toolkit/lib timeout -k 2 120 "$program" 6 >"$scratch/plain"
    cat >"$scratch/waits" <<END
#!/bin/sh
exec "$program" 6
END
    chmod +x "$scratch/waits"
    for again in $(seq 20); do
        if ! job "$scratch/waits" TALLY_FORCE=gate || ! cmp -s "$scratch/plain" "$scratch/output"; then
            failed=$((failed + 1))
            echo "FAIL  waits, run $again"
            head -n 10 "$scratch/errors" | sed 's/^/      ! /'
        fi
        ! grep -q "is not cut any more" "$scratch/errors" || break
    done
    expect "waits: rescued" 'STOOD STILL IN PIECES \(gate\).* IS NOT CUT ANY MORE'
    export TALLY_DEVICE_BLOCKS_PER_SM=1
}

# A library of that name with a kernel, and a program that calls it.
make_library() {
    cat >"$scratch/library.cu" <<'END'
__global__ void fill(int *p) { p[blockIdx.x * 32 + threadIdx.x] = blockIdx.x; }
extern "C" int library_run(void)
{
    int *p, last;
    cudaMalloc(&p, 64 * 32 * sizeof(int));
    for (int i = 0; i < 8; i++)
        fill<<<64, 32>>>(p);
    cudaMemcpy(&last, p + 64 * 32 - 1, sizeof last, cudaMemcpyDeviceToHost);
    return last != 63;
}
END
    cat >"$scratch/main.c" <<'END'
extern int library_run(void);
int main(void) { return library_run(); }
END
    "$nvcc" -shared -Xcompiler -fPIC -gencode 'arch=compute_90,code=[sm_90,compute_90]' -o "$scratch/known.so" "$scratch/library.cu"
    "$nvcc" -shared -Xcompiler -fPIC -gencode arch=compute_90,code=sm_90 -o "$scratch/$1.so" "$scratch/library.cu"
    "$nvcc" -o "$scratch/$1" "$scratch/main.c" -Xlinker -rpath="$scratch" "$scratch/$1.so"
    learn "$scratch/known.so"
}

# Whose code, and where.
run_policy() {
    local name program=$build/workloads/code/vector_add
    for name in libtrainer libcublas; do
        make_library $name
    done
    learn "$program.known"
    job "$program" || :
    expect "a device that was never examined" 'machine code gets no gate on this device'
    expect_none "a device that was never examined"
    job "$program" TALLY_FORCE=gate TALLY_GATE=off || :
    expect "off" 'has no gate variant: TALLY_GATE is off'
    expect_none "off"
    job "$scratch/libtrainer" TALLY_FORCE=gate || :
    expect "a library of a framework's" ' 8 gate .* fill '
    job "$scratch/libcublas" TALLY_FORCE=gate || :
    expect "a library of NVIDIA's" 'has no gate variant: it is a library.s of NVIDIA.s'
    expect_none "a library of NVIDIA's"
    job "$scratch/libcublas" TALLY_FORCE=gate TALLY_GATE=all || :
    expect "all" ' 8 gate .* fill '
}

# The software device with a fault, behind the interception library: as both are called libcuda.so.1, copies under another name.
make_faulty() {
    sed 's/libcuda\.so\.1/libcudX.so.1/g' "$device/libcuda.so.1" >"$scratch/libcudX.so.1"
    sed 's/libcuda\.so\.1/libcudX.so.1/g' "$build/test/standin/faulty.so" >"$scratch/faulty.so"
    chmod +x "$scratch/libcudX.so.1" "$scratch/faulty.so"
}

# faulty NAME FAULT VARIABLE=VALUE...: the program prints what it prints alone.
faulty() {
    local name=$1 fault=$2 status=0
    shift 2
    learn "$build/workloads/code/$name.known"
    LD_LIBRARY_PATH=$device:$toolkit/lib timeout -k 2 120 "$build/workloads/code/$name" >"$scratch/plain"
    job "$build/workloads/code/$name" LD_LIBRARY_PATH="$build/lib/tally:$scratch:$toolkit/lib" TALLY_DRIVER="$scratch/faulty.so" \
        TALLY_JIT="$build/bin/tally-jit" TALLY_FORCE=gate TALLY_FAULT="$fault" "$@" || status=$?
    if [ $status -eq 0 ] && cmp -s "$scratch/plain" "$scratch/output"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL  $name with $fault: exit status $status"
        diff "$scratch/plain" "$scratch/output" | head -n 10 | sed 's/^/      | /' || :
        head -n 10 "$scratch/errors" | sed 's/^/      ! /'
    fi
}

# A driver that refuses what was gated: the original is loaded and runs, whole, and the report says why.
run_refused() {
    faulty constant none
    expect_some "a driver that takes twins"
    faulty constant refuse:gate
    expect "a driver that refuses twins" 'the driver refused a module of .* with gated twins: it is loaded as it is'
    expect "and its kernels" 'has no gate variant: its module has variables, and was loaded without gated twins'
    expect_none "a driver that refuses twins"
    faulty vector_add no-cubins
    expect "a driver that refuses gated modules" 'has no gate variant: the driver refused the gated form \(error 209\)'
    expect_none "a driver that refuses gated modules"
}

# Without ptxas the driver's linker makes the gates, and what it does not make is no gate.
run_linker() {
    local ptxas=$TALLY_PTXAS none="TALLY_PTXAS=$scratch/none PATH=/usr/bin:/bin CUDA_HOME=$scratch/none" name
    # shellcheck disable=SC2086 # several variables
    faulty constant none $none
    expect "a linker that makes no machine code" 'has no gated twins of its kernels: '
    expect_none "a linker that makes no machine code"
    for name in vector_add constant; do
        # shellcheck disable=SC2086
        faulty $name machine-code $none TALLY_FAULT_PTXAS="$ptxas"
        expect_some "$name: gates by the driver's linker"
    done
}

# Words in the host's memory, where they are if the device has atomics on it, as a Grace's: the software device has them.
run_on_host() {
    local name
    for name in vector_add scan_lookback constant odd_blocks split_k; do
        faulty $name host-atomics
        expect_some "$name: counted in the host's memory"
    done
}

# A kernel compiled for clusters stays as it is, and its launch gets the answer that it gets alone.
run_clusters() {
    cat >"$scratch/clusters.cu" <<'END'
#include <cstdio>
__global__ void __cluster_dims__(2, 1, 1) pairs(int *p) { p[blockIdx.x] = 1; }
int main()
{
    int *p;
    cudaMalloc(&p, 64 * sizeof(int));
    pairs<<<64, 32>>>(p);
    cudaError_t launched = cudaGetLastError(), ended = cudaDeviceSynchronize();
    printf("error %d\n", launched != cudaSuccess ? launched : ended);
}
END
    "$nvcc" -gencode 'arch=compute_90,code=[sm_90,compute_90]' -o "$scratch/known" "$scratch/clusters.cu"
    "$nvcc" -gencode arch=compute_90,code=sm_90 -o "$scratch/clusters" "$scratch/clusters.cu"
    learn "$scratch/known"
    LD_LIBRARY_PATH=$device:$toolkit/lib timeout -k 2 120 "$scratch/clusters" >"$scratch/plain"
    if job "$scratch/clusters" TALLY_FORCE=gate && cmp -s "$scratch/plain" "$scratch/output"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL  clusters: $(cat "$scratch/output") and not $(cat "$scratch/plain")"
    fi
    expect "clusters" 'has no gate variant: it is compiled for clusters'
}

# A very large grid of tiny blocks: it takes bites, each block runs once, and it ends while somebody above is busy most of the time.
run_bites() {
    cat >"$scratch/bites.cu" <<'END'
#include <cstdio>
enum { BLOCKS = 20000 };
__global__ void tiny(int *p) { if (threadIdx.x == 0) p[blockIdx.x] += 1; }
int main()
{
    static int ran[BLOCKS];
    int *p, wrong = 0;
    cudaMalloc(&p, sizeof ran);
    cudaMemset(p, 0, sizeof ran);
    for (int i = 0; i < 6; i++)
        tiny<<<BLOCKS, 32>>>(p);
    cudaMemcpy(ran, p, sizeof ran, cudaMemcpyDeviceToHost);
    for (int n : ran)
        wrong += n != 6;
    printf("%d blocks ran too often or too seldom\n", wrong);
    return wrong != 0;
}
END
    "$nvcc" -gencode 'arch=compute_90,code=[sm_90,compute_90]' -o "$scratch/known" "$scratch/bites.cu"
    "$nvcc" -gencode arch=compute_90,code=sm_90 -o "$scratch/bites" "$scratch/bites.cu"
    learn "$scratch/known"
    if job "$scratch/bites" TALLY_FORCE=gate TALLY_LOG=debug && grep -q '^0 blocks' "$scratch/output" &&
        grep -q 'in bites' "$scratch/errors"; then
        passed=$((passed + 1))
        echo "ok    bites"
    else
        failed=$((failed + 1))
        echo "FAIL  bites"
        tail -n 20 "$scratch/output" "$scratch/errors" | sed 's/^/      ! /'
    fi
    expect "tiny: gated" ' 6 gate .* tiny'
}

start_preempter
for TALLY_DEVICE_PROFILE in ${PROFILES:-a100-r535 h100-r580}; do
    export TALLY_DEVICE_PROFILE
    run_gated
done
if [ -z "${PROGRAMS:-}" ]; then
    run_waits
    run_policy
    run_bites
    run_clusters
    make_faulty
    run_refused
    run_linker
    run_on_host
fi
finish

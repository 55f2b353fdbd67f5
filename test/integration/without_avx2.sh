#!/usr/bin/env bash
# A machine without AVX2: tally-run says what that means and runs the program all the same.  Kernels compiled for such a CPU have no
# instruction of AVX and compute what they should; those that need a fused product get an error that a program can handle.
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
run=$build/bin/tally-run
need_nvcc
need_built "$build/lib/tally/libcuda.so.1" "$build/lib/tally/device/libcuda.so.1" "$build/bin/tally-jit"
need_plain "$build/lib/tally/libcuda.so.1"
scratch=$(mktemp -d)
export TMPDIR=$scratch XDG_RUNTIME_DIR=$scratch TALLY_CACHE=$scratch/cache TALLY_JIT_IDLE=20
export TALLY_DEVICE_NAME=tally-without-avx2-$$ TALLY_DAEMON=no
unset TALLY_DRIVER TALLY_JIT_CPU TALLY_JIT_FEATURES GLIBC_TUNABLES
trap '"$build/bin/tally-jit" stop >/dev/null 2>&1 || :; rm -rf "$scratch" "/dev/shm/$TALLY_DEVICE_NAME".*' EXIT
fail() {
    echo "FAIL: $*"
    exit 1
}
. test/integration/commands.inc

sentence="this CPU has no AVX2: on the software device kernels that multiply and add fractions cannot run"
# What libc is told not to see is not there for tally-run either.
hidden=GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2
expect "a CPU without AVX2" "$(status_of env "$hidden" "$run" --device=soft echo ran)" 0
has "a CPU without AVX2" "$(cat "$scratch/err")" "$sentence"
expect "the program ran" "$(cat "$scratch/out")" ran
expect "said once" "$(grep -c "no AVX2" "$scratch/err")" 1
expect "quiet" "$(env "$hidden" "$run" -q --device=soft true 2>&1 | grep -c "no AVX2" || :)" 0
expect "a driver of one's own" "$(TALLY_DRIVER=/x/libcuda.so.1 env "$hidden" "$run" true 2>&1 | grep -c "no AVX2" || :)" 0
if grep -qw avx2 /proc/cpuinfo; then
    expect "a CPU with AVX2" "$("$run" --device=soft true 2>&1 | grep -c "no AVX2" || :)" 0
fi

has "without FMA" "$(GLIBC_TUNABLES=glibc.cpu.hwcaps=-FMA "$run" --device=soft true 2>&1)" "this CPU has no FMA:"

# The programs check their own results.
make --no-print-directory -j2 B="${TALLY_BUILD:-build}" SETUP=no workloads
export TALLY_JIT_CPU=x86-64-v2 TALLY_JIT_FEATURES=-avx,-avx2
for name in vector_add transpose reduce_shuffle atomics histogram sort_radix scan_block scan_lookback grid_sync textures; do
    expect "$name" "$(status_of timeout -k 2 120 "$run" --device=soft "$build/workloads/cuda/$name")" 0
done
kept=("$scratch"/cache/*.so)
expect "kernels that were compiled" "$((${#kept[@]} >= 10))" 1
expect "instructions of AVX" "$(objdump -d "${kept[@]}" | grep -cE '%[yz]mm|\sv[a-z0-9]+\s.*%xmm' || :)" 0
expect "a look that would find some" "$(objdump -d "${kept[@]}" | grep -cE '%xmm' | awk '{ print ($1 > 100) }')" 1

# A product and a sum in one step: no crash and no other result, but an error with a reason.
for name in matmul_tiled half; do
    expect "$name" "$(TALLY_LOG=debug status_of timeout -k 2 120 "$run" --device=soft "$build/workloads/cuda/$name")" 1
    has "$name" "$(cat "$scratch/out" "$scratch/err")" "operation not supported"
    has "$name" "$(cat "$scratch/err")" "a CPU with AVX2, FMA and F16C has instructions"
done

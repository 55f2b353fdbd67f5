#!/usr/bin/env bash
# NVIDIA's libraries on the software CUDA device, case by case, against sums in double, the equations that they solve, and
# cuRAND's host generators.
#
# workloads/cuda/lib/EXPECTED-FAILURES names what is known to fail, with the reason; a case that passes although it is named
# there is a failure too.  Kernels of these libraries are large and are compiled here from nothing, so the whole run has a
# budget of LIBRARY_SECONDS=150: what is not compiled by then is said to be left out; a kernel that runs too long is a failure.
# "quick" is one shape and one layout, which needs one kernel; a number is the seconds that a case needs.
# CASES="blas:sgemm blas:hgemm" runs only these.
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
known=workloads/cuda/lib/EXPECTED-FAILURES
device=$build/lib/tally/device
need_nvcc
toolkit=$(cd "$(dirname "$(realpath "$nvcc")")/.." && pwd)
for library in cublas curand cufft cusparse cusolver; do
    if [ ! -e "$toolkit/lib/lib$library.so" ]; then
        skip "no lib$library.so in $toolkit/lib"
    fi
done
need_built "$device/libcuda.so.1" "$build/bin/tally-jit"
need_plain "$device/libcuda.so.1"
make --no-print-directory -j2 B="${TALLY_BUILD:-build}" SETUP=no workloads

scratch=$(mktemp -d)
export TMPDIR=$scratch XDG_RUNTIME_DIR=$scratch TALLY_CACHE=$scratch/cache TALLY_JIT_IDLE=20
export TALLY_DEVICE_NAME=tally-libraries-$$ LD_LIBRARY_PATH=$device:$toolkit/lib
trap '"$build/bin/tally-jit" stop >/dev/null 2>&1 || :; rm -rf "$scratch" "/dev/shm/$TALLY_DEVICE_NAME".*' EXIT

cases="blas:sgemm blas:sgemm_deep blas:dgemm blas:svectors blas:dvectors blas:sgemv blas:dgemv blas:dgemv_thread
    fft:complex fft:double fft:plane sparse:spmv sparse:spmm solver:lu
    rand:xorwow rand:philox rand:mrg32k3a rand:mtgp32 rand:sobol32 rand:scrambled32 rand:sobol64
    blas:batched blas:gemm_tf32:quick blas:gemm_f16:quick blas:gemm_bf16:quick blas:gemm_f16_f16:quick blas:hgemm:quick
    fft:real fft:prime sparse:coo sparse:from_dense solver:cholesky solver:qr solver:eigen solver:svd solver:jacobi rand:mt19937::180"
# Not every toolkit has these.
if [ -x "$build/workloads/cuda/lib/blaslt" ]; then
    cases="blaslt:bias_f32 blaslt:relu_bias_f32 $cases blaslt:none_f32 blaslt:relu_f32 blaslt:gelu_bias_f32 blaslt:bias_f16"
fi
if [ -x "$build/workloads/cuda/lib/dnn" ]; then
    cases="dnn:softmax dnn:norm dnn:activation dnn:largest dnn:average $cases dnn:forward dnn:to_data dnn:to_filter"
fi
passed=0 failed=0 expected=0 left=0 end=$((SECONDS + ${LIBRARY_SECONDS:-150}))
for case in ${CASES:-$cases}; do
    reason=$(awk -v name="$case" '$1 == name { sub(/^[^ ]+ +/, ""); print; exit }' "$known")
    IFS=: read -r program name quick seconds <<<"$case"
    limit=$((end - SECONDS < ${seconds:-60} ? end - SECONDS : ${seconds:-60})) status=0 begin=$EPOCHREALTIME
    if [ $limit -lt "${seconds:-5}" ]; then
        echo "left  $case: no time is left"
        left=$((left + 1))
        continue
    fi
    timeout -k 2 $limit "$build/workloads/cuda/lib/$program" "$name" ${quick:+"$quick"} >"$scratch/output" 2>&1 || status=$?
    if [ $status -eq 0 ] && [ -z "$reason" ]; then
        word=ok passed=$((passed + 1))
    elif [ $status -eq 0 ]; then
        word=FAIL failed=$((failed + 1)) reason="passes although $known names it: $reason"
    elif [ $status -eq 124 ] && "$build/bin/tally-jit" status | grep -qE ' [1-9][0-9]* in work'; then
        word=left left=$((left + 1)) reason="its kernels were still being compiled after $limit s"
    elif [ -n "$reason" ]; then
        word=known expected=$((expected + 1)) reason="fails as expected: $reason"
    else
        word=FAIL failed=$((failed + 1)) reason="exit status $status"
    fi
    ms=$(((${EPOCHREALTIME/[.,]/} - ${begin/[.,]/}) / 1000))
    printf '%-5s %-24s %6d ms  %s\n' $word "$case" $ms "$reason"
    [ $word != FAIL ] || sed 's/^/      | /' "$scratch/output" | head -n 20
done
echo "$passed passed, $failed failed, $expected failed as expected, $left left out for lack of time"
[ $failed -eq 0 ]

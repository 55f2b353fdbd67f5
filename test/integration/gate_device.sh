#!/usr/bin/env bash
# The kernels of test/gate/kernels as machine code by the real ptxas, and their gated forms, on the software device as a100-r535 and
# h100-r580: they leave the same bytes, are turned away by a stop word, and go on where they were.
#
# One SM, so that blocks run one after the other: many of these kernels write over each other.
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
device=$build/lib/tally/device/libcuda.so.1
need_built "$device" "$build/test/gate-run" "$build/bin/tally-jit"
need_plain "$device"
need_nvcc
ptxas=$(scripts/tool ptxas) || skip "no ptxas here (scripts/tool)"
scratch=$(mktemp -d)
export TMPDIR=$scratch XDG_RUNTIME_DIR=$scratch TALLY_CACHE=$scratch/cache TALLY_JIT_IDLE=20 TALLY_PROGRESS=no
export TALLY_DEVICE_NAME=tally-gate-$$ TALLY_DRIVER=$device TALLY_DEVICE_SMS=1 TALLY_PTXAS=$ptxas TALLY_DEVICE_WATCHDOG=10
stop_all() {
    "$build/bin/tally-jit" stop >/dev/null 2>&1 || :
    rm -rf "$scratch" "/dev/shm/$TALLY_DEVICE_NAME"*
}
trap stop_all EXIT
failures=0 kernels=0

# run PROFILE ARCH FILE...
run() {
    local profile=$1 arch=$2 file name
    shift 2
    for file; do
        name=$(basename "$file")
        name=${name%.*}
        case $file in
        *.cu)
            [ -e "$scratch/$name.ptx" ] ||
                "$nvcc" "-arch=compute_$(grep -oE 'sm_[0-9]+' <<<"$name" | tr -d 'sm_' | grep . || echo 75)" -ptx -w -o "$scratch/$name.ptx" "$file"
            ;;
        *) cp "$file" "$scratch/$name.ptx" ;;
        esac
        "$ptxas" "-arch=sm_$arch" "$scratch/$name.ptx" -o "$scratch/$name.cubin" 2>"$scratch/said" || {
            cat "$scratch/said"
            exit 1
        }
        echo "$name on $profile"
        TALLY_DEVICE_PROFILE=$profile "$build/test/gate-run" "$ptxas" "$scratch/$name.ptx" "$scratch/$name.cubin" \
            >"$scratch/out" 2>&1 || failures=$((failures + 1))
        grep -E '^(FAIL|gate-run|  --|  ok .*refused|[1-9][0-9]* failures)' "$scratch/out" || :
        kernels=$((kernels + $(grep -cE '^  ok' "$scratch/out" || :)))
    done
}
k=test/gate/kernels
run a100-r535 80 $k/plain.cu $k/calls.cu $k/shared.cu $k/variables.cu $k/pointers.cu $k/matrices.cu $k/sm_80.cu $k/directives.ptx
run h100-r580 90 $k/plain.cu $k/calls.cu $k/shared.cu $k/variables.cu $k/pointers.cu $k/matrices.cu $k/sm_80.cu $k/sm_90.cu $k/directives.ptx \
    $k/directives_sm_90.ptx
echo "$kernels kernels, $failures files with failures"
[ $failures -eq 0 ] && [ $kernels -gt 80 ]

#!/usr/bin/env bash
# Separately compiled programs (nvcc -rdc=true): what nvlink makes has no PTX, its parts have.  They run where the linked machine code
# does not fit and where it does, are cut like all others under preemption, and what cannot be is told: by the driver, or in the record.
set -euo pipefail
. test/integration/effort_jobs.inc
need_built "$build/bin/tally" "$build/workloads/cuda/separate"
export TALLY_DEVICE_SMS=1 TALLY_DEVICE_BLOCKS_PER_SM=1

# compile OUT SOURCE CODE...: an object with that PTX and machine code (compute_80, sm_90, ...).
compile() {
    local out=$1 source=$2 codes=() code
    shift 2
    for code in "$@"; do
        codes+=(-gencode "arch=compute_${code#*_},code=$code")
    done
    "$nvcc" -O1 -std=c++17 -rdc=true "${codes[@]}" -c -o "$scratch/$out.o" "$source"
}
link() { # link OUT CODE OBJECT...
    local out=$1 code=$2
    shift 2
    "$nvcc" -rdc=true -gencode "arch=compute_${code#*_},code=$code" -o "$scratch/$out" "${@/#/$scratch/}"
}
compile main.both workloads/cuda/separate.cu sm_90 compute_90
compile left.both workloads/cuda/parts/left.cu sm_90 compute_90
compile right.both workloads/cuda/parts/right.cu sm_90 compute_90
compile left.code workloads/cuda/parts/left.cu sm_90
compile left.older workloads/cuda/parts/left.cu compute_80
compile left.oldest workloads/cuda/parts/left.cu sm_90 compute_80
link both sm_90 main.both.o left.both.o right.both.o
link code sm_90 main.both.o left.code.o right.both.o
link older compute_90 main.both.o left.older.o right.both.o
link oldest sm_90 main.both.o left.oldest.o right.both.o
cat >"$scratch/nested.cu" <<'END'
#include <cstdio>
__global__ void child(int *p) { *p = 3; }
__global__ void parent(int *p) { child<<<1, 1>>>(p); }
int main()
{
    int *d, h = 0;
    cudaMalloc(&d, sizeof h);
    parent<<<1, 1>>>(d);
    int r = cudaMemcpy(&h, d, sizeof h, cudaMemcpyDeviceToHost);
    printf("%d %s %s\n", h, cudaGetErrorName(cudaGetLastError()), r == 0 ? "copied" : "not copied");
}
END
compile nested "$scratch/nested.cu" compute_90
link nested compute_90 nested.o

note_that() { # note_that WHAT CONDITION...
    local what=$1
    shift
    if "$@"; then
        echo "ok    $what"
        passed=$((passed + 1))
    else
        echo "FAIL  $what"
        sed 's/^/      | /' "$scratch/told"
        failed=$((failed + 1))
    fi
}
says() { grep -qF -- "$1" "$scratch/told"; }
run() { # run PROFILE PROGRAM
    TALLY_DEVICE_PROFILE=$1 LD_LIBRARY_PATH=$device timeout -k 2 60 "$2" >"$scratch/told" 2>&1
}
fails() { ! run "$@"; }
# low PROFILE PROGRAM RUNG: under preemption; its record is in $scratch/record.
low() {
    rm -rf "$scratch/record"
    TALLY_DEVICE_PROFILE=$1 LD_PRELOAD=$shim LD_LIBRARY_PATH=$build/lib/tally TALLY_PRIORITY=low TALLY_FORCE=$3 \
        TALLY_REPORT=$scratch/record timeout -k 2 60 "$2" >"$scratch/told" 2>&1 && says "separate: ok" || return 1
    "$build/bin/tally" report --json "$scratch/record" >"$scratch/json"
    "$build/bin/tally" report "$scratch/record" >>"$scratch/told"
}
# cut_by RUNG: whether the kernel that calls into all files was on that rung.
cut_by() {
    python3 - "$1" "$scratch/json" <<'END'
import json, sys
run = json.load(open(sys.argv[2]))["runs"][0]
walks = [k for j in run["jobs"] for k in j["kernels"] if "walk" in k["name"]]
sys.exit(not (walks and all(k["launches_by_rung"].get(sys.argv[1], 0) > 0 for k in walks)))
END
}

start_preempter
for profile in soft h100-r580; do
    for program in both older; do
        note_that "$profile: $program runs" run $profile "$scratch/$program"
    done
    for rung in slice ticket persistent; do
        note_that "$profile: both, $rung, under preemption" low $profile "$scratch/both" $rung
        note_that "$profile: both was on the rung $rung" cut_by $rung
    done
done
# Parts of two architectures: whose code it is that runs cannot be told, so it runs whole.
note_that "soft: older, best effort" low soft "$scratch/older" ticket
note_that "soft: older ran whole" cut_by whole
note_that "soft: the record says of which part" says "part 2 of the 4 that it was linked of has no PTX for compute_90"
# Where the machine code fits, only the PTX that it was made of may stand for it.
note_that "h100: machine code of unknown PTX is refused" fails h100-r580 "$scratch/oldest"
note_that "h100: it is told which part" says "part 2 of the 3 that it was linked of has no PTX that the linked machine code was made of"
note_that "soft: the same has PTX that will do" run soft "$scratch/oldest"
note_that "soft: a part without PTX is refused" fails soft "$scratch/code"
note_that "soft: it is told which part, and what it has" says \
    "part 2 of the 3 that it was linked of has no PTX for this device's compute capability or lower, only machine code for sm_90"
for profile in soft h100-r580; do
    note_that "$profile: a kernel that launches another" run $profile "$scratch/nested"
    note_that "$profile: what it launched has run" says "3 cudaSuccess copied"
done
finish

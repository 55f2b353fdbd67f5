#!/usr/bin/env bash
# What `make code-workloads` builds can be built: each of its programs that uses more than the plain language (libcu++, cooperative groups,
# matrix fragments, assembler) compiles for the oldest architecture that it is built for, sm_80 or what CODE_SM_90 in workloads/rules.mk says.
#
# FULL=1 compiles all of them.
set -euo pipefail
. test/integration/needs.inc

need_nvcc
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
newer=" $(sed -n 's/^CODE_SM_90 := //p' workloads/rules.mk) "
[ "$newer" != "  " ] || { echo "workloads/rules.mk has no CODE_SM_90" && exit 1; }
failures=0 compiled=0

# compile SOURCE ARCH: only the part for the device.
compile() {
    "$nvcc" -std=c++17 -w -cubin "-arch=sm_$2" -Iworkloads/cuda -o "$scratch/out" "$1" >"$scratch/said" 2>&1
}

for source in workloads/cuda/*.cu workloads/order/*.cu; do
    name=$(basename "$source" .cu) arch=80
    case $name in separate | nested) continue ;; esac # they want to be linked, which is not one command
    if [ -z "${FULL:-}" ] && ! grep -qE '#include <(cuda/|cooperative_groups|mma)|asm( volatile)? *\(' "$source"; then
        continue
    fi
    [[ $newer != *" $name "* ]] || arch=90
    compiled=$((compiled + 1))
    if compile "$source" $arch; then
        echo "ok    $name for sm_$arch"
    else
        failures=$((failures + 1))
        echo "FAIL  $name for sm_$arch"
        head -n 5 "$scratch/said" | sed 's/^/      | /'
    fi
done
echo "$compiled compiled, $failures failures"
[ $failures -eq 0 ] && [ $compiled -gt 0 ]

#!/usr/bin/env bash
# Gated cubins against what ptxas makes of prologue and kernel, for a few architectures and files (`make test-gate` does all of
# it), and cubin-gate as users meet it.
set -euo pipefail
. test/integration/needs.inc

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export TALLY_CACHE=$scratch/cache
gate=${TALLY_BUILD:-build}/bin/cubin-gate
ptxas=$(scripts/tool ptxas) || skip "no ptxas here (scripts/tool)"
need_nvcc
need_built "$gate" "${TALLY_BUILD:-build}/test/gate-tool"
export PTXAS=$ptxas
failures=0
fail() {
    echo "FAIL $*"
    failures=$((failures + 1))
}

test/gate/compare.py --twins --quiet --arch=80,90,120 --files=plain,variables,directives >"$scratch/compared" || fail "the comparison"
cat "$scratch/compared"
# A missing edit must be seen, or the comparison says nothing.
test/gate/compare.py --quiet --leave-out --arch=80 --files=variables,calls >"$scratch/without" || :
for edit in 'symbol: size' 'exits: moved' "gate's added" 'constant0' '^0a ' '^17, 45' '^4c ' '^2f ' 'debug_frame' 'program headers' 'twin: call' 'twin: .nv'; do
    grep -E -- "$edit" "$scratch/without" | grep -qE '[1-9]' || fail "the comparison does not miss '$edit'"
done

for arch in 80 90 120; do
    "${TALLY_BUILD:-build}/test/gate-tool" together "$ptxas" $arch | grep -q '^9 gates at once, the same as alone$' || fail "gates at once, sm_$arch"
done

"$ptxas" -arch=sm_90 test/gate/kernels/directives.ptx -o "$scratch/in"
"$gate" --list "$scratch/in" >"$scratch/out"
grep -A1 '^takes_nothing$' "$scratch/out" | grep -q 'yes; 0 parameters in 0 bytes, the gate.s at 0' || fail "--list: takes_nothing"
grep -A1 '^only_traps$' "$scratch/out" | grep -q 'no: has no list of its exits' || fail "--list: only_traps"
grep -A1 '^jumps$' "$scratch/out" | grep -q 'yes; 2 parameters in 12 bytes, the gate.s at 16' || fail "--list: jumps"
"$gate" -o "$scratch/gated" "$scratch/in" | grep -q '^7 of 8 kernels gated' || fail "all kernels"
"$gate" --kernel=jumps --twin -o "$scratch/twin" "$scratch/in" | grep -q '^1 of 8 kernels gated' || fail "one twin"
"$gate" --list "$scratch/twin" | grep -qx "jumps[$]gate" || fail "the twin's name"
! "$gate" --kernel=only_traps -o "$scratch/no" "$scratch/in" 2>"$scratch/err" || fail "a kernel that cannot be gated"
grep -q 'has no list of its exits' "$scratch/err" || fail "why not"
! "$gate" --kernel=nobody -o "$scratch/no" "$scratch/in" 2>"$scratch/err" || fail "a kernel that is not there"
! "$gate" -o "$scratch/no" test/gate/kernels/directives.ptx 2>"$scratch/err" || fail "a file that is no cubin"
grep -q 'not a 64-bit CUDA ELF' "$scratch/err" || fail "what it is"
echo "$failures failures"
[ $failures -eq 0 ]

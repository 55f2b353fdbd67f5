#!/usr/bin/env bash
# Whatever NVIDIA's cuobjdump lists in the toolkit's own libraries, our reader finds too; and what both extract is the
# same, byte for byte.  (The other way round does not hold: cuobjdump does not see containers outside of sections.)
#
# usage: cuobjdump_agrees.sh [LIBRARY...]   (libcurand.so and libcublas.so of the toolkit, if none is named)
set -euo pipefail
. test/integration/needs.inc

tally=${TALLY_BUILD:-build}/bin/tally
cuobjdump=${CUOBJDUMP:-$(scripts/tool cuobjdump || :)}
nvcc=$(scripts/tool nvcc || :)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT


[ -n "$cuobjdump" ] || skip "there is no cuobjdump"
libraries=("$@")
for home in "${CUDA_HOME:-}" /usr/local/cuda "${nvcc%/bin/nvcc}"; do
    for name in libcurand.so libcublas.so; do
        if [ -n "$home" ] && [ -e "$home/lib64/$name" ] && [ ${#libraries[@]} -lt 2 ]; then
            libraries+=("$home/lib64/$name")
        fi
    done
done
[ ${#libraries[@]} -gt 0 ] || skip "there is no CUDA toolkit with libcurand.so or libcublas.so"

failures=0
# Lines of the first file that the second lacks, each as often as it occurs, fail the test.
expect_within() {
    local missing
    missing=$(comm -23 <(sort "$1") <(sort "$2"))
    if [ -n "$missing" ]; then
        echo "FAIL $3: only cuobjdump has"
        head -n 5 <<<"$missing"
        failures=$((failures + 1))
    else
        echo "ok   $3: $(wc -l <"$1") of cuobjdump's, $(wc -l <"$2") of ours"
    fi
}

hashes() { # of the files in a folder
    find "$1" -name "*.$2" -exec sha256sum {} + | cut -d' ' -f1
}

for library in "${libraries[@]}"; do
    name=$(basename "$library")
    work=$scratch/$name
    mkdir -p "$work/theirs"

    "$tally" inspect --extract "$work/ours" "$library" >"$work/report"
    for kind in ptx elf; do
        case $kind in ptx) ours=ptx ;; elf) ours=cubin ;; esac
        # cuobjdump writes sm_100 for machine code of sm_100f.
        awk -v kind="$ours" '$2 == kind { sub(/f$/, "", $3); print $3 }' "$work/report" >"$work/$kind.ours"
        "$cuobjdump" -l$kind "$library" | sed -n 's/.*\.\(sm_[0-9a-z]*\)\.[a-z]*$/\1/p' | sed 's/f$//' >"$work/$kind.theirs"
        expect_within "$work/$kind.theirs" "$work/$kind.ours" "$name: images listed by cuobjdump -l$kind"

        (cd "$work/theirs" && "$cuobjdump" -x$kind all "$library" >/dev/null)
        hashes "$work/theirs" "$ours" >"$work/$kind.their-hashes"
        hashes "$work/ours" "$ours" >"$work/$kind.our-hashes"
        expect_within "$work/$kind.their-hashes" "$work/$kind.our-hashes" "$name: contents extracted by -x$kind"
    done
    if [ ! -s "$work/ptx.theirs" ] && [ ! -s "$work/elf.theirs" ]; then
        echo "FAIL $name: cuobjdump listed nothing"
        failures=$((failures + 1))
    fi
    rm -rf "$work"
done
exit $((failures > 0))

#!/usr/bin/env bash
# The interception library exports every function of the driver: all of the toolkit's stub library where there is one, else all
# that the CUDA headers declare; and besides them only what is meant to be seen.  It needs libc and nothing else.
set -euo pipefail
. test/integration/needs.inc

build=${TALLY_BUILD:-build}
shim=$build/lib/tally/libcuda.so.1
if [ ! -e "$shim" ]; then
    skip "the interception library is not built"
fi
exported() { nm -D --defined-only "$1" | awk '$2 ~ /[TW]/ { sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort -u; }

stub=
if nvcc=$(scripts/tool nvcc); then
    for folder in lib lib64; do
        candidate=$(dirname "$(realpath "$nvcc")")/../$folder/stubs/libcuda.so
        [ -e "$candidate" ] && stub=$candidate
    done
fi
if [ -n "$stub" ]; then
    exported "$stub" >"$TMPDIR/wanted"
else
    sed -n 's/^TL_DRIVER_NAME(\(.*\))$/\1/p' "$build/gen/shim_names.inc" | LC_ALL=C sort -u >"$TMPDIR/wanted"
fi
exported "$shim" >"$TMPDIR/there"
missing=$(LC_ALL=C comm -23 "$TMPDIR/wanted" "$TMPDIR/there")
extra=$(LC_ALL=C comm -13 "$TMPDIR/wanted" "$TMPDIR/there" |
    grep -vE '^(cu[A-Z]|tally_|nvrtcGetCUBIN$|(__)?nvJitLink|nvmlDeviceGetMemoryInfo(_v2)?$|dlsym$|__(asan|tsan|ubsan)|_init$|_fini$)' || :)
echo "$(wc -l <"$TMPDIR/wanted") functions of ${stub:-the headers}"
[ -z "$missing" ] || echo "missing: $missing"
[ -z "$extra" ] || echo "exported by accident: $extra"
needed=$(objdump -p "$shim" | awk '$1 == "NEEDED" { print $2 }' | grep -vE '^(libc\.so\.6|ld-linux.*|lib[abtu]*san\.so.*)$' || :)
[ -z "$needed" ] || echo "needs more than libc: $needed"
[ -z "$missing" ] && [ -z "$extra" ] && [ -z "$needed" ]

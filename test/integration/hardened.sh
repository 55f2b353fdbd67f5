#!/usr/bin/env bash
# Every program and library that is built is hardened, as far as a file tells: it is
# position-independent, resolves all addresses at its start and cannot write them from then on, has
# no executable stack and no place of its own to load libraries from, uses canaries and checked
# functions of libc, a library asks the environment nothing for a program that is set-uid, and each of its units was compiled with the options that show only there.
set -euo pipefail
# shellcheck source=test/integration/needs.inc
. test/integration/needs.inc

build=${TALLY_BUILD:-build}
command -v readelf >/dev/null || skip "no readelf"
if nm -D "$build/bin/tally" | grep -E ' __(asan|tsan)_' >/dev/null; then
    skip "builds with a sanitizer are not hardened (scripts/harden.mk)"
fi
failed=0
complain() {
    echo "FAIL  $file: $*"
    failed=1
}
has() { grep -qE -- "$1" <<<"$2"; }

check() { # FILE
    local file=$1 header segments dynamic symbols imports units
    header=$(readelf -hW "$file")
    segments=$(readelf -lW "$file")
    dynamic=$(readelf -dW "$file")
    symbols=$(readelf -W --dyn-syms "$file")
    has 'Type: +DYN' "$header" || complain "not position-independent"
    if has 'INTERP' "$segments"; then
        has 'FLAGS_1.* PIE' "$dynamic" || complain "a program that is not marked as such (PIE)"
    fi
    has 'GNU_RELRO' "$segments" || complain "no RELRO"
    # The exception is loaded by each of Slurm's programs, and none has all the names that it may ask for.
    [[ $file == */slurm/tally.so ]] || has 'BIND_NOW|FLAGS_1.* NOW' "$dynamic" || complain "RELRO is not full (-z now)"
    has 'GNU_STACK.* RW +0x' "$segments" || complain "an executable stack, or no word of it"
    ! has 'LOAD .* RWE ' "$segments" || complain "a segment can be written and executed"
    ! has 'TEXTREL' "$dynamic" || complain "relocations in code"
    ! has 'RPATH|RUNPATH' "$dynamic" || complain "$(grep -E 'RPATH|RUNPATH' <<<"$dynamic")"
    # The exceptions: one writes into buffers of its callers, whose size the compiler does not see, the
    # other calls nothing with a size that is not known.
    if [[ $(basename "$file") != @(libnvidia-ml.so.1|libtally-entry.so) ]]; then
        imports=$(awk '$4 == "FUNC" && $7 == "UND" {sub(/@.*/, "", $8); print $8}' <<<"$symbols")
        has '^__stack_chk_fail$' "$imports" || complain "no canaries"
        has '^__[a-z]+_chk$' "$imports" || complain "no checked function of libc"
        has 'INTERP' "$segments" || ! has '^getenv$' "$imports" ||
            complain "getenv, where secure_getenv is meant"
    fi
    # GCC writes its options down for each unit; the assembler's units have none.
    units=$(readelf --debug-dump=info --dwarf-depth=1 "$file" 2>/dev/null |
        grep -F 'DW_AT_producer' | grep -F 'GNU C' || :)
    if [ -n "$units" ]; then
        all_units=$((all_units + $(wc -l <<<"$units")))
        for option in -fstack-protector-strong -fstack-clash-protection -fcf-protection=none; do
            ! grep -qvF -e " $option" <<<"$units" ||
                complain "$(grep -cvF -e " $option" <<<"$units") units without $option"
        done
    fi
}

files=0 all_units=0
while IFS= read -r file; do
    check "$file"
    files=$((files + 1))
done < <(find "$build/bin" "$build/lib" -type f \( -path '*/bin/*' -o -name '*.so' -o -name '*.so.[0-9]*' \))
[ $files -ge 7 ] || {
    echo "FAIL  only $files programs and libraries were found"
    failed=1
}
[ $failed -eq 0 ] || exit 1

# Would any of it be noticed?  A program without each protection must be complained about.
if command -v cc >/dev/null; then
    cat >"$TMPDIR/guarded.c" <<'C'
#include <stdio.h>
int main(int argc, char **argv)
{
    char name[16];
    return sprintf(name, "%s", argv[argc - 1]);
}
C
    good=(-fPIE -pie -O2 -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
        '-Wl,-z,relro,-z,now')
    refused() { # WHAT OPTION...
        local what=$1
        shift
        cc "${good[@]}" "$@" -o "$TMPDIR/guarded" "$TMPDIR/guarded.c" 2>/dev/null
        if (check "$TMPDIR/guarded" >/dev/null && exit $failed); then
            echo "FAIL  a program $what is not noticed"
            failed=1
        fi
    }
    cc "${good[@]}" -o "$TMPDIR/guarded" "$TMPDIR/guarded.c"
    check "$TMPDIR/guarded"
    refused "at a fixed place" -fno-PIE -no-pie
    refused "with late addresses" -Wl,-z,lazy
    refused "without RELRO" -Wl,-z,norelro
    refused "with an executable stack" -Wl,-z,execstack
    refused "with a place for libraries" "-Wl,-rpath,$PWD/$build"
    refused "without canaries" -fno-stack-protector
    refused "without checked functions" -U_FORTIFY_SOURCE
fi
[ $failed -eq 0 ] && echo "$files programs and libraries, $all_units units of GCC's, are hardened"
exit $failed

#!/usr/bin/env bash
# One version: the file VERSION, every program's --version, the note in every program and library,
# and the foot of every manual page say the same.
set -euo pipefail
# shellcheck source=test/integration/needs.inc
. test/integration/needs.inc

build=${TALLY_BUILD:-build}
version=$(cat VERSION)
failed=0
complain() {
    echo "FAIL  $*"
    failed=1
}

[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || complain "VERSION is '$version', not three numbers"

# The name, the version, and then at most details behind a comma.
for program in "$build"/bin/*; do
    name=$(basename "$program")
    for option in --version -V; do
        [[ $name$option = ptx-rewrite-V ]] && continue # that is its --verdict
        told=$("$program" $option 2>&1 </dev/null) || complain "$name $option: exit status $?"
        [[ $told = "$name $version" || $told = "$name $version, "* ]] ||
            complain "$name $option says '$told'"
    done
done

# The text of the note of the owner "Tally".  readelf prints its bytes in hexadecimal.
noted() {
    local bytes byte text=
    bytes=$(readelf -n "$1" 2>/dev/null | sed -n '/^ *Tally /{n;s/.*description data: *//p}')
    for byte in $bytes; do
        [ "$byte" = 00 ] || text+=$(printf '%b' "\\x$byte")
    done
    echo "$text"
}

command -v readelf >/dev/null || skip "no readelf"
files=0
while IFS= read -r file; do
    [ "$(noted "$file")" = "$version" ] || complain "$file is noted as '$(noted "$file")'"
    files=$((files + 1))
done < <(find "$build/bin" "$build/lib/tally" -type f \( -path '*/bin/*' -o -name '*.so' -o -name '*.so.[0-9]*' \))
[ $files -ge 7 ] || complain "only $files programs and libraries were found"

pages=0
for page in "$build"/share/man/man1/*.1; do
    [ -f "$page" ] || continue
    grep -q "^\.TH .* \"Tally $version\"$" "$page" || complain "$page: $(grep '^\.TH' "$page")"
    pages=$((pages + 1))
done
if command -v scdoc >/dev/null; then
    # one is of a program that is built where its libraries are
    [ -e "$build/bin/tally-device-plugin" ] && left_out='' || left_out=tally-device-plugin.1.scd
    [ $pages -eq "$(find docs/man -name '*.1.scd' ! -name "$left_out" | wc -l)" ] ||
        complain "only $pages manual pages were made"
fi

# Nothing else in the tree has a number of its own: a copy would be forgotten.
copies=$(grep -rnF "\"$version\"" --include='*.[chS]' --include='*.mk' --include='*.scd' \
    base device docs include intercept options ptx_rewrite runtime sched scripts sim Makefile |
    grep -v 'e\.g\. "' || :)
[ -z "$copies" ] || complain "copies of the version: $copies"

[ $failed -eq 0 ] && echo "version $version: $files programs and libraries, $pages manual pages"
exit $failed

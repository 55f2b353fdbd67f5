#!/usr/bin/env bash
# What a command tells of itself by --help and what its manual page tells are the same: the options, long and short, of every command,
# and the commands of `tally`.
set -euo pipefail

bin=${TALLY_BUILD:-build}/bin
failed=0
complain() {
    echo "FAIL  $*"
    failed=1
}

options() { grep -oE -- '(^|[^A-Za-z0-9_-])--?[A-Za-z][a-z-]*' | grep -oE -- '--?[A-Za-z][a-z-]*' | sort -u; }

# Those that are told with what they do, at the beginning of a line of help or of a paragraph of the page.
of_help() { grep -E '^ {1,8}-' | sed -E 's/^( *)((-[A-Za-z?], )?--?[a-z-]+[^ ]*(, --?[a-z-]+[^ ]*)*).*/\2/' | options; }
of_page() { tr -d '*' <"$1" | grep -E '^-' | sed -E 's/ \(.*//; s/=.*//' | options; }

compare() { # PAGE COMMAND...
    local page=docs/man/$1.1.scd help only
    shift
    if [ ! -f "$page" ]; then
        complain "$* has no manual page"
        return
    fi
    help=$("$@" --help 2>&1)
    for only in $(comm -23 <(of_help <<<"$help") <(of_page "$page")); do
        [[ $only = --usage || $only = --help ]] || complain "$page does not tell of $only"
    done
    for only in $(comm -13 <(options <<<"$help") <(of_page "$page")); do
        complain "$* --help does not tell of $only, which $page has"
    done
}

for program in "$bin"/*; do
    compare "$(basename "$program")" "$program"
done
commands=$("$bin/tally" --help | sed -nE 's/^  ([a-z]+) .*/\1/p')
[ -n "$commands" ] || complain "tally --help lists no commands"
for command in $commands; do
    compare "tally-$command" "$bin/tally" "$command"
    grep -q "^\*$command\*" docs/man/tally.1.scd || complain "docs/man/tally.1.scd does not tell of $command"
done
[ $failed -eq 0 ] && echo "commands and manual pages agree"
exit $failed

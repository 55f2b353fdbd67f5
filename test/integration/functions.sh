#!/usr/bin/env bash
# scripts/check-functions: the tree as it is has nothing to complain about, and each kind of mistake that is planted in a tree of one
# file is found, and no other.
set -euo pipefail
. test/integration/needs.inc

command -v python3 >/dev/null || skip "no python3"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
    echo "FAIL: $*"
    cat "$scratch/said"
    exit 1
}
scripts/check-functions >"$scratch/said" || fail "the tree as it is:"

mkdir -p "$scratch/tree/scripts" "$scratch/tree/base"
cp scripts/check-functions "$scratch/tree/scripts/"
lines() { # N: that many
    yes "    x++;" | head -n "$1" || :
}
function_of() { # N [HEAD]: a function of N lines
    printf '%s\n{\n%s\n}\n' "${2:-static void grow(int x)}" "$(lines "$1")"
}
# finds WHAT PATTERN [NAME]: the file, which is read from standard input, has that one mistake; without a pattern, none.
finds() {
    local status=0
    rm -f "$scratch"/tree/base/*
    cat >"$scratch/tree/base/${3:-planted.c}"
    "$scratch/tree/scripts/check-functions" >"$scratch/said" || status=$?
    if [ -z "$2" ]; then
        [ $status -eq 0 ] || fail "$1: complained about"
    else
        [ $status -eq 1 ] || fail "$1: not found"
        grep -qE -- "$2" "$scratch/said" || fail "$1: found, but nothing of '$2' is said:"
        [ "$(wc -l <"$scratch/said")" -eq 1 ] || fail "$1: more than that is said:"
    fi
}
function_of 30 | finds "a short function" ""
function_of 31 | finds "a long function without a comment" "planted.c:1: grow has 31 lines and no comment"
{ echo "/* Why. */" && function_of 60; } | finds "a long function with one" ""
{ echo "/* Why. */" && function_of 61; } | finds "a function that is too long" "planted.c:2: grow has 61 lines; 60 at most"
{ lines 401; } | finds "a long header" "planted.h: 401 lines; 400 at most" planted.h
{ lines 801; } | finds "a long file" "planted.c: 801 lines; 800 at most"
printf '/* %098d */\n' 0 | finds "a wide line" "planted.c:1: 104 columns"
function_of 2 "static int find(int x)" | finds "a function that does not say what it finds" "planted.c:1: find what"
echo "8 kinds of mistakes, or none, found as planted"

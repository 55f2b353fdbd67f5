#!/usr/bin/env bash
# A machine with a GPU and no driver for it: tally-run does not fall back to the CPU unasked.
set -euo pipefail
# shellcheck source=test/integration/needs.inc
. "$(dirname "$0")/needs.inc"
need_plain "${TALLY_BUILD:-build}/lib/tally/libcuda.so.1"
if ! unshare -rm true 2>/dev/null; then
    echo "users may not make name spaces here, so there is no /dev with a GPU"
    exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# shellcheck source=test/integration/expect.inc
. "$(dirname "$0")/expect.inc"
mkdir "$scratch/dev"

with_gpu() { # STATUS PATTERN OPTION...
    local status=$1 pattern=$2 actual=0
    shift 2
    # shellcheck disable=SC2016
    unshare -rm sh -c 'mount -t tmpfs none "$0" && touch "$0/nvidiactl" "$0/null" && mount --bind /dev/null "$0/null" &&
        mount --rbind "$0" /dev && exec "$@"' "$scratch/dev" "${TALLY_BUILD:-build}/bin/tally-run" "$@" true >"$scratch/out" 2>&1 || actual=$?
    [ "$actual" -eq "$status" ] || fail "tally-run $*: exit status $actual, not $status"
    grep -qE -- "$pattern" "$scratch/out" || fail "tally-run $*: nothing like '$pattern' in"
}
with_gpu 125 'there is a GPU \(/dev/nvidiactl\) and no driver for it'
with_gpu 0 'TALLY_DRIVER=.*/device/libcuda.so.1' -v --device=soft
[ "$failures" -eq 0 ]

#!/usr/bin/env bash
# Under the real gVisor (runsc of Debian), tally-run and the check of containers refuse with the reason; without it the same
# commands run.
set -euo pipefail
# shellcheck source=test/integration/needs.inc
. test/integration/needs.inc
build=$(realpath "${TALLY_BUILD:-build}")
need_built "$build/bin/tally-run" "$build/lib/tally/container-check"
need_plain "$build/lib/tally/libcuda.so.1"
command -v runsc >/dev/null || skip "no runsc (scripts/setup --with-engines)"
[ "$(id -u)" = 0 ] || skip "takes root: runsc makes namespaces"
scratch=$(mktemp -d /tmp/tally-gvisor.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
export TALLY_SOCKET=$scratch/tallyd.sock TALLY_DEVICE_NAME=tally-gvisor-$$ TALLY_CACHE=$scratch/cache TALLY_LOG=error
fail() {
    echo "FAIL: $*"
    exit 1
}
# Its own root file system is the machine's, read only; ptrace works where there is no KVM.
inside() { timeout -k 5 120 runsc --root="$scratch/runsc" --rootless --network=none --platform=ptrace --ignore-cgroups "do" "$@"; }
inside true 2>"$scratch/said" || skip "runsc does not start here: $(tail -n 1 "$scratch/said")"
inside dmesg 2>/dev/null | grep -qi gvisor || fail "that is not gVisor's kernel"

says() { # STATUS TEXT COMMAND...
    local want=$1 text=$2 status=0
    shift 2
    "$@" >"$scratch/said" 2>&1 || status=$?
    [ "$status" = "$want" ] || fail "$*: exit status $status, not $want: $(cat "$scratch/said")"
    [ -z "$text" ] || grep -qF -- "$text" "$scratch/said" || fail "$*: does not say \"$text\": $(cat "$scratch/said")"
    echo "ok    exit status $status: $(tail -n 1 "$scratch/said")"
}
says 125 "this is gVisor" inside "$build/bin/tally-run" --device=soft /bin/true
says 1 "under gVisor" inside "$build/lib/tally/container-check"
says 1 "under gVisor" inside "$build/lib/tally/container-check" gvisor
says 0 "" "$build/lib/tally/container-check" gvisor
says 0 "" "$build/bin/tally-run" -q --device=soft /bin/true

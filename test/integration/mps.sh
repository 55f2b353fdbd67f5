#!/usr/bin/env bash
# `tally mps`, with a stand-in for NVIDIA's program: a daemon that listens, and answers as its manual page says.
set -euo pipefail
scratch=$(mktemp -d)
trap 'kill $(cat "$scratch"/*.pid 2>/dev/null) 2>/dev/null || true; rm -rf "$scratch"' EXIT
# shellcheck source=test/integration/expect.inc
. "$(dirname "$0")/expect.inc"
export CUDA_MPS_PIPE_DIRECTORY=$scratch/pipes FAKE=$scratch
mkdir -p "$scratch/pipes" "$scratch/bin"

expect 1 "MPS does not run" -- mps
no_program=$(PATH=/nonexistent "$tally" mps start 2>&1) || true
[[ $no_program == *"comes with NVIDIA's driver"* ]] || fail "without NVIDIA's program: $no_program"

cat >"$scratch/bin/nvidia-cuda-mps-control" <<'END'
#!/usr/bin/env bash
if [ "${1:-}" = -d ]; then
    [ -z "${FAKE_FAILS:-}" ] || exit 3
    python3 -c '
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1] + "/pipes/control"); s.listen()
if os.fork(): sys.exit(0)
open(sys.argv[1] + "/daemon.pid", "w").write(str(os.getpid()))
os.dup2(os.open("/dev/null", os.O_RDWR), 1); os.dup2(1, 2)
time.sleep(600)' "$FAKE"
    exit
fi
read -r word rest
[ -z "${FAKE_SLEEPS:-}" ] || exec sleep 600
case $word in
get_server_list) printf '%s\n' ${FAKE_SERVERS:-} ;;
get_client_list) printf '%s\n' ${FAKE_CLIENTS:-} ;;
quit) kill "$(cat "$FAKE/daemon.pid")" && rm -f "$FAKE/pipes/control" "$FAKE/daemon.pid" ;;
*) echo "unknown command $word"; exit 1 ;;
esac
END
chmod +x "$scratch/bin/nvidia-cuda-mps-control"
export PATH=$scratch/bin:$PATH

FAKE_FAILS=1 expect 1 "status 3" -- mps start
expect 0 "MPS runs" "fatal fault" -- mps start
expect 0 "runs already" -- mps start
FAKE_SERVERS="17 18" FAKE_CLIENTS="1 2 3" expect 0 "2 servers, 6 clients" "serves" "100%" -- mps status
FAKE_SERVERS=17 FAKE_CLIENTS=5 expect 0 '"state": "runs"' '"serves_you": true' '"servers": 1' '"clients": 1' -- mps --json
# A job that gives way is a client of low priority, unless the user says something else; on the software device there is no MPS.
build=$(realpath "${TALLY_BUILD:-build}")
rank() { # LEVEL DRIVER
    # shellcheck disable=SC2016
    TALLY_DAEMON=no TALLY_DRIVER=$2 "$build/bin/tally-run" -q --priority="$1" sh -c 'echo "${CUDA_MPS_CLIENT_PRIORITY-none}"' \
        2>"$scratch/out" || echo failed
}
# A library with a sanitizer cannot be loaded by a shell without one.
has_sanitizer() { nm -D "$build/lib/tally/libcuda.so.1" | grep -E ' __(asan|tsan)_' >/dev/null; }
if [ -e "$build/test/standin/libcuda.so.1" ] && [ -e "$build/lib/tally/libcuda.so.1" ] && ! has_sanitizer; then
    other=$build/test/standin/libcuda.so.1
    [ "$(rank low "$other")" = 1 ] || fail "a low job under MPS: $(rank low "$other")"
    [ "$(rank high "$other")" = none ] || fail "a high job under MPS: $(rank high "$other")"
    [ "$(CUDA_MPS_CLIENT_PRIORITY=0 rank low "$other")" = 0 ] || fail "a low job that says what it is"
    soft=$build/lib/tally/device/libcuda.so.1
    [ "$(rank low "$soft")" = none ] || fail "a low job on the software device: $(rank low "$soft")"
fi
FAKE_SERVERS=17 FAKE_CLIENTS=5 expect 1 "1 job uses it" -- mps stop
expect 0 "MPS runs" -- mps
expect 0 -- mps stop
expect 1 "MPS does not run" -- mps
[ -z "${other:-}" ] || [ "$(rank low "$other")" = none ] || fail "a low job without MPS"
expect 2 "status, start or stop" -- mps restart

# A socket that a dead daemon left is not taken for one.
expect 0 "MPS runs" -- mps start
kill -9 "$(cat "$scratch/daemon.pid")"
while kill -0 "$(cat "$scratch/daemon.pid")" 2>/dev/null; do :; done
rm "$scratch/daemon.pid"
expect 1 "left over" -- mps

[ "$failures" -eq 0 ]

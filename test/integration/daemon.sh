#!/usr/bin/env bash
# tallyd and the commands that ask it, as an administrator meets them: socket activation, rules, pause, policies, an end that
# leaves nothing behind.
set -euo pipefail

build=$(realpath "${TALLY_BUILD:-build}")
tallyd=$build/bin/tallyd
tally=$build/bin/tally
shim=$build/lib/tally/libcuda.so.1

scratch=$(mktemp -d /tmp/tally-daemon.XXXXXX)
for name in PRIORITY SLO TURNAROUND POLICY REPORT DRIVER SOCKET JOB FAIL OFF FORCE LOG WEIGHT MIN_SHARE DEVICE DAEMON RULES; do
    unset "TALLY_$name"
done
export XDG_RUNTIME_DIR=$scratch TALLY_DAEMON_IDLE=2 TALLY_DEVICE_NAME=tally-daemon-test-$$ TALLY_CACHE=$scratch/cache
export TALLY_SOCKET=$scratch/d.sock
pids=()
finish() {
    for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || :; done
    "$build/bin/tally-jit" stop >/dev/null 2>&1 || :
    rm -rf "$scratch" "/dev/shm/$TALLY_DEVICE_NAME".*
}
trap finish EXIT
fail() {
    echo "FAIL: $*"
    cat "$scratch/log" 2>/dev/null || :
    exit 1
}
. test/integration/commands.inc
await() { # WHAT COMMAND...
    local what=$1
    shift
    for _ in $(seq 1000); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.02
    done
    fail "$what does not happen"
}
start() {
    "$tallyd" --log=info --idle=0 "$@" 2>>"$scratch/log" &
    pids+=($!)
    await "tallyd's start" "$tally" ps
}
field() { # JSON-EXPRESSION: of tally ps --json as `t`
    "$tally" ps --json | python3 -c "import json, sys; t = json.load(sys.stdin); print($1)"
}

# --- without one
expect "no tallyd" "$(status_of "$tally" ps)" 1
has "no tallyd" "$(cat "$scratch/err")" "no tallyd runs"
expect "wrong policy at start" "$(status_of "$tallyd" --policy=nonsense)" 1
has "wrong policy at start" "$(cat "$scratch/err")" "timeslice"
expect "wrong option" "$(status_of "$tallyd" --nonsense)" 2

# --- whoever starts it, it serves all: not with his niceness
nice -n 9 "$tallyd" --started --idle=0 >"$scratch/plus" &
nicely=$!
pids+=("$nicely")
await "the start by a nice job" "$tally" ps
if [ "$(id -u)" -eq 0 ]; then
    expect "niceness" "$(sed 's/.*) //' "/proc/$nicely/stat" | cut -d' ' -f17)" 0
else
    has "niceness" "$(cat "$scratch/tallyd.log")" "may not lower it"
fi
kill $nicely
wait $nicely || :
pids=()
expect "no tallyd again" "$(status_of "$tally" ps)" 1

# --- policies
start
expect "default policy" "$("$tally" policy)" tally
expect "list" "$("$tally" policy --list | grep -cE '^(tally|none|priority|timeslice|kernel) ')" 5
expect "list as JSON" "$("$tally" policy --list --json | python3 -c 'import json, sys
print({"tally", "none"} <= {p["name"] for p in json.load(sys.stdin)})')" True
expect "another policy" "$("$tally" policy kernel)" kernel
expect "another policy stays" "$("$tally" policy)" kernel
expect "no such policy" "$(status_of "$tally" policy nonsense)" 1
has "no such policy" "$(cat "$scratch/err")" "there is no policy 'nonsense'"
expect "no such parameter" "$(status_of "$tally" policy tally nonsense=1)" 1
expect "nothing changed" "$("$tally" policy --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["policy"])')" kernel
expect "with a parameter" "$("$tally" policy tally quantum=3ms)" "tally quantum=3ms"
expect "a second tallyd" "$(status_of "$tallyd")" 1
has "a second tallyd" "$(cat "$scratch/err")" "already"
expect "nobody there" "$(status_of "$tally" set 1 pause)" 1
for bad in "" "x pause" "1" "1 stop" "1 priority=urgent" "1 weight=0" "1 min-share=200%" "1 slo=8ms"; do
    # shellcheck disable=SC2086 # words are meant
    expect "tally set $bad" "$(status_of "$tally" set $bad)" 2
done

# --- jobs: only with the library that joins
if [ -e "$shim" ] && ! nm -D "$shim" | grep -E ' __(asan|tsan)_' >/dev/null; then
    cat >"$scratch/job.py" <<'PYTHON'
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
print("ready", flush=True)
sys.stdin.read()
PYTHON
    job() { # NAME LEVEL: joined when this returns
        mkfifo "$scratch/$1.in" "$scratch/$1.out"
        "$build/bin/tally-run" -q --device=soft -p "$2" --job="$1" python3 "$scratch/job.py" \
            <"$scratch/$1.in" >"$scratch/$1.out" &
        pids+=($!)
        exec {hold}>"$scratch/$1.in"
        read -r _ <"$scratch/$1.out"
    }
    job first low
    first=${pids[-1]}
    job second 5
    second=${pids[-1]}
    await "both jobs' joining" test "$(field 'len(t["clients"])')" = 2
    expect "order" "$(field '[c["job"] for c in t["clients"]]')" "['second', 'first']"
    has "text" "$("$tally" ps)" "first"
    "$tally" set "$first" priority=9 slo=p99:8ms weight=300 min-share=5%
    expect "set" "$(field '[(c["level"], c["slo_ns"], c["weight"], c["min_share_permille"]) for c in t["clients"]][0]')" \
        "(9, 8000000, 300, 50)"
    "$tally" set "$first" pause
    expect "paused" "$(field '[(c["state"], c["may_run"]) for c in t["clients"] if c["job"] == "first"][0]')" "('paused', False)"
    # A restart keeps what was set.
    kill -KILL "${pids[0]}"
    { wait "${pids[0]}" || :; } 2>/dev/null
    await "the restart" "$tally" ps
    back() { [ "$(field 'len(t["clients"])')" = 2 ]; }
    await "both jobs' return" back
    expect "paused still" "$(field '[(c["level"], c["state"]) for c in t["clients"] if c["job"] == "first"][0]')" "(9, 'paused')"
    expect "resume" "$("$tally" set "$first" resume --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["code"])')" 0
    expect "resumed" "$(field '[c["may_run"] for c in t["clients"] if c["job"] == "first"][0]')" True
    kill -KILL "$second"
    alone() { [ "$(field '[c["job"] for c in t["clients"]]')" = "['first']" ]; }
    await "the death of one" alone
    exec {hold}>&-
    kill -KILL "$first"
    await "the end of a tallyd that a job started" test ! -e "$TALLY_SOCKET"
    pids=()
else
    echo "no job was run: the interception library is not built, or with a sanitizer"
    kill -TERM "${pids[0]}"
    wait "${pids[0]}" || fail "tallyd does not end well"
    pids=()
fi
expect "nothing left" "$(test -e "$TALLY_SOCKET" && echo a socket)" ""

# --- rules are read at the start and on SIGHUP
echo 'everybody low' >"$scratch/rules"
start --rules="$scratch/rules"
echo 'nonsense' >"$scratch/rules"
kill -HUP "${pids[-1]}"
await "complaint about rules" grep -q 'the old rules stay: .*rules:1:' "$scratch/log"
echo 'everybody high' >"$scratch/rules"
kill -HUP "${pids[-1]}"
await "new rules" grep -q 'were read again' "$scratch/log"
kill -TERM "${pids[-1]}"
wait "${pids[-1]}" || fail "tallyd does not end well"
pids=()

# --- socket activation, as systemd does it
if command -v systemd-socket-activate >/dev/null; then
    systemd-socket-activate --seqpacket -l "$scratch/activated.sock" \
        -E TALLY_LOG=info "$tallyd" 2>>"$scratch/activated.log" &
    pids+=($!)
    await "the socket" test -S "$scratch/activated.sock"
    expect "activated" "$(TALLY_SOCKET=$scratch/activated.sock "$tally" policy)" tally
    has "activated" "$(cat "$scratch/activated.log")" "passed socket"
    kill -TERM "${pids[-1]}"
    wait "${pids[-1]}" || fail "an activated tallyd does not end well"
    expect "the socket stays the manager's" "$(test -S "$scratch/activated.sock" && echo there)" there
    pids=()
else
    echo "socket activation was not tried: there is no systemd-socket-activate"
fi

echo "$checks checks passed"

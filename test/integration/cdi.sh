#!/usr/bin/env bash
# What containers get: the file of `tally cdi generate`, the library that begins programs again under tally-run, and the refusals of
# musl, old libcs and gVisor.  Without an engine: that is test/engines/containers.sh.
set -euo pipefail
# shellcheck source=test/integration/needs.inc
. test/integration/needs.inc
build=$(realpath "${TALLY_BUILD:-build}")
need_built "$build/bin/tally-run" "$build/lib/tally/libcuda.so.1" "$build/lib/tally/container-check"
need_plain "$build/lib/tally/libcuda.so.1"
need_cc
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
    echo "FAIL: $*"
    exit 1
}
says() { # STATUS TEXT COMMAND...: it ends so, and says that
    local status=$1 text=$2 got=0
    shift 2
    "$@" >"$scratch/said" 2>&1 || got=$?
    [ "$got" = "$status" ] || fail "exit status $got of $*: $(cat "$scratch/said")"
    [ -z "$text" ] || grep -qF -- "$text" "$scratch/said" || fail "$* says: $(cat "$scratch/said")"
}
export TALLY_SOCKET=$scratch/run/tallyd.sock TALLY_CACHE=$scratch/cache XDG_RUNTIME_DIR=$scratch TALLY_DAEMON=no

# --- the file

says 1 "start tallyd first" "$build/bin/tally" cdi generate --output=-
mkdir "$scratch/run"
says 2 "generate is needed" "$build/bin/tally" cdi
says 2 "a name has two letters" "$build/bin/tally" cdi generate --class=a=low
says 2 "there is one of that name" "$build/bin/tally" cdi generate --class=low=high
says 2 "its level may be" "$build/bin/tally" cdi generate --class=batch=lowest
says 2 "memory=SIZE and share=N%" "$build/bin/tally" cdi generate --class=batch=low,memory=much
says 0 "tally.dev/gpu=batch" "$build/bin/tally" cdi generate --device=soft --output="$scratch/cdi/tally.json" \
    --class=batch=-20,memory=4G,share=30%
says 0 "nvidia.com/gpu=0" "$build/bin/tally" cdi generate --device=gpu --output="$scratch/cdi/gpu.json"
[ "$(stat -c %a "$scratch/cdi/tally.json")" = 644 ] || fail "not all can read it"
[ "$(ls "$scratch/cdi")" = $'gpu.json\ntally.json' ] || fail "something was left there: $(ls "$scratch/cdi")"
python3 - "$scratch/cdi" <<'PY' || fail "the file is not as CDI wants it"
import json, os, re, sys

for name, soft in (("tally.json", True), ("gpu.json", False)):
    spec = json.load(open(f"{sys.argv[1]}/{name}"))
    assert set(spec) == {"cdiVersion", "kind", "containerEdits", "devices"}
    assert spec["cdiVersion"] == "0.5.0" and spec["kind"] == "tally.dev/gpu"
    levels = {"high": "high", "low": "low"} | ({"batch": "-20"} if soft else {})
    assert [d["name"] for d in spec["devices"]] == list(levels)
    for device in spec["devices"]:
        assert set(device) == {"name", "containerEdits"}
        env = dict(v.split("=", 1) for v in device["containerEdits"]["env"])
        assert env["TALLY_PRIORITY"] == levels[device["name"]], env
        assert (env.get("TALLY_MEMORY"), env.get("TALLY_SHARE")) == (("4G", "30%") if device["name"] == "batch" else (None, None))
    edits = spec["containerEdits"]
    env = dict(v.split("=", 1) for v in edits["env"])
    inside = {m["containerPath"]: m for m in edits["mounts"]}
    for path, m in inside.items():
        assert os.path.exists(m["hostPath"]) and os.path.realpath(m["hostPath"]) == m["hostPath"], m
        assert "nosuid" in m["options"] and ("rw" in m["options"]) != ("ro" in m["options"]), m
    writable = {p for p, m in inside.items() if "rw" in m["options"]}
    assert env.get("TALLY_DEVICE_SHM") == ("file" if soft else None)
    assert writable == ({"/dev/shm", "/opt/tally/run/tally", env["TALLY_CACHE"]} if soft else set()), writable
    assert env["TALLY_CONTAINER"] in inside and env["TALLY_SOCKET"] == "/run/tally/tallyd.sock" and "/run/tally" in inside
    preload = open(inside["/etc/ld.so.preload"]["hostPath"]).read().strip()
    folder = inside["/opt/tally/lib/tally"]
    assert preload.startswith("/opt/tally/lib/tally/")
    assert os.path.exists(folder["hostPath"] + preload.removeprefix("/opt/tally/lib/tally"))
    assert [h["args"][1] for h in edits["hooks"]] == ["gvisor", "musl", "libc"]
    for hook in edits["hooks"]:
        assert hook["hookName"] == "startContainer" and hook["args"][0] == hook["path"]
        assert os.access(inside[hook["path"]]["hostPath"], os.X_OK)
PY

# --- programs are begun again

entry=$build/lib/tally/libtally-entry.so
newest=$(readelf -VW "$entry" | grep -oE 'GLIBC_2[0-9.]*' | sort -uV | tail -n 1)
[ "$(printf '%s\n' "$newest" GLIBC_2.17 | sort -V | tail -n 1)" = GLIBC_2.17 ] || fail "libtally-entry.so needs $newest"
begin() { env LD_PRELOAD="$entry" TALLY_CONTAINER="$build/bin/tally-run" TALLY_DEVICE=soft TALLY_PRIORITY=low "$@"; }
# Its own arguments, a tree, our library; and what it starts has the same tree and is not begun again.
# shellcheck disable=SC2016 # the shells there are meant
begin /bin/sh -c 'echo "$0|$1|$2|$TALLY_TREE|$LD_PRELOAD"; sh -c "echo \$TALLY_TREE"' one 'two  words' '' >"$scratch/said" 2>/dev/null ||
    fail "it does not begin: $(cat "$scratch/said")"
IFS='|' read -r a b c tree preloaded <"$scratch/said"
[ "$a|$b|$c" = "one|two  words|" ] || fail "arguments: $(cat "$scratch/said")"
[[ $tree =~ ^[0-9a-f]{32}$ ]] || fail "no tree: $(cat "$scratch/said")"
[ "$(sed -n 2p "$scratch/said")" = "$tree" ] || fail "a child has another tree"
[[ " $preloaded " = *"$build/lib/tally/libcuda.so.1 "*"$entry "* ]] || fail "preloaded: $preloaded"
# A script, and a program that goes by its own name, as a virtual environment's python does.
# shellcheck disable=SC2016
printf '#!/bin/sh\necho "$0 $1 ${TALLY_TREE:+tree}"\n' >"$scratch/script"
chmod +x "$scratch/script"
[ "$(begin "$scratch/script" x 2>/dev/null)" = "$scratch/script x tree" ] || fail "a script"
ln -s "$(python3 -c 'import sys; print(sys.executable)')" "$scratch/python-of-mine"
[ "$(begin "$scratch/python-of-mine" -c 'import sys, os; print(sys.orig_argv[0], "TALLY_TREE" in os.environ)' 2>/dev/null)" = \
    "$scratch/python-of-mine True" ] || fail "a link"
# What is not there, or not told, is done without.
[ "$(env LD_PRELOAD="$entry" TALLY_CONTAINER=/nonexistent /bin/sh -c 'echo ran')" = ran ] || fail "without tally-run"
# shellcheck disable=SC2016
[ "$(env LD_PRELOAD="$entry" /bin/sh -c 'echo "ran$TALLY_TREE"')" = ran ] || fail "outside of a container"

# --- refusals

# A program that names musl's loader: the same as any other, but for that name.
echo 'int main(void) { return 0; }' | cc -x c -o "$scratch/program" -
python3 - "$scratch/program" "$scratch/of-musl" <<'PY'
import sys
bytes_ = open(sys.argv[1], "rb").read()
old, new = b"/lib64/ld-linux-x86-64.so.2\0", b"/lib/ld-musl-x86_64.so.1\0"
assert bytes_.count(old) == 1
open(sys.argv[2], "wb").write(bytes_.replace(old, new.ljust(len(old), b"\0")))
PY
chmod +x "$scratch/of-musl"
printf '#!%s\n' "$scratch/of-musl" >"$scratch/script-of-musl"
chmod +x "$scratch/script-of-musl"
says 0 "" "$build/bin/tally-run" --device=soft --quiet "$scratch/program"
says 125 "program of musl" "$build/bin/tally-run" --device=soft "$scratch/of-musl"
says 125 "program of musl" "$build/bin/tally-run" --device=soft "$scratch/script-of-musl"

unshare --user --map-root-user --mount true 2>/dev/null || skip "all but the check of images, which takes namespaces (unshare)"
check=$build/lib/tally/container-check
image() { # FILE...: an image with these, and the check in it
    rm -rf "$scratch/image"
    local file
    for file; do
        mkdir -p "$scratch/image/$(dirname "$file")"
        cp "$libc_file" "$scratch/image/$file"
    done
    mkdir -p "$scratch/image/opt"
    cp "$check" "$scratch/image/opt/"
}
in_image() { unshare --user --map-root-user chroot "$scratch/image" /opt/container-check; }
libc_file=$scratch/script # no version of glibc is in it
image lib/ld-musl-x86_64.so.1
says 1 "built on musl" in_image
image lib64/ld-linux-x86-64.so.2 lib/x86_64-linux-gnu/libc.so.6
says 1 "older than Tally's libraries need" in_image
libc_file=$(ldd "$scratch/program" | sed -n 's/.*libc\.so\.6 => \([^ ]*\).*/\1/p')
image lib64/ld-linux-x86-64.so.2 lib/x86_64-linux-gnu/libc.so.6
says 0 "" in_image
# A runtime writes the container's state to a hook, and fails if nobody reads it to its end.
head -c 1000000 /dev/zero | "$check" gvisor || fail "a hook does not read what it is told: ${PIPESTATUS[*]}"
image bin/static
says 0 "" in_image
echo 'Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016' >"$scratch/version"
# shellcheck disable=SC2016
in_gvisor() { unshare --user --map-root-user --mount sh -c 'mount --bind "$0" /proc/version && exec "$@"' "$scratch/version" "$@"; }
says 1 "under gVisor" in_gvisor "$check"
says 125 "this is gVisor" in_gvisor "$build/bin/tally-run" --device=soft true

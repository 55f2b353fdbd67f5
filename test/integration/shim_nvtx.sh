#!/usr/bin/env bash
# Ranges that a program names with NVTX are in the report, per kernel, at high and at low priority; another tool's stay with it.
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
user=$build/test/nvtx-user run=$build/bin/tally-run
if [ ! -x "$user" ] || [ ! -e "$build/lib/tally/libtally-nvtx.so" ]; then
    skip "NVIDIA's headers of NVTX are not here"
fi
need_plain "$build/lib/tally/libcuda.so.1"
export XDG_RUNTIME_DIR=$TMPDIR TALLY_SOCKET=$TMPDIR/socket TALLY_DEVICE_NAME=nvtx-$$ TALLY_DAEMON_IDLE=1s
trap 'rm -f /dev/shm/nvtx-$$*' EXIT
unset NVTX_INJECTION64_PATH

for priority in high low; do
    folder=$TMPDIR/$priority
    "$run" -q --device=soft -p "$priority" --report="$folder" "$user"
    "$build/bin/tally" report --json "$folder" >"$folder.json"
    python3 - "$folder.json" <<'END'
import json, sys
(job,) = json.load(open(sys.argv[1]))["runs"][0]["jobs"]
ops = {k["name"]: {o["name"]: o["launches"] for o in k["ops"]} for k in job["kernels"]}
launches = {k["name"]: k["launches"] for k in job["kernels"]}
assert ops["first"] == {"outer": 3, "inner \u00e9": 4, "thread": 2, "aten::mm": 2, "XlaModule": 1, "fusion.3": 1}, ops
assert ops["second"] == {"inner \u00e9": 5, "outer": 6, "library: registered": 8, "started": 9}, ops
assert launches == {"first": 15, "second": 30}, launches
END
    "$build/bin/tally" report "$folder" >"$folder.txt"
    grep -q 'launched by: started 9, library: registered 8, outer 6 and 1 more' "$folder.txt" || {
        cat "$folder.txt"
        exit 1
    }
    "$build/bin/tally" report --html "$folder.html" "$folder"
    grep -q 'launched by' "$folder.html"
    grep -q 'library: registered 8' "$folder.html"
done

# Without a report nothing is asked of NVTX, and a user's own tool stays.
[ -z "$("$run" -q --device=soft printenv NVTX_INJECTION64_PATH)" ]
[ "$(NVTX_INJECTION64_PATH=/own.so "$run" -q --device=soft --report="$TMPDIR/own" printenv NVTX_INJECTION64_PATH)" = /own.so ]
# Alone, in a process without the interception library, it steps aside.
NVTX_INJECTION64_PATH=$build/lib/tally/libtally-nvtx.so LD_LIBRARY_PATH=$build/lib/tally/device "$user"

#!/usr/bin/env bash
# What a block in pieces reads over the bus when it asks whether it has to leave, by the software device's own count: each word that is
# in use once, those that are not never, and all of them are waited for together.  The counter in device memory is not behind the bus.
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
need_built "$build/bench/polls" "$build/lib/tally/device/libcuda.so.1" "$build/bin/tally-jit"
need_plain "$build/lib/tally/device/libcuda.so.1"
export TALLY_DEVICE_NAME=tally-polls-$$ XDG_RUNTIME_DIR=$TMPDIR TALLY_CACHE=$TMPDIR/cache TALLY_JIT_IDLE=20 TALLY_DEVICE_PCIE=0
trap '"$build/bin/tally-jit" stop >/dev/null 2>&1 || :; rm -f "/dev/shm/$TALLY_DEVICE_NAME"*' EXIT
for profile in soft a100-r535 h100-r580; do
    TALLY_DEVICE_PROFILE=$profile "$build/bench/polls" "$build/lib/tally/device/libcuda.so.1" 500 >"$TMPDIR/polls.json"
    python3 - "$profile" "$TMPDIR/polls.json" <<'END'
import json
import sys

rows = json.load(open(sys.argv[2]))["rows"]
assert {(r["form"], r["words"]) for r in rows} == {(f, w) for f in ("ticket", "persistent") for w in (0, 1, 4)}, rows
for r in rows:
    assert r["reads_per_poll"] == r["words"], r
    assert r["waits_per_poll"] == (r["words"] > 0), r
    assert r["other_accesses"] == 0, r
    assert r["polls_per_block"] <= 1.2 / r["batch"], r
print(f"ok    {sys.argv[1]}: {len(rows)} rows")
END
done

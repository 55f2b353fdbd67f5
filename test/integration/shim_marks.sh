#!/usr/bin/env bash
# Requests that a program marks, in C (include/tally/mark.h) and in Python (runtime/python/tally_mark.py), are in the report, and nothing is
# inferred then; the same programs run without Tally.
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
shim=$build/lib/tally/libcuda.so.1 driver=$build/test/standin/libcuda.so.1
need_built "$shim" "$driver"
need_plain "$shim"
need_cc
cat >"$TMPDIR/server.c" <<'END'
#define _GNU_SOURCE
#include "tally/mark.h"
int cuInit(unsigned), cuStreamSynchronize(void *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int main(void)
{
    cuInit(0);
    for (int i = 0; i < 7; i++) {
        tally_request r = tally_mark_begin();
        cuLaunchKernel((void *)0x10, 1, 1, 1, 1, 1, 1, 0, (void *)0x1000, 0, 0);
        cuStreamSynchronize((void *)0x1000);
        tally_mark_end(r);
        tally_mark_iteration();
    }
    return 0;
}
END
cc -Wall -Werror -Iinclude -o "$TMPDIR/server" "$TMPDIR/server.c" -L"$(dirname "$driver")" -l:libcuda.so.1 -ldl
cat >"$TMPDIR/server.py" <<'END'
import ctypes, sys
sys.path.insert(0, "runtime/python")
import tally_mark
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuInit(0)
for _ in range(5):
    with tally_mark.request():
        cuda.cuStreamSynchronize(None)
    tally_mark.iteration()
mark = tally_mark.begin()
tally_mark.end(mark)
END
export LD_LIBRARY_PATH
LD_LIBRARY_PATH=$(dirname "$driver")
"$TMPDIR/server"
python3 "$TMPDIR/server.py"

export TALLY_DRIVER=$driver TALLY_PRIORITY=high TALLY_DAEMON=no TALLY_LOG=error XDG_RUNTIME_DIR=$TMPDIR TALLY_REPORT=$TMPDIR/report
TALLY_JOB=in-c LD_PRELOAD=$shim "$TMPDIR/server"
TALLY_JOB=in-python LD_PRELOAD=$shim python3 "$TMPDIR/server.py"
"$build/bin/tally" report --json "$TMPDIR/report" >"$TMPDIR/report.json"
python3 - "$TMPDIR/report.json" <<'END'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as f:
    report = json.load(f)
jobs = {job["name"]: job for job in report["runs"][0]["jobs"]}
for name, wanted in ("in-c", 7), ("in-python", 6):
    count, kind = jobs[name]["requests"]["count"], jobs[name]["requests_are"]
    if count != wanted or kind != "marked":
        sys.exit(f"{name}: {count} {kind} requests, not {wanted} marked ones")
END

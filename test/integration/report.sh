#!/usr/bin/env bash
# `tally report` as users meet it, on records of an invented server and trainer: text, JSON, trace, and the page in a real browser
# where there is one (chromium or google-chrome; the page's layout is not checked without).
set -euo pipefail

build=${TALLY_BUILD:-build}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

. test/integration/expect.inc

runs=$scratch/runs
for mode in alone mps tally; do
    "$build/test/record-sample" "$runs/$mode" $mode 2
done

# --- the command line
expect 0 '^Usage: tally report' '--html' -- report --help
expect 2 'name at least one folder' -- report
expect 2 "not 'size'" -- report --sort=size "$runs"
expect 2 'no regular expression' -- report --kernel='(' "$runs"
expect 1 'cannot read .*/nowhere' -- report "$scratch/nowhere"
mkdir "$scratch/empty"
expect 1 'no records .*tally-run --report' -- report "$scratch/empty"

# --- text
expect 0 '^alone +server +high' '^tally +trainer +low' '^run mps ' 'slowest requests of server' 'beside it .* of trainer' \
    'wgrad_gem<128, 128>' 'loop_fusion_17' 'note of trainer: ampere_sgemm' -- report "$runs"
expect 0 '^run tally ' ' persistent ' ' ticket ' -- report "$runs/tally"
expect 0 '^before ' '^after ' -- report before="$runs/mps" after="$runs/tally"
expect 0 '^  and 5 more$' 'loop_fusion_17' -- report --kernel='^loop_' "$runs/tally/"
expect 0 -- report --sort=launches "$runs/tally"
expect 1 'cannot write /nowhere/x' -- report --html=/nowhere/x --trace="$scratch/trace.json" "$runs"
python3 -m json.tool "$scratch/trace.json" >/dev/null || fail "the trace has something of the page that could not be written"

# --- opaque runs are marked loudly
"$build/test/record-sample" "$scratch/opaque" opaque 1
expect 0 '!!! OPAQUE KERNELS' -- report "$scratch/opaque"
expect 0 '"opaque": true' -- report --json "$scratch/opaque"
expect 0 -- report --html "$scratch/opaque.html" "$scratch/opaque"
grep -q 'banner opaque' "$scratch/opaque.html" || fail "the page does not warn of opaque kernels"

# --- damage: the rest is shown, and the status tells
cp -r "$runs/tally" "$scratch/damaged"
for file in "$scratch"/damaged/trainer.*; do
    truncate -s 30000 "$file"
done
echo hello >"$scratch/damaged/hello.1.tally"
expect 1 'trainer.*: it is cut off' 'hello.1.tally: is empty or was never finished' '  server +high' -- report "$scratch/damaged"

# --- JSON and trace, read by another program
"$tally" report --json "$runs" >"$scratch/report.json"
"$tally" report --trace "$scratch/trace.json" "$runs/tally"
: >"$scratch/out"
if command -v python3 >/dev/null; then
    python3 - "$scratch/report.json" "$scratch/trace.json" <<'PYTHON' || fail "JSON or trace is not what it should be"
import json, subprocess, shutil, sys

report, trace = (json.load(open(path)) for path in sys.argv[1:])
assert report["schema"] == 1 and [r["label"] for r in report["runs"]] == ["alone", "mps", "tally"]
names = {}
for run in report["runs"]:
    for job in run["jobs"]:
        # Percentiles once more, from the steps: the first step at which enough values are reached.
        steps, requests = job["request_steps"], job["requests"]
        assert sum(s[2] for s in steps) == requests["count"]
        seen = 0
        for low, width, count in steps:
            seen += count
            if seen >= 0.99 * requests["count"]:
                assert low <= requests["p99_ns"] < low + width, (low, width, requests)
                break
        assert job["launches"] == sum(k["launches"] for k in job["kernels"]) > 0
        assert abs(sum(k["share_of_time"] for k in job["kernels"]) - 1) < 1e-6
        assert job["ran"]["count"] == sum(k["ran"]["count"] for k in job["kernels"])
        for k in job["kernels"]:
            assert sum(k["launches_by_rung"].values()) == k["launches"]
            assert k["ran"]["p50_ns"] <= k["ran"]["p99_ns"] <= k["ran"]["max_ns"]
            names[k["name"]] = k["demangled"]
server = {run["label"]: next(j for j in run["jobs"] if j["name"] == "server") for run in report["runs"]}
assert server["mps"]["against_first_run"]["p99_ratio"] > 1.5 > server["tally"]["against_first_run"]["p99_ratio"]
if shutil.which("c++filt"):
    for name, demangled in names.items():
        told = subprocess.run(["c++filt", name], capture_output=True, text=True, check=True).stdout.strip()
        assert told == demangled, (told, demangled)

spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
assert {e["cat"] for e in spans} >= {"run", "wait", "request"} and all(e["dur"] >= 0 and e["ts"] >= 0 for e in spans)
named = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["name"] == "thread_name"}
assert {(e["pid"], e["tid"]) for e in spans} <= named
PYTHON
fi

# --- the page: complete in itself, and on a phone nothing is wider than the screen
page=$scratch/page.html
"$tally" report --html "$page" "$runs"
if grep -qE '<script|<link|src=|href=|url\(|@import|https?:' "$page"; then
    fail "the page wants something from outside"
fi
[ "$(stat -c %s "$page")" -lt 2000000 ] || fail "the page is large"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || :)
if [ -n "$browser" ]; then
    # All runs unfolded, then: the width that is needed, plots without size, and text of plots that leaves them.
    cat >"$scratch/probe.js" <<'SCRIPT'
<script>
document.querySelectorAll("details").forEach(d => d.open = true);
let bad = 0, outside = [];
document.querySelectorAll("svg").forEach(s => { const b = s.getBoundingClientRect(); if (b.width < 20 || b.height < 5) bad++; });
document.querySelectorAll("svg.plot text").forEach(t => {
    const a = t.getBoundingClientRect(), b = t.ownerSVGElement.getBoundingClientRect();
    if (a.left < b.left - 1 || a.right > b.right + 1) outside.push(t.textContent);
});
parent.postMessage("width=" + document.documentElement.scrollWidth + " of " + innerWidth + " plots=" +
    document.querySelectorAll("svg.plot").length + " empty=" + bad + " outside=" + outside.join("|"), "*");
</script>
SCRIPT
    cat "$page" "$scratch/probe.js" >"$scratch/probe.html"
    for width in 390 1280; do
        # In a frame, because a window cannot be as narrow as a phone.
        cat >"$scratch/frame.html" <<HTML
<!doctype html><body><script>onmessage = e => document.title = e.data</script>
<iframe src=probe.html style="width:${width}px;height:900px;border:0"></iframe>
HTML
        title=$(timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$scratch/profile" \
            --window-size=1400,1000 --dump-dom "file://$scratch/frame.html" 2>/dev/null | grep -oE '<title>width=[^<]*' || :)
        if [ -z "$title" ]; then
            echo "note: $browser did not start; the page's layout was not checked"
            break
        fi
        read -r needed there plots empty outside <<<"$(sed -E 's/.*width=([0-9]+) of ([0-9]+) plots=([0-9]+) empty=([0-9]+) outside=(.*)/\1 \2 \3 \4 \5/' <<<"$title")"
        [ "$there" -le $width ] || fail "the frame is $there wide, not $width"
        [ "$needed" -le "$there" ] || fail "$width pixels: the page is $needed wide, the window $there"
        [ "$plots" -ge 8 ] || fail "$width pixels: only $plots plots"
        [ "$empty" -eq 0 ] || fail "$width pixels: $empty plots have no size"
        [ -z "$outside" ] || fail "$width pixels: text leaves its plot: $outside"
    done
else
    echo "note: no chromium here; the page's layout was not checked"
fi

[ $failures -eq 0 ]

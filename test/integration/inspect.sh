#!/usr/bin/env bash
# `tally` and `tally inspect` as users meet them, on small files made by hand (the fuzzers' seeds).
set -euo pipefail

seeds=test/fuzz/corpus
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

. test/integration/expect.inc

# --- the command line
expect 0 '^usage: tally COMMAND' '^  inspect ' -- --help
expect 0 '^tally [0-9]+\.[0-9]+' -- --version
expect 2 '^usage: tally COMMAND' --
expect 2 "no command 'inpsect'; did you mean 'inspect'" -- inpsect
expect 2 "no command 'insp'; did you mean 'inspect'" -- insp
expect 2 "no command 'frobnicate'; .tally --help. lists" -- frobnicate
expect 0 '^Usage: tally inspect' -- inspect --help
expect 2 'name at least one file' -- inspect
expect 2 "wants an architecture such as sm_90, not 'big'" -- inspect --gpu=big x

# --- what is in a file
expect 0 ' 0\.0 +ptx +sm_90 +plain .* 1 kernel: slice 1, ticket 1, persistent 1; ISA 8\.3' \
    '^Preemptible: 1 of 1 kernels \(100\.0 %\)' -- inspect $seeds/image/plain
expect 0 ' 0\.0 +ptx +sm_90 +lz4 .* found by scanning; -maxrregcount=40$' \
    ' 1\.0 +ptx +sm_120f +zstd .* found by scanning$' \
    '2 containers, 2 of them found by scanning only' -- inspect $seeds/image/scanned
expect 0 ' 0\.0 +lto +sm_90 +unknown ' ' 0\.1 +ptx ' -- inspect $seeds/image/several
expect 0 ' 0\.0 +ptx +sm_90 +lz4 .* ISA 8\.3; -maxrregcount=40$' '1 containers, 0 of them found by scanning' \
    -- inspect $seeds/image/host
expect 0 '^           k  slice ok; ticket ok; persistent ok' -- inspect --kernels $seeds/image/text
expect 0 'scale  10 registers, 2 parameters in 12 bytes, 1040 bytes shared; machine code only' \
    '^Preemptible: 0 of 2 kernels' '2 machine-code: there is no PTX' '-> they run whole' \
    -- inspect -v $seeds/cubin/kernels
expect 0 'sm_90 .* 1 kernel: gate 0; relocatable' 'gateable +0 .* not: not-linked 1' -- inspect $seeds/cubin/relocatable
expect 0 'ptx +sm_90 .* 1 kernel: ' 'ptx +sm_120f .* not for this GPU' '1 of 1 kernels \(100\.0 %\) on sm_90' \
    -- inspect --gpu=sm_90 $seeds/image/scanned

# --- folders, and sums over files
expect 0 'image/plain' 'image/zstd' 'Images of 8 files: ' -- inspect --totals $seeds/image
"$tally" inspect --totals $seeds/image | grep -qE ' 0\.0 +ptx' && fail "--totals lists images"

# --- trouble
head -c 100 $seeds/image/plain >"$scratch/cut"
printf 'PK\3\4 and so on' >"$scratch/wheel"
: >"$scratch/empty"
expect 1 'PROBLEM at 0x0: a fatbin claims 144 bytes' 'holds no GPU code' -- inspect "$scratch/cut"
expect 1 'zip archive or wheel; unpack it' -- inspect "$scratch/wheel"
expect 0 'holds no GPU code' -- inspect "$scratch/empty"
expect 1 'cannot open .*/missing: No such file' 'image/plain' -- inspect "$scratch/missing" $seeds/image/plain
expect 1 'neither a file nor a folder' -- inspect /dev/null

# --- extraction
expect 0 -- inspect --extract "$scratch/x" $seeds/image/scanned
expected=$'.version 8.3\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\nret;\n}'
for name in scanned.0.0.sm_90.ptx scanned.1.0.sm_120f.ptx; do
    [ "$(cat "$scratch/x/$name")" = "$expected" ] || fail "$name is not what was packed"
done
expect 1 'exists already; extract into an empty folder' -- inspect --extract "$scratch/x" $seeds/image/scanned
expect 0 -- inspect --extract "$scratch/y" $seeds
cmp -s "$scratch/y/cubin_kernels.0.0.sm_90.cubin" $seeds/cubin/kernels || fail "an extracted cubin differs"

# --- JSON
expect 0 '"path": "test/fuzz/corpus/image/zstd"' '"arch": "sm_120f"' '"packing": "zstd"' '"preemptible": 1' \
    -- inspect --json --kernels $seeds/image/zstd
if command -v python3 >/dev/null; then
    "$tally" inspect --json --kernels $seeds "$scratch/cut" >"$scratch/out" || :
    python3 - "$scratch/out" <<'END' || fail "the JSON does not say what is there"
import json, sys
report = json.load(open(sys.argv[1]))
cubin = next(f for f in report["files"] if f["path"].endswith("cubin/kernels"))
image = cubin["containers"][0]["images"][0]
assert [k["name"] for k in image["kernels"]] == ["scale", "fill"], image
assert image["kernels"][0]["parameter_bytes"] == 12
cut = next(f for f in report["files"] if f["path"].endswith("cut"))
assert len(cut["problems"]) == 1 and cut["containers"] == []
assert report["totals"]["problems"] == 1
assert report["totals"]["images"]["lto"]["images"] == 1
assert sum(f["totals"]["kernels"] for f in report["files"]) == report["totals"]["kernels"]
END
fi

# A file that somebody truncates while it is read: stopped as soon as it is mapped, cut, and let go on.
truncate -s 8G "$scratch/huge"
"$tally" inspect "$scratch/huge" >"$scratch/out" 2>&1 &
reader=$!
until grep -q "$scratch/huge" "/proc/$reader/maps" || ! kill -0 "$reader"; do :; done 2>/dev/null
kill -STOP "$reader"
truncate -s 0 "$scratch/huge"
kill -CONT "$reader"
status=0
wait "$reader" || status=$?
{ [ "$status" -eq 1 ] && grep -q 'became shorter while it was read' "$scratch/out"; } ||
    fail "a truncated file ends it with status $status: $(cat "$scratch/out")"

# Names and texts that a terminal would obey are told as question marks, in text and in JSON.
evil=$scratch/$'evil\033[2J'
mkdir "$evil"
printf '.version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k\033]0;title\007() { ret; }\n' >"$evil/a"$'\302\233'"31m.ptx"
for options in "" --json --totals; do
    # shellcheck disable=SC2086
    "$tally" inspect $options "$evil" >"$scratch/out" 2>&1 || :
    grep -q evil "$scratch/out" || [ "$options" = --totals ] || fail "inspect $options says nothing of a file with an odd name"
    LC_ALL=C grep -q -e $'\033' -e $'\007' -e $'\302\233' "$scratch/out" && fail "inspect $options tells terminals what to do: $(cat -v "$scratch/out")"
done

echo "$failures failures"
exit $((failures > 0))

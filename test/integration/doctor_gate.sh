#!/usr/bin/env bash
# `tally doctor` and the gate: machine code by the real ptxas, on a driver that misbehaves on demand (test/standin/faulty.c), and
# gated with an edit left out (test/standin/edits.c).
#
# FULL=1 leaves out each edit in turn, on a100-r535 and h100-r580, and prints what was found: the column of docs/gate.md.
set -euo pipefail
. test/integration/doctor.inc
PTXAS=$(scripts/tool ptxas) || skip "no ptxas here (scripts/tool)"
need_built "$build/test/tally-edits" "$build/test/gate-tool"
export TALLY_PTXAS=$PTXAS TALLY_DEVICE_SMS=2 TALLY_DEVICE_PROFILE=h100-r580 TALLY_DRIVER=$faulty

# --- faults of the driver: fault, exit status, what the doctor says
doctor 0 'gate works 33 kernels' -- --only=gate
while IFS='|' read -r fault status finding; do
    read -r fault status <<<"$fault $status"
    TALLY_FAULT=$fault doctor "$status" "${finding# }" -- --only=gate --patience=6
    printf '%-22s %s\n' "$fault" "$(grep -oE -- "${finding# }" "$scratch/words" | head -n 1)"
done <<'MATRIX'
lost-stores     | 1 | gate wrong map: told to stop before it began, it ran [0-9]+ blocks
no-registration | 3 | gate refused memory: the words of other jobs cannot be registered
wrong-bits:gate | 1 | gate wrong twin of map: in ranges: wrong bits: word
forget:gate     | 1 | gate wrong twin of map: in ranges: the word says [0-9]+ behind [0-9]+
twice:gate      | 1 | gate wrong twin of map: in ranges: block [0-9]+ of [0-9]+ ran 2 times
refuse:gate     | 3 | gate refused twin of map: the driver does not load it with its twin: CUDA_ERROR_INVALID_PTX
crash:gate      | 1 | gate wrong twin of map: ended by signal 11
hang:gate       | 1 | gate wrong twin of map: hung after 6 s
MATRIX

# --- no compiler: the driver's linker makes none here either
TALLY_PTXAS=/nonexistent doctor 3 "gate refused map: there is no ptxas, and the driver's linker makes no machine code" -- --only=gate

# --- edits left out
# without NUMBER PROFILE: what the doctor says to that, in one line.
export TALLY_DRIVER=$device
without() {
    TALLY_LEAVE_OUT=$1 TALLY_DEVICE_PROFILE=$2 "$build/test/tally-edits" doctor --seed=$seed --patience=60 --only=gate \
        >"$scratch/out" 2>&1 || :
    sed -n '/rungs/,/^$/p' "$scratch/out" | tr -s ' \n' ' ' | sed 's/.*rungs gate //'
}
while IFS='|' read -r edit profile expected; do
    read -r profile expected <<<"$profile $expected"
    edit=${edit%"${edit##*[! ]}"}
    number=$("$build/test/gate-tool" edits | awk -v edit="$edit" 'index($0, edit) {print $1; exit}')
    [ -n "$number" ] || fail "there is no edit '$edit'"
    said=$(without "$number" "$profile")
    grep -qE -- "^$expected" <<<"$said" || fail "without $edit on $profile: $said"
    printf '%-22s %-10s %s\n' "$edit" "$profile" "$(cut -c 1-100 <<<"$said")"
done <<'EDITS'
17, 45 our parameter    | h100-r580 | wrong
4c barriers             | h100-r580 | refused
registers in sh_info    | a100-r535 | refused
twin: .nv.info          | h100-r580 | refused
EDITS
if [ -n "${FULL:-}" ]; then
    "$build/test/gate-tool" edits | while read -r number edit; do
        for profile in a100-r535 h100-r580; do
            printf '%-34s %-10s %s\n' "$edit" "$profile" "$(without "$number" "$profile" | cut -c 1-120)"
        done
    done
fi

echo "$failures failed"
[ "$failures" -eq 0 ]

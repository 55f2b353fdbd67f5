#!/usr/bin/env bash
# `tally doctor` on a driver that misbehaves on demand (test/standin/faulty.c): each fault is found and named.
set -euo pipefail
. test/integration/doctor.inc

# --- faults: fault, group, exit status, what the doctor says
export TALLY_DRIVER=$faulty TALLY_DEVICE_SMS=2
doctor 0 "visibility works" -- --only=memory
while IFS='|' read -r fault group status finding; do
    read -r fault group status <<<"$fault $group $status"
    TALLY_FAULT=$fault doctor "$status" "${finding# }" -- --only="$group"
    printf '%-22s %-11s %s\n' "$fault" "$group" "$(grep -oE -- "${finding# }" "$scratch/words" | head -n 1)"
done <<'MATRIX'
lost-stores           | memory     | 1 | visibility wrong a running kernel does not see a store of the host
lost-stores           | ticket     | 1 | ticket wrong map: told to stop before it began, it ran [0-9]+ blocks
lost-stores           | persistent | 1 | persistent wrong map: told to stop before it began, it ran [0-9]+ blocks
stale-words           | memory     | 1 | visibility wrong a running kernel does not see a store of the host
stale-words           | ticket     | 1 | ticket wrong latency: it never left before its end when told to
stale-words           | persistent | 1 | persistent wrong latency: it never left before its end when told to
late-data             | memory     | 1 | order wrong the host reads that something was written before it is there
no-registration       | memory     | 3 | registration refused a shared page cannot be registered: CUDA_ERROR_NOT_SUPPORTED
no-registration       | ticket     | 3 | ticket refused memory: the words of other jobs cannot be registered
no-registration       | persistent | 3 | persistent refused memory: the words of other jobs cannot be registered
no-registration       | slice      | 0 | slice works 13 kernels
wrong-bits:slice      | slice      | 1 | slice wrong map: in slices: wrong bits: word [0-9]+ is 0x[0-9a-f]+, not 0x
wrong-bits:ticket     | ticket     | 1 | ticket wrong map: in one go: wrong bits: word
wrong-bits:persistent | persistent | 1 | persistent wrong map: in one go: wrong bits: word
wrong-bits:persistent | ticket     | 0 | ticket works 13 kernels
twice:slice           | slice      | 1 | slice wrong map: in slices: block 0 of [0-9]+ ran 2 times
refuse:ticket         | ticket     | 3 | ticket refused map: the driver does not load it: CUDA_ERROR_INVALID_PTX
crash:persistent      | persistent | 1 | persistent wrong map: ended by signal 11
slow-stores           | slice      | 0 | slice works 13 kernels
no-green              | cap        | 3 | cap refused green-context: CUDA_ERROR_NOT_SUPPORTED
capture               | streams    | 1 | capture wrong the capture fails while a variant is built beside it: CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
clock                 | streams    | 1 | events wrong the device says [0-9.]+ ms where the host had
copies                | streams    | 1 | copies wrong what came back in pieces is not what was sent
MATRIX
# Blocks that wait for blocks that never come, and launches that never return, have to be waited for.
never() { # FAULT GROUP FINDING
    TALLY_FAULT=$1 doctor 1 "$3" -- --only="$2" --patience=6
    printf '%-22s %-11s %s\n' "$1" "$2" "$(grep -oE -- "$3" "$scratch/words" | head -n 1)"
}
never forget:slice slice 'slice wrong map: in slices: block [0-9]+ of [0-9]+ never ran'
never forget:ticket ticket 'ticket wrong map: in one go: block 0 of [0-9]+ never ran'
never forget:persistent persistent 'persistent wrong map: in one go: block 0 of [0-9]+ never ran'
never twice:ticket ticket 'ticket wrong map: in one go: block 0 of [0-9]+ ran 2 times'
never twice:persistent persistent 'persistent wrong map: in one go: block 0 of [0-9]+ ran 2 times'
never hang:ticket ticket 'ticket wrong map: hung after 6 s'
TALLY_DEVICE_BLOCKS_PER_SM=1 TALLY_FAULT=occupancy doctor 1 'occupancy wrong of 4 blocks that fit at once, [0-3] met all others' -- --only=streams

echo "$failures failed"
[ "$failures" -eq 0 ]

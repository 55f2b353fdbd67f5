#!/usr/bin/env bash
# `tally doctor` on the software device as it is and as strict ones, where all that there is works; and what jobs make of what it
# found.
#
# FULL=1 examines all profiles.
set -euo pipefail
. test/integration/doctor.inc

# --- the command line
expect 2 "wants a number up to" -- doctor --seed=many
expect 2 "wants auto, gpu or soft" -- doctor --device=tpu
expect 2 "there is no group 'nose'" -- doctor --only=nose
expect 2 "at least 1 second" -- doctor --patience=0
TALLY_DRIVER=$scratch/nothing.so expect 3 'open +refused +cannot be opened' -- doctor
if [ ! -e /dev/nvidiactl ] && [ ! -e /dev/nvidia0 ] && [ ! -e /dev/dxg ]; then
    doctor 0 'There is no GPU here \(no /dev/nvidia\*\): Tally.s software device is examined, as soft' -- --only=cap
fi

# --- devices on which all that there is works
all_is_well='persistent works 13 kernels.* ticket works 13 kernels.* slice works 13 kernels'
checks='registration works .* visibility works .* order works .* device-counters works .* events works .* copies works .* occupancy works .* capture works'
strict='host-counters refused no atomics'
# There the gate needs machine code, and that a compiler.
if TALLY_PTXAS=$(scripts/tool ptxas); then
    export TALLY_PTXAS
    gate='gate works 33 kernels' costs=0
else
    echo "without the gate: no ptxas here (scripts/tool)"
    gate='gate refused map: there is no ptxas' costs=3
fi
doctor 0 "$all_is_well" "$checks" 'cap works' 'host-counters works' 'gate refused machine-code: gates for sm_130' 'All is well' 'Software Device GPU-' 'seed '$seed -- --device=soft
kept=("$TALLY_CACHE"/doctor/*)
if [ ${#kept[@]} -ne 1 ] || [ "$(stat -c %a "${kept[0]}")" != 600 ]; then
    fail "what was found is not kept: ${kept[*]}"
fi
doctor 3 "$all_is_well" "$checks" 'cap refused .*the driver has none' "$strict" 'cuGreenCtxCreate.*run on all SMs' \
    "$gate" 'sm_80, 108 SMs' 'read-only refused .*NOT_SUPPORTED' 'Nothing is wrong' -- --device=soft --profile=a100-r535
# Half of the SMs, in groups of 8.
doctor $costs "$all_is_well" "$checks" "$gate" 'cap works a kernel ran on 72 of 132' "$strict" -- --device=soft --profile=h100-r580
if [ -n "${FULL:-}" ]; then
    doctor 3 "$all_is_well" "$checks" "$gate" 'cap refused .*the driver has none' "$strict" 'sm_89' -- --device=soft --profile=rtx4090-r550
    doctor 3 "$all_is_well" "$checks" "$gate" 'cap refused .*the driver has none' "$strict" 'sm_90' -- --device=soft --profile=h100-r550
    doctor $costs "$all_is_well" "$checks" "$gate" 'cap works' "$strict" 'sm_100' -- --device=soft --profile=b200-r580
fi
kept=("$TALLY_CACHE"/doctor/*)
[ ${#kept[@]} -ge 3 ] || fail "devices are not told apart: ${kept[*]}"

# --- coverage, and JSON
doctor 0 'Coverage on sm_130' 'Preemptible: 1 of 1 kernels' -- --device=soft --only=cap test/fuzz/corpus/image/plain
doctor 1 'cannot open .*/missing' -- --device=soft --only=cap "$scratch/missing"
"$tally" doctor --device=soft --json --seed=$seed --only=slice test/fuzz/corpus/image/plain >"$scratch/out" || fail "doctor --json"
for member in '"format": 1' '"status": 0' '"seed": '$seed '"verdict": "works"' '"stops_with_blocks_left": 0' '"block_ns": ' \
    '"blocks_to_1": ' '"coverage": \[' '"preemptible": 1'; do
    grep -qE -- "$member" "$scratch/out" || fail "doctor --json has no $member"
done
if command -v python3 >/dev/null; then
    python3 -m json.tool <"$scratch/out" >/dev/null || fail "doctor --json is not JSON"
fi

# --- jobs: a rung that is wrong is not used, and the report says why
rm -rf "$TALLY_CACHE/doctor"
export TALLY_DRIVER=$faulty TALLY_DEVICE_SMS=2
program=$build/workloads/order/events
if [ ! -x "$program" ]; then
    echo "without jobs: $program is not built (make workloads)"
else
    need_nvcc
    toolkit=$(cd "$(dirname "$(realpath "$nvcc")")/.." && pwd)
    export TALLY_DEVICE_BLOCKS_PER_SM=4
    # job NAME PATTERN...: runs it with the finest rung forced; its report must have the patterns.
    job() {
        local name=$1
        shift
        LD_PRELOAD=$shim LD_LIBRARY_PATH=$build/lib/tally:$toolkit/lib TALLY_PRIORITY=low TALLY_FORCE=persistent TALLY_DRIVER=$device \
            TALLY_REPORT=$scratch/$name "$program" >/dev/null 2>"$scratch/said" || fail "job $name"
        "$tally" report --json "$scratch/$name" | tr -s ' \n' ' ' >"$scratch/out"
        for pattern; do
            grep -qE -- "$pattern" "$scratch/out" || fail "job $name: nothing like '$pattern' in"
        done
    }
    ran='"launches_by_rung": \{[^}]*"persistent": [1-9]'
    # shellcheck disable=SC2016 # these are no commands
    job before "$ran" 'Tally Software Device: it has never been examined .`tally doctor` examines it'
    grep -q examined "$scratch/said" && fail "a warning of the software device"
    # A device that does not say that it is one counts as a GPU: its users are told, once.
    export TALLY_DEVICE_BLOCK_BY_BLOCK=untold
    job news "$ran"
    # shellcheck disable=SC2016
    grep -q 'tally.*: Tally Software Device: it has never been examined (`tally doctor` examines it)' "$scratch/said" || fail "nobody was told"
    job old "$ran"
    grep -q examined "$scratch/said" && fail "it was told twice"
    unset TALLY_DEVICE_BLOCK_BY_BLOCK
    TALLY_FAULT=wrong-bits:persistent doctor 1 'persistent wrong' 'ticket works' 'kept for jobs' --
    # shellcheck disable=SC2016
    job wrong '"launches_by_rung": \{ "whole": [1-9]' 'persistent is not used on Tally Software Device: `tally doctor` found it wrong: map: in one go: wrong bits'
    grep -qE -- "$ran" "$scratch/out" && fail "a rung that is known to be wrong was used"
    doctor 0 'All is well' --
    # shellcheck disable=SC2016
    job well "$ran" 'gate is not used on Tally Software Device: `tally doctor` found it refused: machine-code: gates for sm_130'
    grep -oE '"text": "[^"]*tally doctor[^"]*"' "$scratch/out" | grep -v '"gate is not used' &&
        fail "a device that was examined is remarked upon"
    rm "$TALLY_CACHE"/doctor/*.told
    printf 'rubbish' >"$(echo "$TALLY_CACHE"/doctor/*)"
    job damaged "$ran" 'its qualification is damaged, and not used'
fi

echo "$failures failed"
[ "$failures" -eq 0 ]

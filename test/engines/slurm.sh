#!/usr/bin/env bash
# Jobs of a real Slurm (of Debian) share the software device by priority: files and commands are those of docs/operations/slurm.md.
set -euo pipefail
# shellcheck source=test/integration/needs.inc
. test/integration/needs.inc
# shellcheck source=test/engines/slurm.inc
. test/engines/slurm.inc
in_namespaces "$@"
fail() {
    echo "FAIL: $*"
    tail -n 25 "$cluster"/slurm*.log /run/tally/tallyd.log 2>/dev/null || :
    exit 1
}
checks=0
has() { # WHAT TEXT PATTERN
    checks=$((checks + 1))
    grep -qE -- "$3" <<<"$2" || fail "$1: nothing of '$3' in: $2"
}
lacks() { # WHAT TEXT PATTERN
    checks=$((checks + 1))
    ! grep -qE -- "$3" <<<"$2" || fail "$1: '$3' is in: $2"
}
tally() { "$build/bin/tally" "$@"; }
ps_json() { tally ps --json --socket=$socket; }
# A field of the client of that job, of any if it is "slurm"; empty if there is none.
field_of() { # JOB FIELD <LIST
    python3 -c 'import json, sys
for c in json.load(sys.stdin)["clients"]:
    if c["job"] == sys.argv[1] or c["job"].startswith((sys.argv[1] + ".", sys.argv[1] + ":")):
        print(c[sys.argv[2]])' "$1" "$2"
}
field() { ps_json | field_of "$1" "$2"; }
holds() { # JOB FIELD -gt NUMBER
    # shellcheck disable=SC1009,SC1072,SC1073
    [ "$(field "$1" "$2")" "$3" "$4" ]
}

# What a job sees of the device's memory, by itself and through what its libraries would call.
cat >"$cluster/alice/memory_info" <<'PYTHON'
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
for call in (lambda: cuda.cuInit(0), lambda: cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0),
             lambda: cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))):
    if call() != 0:
        raise SystemExit("no device")
print(free.value, "of", total.value, "free")
PYTHON

# --- installed where Slurm looks

make --no-print-directory SETUP=no B="$build" PREFIX=/opt/tally SLURM_PLUGINDIR="$plugins" install-files >/dev/null
from_docs /etc/slurm/plugstack.conf >/etc/slurm/plugstack.conf
from_docs /etc/slurm/gres.conf | sed "s|/dev/nvidia0|$cluster/gpu0|" >/etc/slurm/gres.conf
from_docs /etc/tally/slurm >/etc/tally/slurm
mknod "$cluster/gpu0" c 1 3
from_docs /etc/slurm/slurm.conf | write_conf
start_cluster

srun --partition=plain true
[ ! -e $socket ] || fail "tallyd was started for a job that does not want it"
memory() { as_alice srun --partition=serve --gres=shard:1 python3 memory_info; }
empty=$(memory)
has "a job's memory" "$empty" "^[0-9]+ of [0-9]+ free$"

# --- options: told of, and refused before there is a job

jobs_before=$(scontrol show jobs | grep -c JobId=)
has "srun --help" "$(srun --help)" "--tally-priority=high.low.N"
has "sbatch --help" "$(sbatch --help)" "--tally-slo=pN:TIME"
refused() { # MESSAGE COMMAND...
    local message=$1 said
    shift
    ! said=$("$@" 2>&1) || fail "$* was taken"
    has "$*" "$said" "$message"
}
refused "tally: --tally-priority=urgent: it may be high, low, or a number" srun --tally-priority=urgent true
refused "tally: --tally-memory=lots: it may be a size" srun --tally-memory=lots true
refused "tally: --tally-memory=0: it may be a size" sbatch --tally-memory=0 --wrap=true
refused "tally: --tally-slo=8ms: it may be a percentile" salloc --tally-slo=8ms true
refused "tally: --tally-priority=101" srun --tally-priority=101 true
checks=$((checks + 1))
[ "$(scontrol show jobs | grep -c JobId=)" = "$jobs_before" ] || fail "what was refused was submitted: $(scontrol show jobs)"

# --- jobs that Tally does not concern: not a variable differs from those of a Slurm without the plugin

plain() { as_alice srun --partition=plain --gres=shard:1 env | grep -vE '^(SLURM|SRUN|_=)' | sort; }
without_plugin=$(mv /etc/slurm/plugstack.conf "$cluster/" && : >/etc/slurm/plugstack.conf && scontrol reconfigure && plain)
mv "$cluster/plugstack.conf" /etc/slurm/plugstack.conf
scontrol reconfigure
checks=$((checks + 1))
[ "$(plain)" = "$without_plugin" ] || fail "a job without Tally has other variables: $(diff <(plain) <(echo "$without_plugin"))"
lacks "variables there" "$without_plugin" "^LD_PRELOAD|^TALLY_SOCKET"
has "the GPU of a shard" "$(plain)" "^CUDA_VISIBLE_DEVICES=0$"

# --- what a job has by its partition, and may ask for

said=$(as_alice srun --partition=batch --gres=shard:1 env)
has "the usual of batch" "$said" "^TALLY_PRIORITY=low$"
has "the usual of batch" "$said" "^TALLY_MEMORY=512M$"
has "the usual of batch" "$said" "^LD_PRELOAD=.*/opt/tally/lib/tally/libcuda.so.1"
said=$(as_alice srun --partition=batch --gres=shard:1 --tally-priority=high --tally-memory=1G env 2>&1)
has "more than batch may" "$said" "--tally-priority=high is more than its partition 'batch' may have; it is 0 now"
has "more than batch may" "$said" "--tally-memory=1G is more than its partition 'batch' may have; it is 512M now"
has "more than batch may" "$said" "^TALLY_PRIORITY=0$"
# What the job's own variables say is a wish: tallyd goes by what Slurm says of the job.
said=$(as_alice env TALLY_PRIORITY=high SLURM_JOB_PARTITION=serve srun --partition=batch --gres=shard:1 bash -c \
    'TALLY_PRIORITY=high TALLY_MEMORY= SLURM_JOB_PARTITION=serve train --kind=coarse --seconds=60 >/dev/null 2>&1 & \
    until tally ps --socket=$TALLY_SOCKET | grep -q slurm: ; do sleep 0.1; done; tally ps --json --socket=$TALLY_SOCKET; kill $!')
has "a level that was only said" "$(field_of slurm level <<<"$said")" '^0$'
has "a limit that was taken away" "$(field_of slurm memory_limit_bytes <<<"$said")" '^536870912$'
is_empty() { [ -z "$(field slurm pid)" ]; }
until_true "an empty device" is_empty

# --- two partitions on one GPU

sed -n '/^    sbatch --partition=batch/s/^ *//p' docs/operations/slurm.md >"$cluster/submit"
low=$(as_alice bash -c "$(cat "$cluster/submit")" | sed -n 's/Submitted batch job //p')
until_true "a batch job on the device" holds "slurm:$low" launches -gt 50
has "the batch job" "$(field "slurm:$low" level)" "^-20$"
has "the batch job's memory" "$(field "slurm:$low" memory_limit_bytes)" "^268435456$"
alone=$(field "slurm:$low" preemptions)
serve=$(sed -n '/^    srun --partition=serve/s/^ *//p' docs/operations/slurm.md)
as_alice bash -c "$serve" >"$cluster/served" 2>&1 &
served=$!
until_true "a served request" holds "slurm:$((low + 1)).0" requests -gt 20
[ -n "$(field "slurm:$low" pid)" ] || fail "the batch job is not there beside the server"
has "the server's level" "$(field "slurm:$((low + 1))" level)" "^100$"
until_true "a preemption of the batch job" holds "slurm:$low" preemptions -gt "$((alone + 20))"
p99=$(field "slurm:$((low + 1))" p99_ns)
wait $served || fail "the server failed: $(cat "$cluster/served")"
has "the server's report" "$(cat "$cluster/served")" "p99"
lacks "the server's report" "$(cat "$cluster/served")" "runs unmanaged|without Tally"
is_state "$low" RUNNING || fail "the batch job is $(state_of "$low") beside the server"
used=$(tally account "slurm:$((low + 1))" --json --socket=$socket)
has "what the server used" "$used" '"processes": ?1'
until_true "the server's comment" bash -c "scontrol show job $((low + 1)) | grep -q 'Comment=tally: [0-9.]* s of gpus on node1'"
echo "server beside a trainer: $(cat "$cluster/served" | tail -n 1)"
echo "p99 as tallyd saw it: $p99 ns; the trainer was preempted $(($(field "slurm:$low" preemptions) - alone)) times"

# --- scancel frees at once: the place, the memory, the admission

pid=$(field "slurm:$low" pid)
[ "$(field "slurm:$low" memory_bytes)" -gt 0 ] || fail "the batch job holds no memory"
has "the ledger" "$(ls -l /proc/"$pid"/exe)" train
[ -n "$(ls /run/tally/admitted)" ] || fail "no admission is there while a job runs"
began=$EPOCHREALTIME
scancel "$low"
until_true "a free place after scancel" is_empty
echo "$(((${EPOCHREALTIME/./} - ${began/./}) / 1000)) ms after scancel its place in tallyd is free"
[ ! -e /proc/"$pid" ] || fail "the cancelled job's process has lost its place and lives"
until_true "the end of a cancelled job" is_state "$low" CANCELLED
nobody_is_admitted() { [ -z "$(ls /run/tally/admitted)" ]; }
until_true "no admission" nobody_is_admitted
# All of the device's memory is free again for who comes.
checks=$((checks + 1))
[ "$(memory)" = "$empty" ] || fail "after scancel $(memory), before there was a job $empty"
has "tally account afterwards" "$(tally account "slurm:$low" --socket=$socket)" "slurm:$low: .* of the device, .* 0 running"
# slurmctld writes no comment of a job that has ended; without a database it is at least told.
until_true "what the cancelled job used" grep -qE "job $low has ended.*: tally: [0-9.]+ s of gpus on node1, [0-9]+ preemptions" "$cluster/slurmd.log"

# --- whatever is wrong with Tally, jobs run

echo "partition batch urgent" >/etc/tally/slurm
said=$(as_alice srun --partition=batch --gres=shard:1 bash -c 'echo ran ${TALLY_PRIORITY:-unmanaged}' 2>&1)
has "a wrong configuration" "$said" "^ran unmanaged$"
has "a wrong configuration" "$(cat "$cluster/slurmd.log")" "tally: /etc/tally/slurm:1: who is named is given a level"
from_docs /etc/tally/slurm >/etc/tally/slurm
mv /opt/tally/bin/tally-run /opt/tally/bin/gone
said=$(as_alice srun --partition=batch --gres=shard:1 bash -c 'echo ran ${LD_PRELOAD:-unmanaged}' 2>&1)
has "no tally-run" "$said" "^ran unmanaged$"
has "no tally-run" "$said" "tally-run is not on this node.*the job runs without Tally"
echo "fail closed" >>/etc/tally/slurm
! said=$(as_alice srun --partition=batch --gres=shard:1 echo ran 2>&1) || fail "fail closed: it ran"
mv /opt/tally/bin/gone /opt/tally/bin/tally-run
echo "$checks checks"

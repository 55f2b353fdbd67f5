#!/usr/bin/env bash
# Preemption between QOS of a real Slurm with its database: what a scavenger loses to an urgent job is the device, not its life.  Slurm's
# own ways beside it: the same two jobs with whole GPUs.
set -euo pipefail
# shellcheck source=test/integration/needs.inc
. test/integration/needs.inc
# shellcheck source=test/engines/slurm.inc
. test/engines/slurm.inc
in_namespaces "$@"
fail() {
    echo "FAIL: $*"
    tail -n 25 "$cluster"/slurm*.log "$cluster"/mariadb.log 2>/dev/null || :
    exit 1
}
field() { # JOB FIELD
    "$build/bin/tally" ps --json --socket=$socket | python3 -c 'import json, sys
for c in json.load(sys.stdin)["clients"]:
    if c["job"].split(".")[0] == sys.argv[1]:
        print(c[sys.argv[2]])' "$1" "$2"
}
holds() { # JOB FIELD -gt NUMBER
    # shellcheck disable=SC1009,SC1072,SC1073
    [ "$(field "$1" "$2")" "$3" "$4" ]
}

# --- the database, and a Slurm that enforces QOS

start_database() {
    mkdir -p /run/mysqld "$cluster/database"
    # As mariadb-install-db does, which needs more of MariaDB than its server.  It listens nowhere but on a socket in here.
    { printf "%s\n" "create database mysql;" "use mysql;" && cat /usr/share/mysql/mysql_system_tables.sql; } |
        mariadbd --no-defaults --bootstrap --datadir="$cluster/database" --user=root >"$cluster/mariadb.log" 2>&1
    mariadbd --no-defaults --datadir="$cluster/database" --user=root --socket=/run/mysqld/mysqld.sock --skip-networking --skip-grant-tables \
        --innodb-buffer-pool-size=64M >>"$cluster/mariadb.log" 2>&1 &
    until_true "MariaDB" test -S /run/mysqld/mysqld.sock
    cat >/etc/slurm/slurmdbd.conf <<CONF
AuthType=auth/munge
DbdHost=localhost
SlurmUser=root
PidFile=$cluster/slurmdbd.pid
LogFile=$cluster/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
CONF
    chmod 600 /etc/slurm/slurmdbd.conf
    slurmdbd
    until_true "slurmdbd" sacctmgr -n list cluster
}

# The cluster's configuration with these lines in place of those of the documents that they are about.
configure() { # LINE...
    {
        from_docs /etc/slurm/slurm.conf | grep -v '^PreemptMode='
        from_docs "/etc/slurm/slurm.conf" "with QOS" | grep -v '^PreemptMode='
        echo "AccountingStorageType=accounting_storage/slurmdbd"
        echo "AccountingStorageHost=localhost"
        echo "AccountingStoreFlags=job_comment"
        printf '%s\n' "$@"
    } | write_conf
}
make --no-print-directory SETUP=no B="$build" PREFIX=/opt/tally SLURM_PLUGINDIR="$plugins" install-files >/dev/null
from_docs /etc/slurm/plugstack.conf >/etc/slurm/plugstack.conf
from_docs /etc/slurm/gres.conf | sed "s|/dev/nvidia0|$cluster/gpu0|" >/etc/slurm/gres.conf
from_docs /etc/tally/slurm "with QOS" >/etc/tally/slurm
mknod "$cluster/gpu0" c 1 3
configure "$(from_docs /etc/slurm/slurm.conf "with QOS" | grep '^PreemptMode=')"
start_munge
start_database
account() { sacctmgr "$@" >"$cluster/said" 2>&1 || fail "sacctmgr $*: $(cat "$cluster/said")"; }
until_true "the cluster in the database" sacctmgr -i add cluster tally
while read -r _ command; do
    # shellcheck disable=SC2086
    account $command
done < <(grep '^    sacctmgr -i add qos' docs/operations/slurm.md)
account -i add account lab cluster=tally
account -i add user alice cluster=tally account=lab defaultaccount=lab qos=normal,scavenger,urgent
start_daemons

submit() { # QOS GRES COMMAND: its number
    as_alice sbatch --parsable --output="$cluster/alice/%j.out" --qos="$1" --gres="$2" --wrap="$3"
}

# --- with shards and Tally: nobody is killed, the scavenger gives way and comes back

low=$(submit scavenger shard:1 "train --kind=coarse --seconds=600")
until_true "a scavenger on the device" holds "slurm:$low" launches -gt 50
[ "$(field "slurm:$low" level)" = -100 ] || fail "the scavenger is at level $(field "slurm:$low" level)"
before=$(field "slurm:$low" preemptions)
high=$(submit urgent shard:1 "serve --model=mlp --rate=50 --seconds=8")
until_true "an urgent job beside it" holds "slurm:$high" requests -gt 20
[ "$(field "slurm:$high" level)" = 100 ] || fail "the urgent job is at level $(field "slurm:$high" level)"
is_state "$low" RUNNING || fail "the scavenger is $(state_of "$low") beside the urgent job"
until_true "a preemption on the device" holds "slurm:$low" preemptions -gt $((before + 20))
until_true "the end of the urgent job" is_state "$high" COMPLETED
is_state "$low" RUNNING || fail "the scavenger is $(state_of "$low") after the urgent job"
now=$(field "slurm:$low" launches)
until_true "the scavenger's device back" holds "slurm:$low" launches -gt $((now + 50))
[ "$(scontrol show job "$low" | sed -nE 's/.*Restarts=([0-9]+).*/\1/p')" = 0 ] || fail "the scavenger was started again"
echo "urgent beside scavenger: both ran; the scavenger was preempted on the device $(($(field "slurm:$low" preemptions) - before)) times"

# --- what it used is in the database, whether the job ended by itself or not

scancel "$low"
comment_of() { sacct -n -P -X -j "$1" -o comment; }
has_comment() { grep -qE "tally: [0-9]+\.[0-9]{3} s of gpus on node1, [0-9]+ preemptions" <<<"$(comment_of "$1")"; }
until_true "the urgent job's comment in the database" has_comment "$high"
until_true "the cancelled job's comment in the database" has_comment "$low"
echo "sacct: urgent '$(comment_of "$high")', scavenger '$(comment_of "$low")'"

# --- Slurm's own ways, with whole GPUs

restart() { # LINE...
    scancel --user=alice
    until_true "an empty cluster" no_jobs
    stop_daemons
    configure "$@"
    start_daemons
}
no_jobs() { [ -z "$(squeue -h)" ]; }
restart PreemptMode=CANCEL
low=$(submit scavenger gpu:1 "sleep 600")
until_true "a scavenger with a GPU" is_state "$low" RUNNING
high=$(submit urgent gpu:1 "sleep 600")
until_true "the scavenger's end by CANCEL" is_state "$low" PREEMPTED
echo "PreemptMode=CANCEL, whole GPUs: the scavenger is $(state_of "$low")"

restart PreemptMode=SUSPEND,GANG
low=$(submit scavenger gpu:1 "sleep 600")
until_true "a scavenger with a GPU" is_state "$low" RUNNING
high=$(submit urgent gpu:1 "sleep 600")
# Wait until the scheduler has looked at it: then there is a reason.
is_refused() { [ "$(squeue -h -j "$high" -o %r)" = Resources ] || [ "$(squeue -h -j "$high" -o %r)" = Priority ]; }
until_true "a reason to wait" is_refused
is_state "$high" PENDING || fail "SUSPEND,GANG: the urgent job is $(state_of "$high")"
is_state "$low" RUNNING || fail "SUSPEND,GANG: the scavenger is $(state_of "$low")"
echo "PreemptMode=SUSPEND,GANG, whole GPUs: the scavenger is $(state_of "$low"), the urgent job waits for $(squeue -h -j "$high" -o %r)"

#!/usr/bin/env bash
# A real Slurm of one node.
set -euo pipefail
. test/integration/needs.inc
. test/engines/slurm.inc
in_namespaces "$@"
fail() {
    echo "FAIL: $*"
    tail -n 30 "$cluster"/*.log
    exit 1
}

make_cluster <<'CONF'
NodeName=node1 NodeAddr=127.0.0.1 CPUs=8 RealMemory=1000 Gres=gpu:1,shard:4
PartitionName=batch Nodes=node1 Default=YES OverSubscribe=FORCE:4
CONF
start_cluster
[ "$(srun --gres=shard:1 printenv CUDA_VISIBLE_DEVICES)" = 0 ] || fail "a job with a shard of the GPU does not run"
echo "a job ran"

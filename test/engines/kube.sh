#!/usr/bin/env bash
# tally-device-plugin against a stand-in for kubelet, of an independent gRPC (PyPI's grpcio) and with messages that are generated from the
# .proto here: registration, again and again; devices and their health; what containers are given, and that a program has its level and
# its limit by that alone; wrong, many and hostile callers.  And the manifests, by the schemas of Kubernetes.
set -euo pipefail
cd "$(dirname "$0")/../.."
skip() {
    echo "$*"
    exit 77
}
. test/engines/venv.inc

build=${TALLY_BUILD:-build}
[ -x "$build/bin/tally-device-plugin" ] || skip "tally-device-plugin was not built: it needs libnghttp2-dev, libprotobuf-c-dev and protobuf-c-compiler"
[ -x "$build/workloads/jobs/train" ] || skip "the sample jobs are not built (make jobs)"
unshare -rm true 2>/dev/null || unshare -m true 2>/dev/null || skip "no namespaces can be made here"
need_venv kube grpcio==1.85.1 grpcio-tools==1.85.1 kubernetes-validate==1.37.0
folder=$(mktemp -d /tmp/tally-kube.XXXXXX) # sockets want short paths
trap 'rm -rf "$folder"' EXIT
"$python" test/engines/kube_manifests.py "$build" runtime/kubernetes/*.yaml docs/operations/kserve.md
"${CC:-cc}" -shared -fPIC -o "$folder/libnvidia-ml.so.1" test/engines/nvml_standin.c
if ! "$python" test/engines/kube_plugin.py "$build" "$folder" "$folder/libnvidia-ml.so.1"; then
    tail -n 20 "$folder"/*.log
    exit 1
fi

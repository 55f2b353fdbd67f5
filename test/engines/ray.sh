#!/usr/bin/env bash
# tally_ray with the real Ray from PyPI: a serving and a training actor on one software device have the level, the share and the memory
# that num_gpus and the plugin say; py_executable alone; what makes no sense is refused before a worker starts.
set -euo pipefail
cd "$(dirname "$0")/../.."
skip() {
    echo "$*"
    exit 77
}
. test/engines/venv.inc

build=$(realpath "${TALLY_BUILD:-build}")
need_venv ray ray==2.60.0
folder=$(mktemp -d /tmp/tally-ray.XXXXXX) # sockets want short paths
tallyd=
ended() {
    [ -z "$tallyd" ] || kill "$tallyd" 2>/dev/null || :
    wait
    rm -rf "$folder"
}
trap ended EXIT
export HOME=$folder # Ray keeps a token there
export PATH=$build/bin:$PATH PYTHONPATH=$PWD/runtime/python RAY_USAGE_STATS_ENABLED=0 PYTHONDONTWRITEBYTECODE=1
export RAY_RUNTIME_ENV_PLUGINS='[{"class": "tally_ray.Plugin"}]'
export TALLY_SOCKET=$folder/tallyd.sock TALLY_DEVICE=soft TALLY_DEVICE_MEM=8G TALLY_DEVICE_NAME=tally-ray-$$ XDG_CACHE_HOME=$folder/cache
tallyd --idle=0 2>"$folder/tallyd.log" &
tallyd=$!
if ! "$python" test/engines/ray_actors.py "$build" "$folder/ray"; then
    grep -h -i "tally" "$folder"/ray/session_latest/logs/runtime_env* 2>/dev/null | tail -n 10 || :
    tail -n 20 "$folder/tallyd.log" "$folder"/ray/session_latest/logs/worker*.err 2>/dev/null || :
    exit 1
fi

#!/usr/bin/env bash
# Frameworks from PyPI, unmodified, at low priority under tally-run: the small set of scripts/test-frameworks (Numba, tinygrad), whose
# packages are not gigabytes.
# `make test-frameworks` runs all of them.
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
device=$build/lib/tally/device/libcuda.so.1
need_built "$device" "$build/bin/tally-jit"
need_plain "$device"
venvs=${TALLY_VENVS:-build/venv}
if [ "${SETUP:-yes}" = no ] && { [ ! -e "$venvs/numba/.packages" ] || [ ! -e "$venvs/tinygrad/.packages" ]; }; then
    skip "Numba and tinygrad are not here, and SETUP=no forbids to fetch them"
fi
scratch=$(mktemp -d)
export XDG_RUNTIME_DIR=$scratch TALLY_CACHE=$scratch/cache TALLY_JIT_IDLE=20 TALLY_DEVICE_NAME=tally-frameworks-$$
export TALLY_VENVS=${TALLY_VENVS:-$PWD/build/venv}
trap '"$build/bin/tally-jit" stop >/dev/null 2>&1 || :; rm -rf "$scratch" "/dev/shm/$TALLY_DEVICE_NAME".*' EXIT
status=0
TALLY_FRAMEWORK_SECONDS=150 scripts/test-frameworks --quick || status=$?
[ $status -ne 77 ] || echo "the packages cannot be had from PyPI"
exit $status

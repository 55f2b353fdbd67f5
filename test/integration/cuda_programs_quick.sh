#!/usr/bin/env bash
# The programs of cuda_programs.sh with quick versions of all their kernels, which are never replaced.
set -euo pipefail
TALLY_JIT_QUICK=all exec bash test/integration/cuda_programs.sh

#!/usr/bin/env bash
# Equivalence of variants where every other kernel is compiled with as little of LLVM as possible: what comes out must be equal, bit by bit.
set -euo pipefail
TALLY_TEST_LEAST=yes "$TALLY_BUILD/test/device/jit/variants_test"

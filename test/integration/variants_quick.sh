#!/usr/bin/env bash
# Equivalence of variants where every other kernel is compiled quickly, of calls: what comes out must be equal, bit by bit.
set -euo pipefail
TALLY_TEST_QUICK=yes "$TALLY_BUILD/test/device/jit/variants_test"

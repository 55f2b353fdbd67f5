#!/usr/bin/env bash
# Equivalence of variants as a host without AVX-512 would compute it: the translator must not need that extension.
set -euo pipefail
TALLY_JIT_FEATURES=+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt,-avx512f "$TALLY_BUILD/test/device/jit/variants_test"

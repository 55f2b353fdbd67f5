# Command lines: what every program has in common.  For programs only, so it is not part of base, which ends up in the shim.
LIBRARIES += tally_options
tally_options_SRCS := $(wildcard options/*.c)

# Command lines: what all programs have in common, and only programs need.
LIBRARIES += tally_options
tally_options_SRCS := $(wildcard base/options/*.c)

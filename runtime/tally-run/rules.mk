# What starts jobs under the arbiter.
PROGRAMS += tally-run
tally-run_SRCS := $(wildcard runtime/tally-run/*.c)
tally-run_LIBS := tally_options tally_job tally_base

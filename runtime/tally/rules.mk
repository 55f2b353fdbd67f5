# `tally`, a tool of several commands: main.c dispatches, each command is a file of its own.
PROGRAMS += tally
tally_SRCS := $(wildcard runtime/tally/*.c)
tally_LIBS := tally_options tally_cubin tally_image tally_ptx tally_report tally_sched tally_job tally_base
$(B)/bin/tally: EXTRA_LIBS = -lm

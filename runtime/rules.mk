# `tally`, a tool of several commands: cli_main.c dispatches, each command is a cli_NAME.c.
PROGRAMS += tally
tally_SRCS := $(if $(wildcard runtime/cli_main.c),$(wildcard runtime/cli_*.c))
tally_LIBS := tally_image tally_ptx tally_base

# What happened in a job: record_*.c writes it (libc only; the shim compiles it once more as position-independent code),
# report_*.c reads it and makes text, JSON, a page or a trace of it.
LIBRARIES += tally_record
tally_record_SRCS := $(wildcard runtime/record*.c)

# `tally`, a tool of several commands: cli_main.c dispatches, each command is a cli_NAME.c.
PROGRAMS += tally
tally_SRCS := $(if $(wildcard runtime/cli_main.c),$(wildcard runtime/cli_*.c))
tally_LIBS := tally_image tally_ptx tally_sched tally_client tally_base

# What happened in a job: record_*.c writes it (libc only; the shim compiles it once more as position-independent code),
# report_*.c reads it and makes text, JSON, a page or a trace of it.
LIBRARIES += tally_record
tally_record_SRCS := $(wildcard runtime/record*.c)

# What a job has of the runtime, libc only: it is also part of the shim.
LIBRARIES += tally_client
tally_client_SRCS := $(addprefix runtime/,settings.c share.c wire.c) $(wildcard runtime/client*.c)

# The arbiter, and what starts jobs under it.
PROGRAMS += tallyd tally-run
tallyd_SRCS := $(if $(wildcard runtime/daemon_main.c),$(wildcard runtime/daemon_*.c))
tallyd_LIBS := tally_sched tally_client tally_base
tally-run_SRCS := $(if $(wildcard runtime/run_main.c),$(wildcard runtime/run_*.c))
tally-run_LIBS := tally_client tally_base

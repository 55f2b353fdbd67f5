# `tally`, a tool of several commands: cli_main.c dispatches, each command is a cli_NAME.c.
PROGRAMS += tally
tally_SRCS := $(if $(wildcard runtime/cli_main.c),$(wildcard runtime/cli_*.c))
tally_LIBS := tally_image tally_ptx tally_base

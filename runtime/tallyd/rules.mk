# The arbiter.
PROGRAMS += tallyd
tallyd_SRCS := $(wildcard runtime/tallyd/*.c)
tallyd_LIBS := tally_options tally_sched tally_job tally_base

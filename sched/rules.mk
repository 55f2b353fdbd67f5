# Scheduling policies: pure state machines over libc, used unchanged by tallyd, the simulator and the tests.
LIBRARIES += tally_sched
tally_sched_SRCS := $(wildcard sched/*.c)

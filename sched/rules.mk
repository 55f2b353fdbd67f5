# Scheduling policies: pure state machines over libc, used unchanged by tallyd, the simulator and the tests.
LIBRARIES += tally_sched
tally_sched_SRCS := $(wildcard sched/*.c)

# Its tests need nothing else.
$(B)/test/sched_%_test: $(B)/obj/test/unit/sched_%_test.o $(B)/obj/unity.o $(B)/lib/libtally_sched.a $(B)/lib/libtally_base.a
	$(link_it)

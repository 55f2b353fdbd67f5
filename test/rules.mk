# test/unit/NAME_test.c are programs of their own, linked with Unity and every library in this order; the other files
# there are helpers of all of them.  test/fuzz/NAME_fuzz.c are libFuzzer targets.  test/corpus/*.c is one program.
LINK_ORDER := tally_exec tally_jit tally_jit_client tally_image tally_ptx tally_report tally_record tally_sched tally_client tally_base
# Tests of the driver and of the interception library include CUDA's headers; without them there is neither.
TEST_SRCS := $(filter-out $(if $(CUDA_INCLUDE),,test/unit/driver_%_test.c test/unit/shim_%_test.c),$(wildcard test/unit/*_test.c))
TEST_HELPER_SRCS := $(filter-out %_test.c,$(wildcard test/unit/*.c))
FUZZ_SRCS := $(wildcard test/fuzz/*_fuzz.c)
CORPUS_SRCS := $(wildcard test/corpus/*.c)
include test/bench/device.mk

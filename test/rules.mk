# Tests: test/unit mirrors the tree, and each ROOM/NAME_test.c there is a program $(B)/test/ROOM/NAME_test, linked with Unity, with
# libraries, and with what it needs of the helpers, which are the other files there.  test/fuzz/NAME_fuzz.c are libFuzzer targets.
# test/corpus/*.c is one program, test/standin/*.c stand in for parts that tests do not want.
LINK_ORDER := tally_exec tally_jit tally_service tally_cubin tally_image tally_ptx tally_report tally_record tally_sched tally_job tally_base
OUR_LIBS := $(call libs,$(LINK_ORDER))
FUZZ_SRCS := $(wildcard test/fuzz/*_fuzz.c)
CORPUS_SRCS := $(wildcard test/corpus/*.c)
include test/bench/device.mk

# --- unit tests ----------------------------------------------------------------------------------------------------

UNIT_SRCS := $(wildcard test/unit/*/*.c test/unit/*/*/*.c)
# Tests of the driver, of the interception library and of the best-effort part include CUDA's headers; without them there is none.
TEST_SRCS := $(filter-out $(if $(CUDA_INCLUDE),,$(addprefix test/unit/,device/driver/% intercept/% runtime/effort/% runtime/doctor/%)), \
    $(filter %_test.c,$(UNIT_SRCS)))
TEST_HELPER_SRCS := $(filter-out %_test.c,$(UNIT_SRCS))
TEST_FILES := $(patsubst test/unit/%.c,$(B)/test/%,$(TEST_SRCS))
ALL_SRCS += $(TEST_SRCS) $(TEST_HELPER_SRCS)
$(B)/lib/libtest_help.a: $(call objs,$(TEST_HELPER_SRCS))

# Rooms whose tests need less than everything are linked with less, so that they are built soon, and for TSan.
libs_of_base := tally_base
libs_of_device_exec := tally_exec tally_base
libs_of_cubin := tally_cubin tally_image tally_base
libs_of_image := tally_image tally_base
libs_of_ptx_rewrite := tally_ptx tally_base
libs_of_runtime_doctor := tally_doctor tally_cubin tally_image tally_ptx tally_job tally_base
libs_of_runtime_effort := tally_effort $(LINK_ORDER)
libs_of_runtime_record := tally_report tally_record tally_sched tally_base
libs_of_runtime_report := $(libs_of_runtime_record)
libs_of_runtime_tallyd := tally_sched tally_job tally_base
libs_of_runtime_slurm := tally_slurm tally_job tally_sched tally_base
libs_of_runtime_job := tally_job tally_sched tally_base
libs_of_sched := tally_sched tally_base
libs_of_sim := tally_sim tally_sched tally_base
libs_of = $(or $(libs_of_$(subst /,_,$(patsubst %/,%,$(dir $(1))))),$(LINK_ORDER))
define test_rule
$(B)/test/$(1): $(B)/obj/test/unit/$(1).o $(B)/obj/unity.o $(B)/lib/libtest_help.a $(call libs,$(call libs_of,$(1)))
	$$(link_it)
endef
$(foreach t,$(TEST_SRCS:test/unit/%.c=%),$(eval $(call test_rule,$(t))))

$(call objs,$(TEST_SRCS) $(TEST_HELPER_SRCS)): EXTRA_CFLAGS = -isystem $(UNITY_DIR) $(UNITY_FLAGS)
# Flushed after each test, so that a crash leaves what was said before it.
UNITY_FLAGS := -DUNITY_INCLUDE_DOUBLE -DUNITY_SUPPORT_64 -DUNITY_USE_FLUSH_STDOUT
$(B)/obj/unity.o: $(B)/obj/.flags
	$(say) CC $(UNITY_DIR)/unity.c
	$(Q)$(COMPILE) $(UNITY_FLAGS) -w -c -o $@ $(UNITY_DIR)/unity.c

of_room = $(filter $(addprefix $(B)/test/,$(1)),$(TEST_FILES))
$(call of_room,device/jit/% device/service/%): EXTRA_LIBS = $(LLVM_LIBS)
$(call of_room,runtime/record/% runtime/report/% sim/% runtime/tallyd/%): EXTRA_LIBS = -lm
# These open what was built, and include its headers.
$(B)/obj/test/unit/device/driver/%.o $(B)/obj/test/unit/intercept/%.o $(B)/obj/test/unit/runtime/effort/%.o: private OUR_CFLAGS += $(CUDA_FLAGS)
$(call of_room,device/driver/% intercept/% runtime/effort/%): | $(SHARED_FILES) $(PTXAS_STANDIN)
$(call of_room,runtime/job/% runtime/tallyd/%): | $(B)/bin/tallyd
# Hostile peers meet a tallyd with the address sanitizer inside, which is compiled for that: in no hurry, and without what debuggers
# want.  A build with a sanitizer has its own.
$(call of_room,runtime/tallyd/%): | $(B)/test/tallyd-asan
ifeq ($(FLAVOUR),)
TALLYD_ASAN_OBJS := $(patsubst %.c,$(B)/asan/%.o,$(tallyd_SRCS) $(foreach l,$(tallyd_LIBS),$($(l)_SRCS)))
$(B)/asan/%.o: %.c $(B)/obj/.flags | $(VERSION_HEADER)
	$(say) CC "$< (asan)"
	@mkdir -p $(@D)
	$(Q)$(CC) $(OUR_CFLAGS) -O1 -g1 -fsanitize=address -fno-omit-frame-pointer -I$(B)/gen $(CPPFLAGS) -MMD -MP -c -o $@ $<
$(B)/test/tallyd-asan: $(TALLYD_ASAN_OBJS)
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(OUR_LDFLAGS) -fsanitize=address -o $@.new $^ $(SYSTEM_LIBS)
	$(Q)mv $@.new $@
-include $(TALLYD_ASAN_OBJS:.o=.d)
else
$(B)/test/tallyd-asan: $(B)/bin/tallyd
	@mkdir -p $(@D)
	@cp $< $@
endif
# Fetches come from kernels: this one calls them directly, so it has the driver in itself.
$(B)/test/device/driver/texture_test: $(DRIVER_OBJS) $(B)/obj/gen/driver_table.o
$(B)/test/device/driver/texture_test: EXTRA_LIBS = -lm
# This one is the driver itself, for the part that knows kernels.
$(B)/obj/test/unit/intercept/capture/kernels_test.o: private OUR_CFLAGS += -I$(B)/gen
$(B)/obj/test/unit/intercept/capture/kernels_test.o: | $(SHIM_TABLES)
$(B)/test/intercept/capture/kernels_test: $(call objs,intercept/capture/kernel.c intercept/capture/map.c)

# The part of tallyd that writes metrics down.
$(B)/test/runtime/tallyd/metrics_test: $(call objs,runtime/tallyd/metrics_text.c runtime/tallyd/metrics_whose.c)

# The parts of it that only count memory, and keep texts.
$(B)/test/intercept/memory/account_test: $(call objs,intercept/memory/account.c)
$(B)/test/intercept/doors/store_test: $(call objs,intercept/doors/store.c)

# --- stand-ins -----------------------------------------------------------------------------------------------------

# The compiler service with a stand-in for the translator.
STANDIN := $(B)/test/tally-jit-standin
ALL_SRCS += test/standin/jit.c
$(B)/obj/test/standin/jit.o: EXTRA_CFLAGS = $(LLVM_CFLAGS)
$(STANDIN): $(call objs,test/standin/jit.c $(tally-jit_SRCS)) $(call libs,tally_options tally_service tally_ptx tally_base)
	$(link_it)
$(STANDIN): EXTRA_LIBS = $(LLVM_LIBS) -Wl,--build-id=sha1

# A driver that does nothing, for the tests and for what a launch costs more through the library; and a best-effort part that only
# tells what it is given, once of this build and once of another.
STANDIN_DRIVER := $(B)/test/standin/libcuda.so.1
STANDIN_EFFORT := $(B)/test/standin/effort.so
STANDIN_STRANGER := $(B)/test/standin/stranger.so
# The software device with a fault that a variable names, for the tests of `tally doctor`.
STANDIN_FAULTY := $(B)/test/standin/faulty.so
# The same, which keeps a list of what it was asked for.
STANDIN_WITNESS := $(B)/test/standin/witness.so
STANDIN_FILES := $(if $(CUDA_INCLUDE),$(STANDIN_DRIVER) $(STANDIN_EFFORT) $(STANDIN_STRANGER) $(STANDIN_FAULTY) $(STANDIN_WITNESS))
tests $(call of_room,device/driver/% intercept/% runtime/effort/%): | $(STANDIN_FILES)
ALL_SRCS += test/standin/driver.c test/standin/effort.c test/standin/faulty.c test/standin/witness.c
$(call objs,test/standin/driver.c test/standin/effort.c test/standin/faulty.c test/standin/witness.c): EXTRA_CFLAGS = $(CUDA_FLAGS)
$(B)/obj/test/standin/stranger_id.o: $(B)/obj/.flags
	@mkdir -p $(@D)
	@echo 'const char tl_build_id[] = "a build of somebody else";' | $(COMPILE) -c -x c -o $@ -
$(STANDIN_DRIVER): $(B)/obj/test/standin/driver.o
$(STANDIN_DRIVER): EXTRA_LIBS = -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic
$(STANDIN_EFFORT): $(BUILD_ID)
$(STANDIN_STRANGER): $(B)/obj/test/standin/stranger_id.o
$(STANDIN_EFFORT) $(STANDIN_STRANGER): $(B)/obj/test/standin/effort.o
$(STANDIN_FAULTY): $(B)/obj/test/standin/faulty.o | $(B)/lib/tally/device/libcuda.so.1
$(STANDIN_WITNESS): $(B)/obj/test/standin/witness.o | $(B)/lib/tally/device/libcuda.so.1
$(STANDIN_FAULTY) $(STANDIN_WITNESS): EXTRA_LIBS = -Wl,--no-as-needed -L$(B)/lib/tally/device -l:libcuda.so.1 -Wl,-rpath,'$$ORIGIN/../../lib/tally/device' -ldl
$(STANDIN_DRIVER) $(STANDIN_EFFORT) $(STANDIN_STRANGER) $(STANDIN_FAULTY) $(STANDIN_WITNESS):
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(LINK) -shared $(EXTRA_LIBS) -o $@.new $^
	$(Q)mv $@.new $@

# A client that preempts at random.
$(B)/test/preempter: $(B)/obj/test/standin/preempter.o $(call libs,tally_job tally_base)
	$(link_it)
# A client that polls what those above it tell its kernels.
$(B)/test/poller: $(B)/obj/test/standin/poller.o $(call libs,tally_job tally_base)
	$(link_it)
# Writes records of an invented server and trainer, for the tests of the report and for looking at its page.
$(B)/test/record-sample: $(B)/obj/test/standin/records.o $(call libs,tally_record tally_base)
	$(link_it)
$(B)/test/record-sample: EXTRA_LIBS = -lm
ALL_SRCS += test/standin/preempter.c test/standin/poller.c test/standin/records.c
tests: $(B)/test/preempter $(B)/test/poller $(B)/test/record-sample
# A program that uses NVTX; where NVIDIA's headers of it are.
NVTX_USER := $(if $(CUDA_INCLUDE),$(if $(wildcard $(CUDA_INCLUDE)/nvtx3/nvToolsExt.h),$(B)/test/nvtx-user))
tests: $(NVTX_USER)
$(B)/test/nvtx-user: test/standin/nvtx.c
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(COMPILE) $(CUDA_FLAGS) -o $@ $< $(OUR_LDFLAGS) -ldl

# --- benchmarks ----------------------------------------------------------------------------------------------------

$(B)/bench/launch: test/bench/launch.c
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(COMPILE) $(CUDA_FLAGS) -o $@ $< $(OUR_LDFLAGS) -ldl
$(B)/bench/stalls $(B)/bench/blocks: $(B)/bench/%: test/bench/%.c test/bench/sm.h
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -o $@ $< $(OUR_LDFLAGS)
bench-isolation: $(B)/bench/launch $(B)/test/poller $(B)/bench/stalls $(B)/bench/blocks $(STANDIN_DRIVER)
bench-launch: all $(B)/bench/launch $(B)/test/poller $(STANDIN_DRIVER) $(B)/workloads/jobs/train
	@TALLY_BUILD=$(B) scripts/bench-launch $(BENCH_ARGS)
# What it costs a block in pieces to ask whether it has to leave.
POLLS := $(if $(CUDA_INCLUDE),$(B)/bench/polls)
$(B)/bench/polls: $(B)/obj/test/bench/polls.o $(call libs,tally_ptx tally_base)
	$(link_it)
$(B)/obj/test/bench/polls.o: private OUR_CFLAGS += $(CUDA_FLAGS)
ALL_SRCS += $(if $(CUDA_INCLUDE),test/bench/polls.c)
tests: $(POLLS)
bench-polls: all $(B)/bench/polls
	@mkdir -p $(B)/bench
	@TALLY_DEVICE_NAME=tally-bench-polls TALLY_DEVICE_SMS=1 TALLY_DEVICE_PROFILE=h100-r580 TALLY_DEVICE_PCIE=yes \
	    $(B)/bench/polls $(abspath $(B)/lib/tally/device/libcuda.so.1) | tee $(B)/bench/polls.json
.PHONY: bench-launch bench-polls

# --- the gate ------------------------------------------------------------------------------------------------------

# Compares gated cubins with what ptxas makes of prologue and kernel: some of it in `make test`, all of it here.
GATE_TOOL := $(B)/test/gate-tool
ALL_SRCS += $(wildcard test/gate/*.c)
$(GATE_TOOL): $(call objs,$(wildcard test/gate/*.c)) $(call libs,tally_cubin tally_image tally_ptx tally_base)
	$(link_it)
# test/gate/memory.c counts what the libraries take.
$(GATE_TOOL): EXTRA_LIBS = -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free,--wrap=mmap,--wrap=munmap
tests: $(GATE_TOOL)
# Kernels and their gated forms on a driver, compared byte by byte.
GATE_RUN := $(if $(CUDA_INCLUDE),$(B)/test/gate-run)
ALL_SRCS += $(if $(CUDA_INCLUDE),test/standin/gate_run.c)
$(B)/obj/test/standin/gate_run.o: EXTRA_CFLAGS = $(CUDA_FLAGS)
$(B)/test/gate-run: $(B)/obj/test/standin/gate_run.o $(call libs,tally_cubin tally_image tally_base)
	$(link_it)
$(B)/test/gate-run: EXTRA_LIBS = -ldl
tests: $(GATE_RUN)
# `tally` with an edit left out, for what its doctor says to that.
EDITS_TALLY := $(if $(CUDA_INCLUDE),$(B)/test/tally-edits)
ALL_SRCS += test/standin/edits.c
$(B)/test/tally-edits: $(call objs,test/standin/edits.c $(tally_SRCS)) $(call libs,$(tally_LIBS))
	$(link_it)
$(B)/test/tally-edits: EXTRA_LIBS = -lm -Wl,--wrap=tl_cubin_gate
tests: $(EDITS_TALLY)
test-gate: $(GATE_TOOL)
	@TALLY_BUILD=$(B) scripts/test-gate $(OPTIONS)
bench-gate: $(GATE_TOOL)
	@TALLY_BUILD=$(B) scripts/bench-gate $(BENCH_ARGS)
.PHONY: test-gate bench-gate

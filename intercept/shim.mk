# The interception library: what jobs have preloaded as libcuda.so.1.  It links libc only; its names come from the CUDA headers
# (CUDA_INCLUDE, device/driver.mk), and what it needs of other parts is compiled once more as position-independent code.
SHIM_DIR := $(B)/lib/tally
SHIM_SRCS := $(wildcard intercept/shim_*.c intercept/capture_*.c intercept/high_*.c) \
    $(filter-out intercept/doors_ptxas.c,$(wildcard intercept/doors_*.c))
SHIM_NEEDS := $(SHIM_SRCS) $(wildcard base/*.c runtime/record*.c runtime/settings.c runtime/client*.c runtime/share.c runtime/wire.c) \
    intercept/image_elf.c intercept/image_fatbin.c device/jit_digest.c device/jit_cache.c sched/pattern.c sched/gaps.c
SHIM_OBJS := $(patsubst %.c,$(B)/pic/%.o,$(SHIM_NEEDS)) $(B)/pic/intercept/shim_trampoline.o
SHIM_TABLES := $(addprefix $(B)/gen/,shim_names.inc shim_versions.inc shim.map)

ifneq ($(CUDA_INCLUDE),)
SHIM_FILES := $(SHIM_DIR)/libcuda.so.1
all: $(SHIM_FILES)
endif

$(SHIM_TABLES) &: scripts/gen-shim-table scripts/driver_headers.py
	$(say) GEN $(B)/gen/shim_names.inc
	@mkdir -p $(B)/gen
	$(Q)scripts/gen-shim-table $(CUDA_INCLUDE) $(SHIM_TABLES)
$(patsubst %.c,$(B)/pic/%.o,$(SHIM_SRCS)): EXTRA_CFLAGS = -isystem $(CUDA_INCLUDE) -I$(B)/gen
$(patsubst %.c,$(B)/pic/%.o,$(SHIM_SRCS)) $(B)/pic/intercept/shim_trampoline.o: | $(SHIM_TABLES)
$(B)/pic/%.o: %.S
	$(say) AS $<
	@mkdir -p $(@D)
	$(Q)$(CC) -MMD -MP -I$(B)/gen -c -o $@ $<
# BUILD_ID is made in runtime/effort.mk.
BUILD_ID := $(B)/pic/build_id.o
$(SHIM_DIR)/libcuda.so.1: $(SHIM_OBJS) $(BUILD_ID) $(B)/gen/shim.map
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(LINK) -shared -Wl,-soname,libcuda.so.1 -Wl,--version-script=$(B)/gen/shim.map $(NO_UNDEFINED) -Wl,-z,now \
	    -Wl,-z,nodelete -Wl,-Bsymbolic -o $@.new $(SHIM_OBJS) $(BUILD_ID)
	$(Q)mv $@.new $@
-include $(SHIM_OBJS:.o=.d)

# What NVTX's users name (NVTX_INJECTION64_PATH).
SHIM_NVTX := $(SHIM_DIR)/libtally-nvtx.so
SHIM_FILES += $(SHIM_NVTX)
all: $(SHIM_NVTX)
$(SHIM_NVTX): $(B)/pic/intercept/nvtx.o $(B)/pic/base/version.o
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(LINK) -shared -Wl,-soname,libtally-nvtx.so $(NO_UNDEFINED) -Wl,-z,now -Wl,-z,nodelete -o $@.new $^ -ldl
	$(Q)mv $@.new $@
-include $(B)/pic/intercept/nvtx.d
# A program that uses NVTX, for its test; where NVIDIA's headers of it are.
NVTX_USER := $(if $(CUDA_INCLUDE),$(if $(wildcard $(CUDA_INCLUDE)/nvtx3/nvToolsExt.h),$(B)/test/nvtx-user))
tests: $(NVTX_USER)
$(B)/test/nvtx-user: test/standin/nvtx.c
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(COMPILE) $(CUDA_FLAGS) -o $@ $< $(OUR_LDFLAGS) -ldl

# A driver that does nothing, for the tests and for what a launch costs more through the library; and a best-effort part that only
# tells what it is given, once of this build and once of another.
STANDIN_DRIVER := $(B)/test/standin/libcuda.so.1
STANDIN_EFFORT := $(B)/test/standin/effort.so
STANDIN_STRANGER := $(B)/test/standin/stranger.so
STANDIN_FILES := $(if $(CUDA_INCLUDE),$(STANDIN_DRIVER) $(STANDIN_EFFORT) $(STANDIN_STRANGER))
tests: $(STANDIN_FILES)
$(B)/pic/test/standin/%.o: EXTRA_CFLAGS = -isystem $(CUDA_INCLUDE)
$(STANDIN_DRIVER): $(B)/pic/test/standin/driver.o
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(LINK) -shared -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -o $@.new $^
	$(Q)mv $@.new $@
$(B)/pic/test/standin/stranger_id.o: $(B)/obj/.flags
	@mkdir -p $(@D)
	@echo 'const char tl_build_id[] = "a build of somebody else";' | $(COMPILE) -fPIC -c -x c -o $@ -
$(STANDIN_STRANGER): $(B)/pic/test/standin/stranger_id.o
$(STANDIN_EFFORT): $(BUILD_ID)
$(STANDIN_EFFORT) $(STANDIN_STRANGER): $(B)/pic/test/standin/effort.o
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(LINK) -shared -o $@.new $^
	$(Q)mv $@.new $@
-include $(B)/pic/test/standin/driver.d $(B)/pic/test/standin/effort.d

$(B)/bench/launch: test/bench/launch.c
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(COMPILE) $(CUDA_FLAGS) -o $@ $< $(OUR_LDFLAGS) -ldl

$(B)/bench/stalls $(B)/bench/blocks: $(B)/bench/%: test/bench/%.c test/bench/sm.h
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -o $@ $< $(OUR_LDFLAGS)

# The stand-in for ptxas, where frameworks look for one in a folder of CUDA tools; XLA wants libdevice there too.
SHIM_PTXAS := $(SHIM_DIR)/cuda/bin/ptxas
SHIM_FILES += $(SHIM_PTXAS)
all: $(SHIM_PTXAS)
ALL_SRCS += intercept/doors_ptxas.c intercept/doors_store.c
$(SHIM_PTXAS): $(patsubst %.c,$(B)/obj/%.o,intercept/doors_ptxas.c intercept/doors_store.c device/jit_cache.c device/jit_digest.c \
    $(wildcard base/*.c))
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(LINK) $(HARDEN_PROGRAM) -o $@.new $(filter %.o,$^)
	$(Q)mv $@.new $@
	@libdevice=$(patsubst %/include,%,$(abspath $(CUDA_INCLUDE)))/nvvm/libdevice; \
	    if [ -d "$$libdevice" ]; then mkdir -p $(SHIM_DIR)/cuda/nvvm && ln -sfn "$$libdevice" $(SHIM_DIR)/cuda/nvvm/libdevice; fi

# The library's tests open what was built.
SHIM_TESTS := $(patsubst test/unit/%.c,$(B)/test/%,$(wildcard test/unit/shim_*_test.c))
$(B)/obj/test/unit/shim_%.o: private OUR_CFLAGS += $(CUDA_FLAGS)
$(SHIM_TESTS): | $(SHIM_FILES) $(DRIVER_FILES) $(STANDIN_FILES)
# This one is the driver itself, for the part that knows kernels.
$(B)/obj/test/unit/shim_kernels_test.o: private OUR_CFLAGS += -I$(B)/gen
$(B)/obj/test/unit/shim_kernels_test.o: | $(SHIM_TABLES)
$(B)/test/shim_kernels_test: $(addprefix $(B)/pic/intercept/capture_,kernel.o map.o)

bench-isolation: $(B)/bench/launch $(B)/bench/stalls $(B)/bench/blocks $(STANDIN_DRIVER)
bench-launch: all $(B)/bench/launch $(STANDIN_DRIVER) $(B)/workloads/jobs/train
	@TALLY_BUILD=$(B) scripts/bench-launch $(BENCH_ARGS)
.PHONY: bench-launch

# The best-effort part, opened by the shim in jobs that may have to give way.  It links libc only, with the archives of lz4 and
# zstd; the parts that it needs are compiled as position-independent code.
EFFORT_SRCS := $(wildcard runtime/effort_*.c)
EFFORT_NEEDS := $(EFFORT_SRCS) $(wildcard base/*.c runtime/record*.c runtime/client*.c) \
    $(addprefix runtime/,settings.c share.c wire.c) $(filter-out ptx_rewrite/tool_%.c,$(wildcard ptx_rewrite/*.c)) \
    $(addprefix intercept/image_,elf.c fatbin.c memory.c names.c text.c unpack.c) device/jit_cache.c device/jit_digest.c sched/pattern.c
EFFORT_OBJS := $(patsubst %.c,$(B)/pic/%.o,$(EFFORT_NEEDS))
EFFORT_FILES := $(if $(CUDA_INCLUDE),$(B)/lib/tally/libtally-effort.so)
all: $(EFFORT_FILES)

$(patsubst %.c,$(B)/pic/%.o,$(EFFORT_SRCS)): EXTRA_CFLAGS = -isystem $(CUDA_INCLUDE)
# What tells one build from another: a digest of all that it and the shim are made of.  The two share layouts that no version
# number covers, so they only work with each other (intercept/shim.h).
BUILD_ID_FROM := $(sort $(SHIM_NEEDS) $(EFFORT_NEEDS) $(wildcard include/tally/*.h base/*.h intercept/*.h runtime/*.h sched/*.h \
    ptx_rewrite/*.h device/*.h)) $(B)/obj/.flags
$(BUILD_ID): $(BUILD_ID_FROM)
	$(say) ID $@
	@mkdir -p $(@D)
	@id=$$(cat $(BUILD_ID_FROM) | sha256sum | cut -d' ' -f1) && \
	    echo "const char tl_build_id[] = \"$$id\";" | $(COMPILE) -fPIC -c -x c -o $@ -

$(B)/lib/tally/libtally-effort.so: $(EFFORT_OBJS) $(BUILD_ID)
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(LINK) -shared -Wl,-soname,libtally-effort.so $(NO_UNDEFINED) -Wl,-z,now -Wl,-z,nodelete -Wl,-Bsymbolic \
	    -Wl,--exclude-libs,ALL -o $@.new $(EFFORT_OBJS) $(BUILD_ID) -l:liblz4.a -l:libzstd.a
	$(Q)mv $@.new $@
-include $(EFFORT_OBJS:.o=.d)

# A client that preempts at random, for the tests.
$(B)/test/preempter: $(B)/obj/test/standin/preempter.o $(B)/lib/libtally_client.a $(B)/lib/libtally_base.a
	$(link_it)
ALL_SRCS += test/standin/preempter.c
tests: $(B)/test/preempter

# Programs whose result depends on the order of what they ask for.  They know nothing of Tally.
ORDER_NVCC := $(shell scripts/tool nvcc 2>/dev/null)
ORDER_PROGRAMS := $(if $(ORDER_NVCC),$(patsubst workloads/order/%.cu,$(B)/workloads/order/%,$(wildcard workloads/order/*.cu)))
workloads: $(ORDER_PROGRAMS)
$(B)/workloads/order/%: workloads/order/%.cu workloads/order/order.h
	$(say) NVCC $<
	@mkdir -p $(@D)
	$(Q)$(ORDER_NVCC) -O2 -std=c++17 -gencode arch=compute_90,code=compute_90 -Wno-deprecated-declarations $(ORDER_FLAGS) \
	    -o $@ $< $(ORDER_LIBS)
$(B)/workloads/order/per_thread: ORDER_FLAGS := --default-stream per-thread
# Linked with the software device: not every toolkit has a libcuda.so to link with.
$(B)/workloads/order/memory_words: ORDER_LIBS = -L$(DRIVER_DIR) -lcuda
$(B)/workloads/order/memory_words: | $(DRIVER_FILES)

# All sample programs with each rung forced; a few of them are part of `make test`.
test-force: tests
	@FULL=1 TEST_TIMEOUT=3600 TALLY_BUILD=$(B) test/run test/integration/force_rungs.sh test/integration/effort_order.sh
.PHONY: test-force

# Its tests include its header, and take the files that they are about.
$(B)/obj/test/unit/effort_%.o: private OUR_CFLAGS += $(CUDA_FLAGS)
$(B)/test/effort_store_test: $(B)/pic/runtime/effort_store.o $(B)/pic/runtime/effort_profile.o

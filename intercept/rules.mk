# The interception library: what jobs have preloaded as libcuda.so.1.  It links libc only; its names come from the CUDA headers.
ifneq ($(CUDA_INCLUDE),)
SHARED += libcuda.so.1
libcuda.so.1_SRCS := $(filter-out intercept/doors/ptxas.c,$(foreach r,shim capture memory high doors,$(wildcard intercept/$(r)/*.c)))
libcuda.so.1_OBJS := $(B)/obj/intercept/shim/trampoline.o $(BUILD_ID)
libcuda.so.1_LIBS := tally_record tally_job tally_sched tally_image tally_base
libcuda.so.1_FLAGS := -Wl,--version-script=$(B)/gen/shim.map -Wl,-z,nodelete
endif

SHIM_TABLES := $(addprefix $(B)/gen/,shim_names.inc shim_versions.inc shim.map)
$(SHIM_TABLES) &: scripts/gen-shim-table scripts/driver_headers.py
	$(say) GEN $(B)/gen/shim_names.inc
	@mkdir -p $(B)/gen
	$(Q)scripts/gen-shim-table $(CUDA_INCLUDE) $(SHIM_TABLES)
$(call objs,$(libcuda.so.1_SRCS)): EXTRA_CFLAGS = $(CUDA_FLAGS) -I$(B)/gen
$(call objs,$(libcuda.so.1_SRCS)) $(B)/obj/intercept/shim/trampoline.o: | $(SHIM_TABLES)
$(B)/lib/tally/libcuda.so.1: $(B)/gen/shim.map
$(B)/obj/%.o: %.S
	$(say) AS $<
	@mkdir -p $(@D)
	$(Q)$(CC) -MMD -MP -I$(B)/gen -c -o $@ $<
-include $(B)/obj/intercept/shim/trampoline.d

# What NVTX's users name (NVTX_INJECTION64_PATH).
SHARED += libtally-nvtx.so
libtally-nvtx.so_SRCS := $(wildcard intercept/nvtx/*.c)
libtally-nvtx.so_FLAGS := -Wl,-z,nodelete
libtally-nvtx.so_SYSTEM := -ldl

# The stand-in for ptxas, where frameworks look for one in a folder of CUDA tools; XLA wants libdevice there too.
PTXAS_STANDIN := $(B)/lib/tally/cuda/bin/ptxas
all: $(PTXAS_STANDIN)
ALL_SRCS += intercept/doors/ptxas.c
$(PTXAS_STANDIN): $(call objs,intercept/doors/ptxas.c intercept/doors/store.c base/version.c) $(call libs,tally_image tally_base)
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(LINK) $(HARDEN_PROGRAM) -o $@.new $(filter %.o %.a,$^)
	$(Q)mv $@.new $@
	@libdevice=$(patsubst %/include,%,$(abspath $(CUDA_INCLUDE)))/nvvm/libdevice; \
	    if [ -d "$$libdevice" ]; then mkdir -p $(B)/lib/tally/cuda/nvvm && ln -sfn "$$libdevice" $(B)/lib/tally/cuda/nvvm/libdevice; fi

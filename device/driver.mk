# The driver: libcuda.so.1, which links libc only.  Everything in it is compiled once more as position-independent code;
# of the image library it takes what needs no libelf, and lz4 and zstd come in as archives.
comma := ,
DRIVER_DIR := $(B)/lib/tally/device
DRIVER_SRCS := $(wildcard device/driver_*.c)
DRIVER_NEEDS := $(DRIVER_SRCS) $(tally_exec_SRCS) $(tally_jit_client_SRCS) $(wildcard base/*.c) \
    $(filter-out ptx_rewrite/tool_%.c,$(wildcard ptx_rewrite/*.c)) \
    $(addprefix intercept/image_,elf.c fatbin.c memory.c names.c text.c unpack.c)
DRIVER_OBJS := $(patsubst %.c,$(B)/pic/%.o,$(DRIVER_NEEDS))
DRIVER_OWN_OBJS := $(patsubst %.c,$(B)/pic/%.o,$(DRIVER_SRCS))
DRIVER_TABLE := $(B)/gen/driver_table.c
# A sanitizer's run-time library is in the program, not in what it opens.
NO_UNDEFINED := $(if $(findstring -fsanitize,$(OUR_CFLAGS) $(CFLAGS)),,-Wl$(comma)-z$(comma)defs)

# The CUDA headers: those that scripts/setup fetched because the machine had none that work, or the toolkit's.
CUDA_INCLUDE ?= $(firstword $(patsubst %/cudaTypedefs.h,%,$(wildcard $(addsuffix /cudaTypedefs.h,$(DEPS)/tools/cuda/include \
    $(CUDA_HOME)/include /usr/local/cuda/include /usr/include))))
CUDA_FLAGS := $(addprefix -isystem ,$(CUDA_INCLUDE))
ifneq ($(CUDA_INCLUDE),)
DRIVER_FILES := $(DRIVER_DIR)/libcuda.so.1 $(DRIVER_DIR)/libnvidia-ml.so.1
all: $(DRIVER_FILES)
endif

$(B)/pic/device/driver_%.o $(B)/pic/gen/%.o: EXTRA_CFLAGS = -isystem $(CUDA_INCLUDE)
$(B)/pic/gen/%.o: EXTRA_CFLAGS += -Wno-unused-parameter -Wno-deprecated-declarations
$(B)/pic/%.o: %.c $(B)/obj/.flags
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -fPIC -MMD -MP -c -o $@ $<
$(B)/pic/gen/driver_table.o: $(DRIVER_TABLE)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -fPIC -MMD -MP -c -o $@ $<
$(DRIVER_TABLE): $(DRIVER_OWN_OBJS) scripts/gen-driver-table scripts/driver_headers.py
	$(say) GEN $@
	@mkdir -p $(@D)
	$(Q)nm --defined-only -g $(DRIVER_OWN_OBJS) | awk '$$2 == "T" && $$3 ~ /^cu[A-Z]/ {print $$3}' | sort -u >$@.names
	$(Q)scripts/gen-driver-table $(CUDA_INCLUDE) $@.names $@ $(B)/gen/driver.map
$(DRIVER_DIR)/libcuda.so.1: $(DRIVER_OBJS) $(B)/pic/gen/driver_table.o
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(LINK) -shared -Wl,-soname,libcuda.so.1 -Wl,--version-script=$(B)/gen/driver.map $(NO_UNDEFINED) -Wl,-z,now \
	    -Wl,-Bsymbolic -Wl,--exclude-libs,ALL -o $@.new $^ -l:liblz4.a -l:libzstd.a -ldl -lm
	$(Q)mv $@.new $@
	@ln -sf libcuda.so.1 $(@D)/libcuda.so
$(DRIVER_DIR)/libnvidia-ml.so.1: $(B)/pic/device/nvml.o $(B)/pic/base/version.o
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(LINK) -shared -Wl,-soname,libnvidia-ml.so.1 $(NO_UNDEFINED) -Wl,-z,now -o $@ $^
-include $(DRIVER_OBJS:.o=.d) $(B)/pic/gen/driver_table.d $(B)/pic/device/nvml.d

# The driver's tests open the library that was built; they include its header.
$(B)/obj/test/unit/driver_%.o: private OUR_CFLAGS += $(CUDA_FLAGS)
$(patsubst test/unit/%.c,$(B)/test/%,$(wildcard test/unit/driver_*_test.c)): | $(DRIVER_FILES)
ifneq ($(CUDA_INCLUDE),)
# Fetches come from kernels: this one calls them directly, so it has the driver in itself.
$(B)/test/driver_texture_test: $(DRIVER_OBJS) $(B)/pic/gen/driver_table.o
$(B)/test/driver_texture_test: EXTRA_LIBS = -lm
endif

# The driver of the software device: a libcuda.so.1 that links libc only, with the archives of lz4 and zstd.
ifneq ($(CUDA_INCLUDE),)
SHARED += device/libcuda.so.1
device/libcuda.so.1_OBJS := $(B)/obj/gen/driver_inside.o $(B)/obj/gen/driver_exports.o
device/libcuda.so.1_LIBS := tally_exec tally_service tally_ptx tally_cubin tally_image tally_base
device/libcuda.so.1_FLAGS := -Wl,--version-script=$(B)/gen/driver.map
device/libcuda.so.1_SYSTEM := -l:liblz4.a -l:libzstd.a -ldl -lm
endif
DRIVER_SRCS := $(if $(CUDA_INCLUDE),$(wildcard device/driver/*.c))
DRIVER_OBJS := $(call objs,$(DRIVER_SRCS))
ALL_SRCS += $(DRIVER_SRCS)
$(DRIVER_OBJS) $(B)/obj/gen/driver_table.o: EXTRA_CFLAGS = $(CUDA_FLAGS)

# The table of its functions: those that the CUDA headers know, with those that are written here.
DRIVER_TABLE := $(B)/gen/driver_table.c
$(B)/obj/gen/driver_table.o: EXTRA_CFLAGS += -Wno-unused-parameter -Wno-deprecated-declarations
$(B)/obj/gen/driver_table.o: $(DRIVER_TABLE)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -MMD -MP -c -o $@ $<
DRIVER_EXPORTS := $(B)/gen/driver_exports.c
$(DRIVER_TABLE): $(DRIVER_OBJS) scripts/gen-driver-table scripts/driver_headers.py
	$(say) GEN $@
	@mkdir -p $(@D)
	$(Q)nm --defined-only -g $(DRIVER_OBJS) | awk '$$2 == "T" && $$3 ~ /^cu[A-Z]/ {print $$3}' | sort -u >$@.names
	$(Q)scripts/gen-driver-table $(CUDA_INCLUDE) $@.names $@ $(B)/gen/driver.map $(DRIVER_EXPORTS) $(B)/gen/driver.renamed
# Its functions have other names inside: what is exported under theirs is decided when it is looked up, by the profile.
$(B)/obj/gen/driver_inside.o: $(DRIVER_OBJS) $(B)/obj/gen/driver_table.o
	$(Q)$(LD) -r -o $@.new $^
	$(Q)objcopy --redefine-syms=$(B)/gen/driver.renamed $@.new $@
	@rm -f $@.new
# The dynamic linker calls what is in here, perhaps before a sanitizer is there.
$(B)/obj/gen/driver_exports.o: $(DRIVER_TABLE) device/driver/profile.h
	$(Q)$(COMPILE) -fno-sanitize=all -Wno-missing-prototypes -c -o $@ $(DRIVER_EXPORTS)
# For those who link with -lcuda.
$(B)/lib/tally/device/libcuda.so: | $(B)/lib/tally/device/libcuda.so.1
	@ln -sf libcuda.so.1 $@
all: $(if $(CUDA_INCLUDE),$(B)/lib/tally/device/libcuda.so)
-include $(B)/obj/gen/driver_table.d

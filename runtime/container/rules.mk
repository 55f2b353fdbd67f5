# What `tally cdi generate` puts into containers beside the programs: a library that begins programs again under tally-run, the file
# that names it (where it is in containers), and a check that runs before anything else there.
CONTAINER_PREFIX := /opt/tally
CONTAINER_CHECK := $(B)/lib/tally/container-check
CONTAINER_PRELOAD := $(B)/lib/tally/ld.so.preload

SHARED += libtally-entry.so
libtally-entry.so_SRCS := runtime/container/entry.c

# Static, since it has to run where the libc is another one; sanitizers do not go with that.
all: $(CONTAINER_PRELOAD) $(if $(filter san tsan fuzz,$(FLAVOUR)),,$(CONTAINER_CHECK))
ALL_SRCS += runtime/container/check.c
$(CONTAINER_PRELOAD): runtime/container/rules.mk
	@mkdir -p $(@D)
	@echo $(CONTAINER_PREFIX)/lib/tally/libtally-entry.so >$@

# What must be loaded there tells how new a libc must be.
CONTAINER_NEEDS := $(B)/bin/tally-run $(if $(CUDA_INCLUDE),$(addprefix $(B)/lib/tally/,libcuda.so.1 libtally-effort.so libtally-nvtx.so))
$(B)/gen/needs_glibc.h: $(CONTAINER_NEEDS)
	@mkdir -p $(@D)
	@version=$$(readelf -VW $^ | grep -oE 'GLIBC_2[0-9.]*' | sort -uV | tail -n 1) && \
	    echo "#define NEEDS_GLIBC \"$${version:?}\"" | cmp -s - $@ || echo "#define NEEDS_GLIBC \"$$version\"" >$@
$(call objs,runtime/container/check.c): EXTRA_CFLAGS = -I$(B)/gen
$(call objs,runtime/container/check.c): $(B)/gen/needs_glibc.h

$(CONTAINER_CHECK): $(call objs,runtime/container/check.c)
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(LINK) -static-pie -o $@.new $^
	$(Q)mv $@.new $@

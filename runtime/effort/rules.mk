# The best-effort part, opened by the shim in jobs that may have to give way.  It links libc only, with the archives of lz4 and zstd.
LIBRARIES += tally_effort
tally_effort_SRCS := $(if $(CUDA_INCLUDE),$(wildcard runtime/effort/*.c))
ifneq ($(CUDA_INCLUDE),)
SHARED += libtally-effort.so
libtally-effort.so_SRCS := $(tally_effort_SRCS)
libtally-effort.so_OBJS := $(BUILD_ID)
libtally-effort.so_LIBS := tally_record tally_job tally_sched tally_cubin tally_ptx tally_image tally_base
libtally-effort.so_FLAGS := -Wl,-z,nodelete
libtally-effort.so_SYSTEM := -l:liblz4.a -l:libzstd.a
endif
$(call objs,$(tally_effort_SRCS)): EXTRA_CFLAGS = $(CUDA_FLAGS)

# All sample programs with each rung forced; a few of them are part of `make test`.
test-force: tests code-workloads
	@FULL=1 TEST_TIMEOUT=3600 TALLY_BUILD=$(B) test/run test/integration/force_rungs.sh test/integration/effort_order.sh test/integration/effort_gate.sh
# The same and more on every profile of the software device; two of them are part of `make test`.
test-profiles: tests
	@FULL=1 PROFILES="a100-r535 rtx4090-r550 h100-r550 h100-r580 b200-r580" TEST_TIMEOUT=3600 TALLY_BUILD=$(B) \
	    test/run test/integration/profiles.sh test/integration/doctor.sh
.PHONY: test-force test-profiles

# The software CUDA device.
#
# The translator is the only thing that includes LLVM's headers and, with the compiler service, the only one that links
# it; what the driver needs of the compiler service (cache, client) is libc only.
LIBRARIES += tally_jit tally_jit_client
tally_jit_SRCS := $(wildcard device/jit/*.c)
tally_jit_client_SRCS := $(wildcard $(addprefix device/jit_,link.c cache.c client.c digest.c progress.c refusals.c wire.c))

# Running compiled kernels: workers, fibers, the shared device.  libc only.
LIBRARIES += tally_exec
tally_exec_SRCS := $(wildcard device/exec_*.c)

# Asked once, and only if something of LLVM is built: by then scripts/setup has brought it.
LLVM_CONFIG ?= llvm-config-19
LLVM_CFLAGS = $(eval LLVM_CFLAGS := -isystem $(shell $(LLVM_CONFIG) --includedir))$(LLVM_CFLAGS)
ifeq ($(FLAVOUR),portable)
# What the translator uses of it, and the C++ library, as archives.
LLVM_LIBS = $(eval LLVM_LIBS := $(shell $(LLVM_CONFIG) --link-static --ldflags --libs x86 passes) -static-libgcc \
    -Wl,--gc-sections -Wl,-Bstatic -lstdc++ -Wl,-Bdynamic -lm)$(LLVM_LIBS)
else
LLVM_LIBS = $(eval LLVM_LIBS := $(shell $(LLVM_CONFIG) --ldflags --libs))$(LLVM_LIBS)
endif
$(B)/obj/device/jit/%.o: EXTRA_CFLAGS = $(LLVM_CFLAGS)
$(B)/test/jit_%_test: EXTRA_LIBS = $(LLVM_LIBS)

# The compiler service.  Its build id is part of every key of the cache, so that a changed translator compiles anew.
PROGRAMS += tally-jit
SERVICE_SRCS := $(wildcard $(addprefix device/jit_,service.c server.c worker.c sandbox.c))
tally-jit_SRCS := $(SERVICE_SRCS)
$(B)/obj/device/jit_service.o: EXTRA_CFLAGS = -DTL_LLVM_VERSION='"$(shell $(LLVM_CONFIG) --version)"'
tally-jit_LIBS := tally_options tally_jit tally_jit_client tally_ptx tally_base
$(B)/bin/tally-jit: EXTRA_LIBS = $(LLVM_LIBS) -Wl,--build-id=sha1
# The same with a stand-in for the translator, for the tests of the service.
STANDIN := $(B)/test/tally-jit-standin
$(STANDIN): EXTRA_LIBS = $(LLVM_LIBS) -Wl,--build-id=sha1
$(B)/obj/test/standin/%.o: EXTRA_CFLAGS = $(LLVM_CFLAGS)

# The driver library itself.
include device/driver.mk

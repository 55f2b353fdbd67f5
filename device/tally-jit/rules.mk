# The compiler service.  Its build id is part of every key of the cache, so that a changed translator compiles anew.
PROGRAMS += tally-jit
tally-jit_SRCS := $(wildcard device/tally-jit/*.c)
tally-jit_LIBS := tally_options tally_jit tally_service tally_ptx tally_base
$(B)/obj/device/tally-jit/main.o: EXTRA_CFLAGS = -DTL_LLVM_VERSION='"$(shell $(LLVM_CONFIG) --version)"'
$(B)/bin/tally-jit: EXTRA_LIBS = $(LLVM_LIBS) -Wl,--build-id=sha1

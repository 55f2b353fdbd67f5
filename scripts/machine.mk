# What this machine has, asked once scripts/setup has brought what was missing.

# The CUDA headers: those that scripts/setup fetched because the machine had none that work, or the toolkit's.
CUDA_INCLUDE ?= $(firstword $(patsubst %/cudaTypedefs.h,%,$(wildcard $(addsuffix /cudaTypedefs.h,$(DEPS)/tools/cuda/include \
    $(CUDA_HOME)/include /usr/local/cuda/include /usr/include))))
CUDA_FLAGS := $(addprefix -isystem ,$(CUDA_INCLUDE))
# Empty if there is none; what it would compile is then left out, and tests that need that are skipped.
NVCC := $(shell scripts/tool nvcc 2>/dev/null)

# Asked only if something of LLVM is built.
LLVM_CONFIG ?= llvm-config-19
LLVM_CFLAGS = $(eval LLVM_CFLAGS := -isystem $(shell $(LLVM_CONFIG) --includedir))$(LLVM_CFLAGS)
ifeq ($(FLAVOUR),portable)
# What the translator uses of it, and the C++ library, as archives.
LLVM_LIBS = $(eval LLVM_LIBS := $(shell $(LLVM_CONFIG) --link-static --ldflags --libs x86 passes) -static-libgcc \
    -Wl,--gc-sections -Wl,-Bstatic -lstdc++ -Wl,-Bdynamic -lm)$(LLVM_LIBS)
else
LLVM_LIBS = $(eval LLVM_LIBS := $(shell $(LLVM_CONFIG) --ldflags --libs))$(LLVM_LIBS)
endif

# The translator from PTX to the CPU's code: with tally-jit, which has it inside, all that knows of LLVM.
LIBRARIES += tally_jit
tally_jit_SRCS := $(wildcard device/jit/*.c)
$(B)/obj/device/jit/%.o: EXTRA_CFLAGS = $(LLVM_CFLAGS)

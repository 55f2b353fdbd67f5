# The gate: kernels without PTX, stoppable between blocks.  tool_*.c are programs' main files and stay out of the library.
LIBRARIES += tally_cubin
tally_cubin_SRCS := $(filter-out cubin/tool_%.c,$(wildcard cubin/*.c))

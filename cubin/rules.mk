# The gate: kernels without PTX, stoppable between blocks.  tool_*.c are programs' main files and stay out of the library.
LIBRARIES += tally_cubin
tally_cubin_SRCS := $(filter-out cubin/tool_%.c,$(wildcard cubin/*.c))

PROGRAMS += cubin-gate
cubin-gate_SRCS := $(wildcard cubin/tool_gate.c)
cubin-gate_LIBS := tally_options tally_cubin tally_image tally_base

# The PTX library, and the tool over it: tool_*.c are programs' main files and stay out of the library.
LIBRARIES += tally_ptx
tally_ptx_SRCS := $(filter-out ptx_rewrite/tool_%.c,$(wildcard ptx_rewrite/*.c))

PROGRAMS += ptx-rewrite
ptx-rewrite_SRCS := $(wildcard ptx_rewrite/tool_rewrite.c)
ptx-rewrite_LIBS := tally_options tally_ptx tally_base

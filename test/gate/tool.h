/* What the files of gate-tool share. */
#ifndef TALLY_TEST_GATE_TOOL_H
#define TALLY_TEST_GATE_TOOL_H

#include "tally/cubin.h"

_Noreturn void gate_tool_die(const char *what);
/* The whole of a file, the caller's to free. */
char *gate_tool_read(const char *path, size_t *n);

/* Gates all that sm_<arch> would load of a library, and prints what it took. */
void gate_tool_measure(struct tl_cubin_gates *gates, const char *arch, const char *path,
                       bool is_twin);

#endif

/* What the files of gate-tool share. */
#ifndef TALLY_TEST_GATE_TOOL_H
#define TALLY_TEST_GATE_TOOL_H

#include "tally/cubin.h"

_Noreturn void gate_tool_die(const char *what);
/* The whole of a file, the caller's to free. */
char *gate_tool_read(const char *path, size_t *n);

/* Gates all that sm_<arch> would load of these files, and prints what it took. */
void gate_tool_measure(struct tl_cubin_gates *gates, const char *arch, char *const *paths,
                       int n_paths, bool is_twin);

/* Prints which attributes the kernels of these files have. */
void gate_tool_ids(char *const *paths, int n_paths);

/* Begins to count memory; the most that there was since. */
void gate_tool_count_memory(void);
size_t gate_tool_most_memory(void);
/* The most memory that the system had given to this process at any time, as it counts it. */
uint64_t gate_tool_held(void);

#endif

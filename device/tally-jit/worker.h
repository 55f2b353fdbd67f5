/* Compiling one kernel, and the process that does it for the service. */
#ifndef TALLY_DEVICE_TALLY_JIT_WORKER_H
#define TALLY_DEVICE_TALLY_JIT_WORKER_H

#include "device/jit/jit.h"
#include "device/jit/shelf.h"
#include "tally/base.h"

/* PTX to a shared object for dlopen, in this process (tl_jit_init has been called).  If the module
 * has other entries, the kernel is taken out first.  *object (and *ir, if options->keep_ir) are the
 * caller's to free.  0, else as tl_jit_compile and tl_jit_link. */
int tl_jit_build(const char *ptx, size_t n, const char *kernel,
                 const struct tl_jit_options *options, void **object, size_t *object_n, char **ir,
                 struct tl_error *err);

/* The life of a worker: takes requests from the socket and answers them, until it closes.
 * Everything else that the process holds is closed, and its memory and time are limited.  What LLVM
 * says to people goes to `log`.  Forms of quick versions are those of the shelf as well (NULL:
 * there is none); new ones are told before the answer. */
_Noreturn void tl_jit_worker_run(int socket, int log, const char *compiler_id,
                                 const struct tl_shelf *shelf);

/* Whether workers can be kept apart: tries it in a process of its own.  0, or a negative errno
 * value with what people should know. */
int tl_jit_worker_probe(struct tl_error *err);

/* Limits of one request; the environment may change them (TALLY_JIT_SECONDS,
 * TALLY_JIT_MEMORY_MB). */
/* of CPU time; 120 */
uint32_t tl_jit_limit_seconds(void);
/* of CPU time for the first attempt at PTX of that length: LLVM has ways that it never comes back
 * from, and another attempt goes another way (tl_jit_options.is_least); 16 for a small kernel, 56
 * for one of a million bytes */
uint32_t tl_jit_first_seconds(uint64_t ptx_bytes);
/* of address space; 4096 */
uint32_t tl_jit_limit_memory_mb(void);
/* from the environment */
uint32_t tl_jit_number(const char *variable, uint32_t otherwise, uint32_t most);

#endif

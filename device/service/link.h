/* A linker for one object: what LLVM emits in, a shared object that plain dlopen takes out.
 *
 * The job that runs a kernel must map it without LLVM, without a linker and without relocations, so
 * that all processes share the same pages.  The input is a relocatable x86-64 ELF object of
 * position-independent code (small code model) that refers to nothing outside itself; the output
 * has code and constants in one read-execute segment, every relocation resolved, and no dynamic
 * ones. */
#ifndef TALLY_DEVICE_SERVICE_LINK_H
#define TALLY_DEVICE_SERVICE_LINK_H

#include "tally/base.h"

/* Exports tally_info and tally_warp, tally_blocks or both; the object must define what it exports
 * (see device/abi.h). perf and gdb know the code by the kernel's name (with .warp, .blocks, _rest
 * for its parts).  *out is the caller's to free.  tally_info gets `stack_bytes` filled in, which
 * only the code generator knew.  0, -EINVAL (not such an object), -ENOTSUP (an undefined symbol, a
 * relocation that cannot be resolved here, writable data: the message names it), -ENOENT (an export
 * is missing), -EFBIG (over 1 GiB), -ENOMEM. */
int tl_jit_link(const void *object, size_t n, const char *kernel, uint32_t stack_bytes, void **out,
                size_t *out_n, struct tl_error *err);

#endif

/* What a compiled kernel is called in the store: a digest of everything that it depends on.  libc
 * only. */
#ifndef TALLY_DEVICE_SERVICE_KEY_H
#define TALLY_DEVICE_SERVICE_KEY_H

#include "tally/store.h"

/* What a compiled kernel depends on, besides the machine that it is compiled on. */
struct tl_jit_source {
    const char *ptx;
    size_t ptx_n;
    const char *kernel;
    uint32_t block[3];
    bool is_quick;              /* in little time, for code that is slower */
    const char *cpu, *features; /* NULL: this machine's */
    const char *compiler;       /* identifies the compiler and its LLVM, see tl_jit_compiler_id */
};

/* Without cpu and features, what this machine's CPUID tells goes in: LLVM's names for it are made
 * from nothing else. */
struct tl_store_key tl_jit_key_of(const struct tl_jit_source *s);

#endif

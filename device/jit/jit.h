/* PTX to machine code: what the compiler service calls.  Everything LLVM stays behind this
 * header. */
#ifndef TALLY_DEVICE_JIT_JIT_H
#define TALLY_DEVICE_JIT_JIT_H

#include "tally/base.h"

struct tl_jit_options {
    uint32_t block[3]; /* compile for this block size */
    const char *cpu;   /* NULL: the host's */
    /* LLVM feature string; NULL: the host's.  "avx2" path: give +avx2,+fma,+f16c,-avx512f */
    const char *features;
    bool is_plain; /* as if the CPU had no AVX-512: another way through LLVM, with equal results */
    /* as little of LLVM as possible, for kernels that it does not come back from: no optimiser, no
     * choice of registers, small pieces.  Slower code, with equal results */
    bool is_least;
    /* in little time, for kernels that may run only once or twice: instructions as calls of
     * functions that are kept in the process (quick.c).  Slower code, with equal results, but for
     * which NaN it is */
    bool is_quick;
    bool is_large; /* treat the kernel as a large one, see outline.c; for tests */
    bool keep_ir;  /* put LLVM's text form into `ir`, for people */
};

struct tl_jit_object {
    void *bytes; /* a relocatable ELF object, malloc'ed */
    size_t n;
    uint32_t stack_bytes; /* frames of all its functions together, for tl_dev_info */
    char *ir;             /* with keep_ir, malloc'ed */
};

/* Once per process, before anything else; thread-safe. */
int tl_jit_init(struct tl_error *err);

/* Compiles the entry `name` of a PTX module (as made by tl_ptx_extract), or else its only one.  0,
 * -EINVAL (syntax), -ENOTSUP (an instruction that is not implemented: the message names kernel,
 * line and instruction), -ENOMEM, -E2BIG (it needs more than TL_DEV_MAX_STACK), -EIO (LLVM refused:
 * its message). */
int tl_jit_compile(const char *text, size_t n, const char *name,
                   const struct tl_jit_options *options, struct tl_jit_object *out,
                   struct tl_error *err);
void tl_jit_object_finish(struct tl_jit_object *o);

/* The host's CPU name and features, for cache keys; valid after tl_jit_init. */
const char *tl_jit_host_cpu(void);
const char *tl_jit_host_features(void);

#endif

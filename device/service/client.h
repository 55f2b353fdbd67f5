/* The driver's side of the compiler service: PTX in, path of a shared object for dlopen out.
 *
 * Looks into the cache first; only what is not there is asked of the service, which is started if
 * none answers. Thread-safe, libc only; leaves no descriptor, child or signal to the job that it
 * runs in. */
#ifndef TALLY_DEVICE_SERVICE_CLIENT_H
#define TALLY_DEVICE_SERVICE_CLIENT_H

#include "tally/base.h"

/* `ptx` should be the kernel alone, as tl_ptx_extract makes it: all of it is hashed.  Other entries
 * in it are left aside.
 *
 * Returns 0 with the path; the object is opened at once, before the cache may remove it (if that
 * fails with ENOENT: ask again).  When the cache cannot be used (no folder, full disk), the path
 * names a descriptor of this process that stays open, and the first time err->text tells why, with
 * err->code 0; else err->text is empty.
 *
 * -EINVAL (syntax), -ENOTSUP (an instruction that is not implemented), -ENOMEM, -EIO (the compiler
 * refused or died; the message names the kernel), -E2BIG (over 64 MiB), -ENAMETOOLONG, or what kept
 * the service from starting.  What the compiler has refused once is refused again without asking
 * it.
 *
 * Environment: TALLY_JIT (the service's program), TALLY_CACHE, TALLY_CACHE_MB, TALLY_JIT_CPU and
 * TALLY_JIT_FEATURES (compile for another CPU than the host's, in LLVM's words). */
int tl_jit_client_get(const char *ptx, size_t n, const char *kernel, const uint32_t block[3],
                      char *path, size_t path_n, struct tl_error *err);

/* The same for who would rather begin soon: if the kernel is in no cache, a version that is
 * compiled quickly, whose code is slower and gives equal results; *is_quick tells. */
int tl_jit_client_get_soon(const char *ptx, size_t n, const char *kernel, const uint32_t block[3],
                           char *path, size_t path_n, bool *is_quick, struct tl_error *err);
/* For who has a quick version: has the other one compiled, after everything that others want.  0,
 * -ENOENT (there is no cache in which it would be found), another negative errno value. */
int tl_jit_client_improve(const char *ptx, size_t n, const char *kernel, const uint32_t block[3]);
/* Whether it is there: 0 with its path, else -ENOENT or another negative errno value. */
int tl_jit_client_improved(const char *ptx, size_t n, const char *kernel, const uint32_t block[3],
                           char *path, size_t path_n);

/* Has the kernel compiled in the background, if it is in no cache: whoever asks for it soon will
 * wait less.  Says nothing; waits for nothing but the service's start, if it does not run yet. */
void tl_jit_client_prefetch(const char *ptx, size_t n, const char *kernel, const uint32_t block[3]);

#endif

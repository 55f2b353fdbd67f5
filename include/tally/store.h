/* Compiled kernels on disk: shared by all processes of a user, filled by the compiler service, read
 * by the driver.
 *
 * An entry is a shared object with a trailer behind it, named by the digest of everything that it
 * depends on. Entries are written under another name and renamed, so a reader sees whole ones; the
 * trailer tells entries that a crash or a full disk cut, and files of others.  Nothing is ever
 * changed in place.  libc only. */
#ifndef TALLY_STORE_H
#define TALLY_STORE_H

#include "include/tally/digest.h"
#include "tally/base.h"

#define TL_JIT_CACHE_DEFAULT_MB 2048u
#define TL_JIT_CACHE_PATH 1024 /* bytes of a folder's path at most */

/* --- keys ------------------------------------------------------------------------------------- */

/* What a compiled kernel depends on, besides the machine that it is compiled on. */
struct tl_jit_source {
    const char *ptx;
    size_t ptx_n;
    const char *kernel;
    uint32_t block[3];
    const char *cpu, *features; /* NULL: this machine's */
    const char *compiler;       /* identifies the compiler and its LLVM, see tl_jit_compiler_id */
};

struct tl_jit_key {
    uint8_t bytes[TL_JIT_DIGEST_BYTES];
};

/* Without cpu and features, what this machine's CPUID tells goes in: LLVM's names for it are made
 * from nothing else. */
struct tl_jit_key tl_jit_key_of(const struct tl_jit_source *s);

/* --- the cache -------------------------------------------------------------------------------- */

/* One open folder; belongs to one thread at a time. */
struct tl_jit_cache {
    int dir; /* its descriptor */
    uint64_t limit_bytes;
    uint64_t unchecked_bytes; /* stored since the sizes were last summed up */
    bool was_checked;
    char path[TL_JIT_CACHE_PATH];
};

/* What the environment asks for: TALLY_CACHE, else XDG_CACHE_HOME/tally, else HOME/.cache/tally.
 * 0, -ENOENT (none is set), -ENAMETOOLONG. */
int tl_jit_cache_folder(char path[TL_JIT_CACHE_PATH], struct tl_error *err);
uint32_t tl_jit_cache_limit_mb(void); /* TALLY_CACHE_MB */

/* Makes the folder if need be (mode 0700).  0, -EPERM (it belongs to somebody else, or others may
 * write to it), another negative errno value. */
int tl_jit_cache_open(struct tl_jit_cache *c, const char *path, uint32_t limit_mb,
                      struct tl_error *err);
void tl_jit_cache_close(struct tl_jit_cache *c);

/* Checks the entry's trailer and contents, marks it as used and tells its path.  0, -ENOENT,
 * -EBADMSG (it was damaged and is removed), -ENAMETOOLONG, another negative errno value.  Another
 * process may remove the entry at any time, if the cache is full: whoever then cannot open the path
 * asks again. */
int tl_jit_cache_find(struct tl_jit_cache *c, const struct tl_jit_key *key, char *path,
                      size_t path_n);

/* Whether there is an entry of that name, looked into or marked as little as possible. */
bool tl_jit_cache_has(const struct tl_jit_cache *c, const struct tl_jit_key *key);

/* Stores an object, then removes the least recently used ones while there is more than the limit.
 * 0, or a negative errno value (-ENOSPC, -EDQUOT, -EFBIG, ...) with nothing changed. */
int tl_jit_cache_store(struct tl_jit_cache *c, const struct tl_jit_key *key, const void *object,
                       size_t n, char *path, size_t path_n, struct tl_error *err);

#endif

/* Things on disk that were costly to make (compiled kernels, rewritten ones), shared by all
 * processes of a user.
 *
 * An entry is a file with a trailer behind its contents, named by a key: the digest of everything
 * that it depends on, since a name that two things could share would hand one out for the other.
 * Entries are written under another name and renamed, so a reader sees whole ones; the
 * trailer tells entries that a crash or a full disk cut, and files of others.  Nothing is ever
 * changed in place.  libc only. */
#ifndef TALLY_STORE_H
#define TALLY_STORE_H

#include "tally/base.h"
#include "tally/digest.h"

#define TL_STORE_DEFAULT_MB 2048u
#define TL_STORE_PATH 1024 /* bytes of a folder's path at most */

struct tl_store_key {
    uint8_t bytes[TL_DIGEST_BYTES];
};

/* One open folder; belongs to one thread at a time. */
struct tl_store {
    int dir; /* its descriptor */
    uint64_t limit_bytes;
    uint64_t unchecked_bytes; /* stored since the sizes were last summed up */
    bool was_checked;
    char path[TL_STORE_PATH];
};

/* What the environment asks for: TALLY_CACHE, else XDG_CACHE_HOME/tally, else HOME/.cache/tally.
 * 0, -ENOENT (none is set), -ENAMETOOLONG. */
int tl_store_folder(char path[TL_STORE_PATH], struct tl_error *err);
uint32_t tl_store_limit_mb(void); /* TALLY_CACHE_MB */

/* Makes the folder if need be (mode 0700).  0, -EPERM (it belongs to somebody else, or others may
 * write to it), another negative errno value. */
int tl_store_open(struct tl_store *c, const char *path, uint32_t limit_mb, struct tl_error *err);
void tl_store_close(struct tl_store *c);

/* Checks the entry's trailer and contents, marks it as used and tells its path.  0, -ENOENT,
 * -EBADMSG (it was damaged and is removed), -ENAMETOOLONG, another negative errno value.  Another
 * process may remove the entry at any time, if the cache is full: whoever then cannot open the path
 * asks again. */
int tl_store_find(struct tl_store *c, const struct tl_store_key *key, char *path, size_t path_n);

/* The same for who wants the object itself: these are the very bytes that were checked, whoever
 * puts what under that path meanwhile.  The caller's to free, with a 0 behind its `*n` bytes; on
 * failure NULL and 0.  Also -EFBIG (more than `limit`), -ENOMEM. */
int tl_store_read(struct tl_store *c, const struct tl_store_key *key, size_t limit, char **bytes,
                  size_t *n);

/* Whether there is an entry of that name, looked into or marked as little as possible. */
bool tl_store_has(const struct tl_store *c, const struct tl_store_key *key);

/* Stores an object, then removes the least recently used ones while there is more than the limit.
 * 0, or a negative errno value (-ENOSPC, -EDQUOT, -EFBIG, ...) with nothing changed. */
int tl_store_put(struct tl_store *c, const struct tl_store_key *key, const void *object, size_t n,
                 char *path, size_t path_n, struct tl_error *err);

#endif

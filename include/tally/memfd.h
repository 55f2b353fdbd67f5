/* Memory that processes hand to each other as a file: nobody can make it shorter, so whoever maps
 * all of it can use all of it, whatever the others do.  libc only. */
#ifndef TALLY_MEMFD_H
#define TALLY_MEMFD_H

#include <stdbool.h>
#include <stdint.h>

/* Zeroes of exactly that size, for good.  A descriptor, -EFBIG (RLIMIT_FSIZE, which counts such
 * memory as a file), another negative errno value. */
int tl_memfd_create(const char *name, uint64_t bytes);
/* Whether a file may be so large.  Beyond the limit (RLIMIT_FSIZE) the kernel would not only refuse
 * but send a signal, which ends a process that does not know of it. */
bool tl_memfd_may_have(uint64_t bytes);
/* Whether it is such memory, and how much.  0, -EINVAL if it is something else, or could still
 * become shorter. */
int tl_memfd_check(int fd, uint64_t *bytes);

#endif

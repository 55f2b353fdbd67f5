/* Sealed memory; see the header. */
#include "tally/memfd.h"
#include "tally/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIZE_SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

bool tl_memfd_may_have(uint64_t bytes)
{
    struct rlimit most;
    return bytes <= INT64_MAX && (getrlimit(RLIMIT_FSIZE, &most) < 0 || most.rlim_cur >= bytes);
}

int tl_memfd_create(const char *name, uint64_t bytes)
{
    if (!tl_memfd_may_have(bytes))
        return -EFBIG;
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)bytes) < 0 || fcntl(fd, F_ADD_SEALS, SIZE_SEALS) < 0) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    return tl_file_lift(fd);
}

int tl_memfd_check(int fd, uint64_t *bytes)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS); /* fails on everything but shared memory */
    if (seals < 0 || (seals & SIZE_SEALS) != SIZE_SEALS || fstat(fd, &st) < 0 || st.st_size < 0)
        return -EINVAL;
    *bytes = (uint64_t)st.st_size;
    return 0;
}

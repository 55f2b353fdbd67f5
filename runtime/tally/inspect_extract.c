/* Writes images as files, named as docs/images.md says: FILE.CONTAINER.IMAGE.sm_XX.ptx or
 * .cubin. */
#include "runtime/tally/inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *suffix_of(enum tl_image_kind kind)
{
    switch (kind) {
    case TL_IMAGE_PTX:
        return "ptx";
    case TL_IMAGE_CUBIN:
        return "cubin";
    default:
        return "bin";
    }
}

/* PTX is kept in fatbins with NULs behind it, which no compiler wants in a file. */
static size_t text_bytes(const char *text, size_t n)
{
    while (n > 0 && text[n - 1] == 0)
        n--;
    return n;
}

static int write_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno != EINTR)
            return -1;
        if (done > 0) {
            p += done;
            n -= (size_t)done;
        }
    }
    return 0;
}

int inspect_extract(const char *folder, const char *name, const struct tl_image *image,
                    const void *bytes, size_t n, struct tl_error *err)
{
    char path[PATH_MAX], arch[16];
    int length = snprintf(path, sizeof path, "%s/%s.%u.%u.%s.%s", folder, name,
                          image->container_index, image->index, tl_image_arch_name(image, arch),
                          suffix_of(image->kind));
    if (length < 0 || (size_t)length >= sizeof path)
        return tl_error_set(err, -ENAMETOOLONG, "the name of an image of %s is too long", name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST)
        return tl_error_set(err, -EEXIST, "%s exists already; extract into an empty folder", path);
    if (fd < 0)
        return tl_error_errno(err, "cannot create %s", path);
    if (image->kind == TL_IMAGE_PTX)
        n = text_bytes(bytes, n);
    int rc = write_all(fd, bytes, n) < 0 ? tl_error_errno(err, "cannot write %s", path) : 0;
    if (close(fd) < 0 && rc == 0)
        rc = tl_error_errno(err, "cannot write %s", path);
    return rc;
}

/* Where the PTX behind machine code is kept; see the header. */
#include "intercept/doors/doors.h"
#include "tally/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tally/digest.h"
#include "tally/lock.h"
#include "tally/store.h"

enum {
    MAX_IN_MEMORY = 64, /* the last ones; the rest is on disk */
    MAX_BYTES = 256 << 20,
    MAX_FILES = 65536, /* on disk, about; some 12 KB each */
    PRUNE_EVERY = 256, /* texts, on the average */
    NAME_BYTES = TL_DIGEST_HEX + sizeof ".ptx",
};

struct text {
    uint8_t digest[TL_DIGEST_BYTES];
    char *ptx;
    size_t n;
};

static struct tl_mutex lock = TL_MUTEX_INITIALIZER;
static struct {
    struct text texts[MAX_IN_MEMORY];
    size_t next;
} store TL_GUARDED_BY(lock);

void tl_doors_forked(void)
{
    tl_mutex_init(&lock);
}

static char *copy_of(const char *text, size_t n)
{
    char *copy = malloc(n + 1);
    if (copy != NULL) {
        memcpy(copy, text, n);
        copy[n] = '\0';
    }
    return copy;
}

/* --- in memory --- */

static void keep_in_memory(const uint8_t *digest, const char *ptx, size_t n)
{
    char *copy = copy_of(ptx, n);
    if (copy == NULL)
        return;
    tl_mutex_lock(&lock);
    struct text *t = &store.texts[store.next++ % MAX_IN_MEMORY];
    free(t->ptx);
    memcpy(t->digest, digest, sizeof t->digest);
    t->ptx = copy;
    t->n = n;
    tl_mutex_unlock(&lock);
}

static char *find_in_memory(const uint8_t *digest, size_t *n)
{
    char *copy = NULL;
    tl_mutex_lock(&lock);
    for (size_t i = 0; i < MAX_IN_MEMORY && copy == NULL; i++) {
        const struct text *t = &store.texts[i];
        if (t->ptx != NULL && memcmp(t->digest, digest, sizeof t->digest) == 0) {
            copy = copy_of(t->ptx, t->n);
            *n = t->n;
        }
    }
    tl_mutex_unlock(&lock);
    return copy;
}

/* --- on disk --- */

static int by_age(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Up to `most` ages of the files in a folder; and those of them go that are not younger than
 * `limit`. */
static size_t look_through(const char *folder, int64_t limit, int64_t *ages, size_t most)
{
    struct dirent *entry;
    struct stat st;
    size_t n = 0;
    DIR *dir = opendir(folder);
    while (dir != NULL && n < most && (entry = readdir(dir)) != NULL) {
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(st.st_mode))
            continue;
        ages[n++] = st.st_mtime;
        if (st.st_mtime <= limit)
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir != NULL)
        closedir(dir);
    return n;
}

/* Removes the older half of the texts if there are too many; they count as used when they are
 * found.  And of the machine code that CuPy keeps beside them by tally-run's wish
 * (CUPY_CACHE_DIR) what is as old: without its text it would be refused. */
static void prune(const char *folder)
{
    enum {
        MOST = 2 * MAX_FILES,
        CODE_COMES_LATER = 60, /* seconds, at most: it is written when its text has been kept */
    };
    char cupy[TL_STORE_PATH + sizeof "/../cupy"];
    int64_t *ages = malloc((size_t)MOST * sizeof *ages);
    size_t n = ages != NULL ? look_through(folder, INT64_MIN, ages, MOST) : 0;
    if (n > MAX_FILES) {
        qsort(ages, n, sizeof *ages, by_age);
        int64_t limit = ages[n / 2];
        snprintf(cupy, sizeof cupy, "%s/../cupy", folder);
        look_through(cupy, limit + CODE_COMES_LATER, ages, MOST);
        look_through(folder, limit, ages, MOST);
    }
    free(ages);
}

/* The folder of texts, if nobody else can write there: what is in it becomes code of this process.
 * It is not made for who only wants to look.  The caller's to close; 0 or a negative errno
 * value. */
static int enter(struct tl_store *folder, bool may_make)
{
    char path[TL_STORE_PATH + sizeof "/ptx"];
    int rc = tl_store_folder(path, NULL);
    if (rc < 0)
        return rc;
    strcat(path, "/ptx");
    if (!may_make && access(path, F_OK) < 0)
        return -ENOENT;
    return tl_store_open(folder, path, 1, NULL);
}

static void name_of(char name[NAME_BYTES], const uint8_t *digest)
{
    tl_digest_hex(digest, name);
    strcat(name, ".ptx");
}

/* Written under another name and renamed, so that a reader sees whole files. */
static void keep_on_disk(const uint8_t *digest, const char *ptx, size_t n)
{
    char name[NAME_BYTES], other[NAME_BYTES + 16];
    struct tl_store folder;
    if (enter(&folder, true) < 0)
        return;
    if (digest[0] % PRUNE_EVERY == 0)
        prune(folder.path);
    name_of(name, digest);
    snprintf(other, sizeof other, "%s.%d", name, (int)getpid());
    int fd = openat(folder.dir, other, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0) {
        int rc = tl_file_write_fd(fd, ptx, n);
        if (close(fd) != 0 || rc < 0 || renameat(folder.dir, other, folder.dir, name) != 0)
            unlinkat(folder.dir, other, 0);
    }
    tl_store_close(&folder);
}

/* Only a file of this user counts. */
static char *find_on_disk(const uint8_t *digest, size_t *n)
{
    char name[NAME_BYTES], *text = NULL;
    struct tl_store folder;
    struct stat st;
    if (enter(&folder, false) < 0)
        return NULL;
    name_of(name, digest);
    int fd = openat(folder.dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        st.st_size > 0) {
        (void)tl_file_read_fd(fd, MAX_BYTES, &text, n);
        (void)futimens(fd, NULL); /* so that it is not among the oldest */
    }
    if (fd >= 0)
        close(fd);
    tl_store_close(&folder);
    return text;
}

void tl_doors_keep(const void *cubin, size_t n, const char *ptx, size_t ptx_n)
{
    uint8_t digest[TL_DIGEST_BYTES];
    ptx_n = strnlen(ptx, ptx_n);
    if (ptx_n == 0 || ptx_n > MAX_BYTES)
        return;
    tl_digest_of(cubin, n, digest);
    keep_in_memory(digest, ptx, ptx_n);
    keep_on_disk(digest, ptx, ptx_n);
}

char *tl_doors_find(const void *cubin, size_t n, size_t *ptx_n)
{
    uint8_t digest[TL_DIGEST_BYTES];
    tl_digest_of(cubin, n, digest);
    char *text = find_in_memory(digest, ptx_n);
    return text != NULL ? text : find_on_disk(digest, ptx_n);
}

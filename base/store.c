/* The disk store; see the header. */
#include "tally/store.h"
#include "tally/array.h"
#include "tally/clock.h"
#include "tally/file.h"
#include "tally/trust.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Grows with the layout of entries. */
#define STORE_VERSION 1u
#define OBJECT_LIMIT (1u << 30)
/* Marking an entry as used is a write to the disk; once in this time is enough for choosing what to
 * remove. */
#define USE_SECONDS 60
/* A file that a writer left behind when it was killed. */
#define STALE_SECONDS 600

struct trailer {
    char magic[8];
    uint32_t version, reserved;
    uint64_t object_bytes;
    struct tl_store_key key;
    uint8_t digest[TL_DIGEST_BYTES]; /* of the object and of the fields before */
};
static const char magic[8] = "TLYKRNL";
_Static_assert(sizeof(struct trailer) == 88, "an on-disk format");

enum { NAME_HEX = 2 * TL_DIGEST_BYTES, NAME_BYTES = NAME_HEX + sizeof ".so" };

/* --- the folder ------------------------------------------------------------------------------- */

int tl_store_folder(char path[TL_STORE_PATH], struct tl_error *err)
{
    const char *cache = secure_getenv("TALLY_CACHE"), *xdg = secure_getenv("XDG_CACHE_HOME"),
               *home = secure_getenv("HOME");
    int n;
    if (cache != NULL && cache[0] == '/') {
        n = snprintf(path, TL_STORE_PATH, "%s", cache);
    } else if (cache != NULL &&
               cache[0] != '\0') { /* absolute, since the service works in another folder */
        if (getcwd(path, TL_STORE_PATH) == NULL)
            return tl_error_errno(err, "TALLY_CACHE=%s", cache);
        n = (int)strlen(path);
        n += snprintf(path + n, TL_STORE_PATH - (size_t)n, "/%s", cache);
    } else if (xdg != NULL && xdg[0] == '/') {
        n = snprintf(path, TL_STORE_PATH, "%s/tally", xdg);
    } else if (home != NULL && home[0] == '/') {
        n = snprintf(path, TL_STORE_PATH, "%s/.cache/tally", home);
    } else {
        return tl_error_set(
            err, -ENOENT,
            "no folder for compiled kernels: set TALLY_CACHE, XDG_CACHE_HOME or HOME");
    }
    if (n >= TL_STORE_PATH)
        return tl_error_set(err, -ENAMETOOLONG,
                            "the folder for compiled kernels has too long a name: %.100s...", path);
    return 0;
}

uint32_t tl_store_limit_mb(void)
{
    const char *text = secure_getenv("TALLY_CACHE_MB");
    char *end = NULL;
    unsigned long mb = text != NULL ? strtoul(text, &end, 10) : 0;
    if (text == NULL || end == text || *end != '\0' || mb == 0 || mb > UINT32_MAX)
        return TL_STORE_DEFAULT_MB;
    return (uint32_t)mb;
}

/* Like mkdir -p; what is there already is not looked at. */
static int make_folder(const char *path)
{
    char part[TL_STORE_PATH];
    size_t n = strlen(path);
    memcpy(part, path, n + 1);
    for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, 0700) < 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
            return -errno;
        *slash = '/';
    }
    return mkdir(part, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

int tl_store_open(struct tl_store *c, const char *path, uint32_t limit_mb, struct tl_error *err)
{
    struct stat st;
    memset(c, 0, sizeof *c);
    c->dir = -1;
    c->limit_bytes = (uint64_t)limit_mb << 20;
    if (strlen(path) >= sizeof c->path || path[0] == '\0')
        return tl_error_set(err, -ENAMETOOLONG, "cache folder: its name is empty or too long");
    strcpy(c->path, path);
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 && errno == ENOENT) {
        errno = -make_folder(path);
        if (errno != 0)
            return tl_error_errno(err, "cache folder %s: cannot be made", path);
        dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (dir < 0)
        return tl_error_errno(err, "cache folder %s", path);
    if (fstat(dir, &st) < 0) {
        int rc = tl_error_errno(err, "cache folder %s", path);
        close(dir);
        return rc;
    }
    if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        close(dir);
        return tl_error_set(
            err, -EPERM,
            "cache folder %s: %s; kernels from it would run in this process, so it is not used",
            path, st.st_uid != geteuid() ? "belongs to somebody else" : "others may write to it");
    }
    /* Who can put another folder of this user in its place decides as well what runs. */
    struct tl_error why = {0};
    int rc = tl_trust_path(path, &why);
    if (rc < 0) {
        close(dir);
        return tl_error_set(
            err, rc,
            "cache folder: %s; kernels from it would run in this process, so it is not used",
            why.text);
    }
    c->dir = dir;
    return 0;
}

void tl_store_close(struct tl_store *c)
{
    if (c->dir >= 0)
        close(c->dir);
    c->dir = -1;
}

static void name_of(const struct tl_store_key *key, char name[NAME_BYTES])
{
    tl_digest_hex(key->bytes, name);
    strcpy(name + NAME_HEX, ".so");
}

static int path_of(const struct tl_store *c, const char *name, char *path, size_t path_n)
{
    int n = snprintf(path, path_n, "%s/%s", c->path, name);
    return n < 0 || (size_t)n >= path_n ? -ENAMETOOLONG : 0;
}

/* --- reading ---------------------------------------------------------------------------------- */

static void digest_trailer(struct tl_digest *d, const struct trailer *t)
{
    tl_digest_add(d, t, offsetof(struct trailer, digest));
}

/* Read, not mapped: if somebody cuts the file meanwhile, this is an error and not a signal in a
 * job's process.  With `copy`, which has room for the object, what was checked is there then. */
static bool is_whole(int fd, const struct stat *st, const struct tl_store_key *key, uint8_t *copy)
{
    struct trailer t;
    struct tl_digest d;
    uint8_t found[TL_DIGEST_BYTES], piece[32768];
    if (!S_ISREG(st->st_mode) || st->st_uid != geteuid() || st->st_size < (off_t)sizeof t ||
        st->st_size > (off_t)(OBJECT_LIMIT + sizeof t))
        return false;
    uint64_t n = (uint64_t)st->st_size - sizeof t;
    if (tl_file_read_at(fd, &t, sizeof t, n) < 0 || memcmp(t.magic, magic, sizeof magic) != 0 ||
        t.version != STORE_VERSION || t.object_bytes != n || memcmp(&t.key, key, sizeof *key) != 0)
        return false;
    tl_digest_init(&d);
    for (uint64_t at = 0; at < n; at += sizeof piece) {
        size_t part = n - at < sizeof piece ? (size_t)(n - at) : sizeof piece;
        uint8_t *to = copy != NULL ? copy + at : piece;
        if (tl_file_read_at(fd, to, part, at) < 0)
            return false;
        tl_digest_add(&d, to, part);
    }
    digest_trailer(&d, &t);
    tl_digest_end(&d, found);
    return memcmp(found, t.digest, sizeof found) == 0;
}

bool tl_store_has(const struct tl_store *c, const struct tl_store_key *key)
{
    char name[NAME_BYTES];
    name_of(key, name);
    return faccessat(c->dir, name, R_OK, 0) == 0;
}

static int open_entry(const struct tl_store *c, const char *name, struct stat *st)
{
    int fd = openat(c->dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ELOOP ? -EBADMSG : -errno;
    if (fstat(fd, st) == 0)
        return fd;
    int rc = -errno;
    close(fd);
    return rc;
}

/* Checks an open entry, removes it if it is damaged, and closes it. */
static int check_entry(const struct tl_store *c, const char *name, int fd, const struct stat *st,
                       const struct tl_store_key *key, uint8_t *copy)
{
    int rc = 0;
    if (!is_whole(fd, st, key, copy)) {
        rc = -EBADMSG;
        unlinkat(c->dir, name, 0); /* if another has just replaced it, it is compiled once more */
    } else if (time(NULL) - st->st_mtime >= USE_SECONDS) {
        (void)futimens(fd, NULL); /* a cache that cannot be written to may still be read */
    }
    close(fd);
    return rc;
}

int tl_store_find(struct tl_store *c, const struct tl_store_key *key, char *path, size_t path_n)
{
    char name[NAME_BYTES];
    struct stat st = {0};
    name_of(key, name);
    int rc = path_of(c, name, path, path_n);
    if (rc < 0)
        return rc;
    int fd = open_entry(c, name, &st);
    return fd < 0 ? fd : check_entry(c, name, fd, &st, key, NULL);
}

int tl_store_read(struct tl_store *c, const struct tl_store_key *key, size_t limit, char **bytes,
                  size_t *n)
{
    char name[NAME_BYTES];
    struct stat st = {0};
    *bytes = NULL;
    *n = 0;
    name_of(key, name);
    int fd = open_entry(c, name, &st);
    if (fd < 0)
        return fd;
    /* of what is too short, or no file, nothing is copied */
    size_t size = st.st_size < (off_t)sizeof(struct trailer)
                      ? 0
                      : (size_t)st.st_size - sizeof(struct trailer);
    char *copy = size <= limit && size <= OBJECT_LIMIT ? malloc(size + 1) : NULL;
    if (copy == NULL) {
        close(fd);
        return size <= limit && size <= OBJECT_LIMIT ? -ENOMEM : -EFBIG;
    }
    int rc = check_entry(c, name, fd, &st, key, (uint8_t *)copy);
    if (rc < 0) {
        free(copy);
        return rc;
    }
    copy[size] = '\0';
    *bytes = copy;
    *n = size;
    return 0;
}

/* --- removing what was not used for long ------------------------------------------------------ */

struct entry {
    char name[NAME_BYTES];
    uint64_t bytes;
    struct timespec used;
};

static int older_first(const void *a, const void *b)
{
    const struct timespec *x = &((const struct entry *)a)->used,
                          *y = &((const struct entry *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

static bool is_entry_name(const char *name)
{
    return strspn(name, "0123456789abcdef") == NAME_HEX && strcmp(name + NAME_HEX, ".so") == 0;
}

struct entries {
    struct entry *list;
    size_t n, cap;
    uint64_t bytes;
};

static void add_entry(struct entries *e, const char *name, const struct stat *st)
{
    if (!TL_ARRAY_FIT(e->list, e->cap, e->n + 1))
        return;
    struct entry *new = &e->list[e->n++];
    memcpy(new->name, name, sizeof new->name);
    new->bytes = (uint64_t)st->st_size;
    new->used = st->st_mtim;
    e->bytes += new->bytes;
}

/* Also removes what killed writers left.  Names that are not ours are not touched. */
static void list_entries(const struct tl_store *c, struct entries *e)
{
    /* a place of its own in the folder */
    int dir = openat(c->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = dir >= 0 ? fdopendir(dir) : NULL;
    if (d == NULL) {
        if (dir >= 0)
            close(dir);
        return;
    }
    time_t now = time(NULL);
    for (struct dirent *entry = readdir(d); entry != NULL; entry = readdir(d)) {
        struct stat st;
        bool is_temporary = strncmp(entry->d_name, ".new-", 5) == 0;
        if ((!is_temporary && !is_entry_name(entry->d_name)) ||
            fstatat(c->dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (!is_temporary)
            add_entry(e, entry->d_name, &st);
        else if (now - st.st_mtime > STALE_SECONDS)
            unlinkat(c->dir, entry->d_name, 0);
    }
    closedir(d);
}

static void trim(struct tl_store *c, const char *keep)
{
    struct entries e = {0};
    int lock = openat(c->dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock < 0)
        return;
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) { /* else another one is at it */
        list_entries(c, &e);
        if (e.bytes > c->limit_bytes) {
            /* A tenth more than needed, so that the next store does not begin again. */
            uint64_t goal = c->limit_bytes - c->limit_bytes / 10;
            qsort(e.list, e.n, sizeof e.list[0], older_first);
            for (size_t i = 0; i < e.n && e.bytes > goal; i++) {
                if (strcmp(e.list[i].name, keep) != 0 && unlinkat(c->dir, e.list[i].name, 0) == 0)
                    e.bytes -= e.list[i].bytes;
            }
        }
        c->unchecked_bytes = 0;
        c->was_checked = true;
    }
    free(e.list);
    close(lock);
}

/* --- writing ---------------------------------------------------------------------------------- */

static int write_entry(int fd, const struct tl_store_key *key, const void *object, size_t n)
{
    struct trailer t = {.version = STORE_VERSION, .object_bytes = n, .key = *key};
    struct tl_digest d;
    memcpy(t.magic, magic, sizeof magic);
    tl_digest_init(&d);
    tl_digest_add(&d, object, n);
    digest_trailer(&d, &t);
    tl_digest_end(&d, t.digest);
    int rc = tl_file_write_fd(fd, object, n);
    return rc < 0 ? rc : tl_file_write_fd(fd, &t, sizeof t);
}

int tl_store_put(struct tl_store *c, const struct tl_store_key *key, const void *object, size_t n,
                 char *path, size_t path_n, struct tl_error *err)
{
    static atomic_uint number; /* relaxed: only has to differ */
    char name[NAME_BYTES], temporary[64];
    if (n > OBJECT_LIMIT)
        return tl_error_set(err, -EFBIG, "cache folder %s: an object of %zu bytes is not kept",
                            c->path, n);
    name_of(key, name);
    int rc = path_of(c, name, path, path_n);
    if (rc < 0)
        return tl_error_set(err, rc, "cache folder %s: its name is too long", c->path);
    /* No pid alone: processes of several containers may share the folder. */
    snprintf(temporary, sizeof temporary, ".new-%ld-%lx-%u", (long)getpid(),
             (unsigned long)(tl_clock_of(CLOCK_REALTIME) % TL_SECOND_NS),
             atomic_fetch_add_explicit(&number, 1, memory_order_relaxed));
    int fd = openat(c->dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return tl_error_errno(err, "cache folder %s", c->path);
    rc = write_entry(fd, key, object, n);
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    if (rc == 0 && renameat(c->dir, temporary, c->dir, name) < 0)
        rc = -errno;
    if (rc < 0) {
        unlinkat(c->dir, temporary, 0);
        errno = -rc;
        return tl_error_errno(err, "cache folder %s", c->path);
    }
    c->unchecked_bytes += n;
    if (!c->was_checked || c->unchecked_bytes > c->limit_bytes / 16)
        trim(c, name);
    return 0;
}

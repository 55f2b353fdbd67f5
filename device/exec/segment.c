/* How the processes of a user find the memory that their shared device is.
 *
 * The memory is a segment of System V, because nobody can make such a one shorter: who has it can
 * use all of it until he lets go of it, whatever others do, where a file that is mapped can be
 * truncated by every process of its owner, which kills whoever touches it then.  (memfds can be
 * sealed against that, but have no name under which processes of other containers find them.)
 * It is removed as soon as it is made: Linux lets processes attach to it nevertheless, as long as
 * somebody has it, and it goes away with the last of them, however he ends.
 *
 * Containers with namespaces of their own for such objects (IPC) do not see each other's.  Where
 * they share /dev/shm alone, TALLY_DEVICE_SHM=file lets who makes the device put it into that file,
 * which is mapped then: all find it there, and who truncates it ends those who are on it.
 *
 * A small file in /dev/shm says which segment it is.  It is read, never mapped; who joins locks it.
 * If it is damaged or leads to nothing it is replaced: then there is a new device for who comes
 * from now on, and those who are on the old one go on there. */
#include "device/exec/segment.h"
#include "device/exec/internal.h"
#include "device/exec/sm.h"
#include "tally/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#define SM_MAGIC 0x534d796c6c6154ULL   /* "TallyMS", little-endian */
#define SIGN_MAGIC 0x6e67696c6c6154ULL /* "Tallign" */
#define VERSION 2
#define IN_FILE (-1)
#define IN_FILE_AT 4096 /* where the memory begins */

/* What the file says. */
struct sign {
    uint64_t magic;
    uint32_t version;
    int32_t segment;    /* as shmget gives it; IN_FILE: behind this, in the file */
    uint64_t id;        /* stands in the segment as well: numbers are used again */
    uint64_t namespace; /* of System V's objects, in which the number means something; 0: unknown */
};

int tl__segment_path(char *path, size_t size, const char *name, struct tl_error *err)
{
    if (name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL || strlen(name) > 200)
        return tl_error_set(err, -EINVAL,
                            "'%s' is no name for a device: letters, digits and dashes are", name);
    snprintf(path, size, "/dev/shm/%s.%u", name, VERSION);
    return 0;
}

static uint64_t own_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/ipc", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

void tl__segment_leave(struct sm_shared *m)
{
    if (m != NULL)
        munmap(m, sizeof *m); /* of either kind */
}

/* --- making one ------------------------------------------------------------------------------- */

static bool is_file_wanted(void)
{
    const char *kind = secure_getenv("TALLY_DEVICE_SHM");
    return kind != NULL && strcmp(kind, "file") == 0;
}

static void fill(struct sm_shared *m, const struct sign *sign)
{
    m->magic = SM_MAGIC;
    m->version = VERSION;
    m->bytes = (uint32_t)sizeof *m;
    m->id = sign->id;
    for (uint32_t i = 0; i < MAX_PROCS; i++)
        atomic_store_explicit(&m->procs[i].head, TL_EXEC_NO_KEY, memory_order_relaxed);
}

/* The memory behind the sign, taken now: what is missing later would be a signal. */
static int put_memory(int fd, const struct sign *sign)
{
    int rc = posix_fallocate(fd, 0, IN_FILE_AT + (off_t)sizeof(struct sm_shared));
    if (rc != 0)
        return -rc;
    struct sm_shared *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IN_FILE_AT);
    if (m == MAP_FAILED)
        return -errno;
    fill(m, sign);
    munmap(m, sizeof *m);
    return 0;
}

/* A new segment that ends with the last who has it, and what leads to it. */
static int make_segment(struct sm_shared **out, struct sign *sign)
{
    int id = shmget(IPC_PRIVATE, sizeof(struct sm_shared), 0600);
    if (id < 0)
        return -errno;
    struct sm_shared *m = shmat(id, NULL, 0);
    int rc = m == (void *)-1 ? -errno : 0;
    if (shmctl(id, IPC_RMID, NULL) < 0 && rc == 0) {
        rc = -errno;
        shmdt(m);
    }
    if (rc < 0)
        return rc;
    *sign = (struct sign){.magic = SIGN_MAGIC,
                          .version = VERSION,
                          .segment = id,
                          .id = tl_clock_of(CLOCK_REALTIME),
                          .namespace = own_namespace()};
    fill(m, sign);
    *out = m;
    return 0;
}

/* The file appears under its name only when it is complete, so nobody ever sees half of one,
 * whoever dies when.  0 also if somebody else was faster. */
static int put_sign(const char *path, const struct sign *sign)
{
    char from[PATH_MAX];
    int rc = 0, fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    errno = ENOSPC; /* of a write that is too short */
    if (write(fd, sign, sizeof *sign) != (ssize_t)sizeof *sign)
        rc = -errno;
    if (rc == 0 && sign->segment == IN_FILE)
        rc = put_memory(fd, sign);
    snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
    if (rc == 0 && linkat(AT_FDCWD, from, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0 && errno != EEXIST)
        rc = -errno;
    close(fd);
    return rc;
}

/* A new device under that name, unless there is one by now.  The caller has `out` in any case: the
 * segment lives as long as somebody has it. */
static int create(const char *path, struct sm_shared **out, struct tl_error *err)
{
    struct sign sign = {.magic = SIGN_MAGIC,
                        .version = VERSION,
                        .segment = IN_FILE,
                        .id = tl_clock_of(CLOCK_REALTIME)};
    int rc = is_file_wanted() ? 0 : make_segment(out, &sign);
    if (rc < 0)
        return tl_error_set(err, rc,
                            "no memory for the shared device %s: shmget: %s (kernel.shmmni and "
                            "kernel.shmall limit it)",
                            path, strerror(-rc));
    rc = put_sign(path, &sign);
    if (rc == -ENOSPC)
        return tl_error_set(err, rc,
                            "/dev/shm is full: the shared device takes some KB there, in %s", path);
    if (rc < 0) {
        errno = -rc;
        return tl_error_errno(err, "cannot create the shared device %s", path);
    }
    return 0;
}

/* --- finding one ------------------------------------------------------------------------------ */

/* Is it this user's, and one of ours? */
static bool is_sound(int segment, const struct sm_shared *m, const struct sign *sign)
{
    struct shmid_ds st;
    return shmctl(segment, IPC_STAT, &st) == 0 && st.shm_perm.cuid == geteuid() &&
           (st.shm_perm.mode & 077) == 0 && st.shm_segsz == sizeof *m && m->magic == SM_MAGIC &&
           m->version == VERSION && m->bytes == sizeof *m && m->id == sign->id;
}

/* The memory that lies in the file itself. */
static int map_file(int fd, const struct sign *sign, struct sm_shared **out)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || st.st_size < IN_FILE_AT + (off_t)sizeof **out)
        return -ENOENT;
    struct sm_shared *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IN_FILE_AT);
    if (m == MAP_FAILED)
        return -ENOENT;
    if (m->magic != SM_MAGIC || m->version != VERSION || m->bytes != sizeof *m ||
        m->id != sign->id) {
        munmap(m, sizeof *m);
        return -ENOENT;
    }
    *out = m;
    return 0;
}

/* What the file leads to.  0; -ENOENT: nothing that is of use; -EXDEV: something that only
 * processes of another namespace can have. */
static int follow(int fd, struct sm_shared **out)
{
    struct sign sign;
    struct shmid_ds st;
    uint64_t here = own_namespace();
    if (pread(fd, &sign, sizeof sign, 0) != (ssize_t)sizeof sign || sign.magic != SIGN_MAGIC ||
        sign.version != VERSION)
        return -ENOENT;
    if (sign.segment == IN_FILE)
        return map_file(fd, &sign, out);
    if (sign.namespace != here && sign.namespace != 0 && here != 0)
        return -EXDEV;
    /* before it is mapped: a smaller one must not be touched behind its end */
    if (shmctl(sign.segment, IPC_STAT, &st) < 0 || st.shm_segsz != sizeof **out)
        return -ENOENT;
    struct sm_shared *m = shmat(sign.segment, NULL, 0);
    if (m == (void *)-1)
        return -ENOENT;
    if (!is_sound(sign.segment, m, &sign)) {
        shmdt(m);
        return -ENOENT;
    }
    *out = m;
    return 0;
}

/* The file, open and locked; -ESTALE if another one has taken its place meanwhile, -ENOENT. */
static int open_sign(const char *path, struct tl_error *err)
{
    struct stat here, there;
    /* a FIFO would let us wait */
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return -ENOENT;
    if (fd < 0 && (errno == EACCES || errno == ELOOP))
        return tl_error_set(err, -errno,
                            "%s is a link or somebody else's: have it removed, or choose another "
                            "TALLY_DEVICE_NAME",
                            path);
    if (fd < 0)
        return tl_error_errno(err, "cannot open the shared device %s", path);
    int rc = 0;
    if (fstat(fd, &here) < 0 || here.st_uid != geteuid() || !S_ISREG(here.st_mode) ||
        (here.st_mode & 022) != 0)
        rc = tl_error_set(
            err, -EACCES,
            "%s is somebody else's, or no file of ours: choose another TALLY_DEVICE_NAME", path);
    else if (flock(fd, LOCK_EX) < 0)
        rc = tl_error_errno(err, "cannot lock the shared device %s", path);
    else if (stat(path, &there) < 0 || here.st_ino != there.st_ino || here.st_dev != there.st_dev)
        rc = -ESTALE;
    if (rc < 0)
        close(fd);
    return rc < 0 ? rc : fd;
}

/* Until the file under that name leads to a segment that can be had; each turn makes what is
 * missing or removes what is of no use, and somebody else may do the same. */
int tl__segment_open(const char *path, struct sm_shared **out, struct tl_error *err)
{
    struct sm_shared *made = NULL; /* kept until it is found through its file */
    int rc = tl_error_set(err, -EIO, "the shared device %s is replaced all the time", path);
    for (int i = 0; i < 100; i++) {
        int fd = open_sign(path, err);
        if (fd == -ENOENT) {
            tl__segment_leave(made);
            made = NULL;
            rc = create(path, &made, err);
            if (rc < 0)
                break;
            continue;
        }
        if (fd == -ESTALE)
            continue;
        rc = fd;
        if (fd < 0)
            break;
        int found = follow(fd, out);
        if (found == 0)
            break;
        if (found == -ENOENT)
            unlink(path);
        flock(fd, LOCK_UN); /* by hand: a child that was forked meanwhile has it as well */
        close(fd);
        rc = found == -EXDEV
                 ? tl_error_set(err, -EXDEV,
                                "%s leads to a device of another IPC namespace: set "
                                "TALLY_DEVICE_SHM=file for who comes first, let the containers "
                                "share one (docker run --ipc), or choose another TALLY_DEVICE_NAME",
                                path)
                 : tl_error_set(err, -EIO, "the shared device %s is replaced all the time", path);
        if (found == -EXDEV)
            break;
    }
    tl__segment_leave(made);
    return rc;
}

/* How the processes of a user find the memory that their shared device is.
 *
 * The memory is a segment of System V, because nobody can make such a one shorter: who has it can
 * use all of it until he lets go of it, whatever others do, where a file that is mapped can be
 * truncated by every process of its owner, which kills whoever touches it then.
 * It is removed as soon as it is made: Linux lets processes attach to it nevertheless, as long as
 * somebody has it, and it goes away with the last of them, however he ends.
 *
 * Containers with namespaces of their own for such objects (IPC) do not see each other's.  Where
 * they share /dev/shm alone, TALLY_DEVICE_SHM=file lets who makes the device take memory without a
 * name, sealed against the same, which those who are on the device hand to those who come
 * (device/exec/hand.c).
 *
 * A small file in /dev/shm says which memory it is.  It is read, never mapped; who joins locks it.
 * If it is damaged or leads to nothing it is replaced: then there is a new device for who comes
 * from now on, and those who are on the old one go on there.  The same if somebody keeps the lock
 * for too long, who is stopped, say. */
#include "device/exec/segment.h"
#include "device/exec/hand.h"
#include "device/exec/internal.h"
#include "device/exec/sm.h"
#include "tally/clock.h"
#include "tally/memfd.h"

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
#include <time.h>
#include <unistd.h>

#define SM_MAGIC 0x534d796c6c6154ULL   /* "TallyMS", little-endian */
#define SIGN_MAGIC 0x6e67696c6c6154ULL /* "Tallign" */
#define VERSION 2
#define IN_HANDS (-2)

atomic_uint tl__segment_patience_ms = 20000;

/* What the file says. */
struct sign {
    uint64_t magic;
    uint32_t version;
    int32_t segment;    /* as shmget gives it; IN_HANDS: of those who are on the device */
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

void tl__segment_leave(struct tl__segment *g)
{
    tl__hand_stop(g->hand);
    g->hand = NULL;
    tl__segment_forget(g);
}

void tl__segment_forget(struct tl__segment *g)
{
    tl__hand_forget(g->hand);
    if (g->m != NULL)
        munmap(g->m, sizeof *g->m); /* of either kind */
    *g = (struct tl__segment){0};
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

static struct sm_shared *map(int memory)
{
    struct sm_shared *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    return m == MAP_FAILED ? NULL : m;
}

/* New memory that this process hands over, and what leads to it. */
static int make_handed(struct tl__segment *out, const struct sign *sign, struct tl_error *err)
{
    int fd = tl_memfd_create("tally-device", sizeof(struct sm_shared)), rc = fd;
    if (fd < 0)
        return tl_error_set(err, rc, "no memory for the shared device: %s", strerror(-rc));
    /* taken now: what is missing later would be a signal; and nobody may seal it any further */
    rc = -posix_fallocate(fd, 0, (off_t)sizeof(struct sm_shared));
    out->m = rc == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) == 0 ? map(fd) : NULL;
    if (out->m == NULL) {
        rc = rc < 0 ? rc : -errno;
        close(fd);
        return tl_error_set(err, rc, "no memory for the shared device: %s", strerror(-rc));
    }
    fill(out->m, sign);
    return tl__hand_start(&out->hand, fd, sign->id, err);
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
    sign->segment = id;
    sign->namespace = own_namespace();
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
    snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
    if (rc == 0 && linkat(AT_FDCWD, from, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0 && errno != EEXIST)
        rc = -errno;
    close(fd);
    return rc;
}

/* A new device under that name, unless there is one by now.  The caller has `out` in any case: the
 * memory lives as long as somebody has it. */
static int create(const char *path, struct tl__segment *out, struct tl_error *err)
{
    struct sign sign = {.magic = SIGN_MAGIC,
                        .version = VERSION,
                        .segment = IN_HANDS,
                        .id = tl_clock_of(CLOCK_REALTIME)};
    int rc;
    if (is_file_wanted()) {
        rc = make_handed(out, &sign, err);
        if (rc < 0)
            return rc;
    } else if ((rc = make_segment(&out->m, &sign)) < 0) {
        return tl_error_set(err, rc,
                            "no memory for the shared device %s: shmget: %s (kernel.shmmni and "
                            "kernel.shmall limit it)",
                            path, strerror(-rc));
    }
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

/* The memory that those have who are on the device, which this process hands over as well then. */
static int ask_for(const struct sign *sign, struct tl__segment *out, struct tl_error *err)
{
    uint64_t bytes;
    struct stat st;
    int fd = tl__hand_ask(sign->id);
    if (fd < 0)
        return -ENOENT;
    if (tl_memfd_check(fd, &bytes) < 0 || bytes != sizeof *out->m || fstat(fd, &st) < 0 ||
        st.st_uid != geteuid() || (out->m = map(fd)) == NULL) {
        close(fd);
        return -ENOENT;
    }
    if (out->m->magic != SM_MAGIC || out->m->version != VERSION ||
        out->m->bytes != sizeof *out->m || out->m->id != sign->id) {
        close(fd);
        tl__segment_forget(out);
        return -ENOENT;
    }
    int rc = tl__hand_start(&out->hand, fd, sign->id, err);
    if (rc < 0)
        tl__segment_forget(out);
    return rc;
}

/* What the file leads to; `made` is what this process has made and may have put there.  0;
 * -ENOENT: nothing that is of use; -EXDEV: something that only processes of another namespace can
 * have; others with why. */
static int follow(int fd, struct tl__segment *made, struct tl__segment *out, struct tl_error *err)
{
    struct sign sign;
    struct shmid_ds st;
    uint64_t here = own_namespace();
    if (pread(fd, &sign, sizeof sign, 0) != (ssize_t)sizeof sign || sign.magic != SIGN_MAGIC ||
        sign.version != VERSION)
        return -ENOENT;
    if (sign.segment == IN_HANDS && made->hand != NULL && made->m->id == sign.id) {
        *out = *made;
        *made = (struct tl__segment){0};
        return 0;
    }
    if (sign.segment == IN_HANDS)
        return ask_for(&sign, out, err);
    if (sign.namespace != here && sign.namespace != 0 && here != 0)
        return -EXDEV;
    /* before it is mapped: a smaller one must not be touched behind its end */
    if (shmctl(sign.segment, IPC_STAT, &st) < 0 || st.shm_segsz != sizeof *out->m)
        return -ENOENT;
    struct sm_shared *m = shmat(sign.segment, NULL, 0);
    if (m == (void *)-1)
        return -ENOENT;
    if (!is_sound(sign.segment, m, &sign)) {
        shmdt(m);
        return -ENOENT;
    }
    out->m = m;
    return 0;
}

/* Who joins has the lock for a moment.  -EBUSY: somebody has kept it for so long that he must be
 * stopped, or means harm. */
static int lock_in_time(int fd)
{
    uint64_t begin = tl_clock_ms();
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (tl_clock_ms() - begin >= atomic_load(&tl__segment_patience_ms))
            return -EBUSY;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return 0;
}

/* The file, open and locked; -ESTALE if another one has taken its place meanwhile, -ENOENT; -EBUSY
 * if it cannot be locked. */
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
    else if ((rc = lock_in_time(fd)) < 0)
        tl_error_set(err, rc, "cannot lock the shared device %s: %s", path, strerror(-rc));
    else if (stat(path, &there) < 0 || here.st_ino != there.st_ino || here.st_dev != there.st_dev)
        rc = -ESTALE;
    if (rc < 0)
        close(fd);
    return rc < 0 ? rc : fd;
}

/* Until the file under that name leads to memory that can be had; each turn makes what is missing
 * or removes what is of no use, and somebody else may do the same. */
int tl__segment_open(const char *path, struct tl__segment *out, struct tl_error *err)
{
    struct tl__segment made = {0}; /* kept until it is found through its file */
    int rc = -EAGAIN;              /* once more */
    *out = (struct tl__segment){0};
    for (int i = 0; rc == -EAGAIN && i < 100; i++) {
        int fd = open_sign(path, err);
        if (fd == -ENOENT) {
            tl__segment_leave(&made);
            rc = create(path, &made, err);
            rc = rc < 0 ? rc : -EAGAIN;
        } else if (fd == -EBUSY) {
            unlink(path);
        } else if (fd != -ESTALE) {
            rc = fd < 0 ? fd : follow(fd, &made, out, err);
        }
        if (fd < 0)
            continue;
        if (rc == 0) {
            rc = fd;
            break;
        }
        if (rc == -ENOENT) {
            unlink(path);
            rc = -EAGAIN;
        }
        flock(fd, LOCK_UN); /* by hand: a child that was forked meanwhile has it as well */
        close(fd);
    }
    tl__segment_leave(&made);
    if (rc == -EAGAIN)
        rc = tl_error_set(err, -EIO, "the shared device %s is replaced all the time", path);
    if (rc == -EXDEV)
        tl_error_set(err, rc,
                     "%s leads to a device of another IPC namespace: set TALLY_DEVICE_SHM=file for "
                     "who comes first, let the containers share one (docker run --ipc), or choose "
                     "another TALLY_DEVICE_NAME",
                     path);
    return rc;
}

/* Messages, descriptors and the meeting place of driver and compiler service; see the header. */
#include "device/service/wire.h"
#include "tally/level.h"
#include "tally/memfd.h"
#include "tally/trust.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

/* --- messages --------------------------------------------------------------------------------- */

/* Takes the next string of that length, NUL included, and checks that it is one. */
static bool take_text(const char **p, size_t *left, uint32_t n, const char **text)
{
    if (n == 0 || n > *left || (*p)[n - 1] != '\0' || strlen(*p) != n - 1)
        return false;
    *text = *p;
    *p += n;
    *left -= n;
    return true;
}

int tl_jit_ask_check(const void *message, size_t n, struct tl_jit_ask_text *text,
                     struct tl_error *err)
{
    struct tl_jit_ask a;
    if (n < sizeof a)
        return tl_error_set(err, -EPROTO, "a request of %zu bytes is too short", n);
    memcpy(&a, message, sizeof a);
    if (a.magic != TL_JIT_WIRE_MAGIC || a.version != TL_JIT_WIRE_VERSION)
        return tl_error_set(err, -EPROTO, "a request of another version: magic %x, version %u",
                            a.magic, a.version);
    if ((a.kind < TL_JIT_COMPILE || a.kind > TL_JIT_STOP) && a.kind != TL_JIT_PREFETCH)
        return tl_error_set(err, -EPROTO, "a request of unknown kind %u", a.kind);
    if (a.level < TL_LEVEL_MIN || a.level > TL_LEVEL_MAX)
        return tl_error_set(err, -EPROTO, "a request of level %d", a.level);
    const char *p = (const char *)message + sizeof a;
    size_t left = n - sizeof a;
    if (!take_text(&p, &left, a.kernel_bytes, &text->kernel) ||
        !take_text(&p, &left, a.cpu_bytes, &text->cpu) ||
        !take_text(&p, &left, a.features_bytes, &text->features) ||
        !take_text(&p, &left, a.cache_bytes, &text->cache) || left != 0)
        return tl_error_set(err, -EPROTO, "a request whose strings do not fill it");
    if (a.ptx_bytes > TL_JIT_PTX_BYTES)
        return tl_error_set(err, -EPROTO, "kernel %.300s: %llu bytes of PTX are more than %u",
                            text->kernel, (unsigned long long)a.ptx_bytes, TL_JIT_PTX_BYTES);
    return 0;
}

int tl_jit_answer_check(const void *message, size_t n, const char **text, struct tl_error *err)
{
    struct tl_jit_answer a;
    if (n < sizeof a)
        return tl_error_set(err, -EPROTO, "an answer of %zu bytes is too short", n);
    memcpy(&a, message, sizeof a);
    const char *p = (const char *)message + sizeof a;
    size_t left = n - sizeof a;
    if (a.magic != TL_JIT_WIRE_MAGIC || a.version != TL_JIT_WIRE_VERSION || a.kind < TL_JIT_TAKEN ||
        (a.kind > TL_JIT_FAILED && a.kind != TL_JIT_FORMS) ||
        a.object_bytes > TL_JIT_OBJECT_BYTES || !take_text(&p, &left, a.text_bytes, text) ||
        left != 0)
        return tl_error_set(err, -EPROTO, "an answer that is none: magic %x, version %u, kind %u",
                            a.magic, a.version, a.kind);
    return 0;
}

union control {
    struct cmsghdr header;
    char room[CMSG_SPACE(4 * sizeof(int))];
};

int tl_jit_send(int socket, const void *message, size_t n, int fd)
{
    union control control;
    struct iovec piece = {.iov_base = (void *)message, .iov_len = n};
    struct msghdr m = {.msg_iov = &piece, .msg_iovlen = 1};
    if (fd >= 0) {
        memset(&control, 0, sizeof control);
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(sizeof fd);
        control.header = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    }
    ssize_t put;
    do
        put = sendmsg(socket, &m, MSG_NOSIGNAL);
    while (put < 0 && errno == EINTR);
    return put < 0 ? -errno : 0;
}

int tl_jit_send_answer(int socket, enum tl_jit_kind kind, int code, const char *text, int fd,
                       uint64_t object_bytes)
{
    char message[TL_JIT_MESSAGE_BYTES];
    size_t n = strnlen(text, sizeof message - sizeof(struct tl_jit_answer) - 1);
    struct tl_jit_answer a = {.magic = TL_JIT_WIRE_MAGIC,
                              .version = TL_JIT_WIRE_VERSION,
                              .kind = kind,
                              .code = code,
                              .object_bytes = object_bytes,
                              .text_bytes = (uint32_t)n + 1};
    memcpy(message, &a, sizeof a);
    memcpy(message + sizeof a, text, n);
    message[sizeof a + n] = '\0';
    return tl_jit_send(socket, message, sizeof a + n + 1, fd);
}

/* Keeps the first descriptor of a message and closes the others. */
static void take_descriptors(struct msghdr *m, int *fd)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int got;
            memcpy(&got, CMSG_DATA(c) + i * sizeof got, sizeof got);
            if (*fd < 0)
                *fd = got;
            else
                close(got);
        }
    }
}

int tl_jit_receive(int socket, void *message, size_t cap, int *fd)
{
    union control control;
    struct iovec piece = {.iov_base = message, .iov_len = cap};
    struct msghdr m = {.msg_iov = &piece,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    *fd = -1;
    ssize_t got;
    do
        got = recvmsg(socket, &m, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return errno == ECONNRESET ? 0 : -errno;
    take_descriptors(&m, fd);
    if ((m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || got == 0) {
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
        return got == 0 ? 0 : -EMSGSIZE;
    }
    return (int)got;
}

/* --- memory that is passed around ------------------------------------------------------------- */

int tl_jit_memory(const char *name, const void *bytes, size_t n)
{
    char label[200]; /* the kernel allows 249 bytes */
    if (!tl_memfd_may_have(n))
        return -EFBIG;
    snprintf(label, sizeof label, "%s", name);
    int fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    const char *p = bytes;
    while (n > 0) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            goto fail;
        p += put;
        n -= (size_t)put;
    }
    if (fcntl(fd, F_ADD_SEALS, SEALS) == 0)
        return fd;
fail:;
    int rc = errno != 0 ? -errno : -EIO;
    close(fd);
    return rc;
}

int tl_jit_memory_map(int fd, uint64_t n, const void **bytes)
{
    int seals = fcntl(fd, F_GET_SEALS);
    /* Not by fstat, which in the C library is a call that a worker may not make. */
    off_t size = seals < 0 || (seals & SEALS) != SEALS ? -1 : lseek(fd, 0, SEEK_END);
    if (size < 0 || (uint64_t)size != n)
        return -EPROTO;
    if (n == 0) {
        *bytes = "";
        return 0;
    }
    void *p = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0); /* old kernels share no sealed one */
    if (p == MAP_FAILED)
        return -errno;
    *bytes = p;
    return 0;
}

void tl_jit_memory_unmap(const void *bytes, uint64_t n)
{
    if (n > 0)
        munmap((void *)bytes, n);
}

/* --- the meeting place ------------------------------------------------------------------------ */

static int open_private(const char *path, struct tl_error *err)
{
    struct stat st;
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return tl_error_errno(err, "%s: cannot be made", path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return tl_error_errno(err, "%s", path);
    if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
        close(fd);
        return tl_error_set(
            err, -EPERM,
            "%s: must belong to this user alone (mode 0700), so the compiler service is not "
            "looked for there; remove it, or set XDG_RUNTIME_DIR",
            path);
    }
    struct tl_error why = {0};
    int rc = tl_trust_path(path, &why);
    if (rc < 0) {
        close(fd);
        return tl_error_set(err, rc,
                            "%s, so the compiler service is not looked for there; set "
                            "XDG_RUNTIME_DIR",
                            why.text);
    }
    return fd;
}

int tl_jit_runtime_folder(char path[TL_STORE_PATH], struct tl_error *err)
{
    const char *xdg = secure_getenv("XDG_RUNTIME_DIR");
    if (xdg != NULL && xdg[0] == '/') {
        int n = snprintf(path, TL_STORE_PATH, "%s/tally", xdg);
        int fd = n < TL_STORE_PATH ? open_private(path, err) : -ENAMETOOLONG;
        if (fd >= 0)
            return fd; /* else a stale variable, as after su */
    }
    snprintf(path, TL_STORE_PATH, "/tmp/tally-%lu", (unsigned long)geteuid());
    int fd = open_private(path, err);
    if (fd >= 0)
        return fd;
    /* Somebody has taken that name.  The cache is ours, if there is one. */
    struct tl_store cache;
    if (tl_store_folder(path, NULL) < 0 || tl_store_open(&cache, path, 1, NULL) < 0)
        return fd;
    tl_store_close(&cache);
    int n = snprintf(path, TL_STORE_PATH, "%s/run", cache.path);
    return n < TL_STORE_PATH ? open_private(path, err) : fd;
}

void tl_jit_service_name(const char *id, const char *cache, const char *suffix, char name[64])
{
    uint8_t digest[TL_DIGEST_BYTES];
    char hex[TL_DIGEST_HEX];
    tl_digest_of(cache, strlen(cache), digest);
    tl_digest_hex(digest, hex);
    snprintf(name, 64, "jit-%.16s-%.16s%s", id, hex, suffix);
}

void tl_jit_address(struct sockaddr_un *a, int folder, const char *path, const char *name)
{
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    int n = snprintf(a->sun_path, sizeof a->sun_path, "%s/%s", path, name);
    if (n < 0 || (size_t)n >= sizeof a->sun_path)
        snprintf(a->sun_path, sizeof a->sun_path, "/proc/self/fd/%d/%s", folder, name);
}

bool tl_jit_peer_is_ours(int socket)
{
    struct ucred who;
    socklen_t n = sizeof who;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && who.uid == geteuid();
}

/* --- which compiler --------------------------------------------------------------------------- */

/* Finds the build id in one segment of notes. */
static bool find_build_id(const uint8_t *notes, size_t n, char id[TL_JIT_COMPILER_ID_BYTES])
{
    for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= n;) {
        Elf64_Nhdr h;
        memcpy(&h, notes + at, sizeof h);
        at += sizeof h;
        if (h.n_namesz > n || h.n_descsz > n)
            return false;
        size_t name = at, desc = at + ((h.n_namesz + 3u) & ~3u),
               end = desc + ((h.n_descsz + 3u) & ~3u);
        if (end > n)
            return false;
        if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 && memcmp(notes + name, "GNU", 4) == 0 &&
            h.n_descsz >= 8) {
            for (uint32_t i = 0; i < h.n_descsz && i < 20; i++)
                snprintf(id + 2 * i, 3, "%02x", notes[desc + i]);
            return true;
        }
        at = end;
    }
    return false;
}

static bool read_at(int fd, void *bytes, size_t n, uint64_t at)
{
    return pread(fd, bytes, n, (off_t)at) == (ssize_t)n;
}

int tl_jit_compiler_id(const char *program, char id[TL_JIT_COMPILER_ID_BYTES], struct tl_error *err)
{
    Elf64_Ehdr e;
    int fd = open(program, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return tl_error_errno(err, "the compiler service %s", program);
    bool was_found = false;
    if (read_at(fd, &e, sizeof e, 0) && memcmp(e.e_ident, ELFMAG, SELFMAG) == 0 &&
        e.e_ident[EI_CLASS] == ELFCLASS64) {
        for (uint32_t i = 0; i < e.e_phnum && !was_found; i++) {
            Elf64_Phdr p;
            uint8_t notes[1024];
            if (!read_at(fd, &p, sizeof p, e.e_phoff + i * sizeof p))
                break;
            if (p.p_type == PT_NOTE && p.p_filesz <= sizeof notes &&
                read_at(fd, notes, p.p_filesz, p.p_offset))
                was_found = find_build_id(notes, p.p_filesz, id);
        }
    }
    close(fd);
    if (!was_found)
        return tl_error_set(err, -ENOEXEC, "%s is no program with a build id", program);
    return 0;
}

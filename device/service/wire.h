/* What the driver and the compiler service say to each other, and where they meet.
 *
 * A UNIX socket of whole messages (SOCK_SEQPACKET) in a folder that only its user can enter.  A
 * request is one message: a header, four strings, and the PTX as a sealed memfd, which nobody can
 * change or cut under the reader. The service answers twice: that it has taken the request, and how
 * it ended.  The socket's name carries the compiler's identification and the cache's, so that a new
 * build never meets an old service, nor a request one that keeps its kernels elsewhere.  libc
 * only. */
#ifndef TALLY_DEVICE_SERVICE_WIRE_H
#define TALLY_DEVICE_SERVICE_WIRE_H

#include "tally/base.h"
#include "tally/store.h"

#define TL_JIT_WIRE_MAGIC 0x544a4c54u /* "TLJT" */
#define TL_JIT_WIRE_VERSION 2u
#define TL_JIT_MESSAGE_BYTES 32768u    /* at most */
#define TL_JIT_PTX_BYTES (64u << 20)   /* at most */
#define TL_JIT_OBJECT_BYTES (1u << 30) /* at most */
#define TL_JIT_KERNEL_NAME_BYTES 8192u /* at most, with the NUL */
#define TL_JIT_COMPILER_ID_BYTES 96

enum tl_jit_kind {
    /* asked */
    TL_JIT_COMPILE = 1,
    TL_JIT_STATUS,
    TL_JIT_STOP, /* finish what somebody waits for, take nothing new; the connection is closed
                  * when the service has ended */
    /* answered */
    TL_JIT_TAKEN,  /* the request is understood and queued; DONE or FAILED follows.  A text tells
                    * people what is not as it should be */
    TL_JIT_DONE,   /* text: the path of the object; or, with a descriptor, why there is none */
    TL_JIT_FAILED, /* code, and a text for people */
    /* asked */
    TL_JIT_PREFETCH, /* as COMPILE, for somebody who will ask later: nothing is answered */
    /* told by workers to the service, before an answer */
    TL_JIT_FORMS, /* with a descriptor: functions for quick versions (device/jit/shelf.h) */
};

/* For tl_jit_ask.flags: rather no code than code of a compiler that is not kept apart. */
#define TL_JIT_CLOSED 1u
/* The quick version of the kernel, which has another key. */
#define TL_JIT_QUICK 2u
/* The service's own, for its workers: as in tl_jit_options. */
#define TL_JIT_PLAIN 0x100u
#define TL_JIT_LEAST 0x200u

/* Followed by the strings, each with its NUL, in the order of their lengths; empty cpu, features
 * mean the host's, an empty cache that the object is wanted as a descriptor.  The cache is the
 * service's own; it is named so that both know that they mean the same. */
struct tl_jit_ask {
    uint32_t magic, version, kind;
    uint32_t attempt; /* the service's own: how often this request was tried */
    uint32_t block[3];
    uint32_t cache_mb;
    uint64_t ptx_bytes;
    struct tl_store_key key;
    uint32_t kernel_bytes, cpu_bytes, features_bytes, cache_bytes;
    int32_t level; /* of the job that asks: TL_LEVEL_MIN..TL_LEVEL_MAX */
    uint32_t flags;
};
_Static_assert(sizeof(struct tl_jit_ask) == 96, "a wire format");

/* Followed by the text, with its NUL. */
struct tl_jit_answer {
    uint32_t magic, version, kind;
    int32_t code;          /* FAILED: a negative errno value */
    uint64_t object_bytes; /* DONE with a descriptor */
    uint32_t text_bytes;
    uint32_t reserved;
};
_Static_assert(sizeof(struct tl_jit_answer) == 32, "a wire format");

/* The strings of a checked request; they point into the message. */
struct tl_jit_ask_text {
    const char *kernel, *cpu, *features, *cache;
};

/* Checks magic, version, lengths, terminators.  0 or -EPROTO, with the reason. */
int tl_jit_ask_check(const void *message, size_t n, struct tl_jit_ask_text *text,
                     struct tl_error *err);
int tl_jit_answer_check(const void *message, size_t n, const char **text, struct tl_error *err);

/* One message, with a descriptor if `fd` is not negative.  0 or a negative errno value; never
 * SIGPIPE. */
int tl_jit_send(int socket, const void *message, size_t n, int fd);
int tl_jit_send_answer(int socket, enum tl_jit_kind kind, int code, const char *text, int fd,
                       uint64_t object_bytes);
/* The next message: its length, 0 if the other end is gone, or a negative errno value (-EMSGSIZE:
 * too long).  *fd is the descriptor that came with it, the caller's to close, or -1. */
int tl_jit_receive(int socket, void *message, size_t cap, int *fd);

/* --- memory that is passed around ------------------------------------------------------------- */

/* A sealed memfd with these bytes, or a negative errno value. */
int tl_jit_memory(const char *name, const void *bytes, size_t n);
/* Maps one that came from elsewhere, if it is sealed and has that size.  0 or a negative errno
 * value. */
int tl_jit_memory_map(int fd, uint64_t n, const void **bytes);
void tl_jit_memory_unmap(const void *bytes, uint64_t n);

/* --- the meeting place ------------------------------------------------------------------------ */

/* The folder for sockets, made if need be: XDG_RUNTIME_DIR/tally, else /tmp/tally-UID, else `run`
 * in the cache.  Its descriptor (the caller's to close), or -EPERM if it is not ours alone, or
 * another negative errno value. */
int tl_jit_runtime_folder(char path[TL_STORE_PATH], struct tl_error *err);

/* What identifies a compiler program: its GNU build id, which covers the version of LLVM that it
 * was made for.  Any change of the translator changes the build id.  0, -ENOEXEC (no such program),
 * another negative errno value. */
int tl_jit_compiler_id(const char *program, char id[TL_JIT_COMPILER_ID_BYTES],
                       struct tl_error *err);

/* Fills a socket address for `name` in the folder; long paths go by way of /proc/self/fd. */
struct sockaddr_un;
void tl_jit_address(struct sockaddr_un *a, int folder, const char *path, const char *name);
/* "jit-", the beginning of the id, and a digest of the cache's folder (empty: none), since a
 * service serves one of them; the names of socket and lock end in .sock and .lock. */
void tl_jit_service_name(const char *id, const char *cache, const char *suffix, char name[64]);

/* Whether the process at the other end runs as this user. */
bool tl_jit_peer_is_ours(int socket);

#endif

/* Between the shim (libcuda.so.1, in every job) and the best-effort part (libtally-effort.so,
 * opened only where a job may have to give way): two tables of functions.  The two are separate
 * files, but share more than what stands here (settings, client and record are read by both), so
 * they work together only if they come from one build, which is compared before anything else. */
#ifndef TALLY_EFFORT_H
#define TALLY_EFFORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A digest of everything that the two files are made of: sources, headers, flags
 * (BUILD_ID in the Makefile). */
extern const char tl_build_id[];

struct tl_settings;
struct tl_client;
struct tl_share_gpu;
struct tl_record;

/* An image that the job gave to the driver: fatbin, cubin, PTX text.  Kept by reference where the
 * caller promises that it stays (a fatbin inside a loaded object), else copied.  `bytes` is NULL if
 * nothing could be kept. */
struct tl_captured_image {
    const void *bytes;
    size_t n; /* 0: the reader finds the length in the image itself */
    bool is_copy;
    const char *source; /* path of the file or object that it came from, or "memory" */
    const char
        *loader;     /* path of the object whose code had it loaded, or empty if that is in none */
    bool is_twinned; /* the driver has its twin instead: see struct tl_effort */
    /* The containers that a separately compiled program was linked of, which have its PTX
     * (tl_image_parts); they stay as `bytes` do.  NULL and 0 for all others. */
    const void *const *parts;
    uint32_t n_parts;
    /* PTX that a JIT door kept for this image, if the image itself is machine code; or NULL */
    const void *ptx;
    size_t ptx_n;
    void *twin; /* the effort part's own, as the next: what the driver has in its place */
    void *user; /* the effort part's own, initially NULL; it frees it when the image goes */
};

/* A kernel by the handle (CUfunction or CUkernel) that the job launches. */
struct tl_captured_kernel {
    const void *handle;
    /* CUmodule to ask for variables, or NULL if it came from a library */
    void *module;
    void *library;                   /* CUlibrary or NULL */
    const char *name;                /* mangled; never NULL */
    bool is_nameless;                /* the driver does not tell: `name` only stands for it */
    int cache_config;                /* CUfunc_cache, as the job has set it; changes at any time */
    struct tl_captured_image *image; /* or NULL if it was loaded behind our back */
};

/* What the shim offers. */
struct tl_shim {
    const struct tl_settings *settings;
    struct tl_client *client;
    struct tl_record *record; /* or NULL */
    /* The real driver's function under its exported name ("cuLaunchKernel_ptsz"), or NULL if it has
     * none. */
    void *(*real)(const char *name);
    /* What the job launches; NULL for a handle that was never seen.  Stable until the module is
     * unloaded; lock-free. */
    const struct tl_captured_kernel *(*kernel)(const void *handle);
    /* A context (CUcontext) gets its first work.  May wait a moment for tallyd.  Returns where the
     * client's page counts for its GPU, or NULL. */
    struct tl_share_gpu *(*place)(void *ctx);
    /* The operation of its framework that the calling thread is in, by number; 0: none is known. */
    uint32_t (*op)(void);
    /* One line to the user's log, at 0 error, 1 warning, 2 info, 3 debug. */
    void (*log)(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));
};

/* A function of ours in place of the driver's, with the driver's signature. */
struct tl_hook {
    /* exported name, e.g. "cuLaunchKernel"; twins for per-thread streams are named on their own */
    const char *name;
    void *function;
};

/* What the best-effort part offers: the one name that libtally-effort.so exports. */
struct tl_effort {
    /* Its tl_build_id.  In every build there will ever be, this is the first member. */
    const char *build;
    /* Begins.  Hooks to put in place, ended by a NULL name; NULL if it cannot work, which is
     * logged. */
    const struct tl_hook *(*start)(const struct tl_shim *shim);
    /* Before an image is given to the driver: another one to give it instead, which has the same
     * kernels and variables and, beside each kernel that can be, one more with a gate
     * (docs/gate.md). NULL: none.  It stays as it is until `twinned` tells what became of it:
     * whether the driver took it, and whether it may read it for as long as the image is loaded. */
    const void *(*twin)(struct tl_captured_image *image);
    void (*twinned)(struct tl_captured_image *image, bool was_taken, bool is_preserved);
    /* Before a module or library (the other is NULL) is unloaded: everything queued is submitted,
     * and nothing that was made of its kernels is used or kept any longer.  0, or a CUresult that
     * the job is told instead: a kernel stands still for good, and the driver would wait for it. */
    int (*unloading)(const void *module, const void *library);
    /* An image with a `user` or a `twin` goes, after all that it was loaded as: lets go of that. */
    void (*forget)(struct tl_captured_image *image);
    /* In the child of a fork: forget threads and queues. */
    void (*forked)(void);
    /* At the end of the process, from an exit handler: write what is to be written; never block for
     * long. */
    void (*stop)(void);
};
extern const struct tl_effort tl_effort_table;
#define TL_EFFORT_TABLE "tl_effort_table"

#endif

/* What the files of the interception library share.
 *
 *     intercept/shim/trampoline.S   the exported names: one jump each, through tl_slots
 *     intercept/shim/driver.c       opens the real driver, fills tl_real and tl_slots, installs hooks
 *     intercept/shim/procaddress.c  cuGetProcAddress and dlsym: other ways to a driver function, which lead to the same entries
 *     intercept/shim/ops.c          which operation of its framework each thread is in
 *     intercept/shim/job.c          what begins with cuInit: settings, record, tallyd, the best-effort part; fork and exit
 *     intercept/shim/place.c        which GPU the job uses
 *     intercept/capture             images and kernels that the job gave to the driver, pages, priorities of its streams
 *     intercept/memory              how much device memory the job holds and may hold, and what it is told of it
 *     intercept/high                the path of jobs that never give way: in-flight word, timings, requests
 *     intercept/doors               PTX that compilers leave beside their machine code
 *
 * Everything here lives in other people's processes: nothing exits, aborts, or waits for a lock on
 * the way of a launch. */
#ifndef TALLY_INTERCEPT_SHIM_INTERNAL_H
#define TALLY_INTERCEPT_SHIM_INTERNAL_H

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL 1 /* every version of a function under its own name */
#endif
#include <cuda.h>
#include <stdatomic.h>

#include "runtime/job/client.h"
#include "runtime/job/settings.h"
#include "runtime/record/record.h"
#include "tally/effort.h"

enum tl_name {
#define TL_DRIVER_NAME(name) TL_NAME_##name,
#include "shim_names.inc"
#undef TL_DRIVER_NAME
    TL_NAMES
};

/* Reads as is: a thread-local variable that is found without a call, also in a library that was
 * opened late. */
#define TL_THREAD _Thread_local __attribute__((tls_model("initial-exec")))

/* --- intercept/shim/trampoline.S, intercept/shim/driver.c ------------------------------------- */

extern void *_Atomic tl_slots[TL_NAMES]; /* where each entry jumps to */
/* The real driver's functions; for a name that it does not have, a function that returns
 * CUDA_ERROR_NOT_SUPPORTED.  Filled once, before any hook can run. */
extern void *tl_real[TL_NAMES];
#define TL_REAL(name) ((__typeof__(name) *)tl_real[TL_NAME_##name])

/* Opens the real driver if that was not tried yet, and fills the tables.  False if there is none:
 * then every function returns CUDA_ERROR_STUB_LIBRARY. */
bool tl_driver_open(void);
const char *tl_driver_path(void);      /* of the real driver; "" if there is none */
const char *tl_driver_folder(void);    /* of this library */
int tl_driver_index(const char *name); /* enum tl_name, or -1 */
bool tl_driver_has(enum tl_name i);
void *tl_driver_find(const char *name); /* real function under any exported name, or NULL */
void *tl_driver_entry(enum tl_name i);  /* what this library exports under that name */
/* Which function of the real driver this is, or -1. */
int tl_driver_which(const void *real);
void tl_driver_hook(const struct tl_hook *hooks);
bool tl_driver_is_hooked(enum tl_name i);
/* Only the hooks of capture and of cuInit; with `is_off`, none at all. */
void tl_driver_reset_hooks(bool is_off);

/* --- intercept/shim/procaddress.c ------------------------------------------------------------- */
extern const struct tl_hook tl_procaddress_hooks[];
/* libc's own dlsym: the name leads to ours.  The first finds it, NULL if that fails. */
void *tl_dlsym_find(void);
void *tl_libc_dlsym_of(void *handle, const char *name);

/* --- intercept/capture, intercept/doors/link.c ------------------------------------------------ */
extern const struct tl_hook tl_capture_hooks[], tl_memory_hooks[], tl_pool_hooks[],
    tl_physical_hooks[], tl_graph_hooks[], tl_priority_hooks[], tl_doors_hooks[];
void tl_memory_forked(void);
/* See struct tl_shim. */
const struct tl_captured_kernel *tl_capture_kernel(const void *handle);

/* --- intercept/shim/share.c ------------------------------------------------------------------- */
/* The job begins, and ends: then its report says what share it asked for and what it got. */
void tl_share_begin(void);
void tl_share_end(void);

/* --- intercept/shim/job.c --------------------------------------------------------------------- */
struct tl_job {
    struct tl_settings settings;
    struct tl_client *client; /* or NULL */
    struct tl_record *record; /* or NULL */
    const struct tl_effort *effort;
    struct tl_shim shim; /* what the best-effort part sees */
};
extern struct tl_job tl_job;
extern const struct tl_hook tl_job_hooks[];
/* For the best-effort part, if there is one: see struct tl_effort. */
int tl_job_unloading(const void *module, const void *library);
void tl_job_forget(struct tl_captured_image *image);
/* The job may have to give way from now on.  Called with no hooks of the highest level in place and
 * nothing in flight; false if the best-effort part cannot be had, and then those hooks are back. */
bool tl_job_lower(void);

/* --- intercept/shim/place.c ------------------------------------------------------------------- */
/* The context gets its first work: the job uses its GPU.  Called with no lock held. */
struct tl_share_gpu *tl_job_place(void *ctx);
/* The GPU of a context, which is noted in the record; false if the driver does not tell. */
bool tl_job_gpu(CUcontext ctx, CUdevice *device, CUuuid *uuid);
/* What policies want to know of the device. */
void tl_job_describe(struct tl_client_page *page, CUdevice device);

/* --- intercept/shim/ops.c --------------------------------------------------------------------- */
extern struct tl_ops tl_ops;
/* See struct tl_shim. */
uint32_t tl_op_now(void);
void tl_ops_forked(void);

/* --- intercept/shim/log.c --------------------------------------------------------------------- */
/* One line to standard error, if the level is at most TALLY_LOG's: 0 error, 1 warning, 2 info, 3
 * debug. */
void tl_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tl_log_level(int level);

#endif

/* What the job gave to the driver: images, and the kernels in them by the handles that it launches.
 * Kept for every job, because a job that is never asked to give way now may be later. */
#ifndef TALLY_INTERCEPT_CAPTURE_CAPTURE_H
#define TALLY_INTERCEPT_CAPTURE_CAPTURE_H

#include "intercept/shim/internal.h"

/* --- intercept/capture/image.c --- */

/* What stands behind a pointer that was given to the driver.  It is referred to if it lies in a
 * loaded program or library, or if `is_preserved` says that the caller keeps it; else it is copied.
 * `caller` is an address in the code that had it loaded.  One reference; NULL if there is no
 * memory. */
struct tl_captured_image *tl_capture_image(const void *bytes, bool is_preserved,
                                           const void *caller);
/* Whether what is given to the driver is a cubin or a fatbin, and not PTX. */
bool tl_capture_may_have_code(const void *bytes);
/* a cubin, and not PTX or a fatbin */
bool tl_capture_is_code(const struct tl_captured_image *image);
/* The contents of a file.  Never NULL but for lack of memory: `bytes` is NULL if it cannot be
 * read. */
struct tl_captured_image *tl_capture_file(const char *path, const void *caller);
struct tl_captured_image *tl_capture_ref(struct tl_captured_image *image);
void tl_capture_unref(struct tl_captured_image *image);

/* --- intercept/capture/kernel.c --- */

/* A kernel as this library keeps it; the best-effort part sees the first member. */
struct tl_kernel {
    struct tl_captured_kernel seen;
    struct tl_record_kernel *_Atomic record; /* found at its first launch; NULL without a record */
    _Atomic uint32_t launches;               /* counted for the choice of samples only */
    struct tl_kernel *next;                  /* of the same module */
    char name[];
};

/* Modules and libraries are owners of kernels.  Takes the reference to the image, which may be
 * NULL. */
void tl_capture_loaded(void *owner, bool is_library, struct tl_captured_image *image);
/* A module that belongs to a library, and the library's kernels as functions, have its image. */
void tl_capture_module_of(void *module, void *library);
void tl_capture_function(const void *function, void *owner, const char *name);
void tl_capture_function_of(const void *function, const void *kernel);
/* The job prefers that cache configuration for the kernel. */
void tl_capture_cache_config(const void *handle, CUfunc_cache config);
/* Whether the driver has the twin of an owner's image: see struct tl_effort. */
bool tl_capture_is_twinned(const void *owner);
/* Forgets an owner with its kernels. */
void tl_capture_unloaded(void *owner);
/* The kernel behind a handle; made up by asking the driver for its name if it was never seen.  NULL
 * only without memory. */
struct tl_kernel *tl_kernel_of(const void *handle);
void tl_capture_forked(void);

/* --- intercept/capture/pages.c --- */

/* Whether device memory of this job is to be pages that can leave the device; and whether the job
 * is of the highest level, where that is so only for what the device refuses. */
bool tl_pages_are_wanted(bool *is_high);
CUresult tl_pages_alloc(CUdeviceptr *at, size_t bytes, bool is_high);
/* Before it is freed.  Whether it was memory of pages that this file follows. */
bool tl_pages_forget(CUdeviceptr at);
void tl_pages_forked(void);

/* --- intercept/capture/priority.c --- */

/* The driver's own, with a priority among the attributes that suits the job's level. */
CUresult tl_priority_launch(const CUlaunchConfig *config, CUfunction f, void **params,
                            void **extra);
CUresult tl_priority_launch_ptsz(const CUlaunchConfig *config, CUfunction f, void **params,
                                 void **extra);
/* A stream is about to go; those of a context have gone. */
void tl_priority_gone(CUstream stream);
void tl_priority_context_gone(CUcontext ctx);
/* The job has lost the highest level: its streams rank below others from now on. */
void tl_priority_lower(void);
void tl_priority_forked(void);

#endif

/* Code: images of PTX, modules and libraries made of them, their kernels and variables
 * (device/driver/image.c, device/driver/module.c, device/driver/library.c). */
#ifndef TALLY_DEVICE_DRIVER_MODULE_H
#define TALLY_DEVICE_DRIVER_MODULE_H

#include "tally/base.h"

#include "device/driver/handle.h"
#include "device/driver/lock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One PTX module's text and what was found in it: immutable but for the kernels, which are looked
 * at when asked for. Shared by the modules made of it in several contexts. */
struct tl_drv_image {
    uint32_t refs TL_DRV_GUARDED;
    char *text;
    struct tl_ptx_index *index;
    struct tl_drv_kernel_info **infos TL_DRV_GUARDED; /* by item number */
    struct tl_mutex managed_lock;                     /* guards `managed` */
    /* __managed__ variables: the same for all contexts; NULL until asked for */
    struct tl_drv_globals *managed;
    /* the text only stands for a cubin: see device/driver/opaque.c; else NULL */
    struct tl_drv_opaque *opaque;
    uint32_t n_items;
    bool has_twins; /* kernels K$gate, which have the variables of K: device/driver/gated.c */
    /* of the machine code that it stands for, which a GPU would run; 0 if it is compiled itself */
    uint32_t code_arch;
    uint32_t max_registers; /* CU_JIT_MAX_REGISTERS of who loaded it; 0 if that was not said */
};

/* What the PTX says of one kernel.  Immutable. */
struct tl_drv_kernel_info {
    char *name;
    uint32_t n_params, param_bytes;
    uint32_t *param_offsets, *param_sizes;
    /* Where the machine code that it stands for has them, and how many bytes they are there; NULL
     * if that is where PTX has them.  Callers see these. */
    uint32_t *code_offsets;
    uint32_t code_param_bytes;
    uint32_t shared_bytes, local_bytes, const_bytes, registers;
    uint32_t max_threads; /* from .maxntid or .reqntid, else 1024 */
    uint32_t required[3]; /* .reqntid, or 0 */
    uint32_t required_cluster[3];
    uint32_t max_registers; /* .maxnreg, or what the loader said; 0 if neither */
    uint32_t ptx_version, target;
};

/* Where a parameter is for who launches the kernel. */
static inline uint32_t tl_drv_param_offset(const struct tl_drv_kernel_info *info, size_t i)
{
    return info->code_offsets != NULL ? info->code_offsets[i] : info->param_offsets[i];
}

/* A variable.  Immutable. */
struct tl_drv_global {
    struct tl_str name;
    CUdeviceptr address;
    size_t bytes;
    bool is_managed, is_constant;
};

/* Variables that lie in one allocation.  Immutable. */
struct tl_drv_globals {
    struct tl_drv_global *list;
    uint32_t n;
    CUdeviceptr block; /* 0 if there are none */
};

/* Lists are guarded by the driver's lock; all else never changes. */
struct CUmod_st {
    uint32_t magic;
    struct CUctx_st *ctx;
    struct CUmod_st *next;
    struct CUlib_st *library; /* NULL for cuModuleLoad */
    struct tl_drv_image *image;
    struct tl_drv_globals own;
    const struct tl_drv_globals *managed; /* the image's */
    /* variables inside of functions, as kernels have asked for them */
    struct tl_drv_inner *inner TL_DRV_GUARDED;
    struct CUfunc_st *functions TL_DRV_GUARDED;
};

/* Settings of the program are guarded by the driver's lock, code by its own. */
struct CUfunc_st {
    uint32_t magic;
    struct CUmod_st *module;
    struct CUfunc_st *next;
    struct CUkern_st *kernel;
    struct tl_drv_kernel_info *info;
    int max_dynamic_shared, carveout, cluster_non_portable;
    CUfunc_cache cache_config;
    struct tl_drv_settings *settings; /* of device/driver/param.c, or NULL */
    struct tl_mutex code_lock;        /* held while compiling; guards `code` */
    struct tl_drv_code *code;         /* one per block size */
};

/* Immutable. */
struct CUkern_st {
    uint32_t magic;
    struct CUlib_st *library;
    struct CUkern_st *next;
    char *name;
};

/* Lists are guarded by the driver's lock. */
struct CUlib_st {
    uint32_t magic;
    struct tl_drv_image *image;
    struct CUkern_st *kernels TL_DRV_GUARDED;
    struct CUmod_st **by_context; /* a module for each context that has needed one */
    size_t n_by_context;
};

/* CU_JIT_MAX_REGISTERS among the options; 0 if it is not. */
uint32_t tl_drv_max_registers(unsigned n, const CUjit_option *options, void *const *values);
CUresult tl_drv_image_load(const void *bytes, struct tl_drv_image **out) TL_DRV_UNLOCKED;
/* A file as cuModuleLoad takes it, terminated, the caller's to free; NULL if that fails. */
CUresult tl_drv_image_read(const char *path, char **out);
CUresult tl_drv_image_of_text(char *text, size_t n, struct tl_drv_image **out); /* takes the text */
/* The same of a text that the driver is to compile, if it is not too new for it. */
CUresult tl_drv_image_of_ptx(char *text, size_t n, struct tl_drv_image **out) TL_DRV_UNLOCKED;
void tl_drv_image_unref(struct tl_drv_image *image) TL_DRV_LOCKED;
CUresult tl_drv_kernel_info(struct tl_drv_image *image, const char *name,
                            struct tl_drv_kernel_info **out) TL_DRV_UNLOCKED;
CUresult tl_drv_module_create(struct CUctx_st *ctx, struct tl_drv_image *image,
                              struct CUmod_st **out) TL_DRV_UNLOCKED;
void tl_drv_module_destroy(struct CUmod_st *module) TL_DRV_UNLOCKED;
CUresult tl_drv_module_function(struct CUmod_st *module, const char *name,
                                struct CUfunc_st **out) TL_DRV_UNLOCKED;
const struct tl_drv_global *tl_drv_module_global(struct CUmod_st *module, struct tl_str name);
/* The address of a variable that a compiled kernel asks for: one of the module's, or one that
 * stands inside of a function ("function::n", ptx_rewrite/initialiser.h).  0, -ENOENT, -EINVAL,
 * -ENOMEM. */
int tl_drv_module_variable(struct CUmod_st *module, const char *name, uint64_t *address,
                           struct tl_error *err) TL_DRV_UNLOCKED;
/* References to textures that the module has (device/driver/texref.c). */
void tl_drv_texref_forget(const struct CUmod_st *m) TL_DRV_LOCKED;
/* The image's __managed__ variables, which need no context. */
CUresult tl_drv_image_managed(struct tl_drv_image *image,
                              const struct tl_drv_globals **out) TL_DRV_UNLOCKED;
void tl_drv_globals_destroy(struct tl_drv_globals *g) TL_DRV_LOCKED; /* NULL is fine */
/* A CUfunction or a CUkernel, for the current context. */
CUresult tl_drv_function(CUfunction handle, struct CUfunc_st **out) TL_DRV_UNLOCKED;
CUresult tl_drv_library_module(struct CUlib_st *library, struct CUctx_st *ctx,
                               struct CUmod_st **out) TL_DRV_UNLOCKED;

#endif

/* Modules: an image in a context, with its variables in device memory and its functions. */
#include "device/driver/module.h"
#include "device/abi.h"
#include "device/driver/code.h"
#include "device/driver/context.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/log.h"
#include "device/driver/memory.h"
#include "device/driver/state.h"
#include "device/driver/stream.h"

#include "ptx_rewrite/initialiser.h"
#include "tally/cubin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- variables -------------------------------------------------------------------------------- */

struct layout {
    const struct tl_ptx_decl **decls;
    struct tl_arena arena;
    uint64_t bytes;
};

static bool is_managed(const struct tl_ptx_decl *d)
{
    return d->prefix.p != NULL && memmem(d->prefix.p, d->prefix.n, ".managed", 8) != NULL;
}

/* Adds a variable; its address is an offset at first. */
static int place(struct layout *l, struct tl_drv_globals *g, const struct tl_ptx_item *item,
                 const struct tl_ptx_decl *d, struct tl_error *err)
{
    uint32_t one = tl_ptx_type_bytes(d->type);
    uint32_t element = (one > 0 ? one : 8) * d->vec;
    uint64_t count = tl_ptx_decl_count(d) / d->vec;
    uint32_t align = d->align > element ? d->align : element;
    if (align < 8 && count * element >= 8)
        align = 8;
    if (count > ((uint64_t)1 << 40) / element)
        return tl_error_set(err, -EINVAL, "variable " TL_STR_FMT " is too large",
                            TL_STR_ARG(d->name));
    l->bytes = (l->bytes + align - 1) / align * align;
    l->decls[g->n] = d;
    g->list[g->n++] = (struct tl_drv_global){.name = item->name,
                                             .address = l->bytes,
                                             .bytes = count * element,
                                             .is_constant = tl_str_is(d->space, "const"),
                                             .is_managed = is_managed(d)};
    l->bytes += count * element;
    return 0;
}

/* Names, sizes and places of the variables that live in device memory: managed ones, or the
 * others. */
static int lay_out(const struct tl_drv_image *image, bool wants_managed, struct layout *l,
                   struct tl_drv_globals *g, struct tl_error *err)
{
    const struct tl_ptx_index *ix = image->index;
    struct tl_ptx_unit unit;
    uint32_t n = 0;
    for (uint32_t i = 0; i < image->n_items; i++)
        n += tl_ptx_index_item(ix, i)->kind == TL_PTX_ITEM_VARIABLE;
    g->list = calloc(n + 1, sizeof *g->list);
    l->decls = calloc(n + 1, sizeof(const struct tl_ptx_decl *));
    if (g->list == NULL || l->decls == NULL)
        return -ENOMEM;
    int rc = tl_ptx_unit_init(&unit, ix, &l->arena, err);
    for (uint32_t i = 0; rc == 0 && i < image->n_items; i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(ix, i);
        struct tl_ptx_decl *d;
        if (item->kind != TL_PTX_ITEM_VARIABLE || tl_ptx_index_find(ix, item->name) != item ||
            item->is_extern)
            continue; /* a mere declaration */
        rc = tl_ptx_parse_var(&unit, item, &d);
        if (rc == 0 && (tl_str_is(d->space, "const") || tl_str_is(d->space, "global")) &&
            is_managed(d) == wants_managed)
            rc = place(l, g, item, d, err);
    }
    tl_ptx_unit_finish(&unit);
    return rc;
}

static bool address_of(void *data, struct tl_str name, uint64_t *address)
{
    struct CUmod_st *module = data;
    const struct tl_drv_global *g = tl_drv_module_global(module, name);
    if (g == NULL && tl_ptx_index_find(module->image->index, name) == NULL)
        return false;
    *address = g != NULL ? g->address : tl_dev_function_address(name.p, name.n);
    return true;
}

/* Lays out, allocates and initialises.  What initialisers name is looked up in `module`, which has
 * these variables already. */
static CUresult make_globals(struct CUmod_st *module, struct tl_drv_device *device,
                             struct CUctx_st *ctx, bool wants_managed, struct tl_drv_globals *g)
{
    struct layout l = {0};
    struct tl_error err = {0};
    struct tl_drv_alloc *a = NULL;
    CUresult r = CUDA_SUCCESS;
    tl_arena_init(&l.arena, 0);
    int rc = lay_out(module->image, wants_managed, &l, g, &err);
    if (rc == 0 && l.bytes > 0) {
        tl_drv_lock();
        r = tl_drv_alloc_create(device, ctx, l.bytes,
                                wants_managed ? TL_DRV_MANAGED : TL_DRV_DEVICE_MEMORY, &a);
        if (r == CUDA_SUCCESS) {
            a->is_internal = true;
            g->block = a->base;
            for (uint32_t i = 0; i < g->n; i++)
                g->list[i].address += a->base;
        }
        tl_drv_unlock();
        for (uint32_t i = 0; r == CUDA_SUCCESS && rc == 0 && i < g->n; i++)
            rc = tl_ptx_initialise(l.decls[i], address_of, module,
                                   tl_drv_pointer(g->list[i].address), g->list[i].bytes, &err);
    }
    free((void *)l.decls);
    tl_arena_finish(&l.arena);
    if (rc < 0) {
        tl_drv_warn("module refused: %s", err.text);
        r = rc == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
    }
    return r;
}

void tl_drv_globals_destroy(struct tl_drv_globals *g)
{
    if (g == NULL)
        return;
    if (g->block != 0)
        tl_drv_alloc_destroy(tl_drv_alloc_find((uintptr_t)g->block));
    free(g->list);
    *g = (struct tl_drv_globals){0};
}

CUresult tl_drv_image_managed(struct tl_drv_image *image, const struct tl_drv_globals **out)
{
    CUresult r = CUDA_SUCCESS;
    tl_mutex_lock(&image->managed_lock);
    if (image->managed == NULL) {
        struct tl_drv_globals *g = calloc(1, sizeof *g);
        struct CUmod_st alone = {.image = image, .managed = g};
        r = g != NULL ? make_globals(&alone, &tl_drv.devices[0], NULL, true, g)
                      : CUDA_ERROR_OUT_OF_MEMORY;
        if (r == CUDA_SUCCESS) {
            image->managed = g;
        } else {
            tl_drv_lock();
            tl_drv_globals_destroy(g);
            tl_drv_unlock();
            free(g);
        }
    }
    *out = image->managed;
    tl_mutex_unlock(&image->managed_lock);
    return r;
}

static const struct tl_drv_global *find_global(const struct tl_drv_globals *g, struct tl_str name)
{
    for (uint32_t i = 0; g != NULL && i < g->n; i++)
        if (tl_str_eq(g->list[i].name, name))
            return &g->list[i];
    return NULL;
}

const struct tl_drv_global *tl_drv_module_global(struct CUmod_st *module, struct tl_str name)
{
    const struct tl_drv_global *g = find_global(&module->own, name);
    return g != NULL ? g : find_global(module->managed, name);
}

/* --- variables inside of functions: made when a kernel first asks for them -------------------- */

struct tl_drv_inner {
    struct tl_drv_inner *next;
    char *name;
    CUdeviceptr address;
};

/* Makes the memory of a variable that stands inside a function, with its initial value.  -ENOENT,
 * -EINVAL, -ENOMEM. */
static int make_inner(struct CUmod_st *m, struct tl_drv_inner *v,
                      struct tl_error *err) TL_DRV_LOCKED
{
    struct tl_arena arena;
    struct tl_ptx_unit unit;
    struct tl_ptx_func *func = NULL;
    struct tl_drv_alloc *a = NULL;
    const char *colons = strstr(v->name, "::");
    const struct tl_ptx_item *item = tl_ptx_index_find(
        m->image->index, (struct tl_str){v->name, (uint32_t)(colons - v->name)});
    if (item == NULL || item->body == 0)
        return tl_error_set(err, -ENOENT, "no function has the variable %s", v->name);
    tl_arena_init(&arena, 0);
    int rc = tl_ptx_unit_init(&unit, m->image->index, &arena, err);
    if (rc == 0)
        rc = tl_ptx_parse_func(&unit, item, &func);
    const struct tl_ptx_decl *d =
        rc == 0 ? tl_ptx_inner_variable(func, (uint32_t)strtoul(colons + 2, NULL, 10)) : NULL;
    uint64_t count = d != NULL ? tl_ptx_decl_count(d) : 0,
             bytes = count * (d != NULL ? tl_ptx_type_bytes(d->type) : 0);
    if (rc == 0 && (bytes == 0 || bytes > (uint64_t)1 << 40))
        rc = tl_error_set(err, -EINVAL, "no function has the variable %s", v->name);
    if (rc == 0 && tl_drv_alloc_create(m->ctx->device, m->ctx, bytes, TL_DRV_DEVICE_MEMORY, &a) !=
                       CUDA_SUCCESS)
        rc = tl_error_set(err, -ENOMEM, "no device memory for the variable %s", v->name);
    if (rc == 0) {
        a->is_internal = true;
        v->address = a->base;
        rc = tl_ptx_initialise(d, address_of, m, tl_drv_pointer(a->base), bytes, err);
    }
    tl_ptx_unit_finish(&unit);
    tl_arena_finish(&arena);
    return rc;
}

static void free_inner(struct tl_drv_inner *v) TL_DRV_LOCKED
{
    if (v->address != 0)
        tl_drv_alloc_destroy(tl_drv_alloc_find((uintptr_t)v->address));
    free(v->name);
    free(v);
}

static int inner_variable(struct CUmod_st *m, const char *name, uint64_t *address,
                          struct tl_error *err)
{
    int rc = 0;
    tl_drv_lock();
    struct tl_drv_inner *v = m->inner;
    while (v != NULL && strcmp(v->name, name) != 0)
        v = v->next;
    if (v == NULL) {
        v = calloc(1, sizeof *v);
        char *copy = strdup(name);
        if (v == NULL || copy == NULL) {
            free(copy);
            free(v);
            tl_drv_unlock();
            return -ENOMEM;
        }
        v->name = copy;
        rc = make_inner(m, v, err);
        if (rc == 0) {
            v->next = m->inner;
            m->inner = v;
        }
    }
    *address = v->address;
    if (rc != 0)
        free_inner(v);
    tl_drv_unlock();
    return rc;
}

/* What stands inside of a twin is the variable of its kernel. */
static int variable_of_twin(struct CUmod_st *m, const char *name, uint64_t *address,
                            struct tl_error *err)
{
    static const char mark[] = TL_CUBIN_TWIN_SUFFIX "::";
    const char *at = strstr(name, mark);
    if (at == NULL)
        return inner_variable(m, name, address, err);
    char *its = NULL;
    if (asprintf(&its, "%.*s::%s", (int)(at - name), name, at + sizeof mark - 1) < 0)
        return -ENOMEM;
    int rc = inner_variable(m, its, address, err);
    free(its);
    return rc;
}

int tl_drv_module_variable(struct CUmod_st *module, const char *name, uint64_t *address,
                           struct tl_error *err)
{
    if (strstr(name, "::") != NULL && module->image->has_twins)
        return variable_of_twin(module, name, address, err);
    if (strstr(name, "::") != NULL)
        return inner_variable(module, name, address, err);
    const struct tl_drv_global *g = tl_drv_module_global(module, tl_str_of(name));
    if (g == NULL)
        return tl_error_set(err, -ENOENT,
                            "a kernel needs variable %s, which its module does not define", name);
    *address = g->address;
    return 0;
}

/* --- making and ending ------------------------------------------------------------------------ */

CUresult tl_drv_module_create(struct CUctx_st *ctx, struct tl_drv_image *image,
                              struct CUmod_st **out)
{
    struct CUmod_st *m = calloc(1, sizeof *m);
    if (m == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->magic = TL_DRV_MODULE;
    m->ctx = ctx = ctx->home;
    /* Loading "might require context synchronization" (programming guide, "Lazy Loading"). */
    tl_drv_context_may_drain(ctx);
    m->image = image;
    tl_drv_lock();
    image->refs++;
    m->next = ctx->modules;
    ctx->modules = m;
    tl_drv_unlock();
    CUresult r = tl_drv_image_managed(image, &m->managed);
    if (r == CUDA_SUCCESS)
        r = make_globals(m, ctx->device, ctx, false, &m->own);
    if (r != CUDA_SUCCESS) {
        tl_drv_module_destroy(m);
        return r;
    }
    *out = m;
    return CUDA_SUCCESS;
}

/* Takes it off its context's and its library's lists under the lock, and frees functions and
 * their code without it.  The caller has waited for its kernels. */
void tl_drv_module_destroy(struct CUmod_st *m)
{
    tl_drv_lock();
    for (struct CUmod_st **at = &m->ctx->modules; *at != NULL; at = &(*at)->next) {
        if (*at == m) {
            *at = m->next;
            break;
        }
    }
    if (m->library != NULL) {
        struct CUlib_st *l = m->library;
        for (size_t i = 0; i < l->n_by_context; i++)
            if (l->by_context[i] == m)
                l->by_context[i] = l->by_context[--l->n_by_context];
    }
    while (m->inner != NULL) {
        struct tl_drv_inner *v = m->inner;
        m->inner = v->next;
        free_inner(v);
    }
    tl_drv_globals_destroy(&m->own);
    tl_drv_texref_forget(m);
    tl_drv_image_unref(m->image);
    m->magic = TL_DRV_DEAD;
    struct CUfunc_st *functions = m->functions;
    m->functions = NULL;
    tl_drv_unlock();
    /* Not under the lock: the objects of compiled code are closed with it. */
    while (functions != NULL) {
        struct CUfunc_st *f = functions;
        functions = f->next;
        tl_drv_code_finish(f);
        free(f->settings);
        tl_mutex_destroy(&f->code_lock);
        f->magic = TL_DRV_DEAD;
        free(f);
    }
    free(m);
}

CUresult tl_drv_module_function(struct CUmod_st *module, const char *name, struct CUfunc_st **out)
{
    const struct tl_ptx_item *item = tl_ptx_index_find(module->image->index, tl_str_of(name));
    if (item == NULL || item->kind != TL_PTX_ITEM_ENTRY || item->body == 0)
        return CUDA_ERROR_NOT_FOUND;
    struct tl_drv_kernel_info *info;
    CUresult r = tl_drv_kernel_info(module->image, name, &info);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    struct CUfunc_st *f = module->functions;
    while (f != NULL && f->info != info)
        f = f->next;
    bool is_new = f == NULL;
    if (is_new) {
        f = calloc(1, sizeof *f);
        if (f != NULL) {
            f->magic = TL_DRV_FUNCTION;
            f->module = module;
            f->info = info;
            f->carveout = -1;
            tl_mutex_init(&f->code_lock);
            f->next = module->functions;
            module->functions = f;
        }
    }
    tl_drv_unlock();
    if (is_new && f != NULL)
        tl_drv_code_expect(f);
    *out = f;
    return f != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* --- the calls -------------------------------------------------------------------------------- */

/* The error log of the JIT options, if the caller gave one. */
static void report(CUresult r, unsigned n, CUjit_option *options, void **values)
{
    char *log = NULL;
    size_t bytes = 0;
    for (unsigned i = 0; i < n && options != NULL && values != NULL; i++) {
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
            log = values[i];
        else if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            bytes = (size_t)(uintptr_t)values[i];
    }
    if (log != NULL && bytes > 0)
        snprintf(log, bytes, "%s",
                 r == CUDA_SUCCESS ? "" : "this PTX could not be loaded; standard error tells why");
}

uint32_t tl_drv_max_registers(unsigned n, const CUjit_option *options, void *const *values)
{
    uint32_t most = 0;
    for (unsigned i = 0; i < n && options != NULL && values != NULL; i++)
        if (options[i] == CU_JIT_MAX_REGISTERS)
            most = (uint32_t)(uintptr_t)values[i];
    return most;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
                            CUjit_option *options, void **optionValues)
{
    struct CUctx_st *ctx;
    struct tl_drv_image *loaded;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (module == NULL || image == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    r = tl_drv_image_load(image, &loaded);
    if (r == CUDA_SUCCESS) {
        loaded->max_registers = tl_drv_max_registers(numOptions, options, optionValues);
        r = tl_drv_module_create(ctx, loaded, module);
        tl_drv_lock();
        tl_drv_image_unref(loaded);
        tl_drv_unlock();
    }
    report(r, numOptions, options, optionValues);
    return r;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
    return cuModuleLoadDataEx(module, fatCubin, 0, NULL, NULL);
}

CUresult cuModuleLoad(CUmodule *module, const char *fname)
{
    char *bytes;
    if (module == NULL || fname == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = tl_drv_image_read(fname, &bytes);
    if (r == CUDA_SUCCESS)
        r = cuModuleLoadData(module, bytes);
    free(bytes);
    return r;
}

static CUresult check(CUmodule m)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    return m != NULL && m->magic == TL_DRV_MODULE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuModuleUnload(CUmodule hmod)
{
    CUresult r = check(hmod);
    if (r != CUDA_SUCCESS)
        return r;
    if (hmod->library != NULL)
        return CUDA_ERROR_NOT_PERMITTED;
    tl_drv_context_drain(hmod->ctx);
    tl_drv_module_destroy(hmod);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    CUresult r = check(hmod);
    if (r != CUDA_SUCCESS)
        return r;
    if (hfunc == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return tl_drv_module_function(hmod, name, hfunc);
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
    CUresult r = check(hmod);
    if (r != CUDA_SUCCESS)
        return r;
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct tl_drv_global *g = tl_drv_module_global(hmod, tl_str_of(name));
    if (g == NULL)
        return CUDA_ERROR_NOT_FOUND;
    if (dptr != NULL)
        *dptr = g->address;
    if (bytes != NULL)
        *bytes = g->bytes;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    CUresult r = tl_drv_check_init();
    if (r == CUDA_SUCCESS && mode == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *mode = CU_MODULE_LAZY_LOADING;
    return r;
}

static bool is_kernel(const struct tl_ptx_item *item)
{
    return item->kind == TL_PTX_ITEM_ENTRY && item->body != 0;
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule mod)
{
    CUresult r = check(mod);
    if (r == CUDA_SUCCESS && count == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return r;
    *count = 0;
    for (uint32_t i = 0; i < mod->image->n_items; i++)
        *count += is_kernel(tl_ptx_index_item(mod->image->index, i));
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
    unsigned n = 0;
    CUresult r = check(mod);
    if (r == CUDA_SUCCESS && functions == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; r == CUDA_SUCCESS && n < numFunctions && i < mod->image->n_items; i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(mod->image->index, i);
        if (!is_kernel(item))
            continue;
        char *name = strndup(item->name.p, item->name.n);
        r = name != NULL ? tl_drv_module_function(mod, name, &functions[n++])
                         : CUDA_ERROR_OUT_OF_MEMORY;
        free(name);
    }
    return r;
}

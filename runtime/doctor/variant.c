/* A kernel in one of its forms, on the device; see runtime/doctor/bench.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/doctor/bench.h"

CUresult tl_doc_load(const char *text, const char *entry, CUmodule *module, CUfunction *function)
{
    CUresult r = tl_doc_driver.cuModuleLoadData(module, text);
    return r == CUDA_SUCCESS ? tl_doc_driver.cuModuleGetFunction(function, *module, entry) : r;
}

static int rewrite(struct tl_doc_form *f, struct tl_error *err)
{
    struct tl_ptx_index *index = NULL;
    const struct tl_doc_kernel *k = f->kernel;
    struct tl_ptx_options o = {.variant = (enum tl_ptx_variant)f->variant,
                               .grid_dims = k->is_3d ? 3 : 1};
    int rc = tl_ptx_index_create(&index, k->text, strlen(k->text), k->name, err);
    if (rc == 0)
        rc = tl_ptx_rewrite(index, tl_str_of(k->name), &o, &f->r, NULL, err);
    tl_ptx_index_destroy(index);
    return rc;
}

/* Where variables of the original are: in arguments, and in the table that functions read. */
static CUresult find_variables(struct tl_doc_form *f, CUmodule original)
{
    CUresult r = CUDA_SUCCESS;
    CUdeviceptr table = 0, address = 0;
    size_t bytes;
    if (f->r.n_args > sizeof f->variables / sizeof *f->variables)
        return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; r == CUDA_SUCCESS && i < f->r.n_args; i++)
        if (f->r.args[i].kind == TL_PTX_ARG_VARIABLE) {
            r = tl_doc_driver.cuModuleGetGlobal_v2(&address, &bytes, original,
                                                   f->r.args[i].variable);
            f->variables[i] = address;
        }
    if (r == CUDA_SUCCESS && f->r.n_table > 0)
        r = tl_doc_driver.cuModuleGetGlobal_v2(&table, &bytes, f->module, f->r.table_name);
    for (uint32_t i = 0; r == CUDA_SUCCESS && i < f->r.n_table; i++) {
        r = tl_doc_driver.cuModuleGetGlobal_v2(&address, &bytes, original, f->r.table[i]);
        if (r == CUDA_SUCCESS)
            r = tl_doc_driver.cuMemcpyHtoD_v2(table + i * sizeof address, &address, sizeof address);
    }
    return r;
}

int tl_doc_form_make(struct tl_doc_form *f, const struct tl_doc_kernel *k, int variant,
                     const struct tl_doc_form *original, struct tl_error *err)
{
    int occupancy = 0, rc = 0;
    *f = (struct tl_doc_form){.kernel = k, .variant = variant, .shared_bytes = k->shared_bytes};
    if (variant != TL_DOC_ORIGINAL)
        rc = rewrite(f, err);
    if (rc < 0)
        return rc;
    bool is_original = variant == TL_DOC_ORIGINAL;
    CUresult r = tl_doc_load(is_original ? k->text : f->r.text, is_original ? k->name : f->r.entry,
                             &f->module, &f->function);
    if (r != CUDA_SUCCESS)
        return tl_error_set(err, -EIO, "the driver does not load it: %s", tl_doc_error(r));
    if (f->r.uses_slot)
        f->shared_bytes = TL_PTX_SHARED_BYTES(k->shared_bytes);
    if (!is_original)
        r = find_variables(f, original->module);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &occupancy, f->function, TL_DOC_THREADS, f->shared_bytes);
    if (r != CUDA_SUCCESS || occupancy < 1)
        return tl_error_set(err, -EIO, "the driver does not set it up: %s", tl_doc_error(r));
    f->occupancy = (uint32_t)occupancy;
    return 0;
}

void tl_doc_form_free(struct tl_doc_form *f)
{
    if (f->module != NULL)
        tl_doc_driver.cuModuleUnload(f->module);
    tl_ptx_rewritten_finish(&f->r);
    *f = (struct tl_doc_form){0};
}

/* --- launching -------------------------------------------------------------------------------- */

CUresult tl_doc_launch(struct tl_doc_bench *b, const struct tl_doc_form *f,
                       const struct tl_doc_shape *s, const struct tl_doc_piece *p)
{
    enum { OWN_BYTES = 36, MOST_BYTES = 4096 };
    _Alignas(16) uint8_t params[MOST_BYTES] = {0};
    const CUdeviceptr arrays[] = {b->in, b->out, b->runs, b->aux};
    size_t n = OWN_BYTES + (f->kernel->has_big ? sizeof b->data->big : 0);
    bool is_original = f->variant == TL_DOC_ORIGINAL;
    memcpy(params, arrays, sizeof arrays);
    memcpy(params + sizeof arrays, &s->spin, sizeof s->spin);
    if (f->kernel->has_big)
        memcpy(params + OWN_BYTES, b->data->big, sizeof b->data->big);
    if (!is_original) {
        if (f->r.original_bytes != n || f->r.param_bytes > MOST_BYTES)
            return CUDA_ERROR_INVALID_VALUE;
        struct tl_ptx_extra extra = {.grid = {s->grid[0], s->grid[1], s->grid[2]},
                                     .first = p->first,
                                     .blocks = s->blocks,
                                     .batch_mask = p->batch - 1,
                                     .counter = b->counter,
                                     .words = {b->page.device},
                                     .variables = f->variables};
        tl_ptx_put_args(f->r.args, f->r.n_args, &extra, params);
        n = f->r.param_bytes;
    }
    void *buffer[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &n,
                      CU_LAUNCH_PARAM_END};
    CUresult r = tl_doc_driver.cuEventRecord(b->begin, b->stream);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuLaunchKernel(f->function, is_original ? s->grid[0] : p->grid,
                                         is_original ? s->grid[1] : 1, is_original ? s->grid[2] : 1,
                                         TL_DOC_THREADS, 1, 1, f->shared_bytes, b->stream, NULL,
                                         buffer);
    return r == CUDA_SUCCESS ? tl_doc_driver.cuEventRecord(b->end, b->stream) : r;
}

/* A kernel in one of its forms, on the device; see runtime/doctor/bench.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/doctor/bench.h"
#include "tally/cubin.h"

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

int tl_doc_form_measure(struct tl_doc_form *f, struct tl_error *err)
{
    int occupancy = 0;
    CUresult r = tl_doc_driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &occupancy, f->function, TL_DOC_THREADS, f->shared_bytes);
    if (r != CUDA_SUCCESS || occupancy < 1)
        return tl_error_set(err, -EIO, "the driver does not set it up: %s", tl_doc_error(r));
    f->occupancy = (uint32_t)occupancy;
    return 0;
}

int tl_doc_form_make(struct tl_doc_form *f, const struct tl_doc_kernel *k, int variant,
                     const struct tl_doc_form *original, struct tl_error *err)
{
    int rc = 0;
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
    if (r != CUDA_SUCCESS)
        return tl_error_set(err, -EIO, "the driver does not set it up: %s", tl_doc_error(r));
    return tl_doc_form_measure(f, err);
}

void tl_doc_form_free(struct tl_doc_form *f)
{
    if (f->module != NULL)
        tl_doc_driver.cuModuleUnload(f->module);
    tl_ptx_rewritten_finish(&f->r);
    *f = (struct tl_doc_form){0};
}

/* --- launching -------------------------------------------------------------------------------- */

enum { OWN_BYTES = 36, MOST_BYTES = 4096 };

/* What a rewritten form takes behind the kernel's own `n` bytes; how many they are then, 0 if it is
 * not what it should be. */
static size_t put_extra(const struct tl_doc_bench *b, const struct tl_doc_form *f,
                        const struct tl_doc_shape *s, const struct tl_doc_piece *p, uint8_t *params,
                        size_t n)
{
    if (f->r.original_bytes != n || f->r.param_bytes > MOST_BYTES)
        return 0;
    struct tl_ptx_extra extra = {.grid = {s->grid[0], s->grid[1], s->grid[2]},
                                 .first = p->first,
                                 .blocks = s->blocks,
                                 .batch_mask = p->batch - 1,
                                 .counter = b->counter,
                                 .words = {b->page.device},
                                 .variables = f->variables};
    tl_ptx_put_args(f->r.args, f->r.n_args, &extra, params);
    return f->r.param_bytes;
}

/* The same of a gate: the word is one of four, the others never say anything. */
static size_t put_gate(const struct tl_doc_bench *b, const struct tl_doc_form *f,
                       const struct tl_doc_piece *p, uint8_t *params, size_t n)
{
    enum { APART = 64 };
    struct tl_cubin_args args = {.word = b->counter, .first = p->first, .last = p->last};
    if (f->gate_offset < n || f->gate_offset + sizeof args > MOST_BYTES)
        return 0;
    for (uint32_t i = 0; i < TL_CUBIN_STOP_WORDS; i++)
        args.stop[i] = b->page.device + (uint64_t)APART * i;
    memcpy(params + f->gate_offset, &args, sizeof args);
    return f->gate_offset + sizeof args;
}

CUresult tl_doc_launch(struct tl_doc_bench *b, const struct tl_doc_form *f,
                       const struct tl_doc_shape *s, const struct tl_doc_piece *p)
{
    _Alignas(16) uint8_t params[MOST_BYTES] = {0};
    const CUdeviceptr arrays[] = {b->in, b->out, b->runs, b->aux};
    size_t n = OWN_BYTES + (f->kernel->has_big ? sizeof b->data->big : 0);
    bool is_whole = f->variant == TL_DOC_ORIGINAL || f->variant == TL_DOC_GATED;
    memcpy(params, arrays, sizeof arrays);
    memcpy(params + sizeof arrays, &s->spin, sizeof s->spin);
    if (f->kernel->has_big)
        memcpy(params + OWN_BYTES, b->data->big, sizeof b->data->big);
    if (f->variant == TL_DOC_GATED)
        n = put_gate(b, f, p, params, n);
    else if (f->variant != TL_DOC_ORIGINAL)
        n = put_extra(b, f, s, p, params, n);
    if (n == 0)
        return CUDA_ERROR_INVALID_VALUE;
    void *buffer[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &n,
                      CU_LAUNCH_PARAM_END};
    bool by_one = f->variant == TL_DOC_GATED && !p->by_buffer;
    uint8_t *end = params + f->gate_offset;
    void *each[] = {params,      params + 8,  params + 16,
                    params + 24, params + 32, f->kernel->has_big ? params + OWN_BYTES : end,
                    end};
    CUresult r = tl_doc_driver.cuEventRecord(b->begin, b->stream);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuLaunchKernel(f->function, is_whole ? s->grid[0] : p->grid,
                                         is_whole ? s->grid[1] : 1, is_whole ? s->grid[2] : 1,
                                         TL_DOC_THREADS, 1, 1, f->shared_bytes, b->stream,
                                         by_one ? each : NULL, by_one ? NULL : buffer);
    return r == CUDA_SUCCESS ? tl_doc_driver.cuEventRecord(b->end, b->stream) : r;
}

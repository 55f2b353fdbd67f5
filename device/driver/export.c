/* Tables of functions that NVIDIA's own libraries ask for by GUID.  What is here was learnt by
 * watching calls and from the published sources of ZLUDA and Lupine; every slot is filled, because
 * clients look at no size before they call. */
#include "device/driver/context.h"
#include "device/driver/device.h"
#include "device/driver/handle.h"
#include "device/driver/integrity.h"
#include "device/driver/lock.h"
#include "device/driver/log.h"
#include "device/driver/stream.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 128 };

typedef void (*slot)(void); /* of whatever type */

static CUresult nothing(void)
{
    return CUDA_SUCCESS;
}

/* --- cudart's interface ----------------------------------------------------------------------- */

static CUresult load_module(CUmodule *module, const void *wrapper)
{
    return cuModuleLoadData(module, wrapper);
}

/* The handle of the primary context, without retaining it. */
static CUresult primary_handle(CUcontext *out, CUdevice dev)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(dev, &d);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    *out = tl_drv_primary(d);
    tl_drv_unlock();
    return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult load_module_with(CUmodule *module, const void *wrapper, void *a, void *b,
                                 unsigned c)
{
    (void)a, (void)b, (void)c;
    return cuModuleLoadData(module, wrapper);
}

static CUresult load_container_with(const void *container, CUmodule *module, void *a, void *b,
                                    unsigned c)
{
    (void)a, (void)b, (void)c;
    return cuModuleLoadData(module, container);
}

/* --- tools ------------------------------------------------------------------------------------ */

static void hook_buffer(void **out, size_t *n)
{
    static uint32_t buffer[1024];
    *out = buffer;
    *n = 1024;
}

static void hook_buffer_small(void **out, size_t *n)
{
    static uint32_t buffer[14];
    *out = buffer;
    *n = 14;
}

static CUresult thread_context(CUcontext *out)
{
    *out = tl_drv_current();
    return CUDA_SUCCESS;
}

/* A thread that has no context will have the first device's primary one, by cudart, as soon as it
 * launches.  cuBLAS looks for its kernels before: with an error it would find none. */
static CUresult context_number(CUcontext ctx, uint64_t *id)
{
    unsigned long long number = 0;
    if (ctx == NULL && tl_drv_current() == NULL)
        (void)primary_handle(&ctx, 0);
    CUresult r = cuCtxGetId(ctx, &number);
    *id = number;
    return r;
}

static CUresult stream_number(CUcontext ctx, CUstream stream, uint64_t *id)
{
    struct CUstream_st *s;
    (void)ctx;
    CUresult r = tl_drv_stream(stream, &s);
    if (r == CUDA_SUCCESS)
        *id = s->id;
    return r;
}

static CUresult resolve_stream(CUcontext ctx, CUstream stream, void **out, unsigned is_per_thread)
{
    struct CUstream_st *s;
    (void)ctx;
    if (stream == NULL && is_per_thread != 0)
        stream = CU_STREAM_PER_THREAD;
    CUresult r = tl_drv_stream(stream, &s);
    if (r == CUDA_SUCCESS)
        *out = s;
    return r;
}

/* Calls back for each function of a module, and tells how many there were.  cuFFT finds its kernels
 * so; what the slot does is known from the published sources of Lupine, which forwards it. */
static uint64_t each_function(CUcontext ctx, CUmodule module,
                              void (*found)(void *, CUfunction, uint64_t), void *data)
{
    unsigned n = 0;
    (void)ctx;
    if (found == NULL || cuModuleGetFunctionCount(&n, module) != CUDA_SUCCESS || n == 0)
        return 0;
    CUfunction *functions = calloc(n, sizeof *functions);
    if (functions == NULL || cuModuleEnumerateFunctions(functions, n, module) != CUDA_SUCCESS)
        n = 0;
    for (unsigned i = 0; i < n; i++)
        found(data, functions[i], (uintptr_t)module);
    free(functions);
    return n;
}

static CUresult context_check(CUcontext ctx, uint32_t *flag, void **out)
{
    (void)ctx;
    if (flag != NULL)
        *flag = 0;
    if (out != NULL)
        *out = NULL;
    return CUDA_SUCCESS;
}

/* --- storage that cudart keeps per context ---------------------------------------------------- */

static CUresult local_put(CUcontext ctx, void *key, void *value,
                          void (*destroy)(CUcontext, void *, void *))
{
    if (ctx == NULL)
        ctx = tl_drv_current();
    struct tl_drv_local *l = ctx != NULL ? malloc(sizeof *l) : NULL;
    if (l == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    *l = (struct tl_drv_local){.key = key, .value = value, .destroy = destroy};
    tl_drv_lock();
    l->next = ctx->locals;
    ctx->locals = l;
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

static CUresult local_delete(CUcontext ctx, void *key)
{
    struct tl_drv_local *found = NULL;
    if (ctx == NULL)
        ctx = tl_drv_current();
    if (ctx == NULL || ctx->magic != TL_DRV_CONTEXT)
        return CUDA_ERROR_INVALID_CONTEXT;
    tl_drv_lock();
    for (struct tl_drv_local **at = &ctx->locals; *at != NULL; at = &(*at)->next) {
        if ((*at)->key == key) {
            found = *at;
            *at = found->next;
            break;
        }
    }
    tl_drv_unlock();
    free(found);
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Failing for a key that is not there is what makes cudart retain the primary context. */
static CUresult local_get(void **out, CUcontext ctx, void *key)
{
    CUresult r = CUDA_ERROR_INVALID_HANDLE;
    if (ctx == NULL)
        ctx = tl_drv_current();
    if (ctx == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    tl_drv_lock();
    for (struct tl_drv_local *l = ctx->locals; l != NULL; l = l->next) {
        if (l->key == key) {
            *out = l->value;
            r = CUDA_SUCCESS;
            break;
        }
    }
    tl_drv_unlock();
    return r;
}

/* --- the tables ------------------------------------------------------------------------------- */

static CUresult integrity(uint32_t version, uint64_t seconds, uint8_t out[16]);

struct table {
    uint8_t guid[16];
    size_t words; /* as written into word 0; 0: the table has no such word */
    struct {
        unsigned slot;
        slot function;
    } filled[6];
    slot slots[SLOTS];
};

static struct table tables[] = {
    {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d,
      0xf9},
     13,
     {{1, (slot)load_module},
      {2, (slot)primary_handle},
      {6, (slot)load_module_with},
      {8, (slot)load_container_with}},
     {0}},
    {{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1,
      0xf2},
     3,
     {{1, (slot)integrity}},
     {0}},
    {{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a,
      0x66},
     7,
     {{2, (slot)hook_buffer}, {6, (slot)hook_buffer_small}},
     {0}},
    {{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec,
      0xdc},
     4,
     {{2, (slot)thread_context}},
     {0}},
    {{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95,
      0x93},
     0,
     {{0, (slot)local_put}, {1, (slot)local_delete}, {2, (slot)local_get}},
     {0}},
    {{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa,
      0x7e},
     4,
     {{2, (slot)context_check}},
     {0}},
    {{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8,
      0xf2},
     95,
     {{4, (slot)context_number}, {39, (slot)stream_number}, {51, (slot)resolve_stream}},
     {0}},
    {{0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99,
      0x1e},
     95,
     {{7, (slot)each_function}},
     {0}},
};
enum { CUDART_TABLE = 0, INTEGRITY_TABLE = 1, N_TABLES = sizeof tables / sizeof tables[0] };

static CUresult integrity(uint32_t version, uint64_t seconds, uint8_t out[16])
{
    const void *function;
    memcpy(&function, &tables[INTEGRITY_TABLE].slots[1], sizeof function);
    tl_drv_integrity(version, seconds, tables[CUDART_TABLE].slots, tables[INTEGRITY_TABLE].slots,
                     function, out);
    return CUDA_SUCCESS;
}

static void fill_tables(void)
{
    for (size_t t = 0; t < N_TABLES; t++) {
        for (size_t i = 0; i < SLOTS; i++)
            tables[t].slots[i] = (slot)nothing;
        if (tables[t].words != 0) {
            size_t bytes = tables[t].words * sizeof(slot);
            memcpy(&tables[t].slots[0], &bytes, sizeof bytes);
        }
        for (size_t i = 0; i < 6; i++)
            if (tables[t].filled[i].function != NULL)
                tables[t].slots[tables[t].filled[i].slot] = tables[t].filled[i].function;
    }
}

CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (ppExportTable == NULL || pExportTableId == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_once(&once, fill_tables);
    for (size_t t = 0; t < N_TABLES; t++) {
        if (memcmp(tables[t].guid, pExportTableId->bytes, 16) == 0) {
            *ppExportTable = tables[t].slots;
            return CUDA_SUCCESS;
        }
    }
    const uint8_t *g = (const uint8_t *)pExportTableId->bytes;
    tl_drv_trace("export table %02x%02x%02x%02x is not known", g[0], g[1], g[2], g[3]);
    *ppExportTable = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

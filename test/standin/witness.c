/* A driver that remembers what it was asked for: the software device, behind a list of launches,
 * settings and copies that tests of the best-effort part look at.  It is for tests that open the
 * interception library themselves; whatever is not defined here is the software device's, which
 * this library is linked with. */
#pragma GCC visibility push(default)
#include "test/standin/witness.h"
#pragma GCC visibility pop

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 1 << 16 };
#define REAL(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct witness_call calls[MANY];
static uint32_t n_calls;

const struct witness_call *witness_calls(uint32_t *n)
{
    pthread_mutex_lock(&lock);
    *n = n_calls;
    pthread_mutex_unlock(&lock);
    return calls;
}

void witness_forget(void)
{
    pthread_mutex_lock(&lock);
    n_calls = 0;
    pthread_mutex_unlock(&lock);
}

static void keep(const struct witness_call *c)
{
    pthread_mutex_lock(&lock);
    if (n_calls < MANY)
        calls[n_calls++] = *c;
    pthread_mutex_unlock(&lock);
}

/* --- names --- */

static struct {
    const void *handle;
    char name[96];
} functions[1024];
static uint32_t n_functions;

static void call_it(const void *handle, const char *name)
{
    pthread_mutex_lock(&lock);
    if (n_functions < sizeof functions / sizeof *functions) {
        functions[n_functions].handle = handle;
        snprintf(functions[n_functions++].name, sizeof functions->name, "%s", name);
    }
    pthread_mutex_unlock(&lock);
}

static void name_it(struct witness_call *c, const void *handle)
{
    pthread_mutex_lock(&lock);
    for (uint32_t i = n_functions; i > 0 && c->name[0] == 0; i--)
        if (functions[i - 1].handle == handle)
            memcpy(c->name, functions[i - 1].name, sizeof c->name);
    pthread_mutex_unlock(&lock);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    CUresult r = REAL(cuModuleGetFunction)(function, module, name);
    if (r == CUDA_SUCCESS)
        call_it(*function, name);
    return r;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    CUresult r = REAL(cuLibraryGetKernel)(kernel, library, name);
    if (r == CUDA_SUCCESS)
        call_it(*kernel, name);
    return r;
}

/* --- registers --- */

/* With WITNESS_LIMIT, forms of kernels take far more registers than kernels do, and a compiler
 * cannot keep to a limit on them; or with WITNESS_LIMIT=kept, it can. */
static bool has_limits(void)
{
    return getenv("WITNESS_LIMIT") != NULL;
}

static bool is_refused(const void *text)
{
    bool is_limited = has_limits() && strstr(text, ".maxnreg") != NULL;
    if (is_limited)
        keep(&(struct witness_call){.kind = WITNESS_LIMITED});
    return is_limited && strcmp(getenv("WITNESS_LIMIT"), "kept") != 0;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    const char *text = image;
    if (has_limits() && text[0] == '.' && is_refused(text))
        return CUDA_ERROR_INVALID_PTX;
    return REAL(cuModuleLoadData)(module, image);
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size,
                          const char *name, unsigned n, CUjit_option *options, void **values)
{
    if (has_limits() && type == CU_JIT_INPUT_PTX && is_refused(data))
        return CUDA_ERROR_INVALID_PTX;
    return REAL(cuLinkAddData_v2)(state, type, data, size, name, n, options, values);
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute id, CUfunction f)
{
    struct witness_call c = {0};
    CUresult r = REAL(cuFuncGetAttribute)(value, id, f);
    name_it(&c, f);
    if (r == CUDA_SUCCESS && has_limits() && id == CU_FUNC_ATTRIBUTE_NUM_REGS)
        *value = strstr(c.name, "__tally_") != NULL ? 60 : 16;
    return r;
}

/* --- launches and settings --- */

static int domain_of(CUstream stream)
{
    CUstreamAttrValue v;
    memset(&v, 0, sizeof v);
    return REAL(cuStreamGetAttribute)(stream, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &v) ==
                   CUDA_SUCCESS
               ? (int)v.memSyncDomain
               : -1;
}

static void launched(CUfunction f, const CUlaunchConfig *config, CUresult r)
{
    struct witness_call c = {.kind = WITNESS_LAUNCH,
                             .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                             .shared_bytes = config->sharedMemBytes,
                             .stream = config->hStream,
                             .domain = domain_of(config->hStream),
                             .result = r};
    name_it(&c, f);
    for (; c.n_attributes < config->numAttrs && c.n_attributes < 16; c.n_attributes++)
        c.attributes[c.n_attributes] = config->attrs[c.n_attributes];
    keep(&c);
}

CUresult cuLaunchKernel(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
    CUlaunchConfig config = {
        .gridDimX = x, .gridDimY = y, .gridDimZ = z, .sharedMemBytes = shared, .hStream = stream};
    CUresult r = REAL(cuLaunchKernel)(f, x, y, z, bx, by, bz, shared, stream, params, extra);
    launched(f, &config, r);
    return r;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
    CUresult r = REAL(cuLaunchKernelEx)(config, f, params, extra);
    launched(f, config, r);
    return r;
}

static CUresult was_set(enum witness_kind kind, const void *handle, int value, CUresult r)
{
    struct witness_call c = {.kind = kind, .value = (uint64_t)(int64_t)value, .result = r};
    name_it(&c, handle);
    keep(&c);
    return r;
}

CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute id, int value)
{
    CUresult r = REAL(cuFuncSetAttribute)(f, id, value);
    if (id == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
        was_set(WITNESS_CARVEOUT, f, value, r);
    if (id == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        was_set(WITNESS_DYNAMIC, f, value, r);
    return r;
}

CUresult cuFuncSetCacheConfig(CUfunction f, CUfunc_cache config)
{
    return was_set(WITNESS_CACHE_CONFIG, f, (int)config, REAL(cuFuncSetCacheConfig)(f, config));
}

/* Windows of graphs' kernels, which the software device takes and forgets. */
static struct {
    CUgraphNode node;
    CUkernelNodeAttrValue value;
} windows[64];
static uint32_t n_windows;

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
                                       const CUkernelNodeAttrValue *value)
{
    if (id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW && n_windows < 64) {
        windows[n_windows].node = node;
        windows[n_windows++].value = *value;
    }
    return REAL(cuGraphKernelNodeSetAttribute)(node, id, value);
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
                                       CUkernelNodeAttrValue *value)
{
    CUresult r = REAL(cuGraphKernelNodeGetAttribute)(node, id, value);
    for (uint32_t i = 0; id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW && i < n_windows; i++)
        if (windows[i].node == node)
            *value = windows[i].value;
    return r;
}

/* --- copies --- */

static CUresult copied(uint64_t to, uint64_t from, uint64_t bytes, CUstream stream, CUresult r)
{
    keep(&(struct witness_call){.kind = WITNESS_COPY,
                                .to = to,
                                .from = from,
                                .value = bytes,
                                .stream = stream,
                                .result = r});
    return r;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream stream)
{
    return copied(to, (uintptr_t)from, n, stream, REAL(cuMemcpyHtoDAsync_v2)(to, from, n, stream));
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream stream)
{
    return copied((uintptr_t)to, from, n, stream, REAL(cuMemcpyDtoHAsync_v2)(to, from, n, stream));
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream)
{
    return copied(to, from, n, stream, REAL(cuMemcpyDtoDAsync_v2)(to, from, n, stream));
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream)
{
    return copied(to, from, n, stream, REAL(cuMemcpyAsync)(to, from, n, stream));
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n)
{
    return copied(to, (uintptr_t)from, n, NULL, REAL(cuMemcpyHtoD_v2)(to, from, n));
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n)
{
    return copied((uintptr_t)to, from, n, NULL, REAL(cuMemcpyDtoH_v2)(to, from, n));
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *p, CUstream stream)
{
    return copied(0, 0, p->WidthInBytes * p->Height, stream, REAL(cuMemcpy2DAsync_v2)(p, stream));
}

/* --- allocation in stream order --- */

CUresult cuMemAllocAsync(CUdeviceptr *at, size_t n, CUstream stream)
{
    CUresult r = REAL(cuMemAllocAsync)(at, n, stream);
    keep(&(struct witness_call){.kind = WITNESS_ALLOC,
                                .to = r == CUDA_SUCCESS ? *at : 0,
                                .value = n,
                                .stream = stream,
                                .result = r});
    return r;
}

CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream)
{
    CUresult r = REAL(cuMemFreeAsync)(at, stream);
    keep(&(struct witness_call){.kind = WITNESS_FREE, .to = at, .stream = stream, .result = r});
    return r;
}

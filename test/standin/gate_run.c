/* gate-run PTXAS FILE.ptx FILE.cubin: runs every kernel of a cubin that can be gated on the driver
 * that TALLY_DRIVER names, and its gated forms, and compares every byte that they leave.
 *
 * The driver must know the code by what this program keeps of it in the store (tally/origin.h), or
 * be a GPU's.  Parameters are made up: a buffer for what has 8 bytes, a small number for what has
 * 4, and ascending words for what is larger.  Blocks run one after the other if the device has one
 * SM, so that kernels which write over each other leave the same every time. */
#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL 1
#endif
#include <cuda.h>

#include "tally/cubin.h"
#include "tally/file.h"
#include "tally/image.h"
#include "tally/origin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 5, BUFFER = 1 << 17, MOST_PARAMS = 32, MOST_BYTES = 32768, NUMBER = 3 };

/* Kernels that want other than 32 threads, or another number, or cannot be compared. */
static const struct special {
    const char *name;
    uint32_t threads, y, shared;
    int32_t number; /* -1: NUMBER */
    const char *not_run;
} specials[] = {
    {"required", 64, 2, 0, -1, NULL},
    {"tree", 256, 1, 0, -1, NULL},
    {"copies", 128, 1, 0, -1, NULL},
    {"uses_dynamic", 32, 1, 1024, -1, NULL},
    {"uses_both", 32, 1, 1024, -1, NULL},
    {"recurses", 4, 1, 0, -1, NULL},
    {"grows_stack", 0, 0, 0, 0, "takes what its blocks write as places"},
    {"brain_floats", 0, 0, 0, 0, "its threads write over what others read"},
    {"asserts", 32, 1, 0, 0, NULL},
    {"asserts_and_calls", 32, 1, 0, 0, NULL},
    {"virtual_calls", 1, 1, 0, 0, NULL},
    {"one_pointer", 0, 0, 0, 0, "tells the time"},
    {"ends_in_loop", 0, 0, 0, 0, "its blocks count down the same words"},
    {"textures", 0, 0, 0, 0, "takes textures"},
    {"wide_loads", 0, 0, 0, 0, "reads shared memory that it has not"},
    {"allocates", 0, 0, 0, 0, "writes addresses"},
    {"named_barriers", 0, 0, 0, 0, "reads shared memory that nobody wrote"},
    {"atomics", 0, 0, 0, 0, "reads shared memory that nobody wrote"},
    {"grid_wide", 0, 0, 0, 0, "is cooperative"},
    {"through_argument", 0, 0, 0, 0, "takes the address of a function"},
    {"bulk", 0, 0, 0, 0, "takes a tensor map"},
    {"most_registers", 0, 0, 0, 0, "writes an address"},
};

static const struct special *special_of(const char *name)
{
    static const struct special plain = {"", 32, 1, 0, -1, NULL};
    for (size_t i = 0; i < sizeof specials / sizeof specials[0]; i++)
        if (strcmp(specials[i].name, name) == 0)
            return &specials[i];
    return &plain;
}

static void *driver;
#define CALL(name) ((__typeof__(name) *)symbol(#name))

_Noreturn static void die(const char *what, const char *more)
{
    fprintf(stderr, "gate-run: %s %s\n", what, more);
    exit(1);
}

static void *symbol(const char *name)
{
    void *p = dlsym(driver, name);
    if (p == NULL)
        die("the driver has no", name);
    return p;
}

static void ok(CUresult r, const char *what)
{
    char number[32];
    snprintf(number, sizeof number, "error %d", (int)r);
    if (r != CUDA_SUCCESS)
        die(what, number);
}

/* --- a kernel --- */

struct kernel {
    char name[256];
    const struct special *special;
    const struct tl_cubin_entry *entry;
    struct tl_cubin_param params[MOST_PARAMS];
    uint32_t n_params;
    CUdeviceptr buffers[MOST_PARAMS];
};

struct words {
    CUdeviceptr stop, word;
};

static void fill(const struct kernel *k)
{
    static uint32_t pattern[BUFFER / 4];
    for (uint32_t i = 0; i < BUFFER / 4; i++)
        pattern[i] = (i * 7 + 3) % 50 + 1;
    for (uint32_t i = 0; i < k->n_params; i++)
        if (k->buffers[i] != 0)
            ok(CALL(cuMemcpyHtoD_v2)(k->buffers[i], pattern, BUFFER), "filling");
}

static void fetch(const struct kernel *k, uint8_t *out)
{
    memset(out, 0, (size_t)BUFFER * MOST_PARAMS);
    for (uint32_t i = 0; i < k->n_params; i++)
        if (k->buffers[i] != 0)
            ok(CALL(cuMemcpyDtoH_v2)(out + (size_t)BUFFER * i, k->buffers[i], BUFFER), "fetching");
}

/* Parameters one by one, and the gate's behind them. */
static CUresult launch(CUfunction f, const struct kernel *k, const struct words *w, uint32_t first,
                       uint32_t last)
{
    static _Alignas(16) uint8_t bytes[MOST_PARAMS][MOST_BYTES];
    struct tl_cubin_args args = {.word = w != NULL ? w->word : 0, .first = first, .last = last};
    void *params[MOST_PARAMS + 1];
    for (uint32_t i = 0; i < k->n_params; i++) {
        uint32_t small = k->special->number >= 0 ? (uint32_t)k->special->number : NUMBER;
        for (uint32_t j = 0; j < k->params[i].size / 4; j++)
            memcpy(bytes[i] + (size_t)4 * j, &(uint32_t){k->params[i].size > 8 ? 1000 + j : small},
                   4);
        if (k->params[i].size < 4)
            memset(bytes[i], (int)small, k->params[i].size);
        if (k->buffers[i] != 0)
            memcpy(bytes[i], &k->buffers[i], 8);
        params[i] = bytes[i];
    }
    for (int i = 0; w != NULL && i < TL_CUBIN_STOP_WORDS; i++)
        args.stop[i] = w->stop + 8 * (uint64_t)i;
    params[k->n_params] = &args;
    CUresult r = CALL(cuLaunchKernel)(f, BLOCKS, 1, 1, k->special->threads, k->special->y, 1,
                                      k->special->shared, NULL, params, NULL);
    return r == CUDA_SUCCESS ? CALL(cuCtxSynchronize)() : r;
}

static uint32_t word_at(CUdeviceptr p)
{
    uint32_t v;
    ok(CALL(cuMemcpyDtoH_v2)(&v, p, sizeof v), "the word");
    return v;
}

static CUfunction load(const void *cubin, const char *name, CUmodule *m)
{
    CUfunction f;
    ok(CALL(cuModuleLoadData)(m, cubin), "loading");
    ok(CALL(cuModuleGetFunction)(&f, *m, name), name);
    return f;
}

/* One way to run it gated: pieces, with a stop before the first if `stops`. */
static const char *try_gated(const void *cubin, const char *name, const struct kernel *k,
                             const struct words *w, const uint8_t *want, CUresult wanted, bool cuts)
{
    static uint8_t have[(size_t)BUFFER * MOST_PARAMS];
    static uint8_t before[(size_t)BUFFER * MOST_PARAMS];
    const char *wrong = NULL;
    CUmodule m;
    CUfunction f = load(cubin, name, &m);
    fill(k);
    fetch(k, before);
    ok(CALL(cuMemsetD8_v2)(w->word, 0, 4), "the word");
    ok(CALL(cuMemsetD8_v2)(w->stop, 0, 32), "the stop words");
    if (cuts && wanted == CUDA_SUCCESS) {
        ok(CALL(cuMemsetD8_v2)(w->stop + 16, 1, 1), "a stop word");
        CUresult r = launch(f, k, w, 0, BLOCKS);
        fetch(k, have);
        if (r != CUDA_SUCCESS || word_at(w->word) != TL_CUBIN_CLOSED ||
            memcmp(have, before, sizeof have) != 0)
            wrong = "it is not turned away by a stop word";
        ok(CALL(cuMemsetD8_v2)(w->stop, 0, 32), "the stop words");
        ok(CALL(cuMemsetD8_v2)(w->word, 0, 4), "the word");
        if (launch(f, k, w, 0, 2) != CUDA_SUCCESS || word_at(w->word) != 2)
            wrong = "it does not run two blocks";
    }
    CUresult r = launch(f, k, w, cuts && wanted == CUDA_SUCCESS ? 2 : 0, BLOCKS);
    if (r != wanted)
        wrong = "it ends otherwise than the original";
    else if (r == CUDA_SUCCESS && word_at(w->word) != BLOCKS)
        wrong = "the word does not say that all blocks have run";
    else if (r == CUDA_SUCCESS) {
        fetch(k, have);
        if (memcmp(have, want, sizeof have) != 0)
            wrong = "it leaves other bytes than the original";
    }
    CALL(cuModuleUnload)(m);
    return wrong;
}

/* --- a cubin --- */

static void *original;
static struct tl_cubin_gated forms[2]; /* in place, twins */

static void prepare(struct kernel *k, size_t n, const struct tl_cubin_entry *e)
{
    struct tl_error err = {0};
    snprintf(k->name, sizeof k->name, TL_STR_FMT, TL_STR_ARG(e->name));
    k->special = special_of(k->name);
    k->entry = e;
    struct tl_tables t;
    static struct tl_tables_facts facts;
    if (tl_tables_open(&t, original, n, &err) < 0)
        die("the cubin:", err.text);
    tl_tables_read(&t, tl_tables_find(&t, e->name), &facts);
    k->n_params = facts.n_params;
    for (uint32_t i = 0; i < k->n_params && i < MOST_PARAMS; i++) {
        k->params[i] = (struct tl_cubin_param){facts.params[i].offset, facts.params[i].bytes};
        if (facts.params[i].bytes == 8)
            ok(CALL(cuMemAlloc_v2)(&k->buffers[i], BUFFER), "memory");
    }
}

/* Runs a kernel as it is, then gated and as a twin, in one go and cut; how many of these differ. */
static int try_kernel(struct kernel *k, const struct words *w)
{
    static uint8_t want[(size_t)BUFFER * MOST_PARAMS];
    int failures = 0;
    CUmodule m;
    if (k->special->not_run != NULL) {
        printf("  --  %s: %s\n", k->name, k->special->not_run);
        return 0;
    }
    CUfunction f = load(original, k->name, &m);
    fill(k);
    CUresult wanted = launch(f, k, NULL, 0, 0);
    if (wanted == CUDA_SUCCESS)
        fetch(k, want);
    CALL(cuModuleUnload)(m);
    for (int i = 0; i < 4; i++) {
        char name[300];
        bool is_twin = i / 2;
        if (k->entry->wants_twin && !is_twin)
            continue; /* it would have variables of its own */
        snprintf(name, sizeof name, "%s%s", k->name, is_twin ? TL_CUBIN_TWIN_SUFFIX : "");
        const char *wrong = try_gated(forms[is_twin].bytes, name, k, w, want, wanted, i % 2);
        if (wrong != NULL)
            printf("FAIL  %s%s: %s\n", name, i % 2 ? ", cut" : "", wrong);
        failures += wrong != NULL;
    }
    if (failures == 0)
        printf("  ok  %s%s\n", k->name,
               wanted == CUDA_SUCCESS ? "" : ": refused as the original is");
    for (uint32_t i = 0; i < k->n_params; i++)
        if (k->buffers[i] != 0)
            CALL(cuMemFree_v2)(k->buffers[i]);
    return failures;
}

static char *read_all(const char *path, size_t *n)
{
    char *bytes;
    if (tl_file_read(path, SIZE_MAX, &bytes, n) < 0)
        die("cannot read", path);
    return bytes;
}

static void make_forms(const char *ptxas, const char *ptx, size_t n_ptx, size_t n,
                       struct tl_cubin *c)
{
    struct tl_error err = {0};
    struct tl_cubin_compiler *compiler;
    struct tl_cubin_gates *gates;
    struct tl_store store;
    char folder[TL_STORE_PATH];
    if (tl_store_folder(folder, &err) < 0 ||
        tl_store_open(&store, folder, tl_store_limit_mb(), &err) < 0 ||
        tl_cubin_ptxas_create(&compiler, ptxas, &err) < 0 ||
        tl_cubin_gates_create(&gates, compiler, &store, &err) < 0 ||
        tl_origin_keep(&store, original, n, ptx, n_ptx, &err) < 0)
        die("", err.text);
    for (int i = 0; i < 2; i++)
        if (tl_cubin_gate(c, &(struct tl_cubin_options){.is_twin = i}, gates, &forms[i], &err) < 0)
            die("gating:", err.text);
    tl_cubin_gates_destroy(gates);
    tl_cubin_ptxas_destroy(compiler);
    tl_store_close(&store);
}

int main(int argc, char **argv)
{
    struct tl_error err = {0};
    struct tl_cubin *c;
    struct words w;
    CUcontext ctx;
    size_t n, n_ptx;
    int failures = 0;
    const char *path = getenv("TALLY_DRIVER");
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 4 || path == NULL)
        die("see the head of", __FILE__);
    driver = dlopen(path, RTLD_NOW);
    if (driver == NULL)
        die("the driver:", dlerror());
    char *ptx = read_all(argv[2], &n_ptx);
    original = read_all(argv[3], &n);
    if (tl_cubin_open(&c, original, n, &err) < 0)
        die("the cubin:", err.text);
    make_forms(argv[1], ptx, n_ptx, n, c);
    ok(CALL(cuInit)(0), "cuInit");
    ok(CALL(cuDevicePrimaryCtxRetain)(&ctx, 0), "a context");
    ok(CALL(cuCtxSetCurrent)(ctx), "a context");
    ok(CALL(cuMemAlloc_v2)(&w.stop, 64), "memory");
    ok(CALL(cuMemAlloc_v2)(&w.word, 64), "memory");
    for (uint32_t i = 0; i < tl_cubin_count(c); i++) {
        static struct kernel k;
        memset(&k, 0, sizeof k);
        if (tl_cubin_entry(c, i)->reason != TL_CUBIN_REASON_OK)
            continue;
        prepare(&k, n, tl_cubin_entry(c, i));
        failures += try_kernel(&k, &w);
    }
    printf("%d failures\n", failures);
    for (int i = 0; i < 2; i++)
        tl_cubin_gated_finish(&forms[i]);
    tl_cubin_close(c);
    free(ptx);
    free(original);
    return failures != 0;
}

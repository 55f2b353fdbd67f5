/* A driver that misbehaves on demand: the software device, with a fault that TALLY_FAULT names.
 *
 *     lost-stores       kernels never see what the host writes into registered memory
 *     stale-words       they see what it was when they were launched
 *     late-data         a kernel's word to the host is there before what it wrote earlier
 *     no-registration   registration of the host's memory is refused
 *     wrong-bits:RUNG   what is copied back behind such a launch has one bit changed
 *     forget:RUNG       blocks are left out
 *     twice:RUNG        blocks are run twice
 *     refuse:RUNG       such modules are refused
 *     hang:RUNG         a launch does not return
 *     crash:RUNG        loading such a module crashes
 *                       (of the rung `gate` that is modules with twins, and the twins in them)
 *     no-cubins         modules of machine code are refused, libraries of it are not
 *     machine-code      no fault: its linker makes machine code, by the ptxas that
 *                       TALLY_FAULT_PTXAS names, as a GPU's driver does
 *     slow-stores       no fault: a kernel's first block waits for long behind each of its relaxed
 *                       stores, as one that loses its processor there does
 *     host-atomics      no fault: it says that it has atomics on the host's memory, as it has
 *     no-green          green contexts are refused
 *     capture           loading a module spoils a capture that is under way
 *     clock             events tell a thousand times what passed
 *     occupancy         twice as many blocks are said to fit as do
 *     copies            copies in stream order leave out their last word
 *
 * Whatever is not defined here is the software device's, which this library is linked with: who
 * looks up a name in it finds it there. */
#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL 1
#endif
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include <dlfcn.h>
#include <elf.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MANY = 256, PAGE = 4096 };

/* The software device's function of the name of the one that asks. */
#define REAL(name) ((__typeof__(name) *)real(#name))

static void *real(const char *name)
{
    static void *library;
    if (library == NULL)
        library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return library != NULL ? dlsym(library, name) : NULL;
}

static bool has_fault(const char *name)
{
    const char *fault = getenv("TALLY_FAULT");
    return fault != NULL && strcmp(fault, name) == 0;
}

/* --- which modules and functions are of the rung that is spoilt --- */

static void *spoilt[MANY]; /* modules and functions */
static uint32_t n_spoilt;
static bool is_result_spoilt; /* such a function was launched last */

static bool is_spoilt(const void *handle)
{
    for (uint32_t i = 0; i < n_spoilt; i++)
        if (spoilt[i] == handle)
            return true;
    return false;
}

/* Notes what is so; a handle may have been of something else before. */
static void spoil(void *handle, bool is_of_rung)
{
    for (uint32_t i = 0; i < n_spoilt; i++)
        if (spoilt[i] == handle)
            spoilt[i--] = spoilt[--n_spoilt];
    if (is_of_rung && n_spoilt < MANY)
        spoilt[n_spoilt++] = handle;
}

/* The rung that the fault names, or NULL. */
static const char *rung_of(const char *fault)
{
    const char *asked = getenv("TALLY_FAULT");
    size_t n = strlen(fault);
    return asked != NULL && strncmp(asked, fault, n) == 0 && asked[n] == ':' ? asked + n + 1 : NULL;
}

/* The name of a gated twin, in a cubin's table of names or as it is asked for. */
static bool has_twin(const void *image)
{
    const Elf64_Ehdr *h = image;
    if (memcmp(h->e_ident, ELFMAG, SELFMAG) != 0)
        return false;
    size_t n = h->e_shoff + (size_t)h->e_shnum * h->e_shentsize;
    return memmem(image, n, "$gate", 6) != NULL;
}

/* Whether the fault is on, and the image is of its rung. */
static bool strikes(const char *fault, const char *text)
{
    const char *rung = rung_of(fault);
    char mark[64];
    if (rung != NULL && strcmp(rung, "gate") == 0)
        return has_twin(text);
    snprintf(mark, sizeof mark, "__tally_%s", rung != NULL ? rung : "");
    return rung != NULL && strstr(text, mark) != NULL;
}

/* The text with a line behind the one that makes the block's number of what the counter said; the
 * caller's to free. */
static char *edited(const char *text, const char *operation)
{
    static const char base[] = "[tally_base];\n", difference[] = "sub.u32 ";
    const char *at = strstr(text, base);
    at = at != NULL ? strstr(at, difference) : NULL;
    const char *end = at != NULL ? strchr(at, '\n') : NULL;
    size_t size = strlen(text) + 128;
    char *out = malloc(size);
    if (end == NULL || out == NULL) {
        free(out);
        return strdup(text);
    }
    at += sizeof difference - 1;
    int reg = (int)strcspn(at, ",");
    snprintf(out, size, "%.*s\n\t%s %.*s, %.*s, %s;%s", (int)(end - text), text,
             operation[0] == 'o' ? "or.b32" : "and.b32", reg, at, reg, at,
             operation[0] == 'o' ? "1" : "-2", end);
    return out;
}

/* The text with a wait of the first block behind each relaxed store; the caller's to free. */
static char *slowed(const char *text)
{
    static const char store[] = "\tst.relaxed",
                      wait[] = "\t{\n\t.reg .pred %ps;\n\t.reg .b32 %rs<2>;\n"
                               "\tmov.u32 %rs0, %ctaid.x;\n\tsetp.ne.u32 %ps, %rs0, 0;\n"
                               "\tselp.u32 %rs1, 100000, 0, %ps;\n"
                               "$slow:\n\tnanosleep.u32 100;\n\tadd.u32 %rs1, %rs1, 1;\n"
                               "\tsetp.lt.u32 %ps, %rs1, 100000;\n\t@%ps bra $slow;\n\t}\n";
    uint32_t n = 0;
    for (const char *at = text; (at = strstr(at, store)) != NULL; at++)
        n++;
    size_t size = strlen(text) + n * sizeof wait + 1, used = 0;
    char *out = malloc(size);
    for (const char *at, *end; out != NULL; text = end) {
        at = strstr(text, store);
        end = at != NULL ? strchr(at, '\n') + 1 : text + strlen(text);
        used += (size_t)snprintf(out + used, size - used, "%.*s%s", (int)(end - text), text,
                                 at != NULL ? wait : "");
        if (at == NULL)
            break;
    }
    return out;
}

static bool has_gate_fault(void)
{
    const char *asked = getenv("TALLY_FAULT");
    const char *colon = asked != NULL ? strchr(asked, ':') : NULL;
    return colon != NULL && strcmp(colon + 1, "gate") == 0;
}

static uint32_t n_captures;
static bool is_capture_spoilt;

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    const char *text = image;
    char *changed = NULL;
    if (strikes("crash", text))
        raise(SIGSEGV);
    if (strikes("refuse", text))
        return CUDA_ERROR_INVALID_PTX;
    if (has_fault("no-cubins") && memcmp(image, ELFMAG, SELFMAG) == 0)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (strikes("forget", text) && !has_twin(text))
        changed = edited(text, "or");
    else if (strikes("twice", text) && !has_twin(text))
        changed = edited(text, "and");
    else if (has_fault("slow-stores") && memcmp(image, ELFMAG, SELFMAG) != 0)
        changed = slowed(text);
    is_capture_spoilt |= has_fault("capture") && n_captures > 0;
    CUresult r = REAL(cuModuleLoadData)(module, changed != NULL ? changed : text);
    free(changed);
    if (r == CUDA_SUCCESS)
        spoil(*module, strikes("wrong-bits", text) || strikes("hang", text) ||
                           strikes("forget", text) || strikes("twice", text));
    return r;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit,
                           void **jit_values, unsigned n_jit, CUlibraryOption *options,
                           void **values, unsigned n)
{
    if (has_gate_fault() && strikes("refuse", code))
        return CUDA_ERROR_INVALID_IMAGE;
    return REAL(cuLibraryLoadData)(library, code, jit, jit_values, n_jit, options, values, n);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    CUresult r = REAL(cuModuleGetFunction)(function, module, name);
    /* Beside a twin stands its original, which is as it should be. */
    bool is_original = strchr(name, '$') == NULL;
    if (r == CUDA_SUCCESS)
        spoil(*function, is_spoilt(module) && !(is_original && has_gate_fault()));
    return r;
}

/* --- a linker of machine code --- */

struct linker {
    unsigned arch;
    char *text;
    void *cubin;
};

/* What stands in the file, which is then removed; the caller's to free. */
static void *take_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    long size = f != NULL && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    void *bytes = size > 0 ? malloc((size_t)size) : NULL;
    *n = size > 0 ? (size_t)size : 0;
    if (bytes == NULL || fseek(f, 0, SEEK_SET) != 0 || fread(bytes, 1, *n, f) != *n) {
        free(bytes);
        bytes = NULL;
    }
    if (f != NULL)
        fclose(f);
    unlink(path);
    return bytes;
}

/* The text as machine code.  From then on the software device, which is asked for gates only when
 * there are some, may know the compiler, too: it must know what it made. */
static void *compile(const struct linker *l, size_t *n)
{
    const char *ptxas = getenv("TALLY_FAULT_PTXAS"), *folder = getenv("TMPDIR");
    char from[512], to[512], command[2048];
    snprintf(from, sizeof from, "%s/linker-%d.ptx", folder, (int)getpid());
    snprintf(to, sizeof to, "%s/linker-%d.cubin", folder, (int)getpid());
    snprintf(command, sizeof command, "'%s' -arch=sm_%u '%s' -o '%s'", ptxas, l->arch, from, to);
    FILE *f = fopen(from, "w");
    if (f == NULL || fputs(l->text, f) < 0 || fclose(f) != 0)
        return NULL;
    int status = system(command); /* NOLINT(bugprone-command-processor,cert-env33-c) */
    unlink(from);
    setenv("TALLY_PTXAS", ptxas, 1);
    return status == 0 ? take_file(to, n) : NULL;
}

CUresult cuLinkCreate_v2(unsigned n, CUjit_option *options, void **values, CUlinkState *out)
{
    if (!has_fault("machine-code"))
        return REAL(cuLinkCreate_v2)(n, options, values, out);
    struct linker *l = calloc(1, sizeof *l);
    for (unsigned i = 0; l != NULL && i < n; i++)
        if (options[i] == CU_JIT_TARGET)
            l->arch = (unsigned)(uintptr_t)values[i];
    *out = (CUlinkState)l;
    return l != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t bytes,
                          const char *name, unsigned n, CUjit_option *options, void **values)
{
    struct linker *l = (struct linker *)state;
    if (!has_fault("machine-code"))
        return REAL(cuLinkAddData_v2)(state, type, data, bytes, name, n, options, values);
    if (type != CU_JIT_INPUT_PTX || l->text != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    l->text = strndup(data, bytes);
    return CUDA_SUCCESS;
}

CUresult cuLinkComplete(CUlinkState state, void **cubin, size_t *bytes)
{
    struct linker *l = (struct linker *)state;
    if (!has_fault("machine-code"))
        return REAL(cuLinkComplete)(state, cubin, bytes);
    l->cubin = l->text != NULL ? compile(l, bytes) : NULL;
    *cubin = l->cubin;
    return l->cubin != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}

CUresult cuLinkDestroy(CUlinkState state)
{
    struct linker *l = (struct linker *)state;
    if (!has_fault("machine-code"))
        return REAL(cuLinkDestroy)(state);
    free(l->text);
    free(l->cubin);
    free(l);
    return CUDA_SUCCESS;
}

/* --- memory of the host --- */

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    CUresult r = REAL(cuDeviceGetAttribute)(value, attribute, device);
    if (attribute == CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED && has_fault("host-atomics"))
        *value = 1;
    return r;
}

/* What kernels reach in its place. */
static struct shadow {
    void *host;
    size_t bytes;
    void *copy; /* of the host's, too */
} shadows[MANY];
static uint32_t n_shadows;

static void add_shadow(void *host, size_t bytes)
{
    void *copy = NULL;
    if (n_shadows < MANY &&
        REAL(cuMemHostAlloc)(&copy, bytes, CU_MEMHOSTALLOC_DEVICEMAP) == CUDA_SUCCESS) {
        memset(copy, 0, bytes);
        shadows[n_shadows++] = (struct shadow){host, bytes, copy};
    }
}

CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags)
{
    if (has_fault("no-registration"))
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult r = REAL(cuMemHostRegister_v2)(p, bytes, flags);
    if (r == CUDA_SUCCESS && (has_fault("lost-stores") || has_fault("stale-words")))
        add_shadow(p, bytes);
    return r;
}

CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned flags)
{
    CUresult r = REAL(cuMemHostAlloc)(p, bytes, flags);
    if (r == CUDA_SUCCESS && has_fault("late-data") && bytes > PAGE)
        add_shadow(*p, bytes);
    return r;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned flags)
{
    for (uint32_t i = n_shadows; i > 0; i--)
        if (shadows[i - 1].host == p)
            return REAL(cuMemHostGetDevicePointer_v2)(out, shadows[i - 1].copy, flags);
    return REAL(cuMemHostGetDevicePointer_v2)(out, p, flags);
}

CUresult cuMemHostUnregister(void *p)
{
    for (uint32_t i = 0; i < n_shadows; i++)
        if (shadows[i].host == p)
            shadows[i--] = shadows[--n_shadows];
    return REAL(cuMemHostUnregister)(p);
}

static void to_device(void)
{
    for (uint32_t i = 0; i < n_shadows && has_fault("stale-words"); i++)
        memcpy(shadows[i].copy, shadows[i].host, shadows[i].bytes);
}

CUresult cuStreamSynchronize(CUstream stream)
{
    CUresult r = REAL(cuStreamSynchronize)(stream);
    for (uint32_t i = 0; i < n_shadows && has_fault("late-data"); i++)
        memcpy(shadows[i].host, shadows[i].copy, shadows[i].bytes);
    return r;
}

/* --- launches and copies --- */

CUresult cuLaunchKernel(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
    const char *forgets = rung_of("forget"), *repeats = rung_of("twice");
    bool is_slice = (forgets != NULL && strcmp(forgets, "slice") == 0) ||
                    (repeats != NULL && strcmp(repeats, "slice") == 0) || has_gate_fault();
    if (is_spoilt(f) && rung_of("hang") != NULL)
        for (;;)
            pause();
    is_result_spoilt |= is_spoilt(f) && rung_of("wrong-bits") != NULL;
    to_device();
    if (is_spoilt(f) && is_slice && repeats != NULL)
        REAL(cuLaunchKernel)(f, x, y, z, bx, by, bz, shared, stream, params, extra);
    if (is_spoilt(f) && is_slice && forgets != NULL && x > 1)
        x--;
    return REAL(cuLaunchKernel)(f, x, y, z, bx, by, bz, shared, stream, params, extra);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    CUresult r = REAL(cuMemcpyDtoH_v2)(to, from, bytes);
    if (r == CUDA_SUCCESS && is_result_spoilt && bytes > PAGE) {
        ((uint8_t *)to)[bytes / 2] ^= 0x10;
        is_result_spoilt = false;
    }
    return r;
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    bool leaves_out = has_fault("copies") && bytes > PAGE;
    return REAL(cuMemcpyDtoHAsync_v2)(to, from, leaves_out ? bytes - 4 : bytes, stream);
}

/* --- others --- */

CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc desc, CUdevice device,
                          unsigned flags)
{
    if (has_fault("no-green"))
        return CUDA_ERROR_NOT_SUPPORTED;
    return REAL(cuGreenCtxCreate)(green, desc, device, flags);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    n_captures++;
    return REAL(cuStreamBeginCapture_v2)(stream, mode);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    CUresult r = REAL(cuStreamEndCapture)(stream, graph);
    n_captures--;
    return is_capture_spoilt ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : r;
}

CUresult cuEventElapsedTime(float *ms, CUevent begin, CUevent end)
{
    CUresult r = REAL(cuEventElapsedTime)(ms, begin, end);
    if (r == CUDA_SUCCESS && has_fault("clock"))
        *ms *= 1000;
    return r;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction f, int threads,
                                                     size_t shared)
{
    CUresult r = REAL(cuOccupancyMaxActiveBlocksPerMultiprocessor)(n, f, threads, shared);
    if (r == CUDA_SUCCESS && has_fault("occupancy"))
        *n *= 2;
    return r;
}

/* --- other ways to these functions --- */

/* What stands here in place of what the software device gave out, or that. */
static void *own(void *function)
{
#define OWN(name)                                                                                  \
    {                                                                                              \
#name, (void *)(name)                                                                      \
    }
    static const struct {
        const char *name;
        void *function;
    } all[] = {
        OWN(cuDeviceGetAttribute),
        OWN(cuEventElapsedTime),
        OWN(cuGreenCtxCreate),
        OWN(cuLaunchKernel),
        OWN(cuLibraryLoadData),
        OWN(cuLinkAddData_v2),
        OWN(cuLinkComplete),
        OWN(cuLinkCreate_v2),
        OWN(cuLinkDestroy),
        OWN(cuMemHostAlloc),
        OWN(cuMemHostGetDevicePointer_v2),
        OWN(cuMemHostRegister_v2),
        OWN(cuMemHostUnregister),
        OWN(cuMemcpyDtoHAsync_v2),
        OWN(cuMemcpyDtoH_v2),
        OWN(cuModuleGetFunction),
        OWN(cuModuleLoadData),
        OWN(cuOccupancyMaxActiveBlocksPerMultiprocessor),
        OWN(cuStreamBeginCapture_v2),
        OWN(cuStreamEndCapture),
        OWN(cuStreamSynchronize),
    };
#undef OWN
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (real(all[i].name) == function)
            return all[i].function;
    return function;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    CUresult r = REAL(cuGetProcAddress_v2)(name, function, version, flags, status);
    if (r == CUDA_SUCCESS && function != NULL)
        *function = own(*function);
    return r;
}

CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

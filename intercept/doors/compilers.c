/* The doors of compilers in the job's own process: NVRTC and nvJitLink.  Their functions that take
 * PTX or hand out machine code are interposed by name, and the PTX is kept beside the code: NVRTC
 * has it at hand, nvJitLink was given it.
 *
 * Which copy of a compiler is meant, is told by who asks.  A program that is linked with it comes
 * here by the dynamic linker, and its compiler is the next one of that name; one that opens it asks
 * dlsym, which calls tl_doors_symbol with what it found.  In a process with two copies, the second
 * has its own functions and keeps nothing. */
#include "intercept/doors/doors.h"
#include "intercept/shim/internal.h"
#include "tally/file.h"

#include <cuda.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))
enum {
    NVRTC_INTERNAL_ERROR = 11,
    NVJITLINK_INTERNAL_ERROR = 6,
};

/* Kinds of inputs of nvJitLink. */
enum {
    JITLINK_CUBIN = 1,
    JITLINK_PTX = 2,
    JITLINK_FATBIN = 4,
    JITLINK_OBJECT = 5,
    JITLINK_LIBRARY = 6,
    JITLINK_ANY = 10,
};

/* nvJitLink's header calls its functions by names with the version of the toolkit; the plain names
 * are there too. */
#define JITLINK_VERSIONS(X)                                                                        \
    X(12_0)                                                                                        \
    X(12_1)                                                                                        \
    X(12_2)                                                                                        \
    X(12_3)                                                                                        \
    X(12_4) X(12_5) X(12_6) X(12_7) X(12_8) X(12_9) X(13_0) X(13_1) X(13_2) X(13_3) X(13_4) X(13_5)

/* Another function of the library that `function` is in. */
static void *neighbour(void *function, const char *name)
{
    Dl_info info;
    if (function == NULL || dladdr(function, &info) == 0)
        return NULL;
    void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    void *found = library != NULL ? tl_libc_dlsym_of(library, name) : NULL;
    if (library != NULL)
        dlclose(library); /* it stays loaded: the job has it open */
    return found;
}

static void *real_of(void *_Atomic *real, const char *name)
{
    void *function = atomic_load(real);
    if (function == NULL) {
        function = tl_libc_dlsym_of(RTLD_NEXT, name);
        atomic_store(real, function);
    }
    return function;
}

/* --- NVRTC --- */

/* Only whether a call succeeded counts here: 0. */
typedef int text_fn(void *program, char *text);
typedef int size_fn(void *program, size_t *n);

EXPORTED int nvrtcGetCUBIN(void *program, char *cubin);
static void *_Atomic real_nvrtcGetCUBIN;

static void keep_program(void *real, void *program, const char *cubin)
{
    size_fn *cubin_size = (size_fn *)neighbour(real, "nvrtcGetCUBINSize");
    size_fn *ptx_size = (size_fn *)neighbour(real, "nvrtcGetPTXSize");
    text_fn *ptx = (text_fn *)neighbour(real, "nvrtcGetPTX");
    size_t n = 0, ptx_n = 0;
    if (cubin_size == NULL || ptx_size == NULL || ptx == NULL || cubin_size(program, &n) != 0 ||
        n == 0 || ptx_size(program, &ptx_n) != 0 || ptx_n <= 1)
        return;
    char *text = malloc(ptx_n);
    if (text != NULL && ptx(program, text) == 0)
        tl_doors_keep(cubin, n, text, ptx_n);
    free(text);
}

int nvrtcGetCUBIN(void *program, char *cubin)
{
    text_fn *real = (text_fn *)real_of(&real_nvrtcGetCUBIN, "nvrtcGetCUBIN");
    int r = real != NULL ? real(program, cubin) : NVRTC_INTERNAL_ERROR;
    if (r == 0 && cubin != NULL)
        keep_program((void *)real, program, cubin);
    return r;
}

/* --- nvJitLink --- */

typedef int create_fn(void **link, uint32_t n, const char **options);
typedef int add_fn(void *link, int kind, const void *data, size_t n, const char *name);
typedef int code_fn(void *link, void *cubin);
typedef int destroy_fn(void **link);

typedef int file_fn(void *link, int kind, const char *path);

static int create(create_fn *real, void **link, uint32_t n, const char **options)
{
    static const char limit[] = "-maxrregcount=";
    int r = real != NULL ? real(link, n, options) : NVJITLINK_INTERNAL_ERROR;
    if (r != 0)
        return r;
    tl_doors_lto_created(*link, n, options);
    for (uint32_t i = 0; i < n; i++)
        if (strncmp(options[i], limit, sizeof limit - 1) == 0)
            tl_doors_link_limit(*link, (unsigned)strtoul(options[i] + sizeof limit - 1, NULL, 10));
    return 0;
}

/* The driver's word for a kind of input.  What may be anything is told by how it begins. */
static int type_of(int kind, const char *data, size_t n)
{
    switch (kind) {
    case JITLINK_CUBIN:
        return CU_JIT_INPUT_CUBIN;
    case JITLINK_PTX:
        return CU_JIT_INPUT_PTX;
    case TL_DOORS_LTO_IR:
        return CU_JIT_INPUT_NVVM;
    case JITLINK_FATBIN:
        return CU_JIT_INPUT_FATBINARY;
    case JITLINK_OBJECT:
        return CU_JIT_INPUT_OBJECT;
    case JITLINK_LIBRARY:
        return CU_JIT_INPUT_LIBRARY;
    case JITLINK_ANY:
        break;
    default:
        return -1;
    }
    if (n > 8 && memcmp(data, "!<arch>\n", 8) == 0)
        return CU_JIT_INPUT_LIBRARY;
    if (n > 64 && memcmp(data, ELFMAG, SELFMAG) == 0)
        return ((const Elf64_Ehdr *)(const void *)data)->e_machine == EM_CUDA ? CU_JIT_INPUT_CUBIN
                                                                              : CU_JIT_INPUT_OBJECT;
    if (n > 4 && memcmp(data, "\x50\xed\x55\xba", 4) == 0)
        return CU_JIT_INPUT_FATBINARY;
    return CU_JIT_INPUT_PTX;
}

static void added(void *link, int kind, const void *data, size_t n)
{
    tl_doors_link_added(link, data != NULL ? type_of(kind, data, n) : -1, data, n);
    tl_doors_lto_added(link, kind == TL_DOORS_LTO_IR, data, n);
}

static int add(add_fn *real, void *link, int kind, const void *data, size_t n, const char *name)
{
    int r = real != NULL ? real(link, kind, data, n, name) : NVJITLINK_INTERNAL_ERROR;
    if (r == 0)
        added(link, kind, data, n);
    return r;
}

static int add_file(file_fn *real, void *link, int kind, const char *path)
{
    int r = real != NULL ? real(link, kind, path) : NVJITLINK_INTERNAL_ERROR;
    if (r != 0)
        return r;
    char *bytes = NULL;
    size_t n = 0;
    if (path == NULL || tl_file_read(path, SIZE_MAX, &bytes, &n) < 0)
        bytes = NULL;
    added(link, kind, bytes, n);
    free(bytes);
    return 0;
}

/* Keeps what the inputs are as text.  That of intermediate code is made by the library. */
static void keep_linked(void *real, void *link, const void *cubin, size_t n)
{
    struct tl_doors_linker linker = {
        .create = (create_fn *)neighbour(real, "nvJitLinkCreate"),
        .add = (add_fn *)neighbour(real, "nvJitLinkAddData"),
        .complete = (int (*)(void *))neighbour(real, "nvJitLinkComplete"),
        .text_size = (size_fn *)neighbour(real, "nvJitLinkGetLinkedPtxSize"),
        .text = (text_fn *)neighbour(real, "nvJitLinkGetLinkedPtx"),
        .destroy = (destroy_fn *)neighbour(real, "nvJitLinkDestroy"),
    };
    size_t text_n = 0;
    char *text = tl_doors_lto_text(link, &linker, &text_n);
    tl_doors_link_done(link, cubin, n, text, text_n);
    free(text);
}

static int get_code(code_fn *real, size_fn *size, void *link, void *cubin)
{
    size_t n = 0;
    int r = real != NULL ? real(link, cubin) : NVJITLINK_INTERNAL_ERROR;
    if (r == 0 && cubin != NULL && size != NULL && size(link, &n) == 0)
        keep_linked((void *)real, link, cubin, n);
    return r;
}

static int destroy(destroy_fn *real, void **link)
{
    if (link != NULL) {
        tl_doors_link_gone(*link);
        tl_doors_lto_gone(*link);
    }
    return real != NULL ? real(link) : NVJITLINK_INTERNAL_ERROR;
}

#define JITLINK(name_create, name_add, name_file, name_code, name_size, name_destroy)              \
    EXPORTED int name_create(void **link, uint32_t n, const char **options);                       \
    EXPORTED int name_add(void *link, int kind, const void *data, size_t n, const char *name);     \
    EXPORTED int name_file(void *link, int kind, const char *path);                                \
    static void *_Atomic real_##name_file;                                                         \
    int name_file(void *link, int kind, const char *path)                                          \
    {                                                                                              \
        return add_file((file_fn *)real_of(&real_##name_file, #name_file), link, kind, path);      \
    }                                                                                              \
    EXPORTED int name_code(void *link, void *cubin);                                               \
    EXPORTED int name_destroy(void **link);                                                        \
    static void *_Atomic real_##name_create;                                                       \
    int name_create(void **link, uint32_t n, const char **options)                                 \
    {                                                                                              \
        return create((create_fn *)real_of(&real_##name_create, #name_create), link, n, options);  \
    }                                                                                              \
    static void *_Atomic real_##name_add, *_Atomic real_##name_code, *_Atomic real_##name_destroy; \
    int name_add(void *link, int kind, const void *data, size_t n, const char *name)               \
    {                                                                                              \
        return add((add_fn *)real_of(&real_##name_add, #name_add), link, kind, data, n, name);     \
    }                                                                                              \
    int name_code(void *link, void *cubin)                                                         \
    {                                                                                              \
        void *real = real_of(&real_##name_code, #name_code);                                       \
        return get_code((code_fn *)real, (size_fn *)neighbour(real, #name_size), link, cubin);     \
    }                                                                                              \
    int name_destroy(void **link)                                                                  \
    {                                                                                              \
        return destroy((destroy_fn *)real_of(&real_##name_destroy, #name_destroy), link);          \
    }
#define VERSIONED(v)                                                                               \
    JITLINK(__nvJitLinkCreate_##v, __nvJitLinkAddData_##v, __nvJitLinkAddFile_##v,                 \
            __nvJitLinkGetLinkedCubin_##v, __nvJitLinkGetLinkedCubinSize_##v,                      \
            __nvJitLinkDestroy_##v)
JITLINK(nvJitLinkCreate, nvJitLinkAddData, nvJitLinkAddFile, nvJitLinkGetLinkedCubin,
        nvJitLinkGetLinkedCubinSize, nvJitLinkDestroy)
JITLINK_VERSIONS(VERSIONED)

/* --- for dlsym --- */

void *tl_doors_symbol(const char *name, void *found)
{
    static const struct {
        const char *name;
        void *function;
        void *_Atomic *real;
    } doors[] = {
#define DOOR(name) {#name, (void *)name, &real_##name},
#define VERSIONED_DOORS(v)                                                                         \
    DOOR(__nvJitLinkCreate_##v)                                                                    \
    DOOR(__nvJitLinkAddData_##v)                                                                   \
    DOOR(__nvJitLinkAddFile_##v) DOOR(__nvJitLinkGetLinkedCubin_##v) DOOR(__nvJitLinkDestroy_##v)
        DOOR(nvrtcGetCUBIN) DOOR(nvJitLinkCreate) DOOR(nvJitLinkAddData) DOOR(nvJitLinkAddFile)
            DOOR(nvJitLinkGetLinkedCubin) DOOR(nvJitLinkDestroy) JITLINK_VERSIONS(VERSIONED_DOORS)};
    if (strncmp(name, "nv", 2) != 0 && strncmp(name, "__nvJitLink", strlen("__nvJitLink")) != 0)
        return found;
    for (size_t i = 0; i < sizeof doors / sizeof doors[0]; i++) {
        void *none = NULL;
        if (strcmp(doors[i].name, name) != 0 || found == doors[i].function)
            continue;
        if (atomic_compare_exchange_strong(doors[i].real, &none, found) || none == found)
            return doors[i].function;
    }
    return found;
}

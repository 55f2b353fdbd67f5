/* Opaque kernels: images that hold only machine code of a GPU, taken as things that last a while.
 *
 * With TALLY_DEVICE_OPAQUE=time, a cubin for which there is no PTX is accepted.  Its kernels occupy
 * SMs for a modelled time and compute nothing, so nothing that such a process puts out is a result;
 * that is said once on stderr, and each such function answers 1 to the attribute
 * TL_DEVICE_ATTRIBUTE_OPAQUE (tally/device.h), so that reports can mark it.
 *
 * The rest of the driver sees such a cubin as PTX with empty kernels: names, parameters, shared
 * memory and variables are written down as text and go the usual way.
 *
 * The model of a block's time: each warp issues each of the kernel's instructions TRIPS times
 * (loops are what takes time, and how often they turn cannot be seen), four warps at a time, at the
 * clock that the device reports. TALLY_DEVICE_OPAQUE=time:50 says instead that every block takes 50
 * us. */
#include "device/driver/opaque.h"
#include "device/driver/context.h"
#include "device/driver/device.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/log.h"
#include "device/driver/module.h"
#include "device/driver/state.h"
#include "tally/clock.h"
#include "tally/tables.h"

#include "device/exec/exec.h"
#include "tally/tell.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    INSTRUCTION_BYTES = 16, /* from sm_70 on */
    TRIPS = 16,
    ISSUED_AT_ONCE = 4,
};

struct tl_drv_opaque_kernel {
    struct tl_drv_opaque_kernel *next;
    char *name;
    uint32_t instructions, registers;
    struct opaque_code *codes;
};

/* What stands for an object's info; lives as long as the image. */
struct opaque_code {
    struct opaque_code *next;
    struct tl_dev_info info;
};

struct tl_drv_opaque {
    struct tl_drv_opaque_kernel *kernels;
};

bool tl_drv_opaque_is_on(double *block_us)
{
    const char *text = secure_getenv("TALLY_DEVICE_OPAQUE");
    *block_us = 0;
    if (text == NULL || strncmp(text, "time", 4) != 0)
        return false;
    if (text[4] == ':')
        *block_us = strtod(text + 5, NULL);
    return text[4] == '\0' || (text[4] == ':' && *block_us > 0);
}

/* --- as PTX ----------------------------------------------------------------------------------- */

/* Names of C++ and of compilers are PTX names; what is not cannot be written down and is left
 * out. */
static bool is_ptx_name(const char *name)
{
    for (const char *p = name; *p != '\0'; p++)
        if (!(*p == '_' || *p == '$' || (*p >= '0' && *p <= '9' && p > name) ||
              (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z')))
            return false;
    return name[0] != '\0';
}

/* The alignment that puts a parameter where it is; a layout that none gives means that this reader
 * does not know it, and then the kernel has no parameters: nobody reads them. */
static bool write_params(struct tl_buf *b, const struct tl_tables_facts *f)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < f->n_params; i++) {
        uint32_t align = 1, offset = f->params[i].offset;
        while (align <= 256 && (at + align - 1) / align * align != offset)
            align *= 2;
        if (align > 256 || f->params[i].bytes == 0)
            return false;
        tl_buf_printf(b, "%s.param .align %u .b8 p%u[%u]", i > 0 ? ", " : "", align, i,
                      f->params[i].bytes);
        at = offset + f->params[i].bytes;
    }
    return true;
}

static void write_kernel(struct tl_buf *b, const char *name, const struct tl_tables_facts *f)
{
    struct tl_buf params = {0};
    bool is_known = write_params(&params, f);
    tl_buf_printf(b, ".visible .entry %s(%.*s)", name, is_known ? (int)params.n : 0,
                  params.n > 0 ? params.p : "");
    if (f->max_threads > 0)
        tl_buf_printf(b, " .maxntid %u", f->max_threads);
    tl_buf_printf(b, "\n{\n");
    if (f->shared_bytes > 0)
        tl_buf_printf(b, ".shared .align 16 .b8 s[%u];\n", f->shared_bytes);
    tl_buf_printf(b, "ret;\n}\n");
    tl_buf_finish(&params);
}

static void write_variable(struct tl_buf *b, const struct tl_tables *c, const Elf64_Sym *s,
                           const char *name)
{
    const char *section = tl_tables_section_name(c, s->st_shndx);
    if (section == NULL || s->st_size == 0 || s->st_size > (uint64_t)1 << 32)
        return;
    bool is_const = strncmp(section, ".nv.constant", 12) == 0;
    if (is_const || strncmp(section, ".nv.global", 10) == 0)
        tl_buf_printf(b, ".visible .%s .align 16 .b8 %s[%llu];\n", is_const ? "const" : "global",
                      name, (unsigned long long)s->st_size);
}

static int add_kernel(struct tl_drv_opaque *o, const struct tl_tables *c, uint32_t i,
                      struct tl_tables_facts *f, struct tl_buf *b)
{
    const char *name = tl_tables_symbol_name(c, i);
    struct tl_drv_opaque_kernel *k = calloc(1, sizeof *k);
    if (k == NULL)
        return -ENOMEM;
    k->next = o->kernels;
    o->kernels = k;
    k->name = strdup(name);
    if (k->name == NULL)
        return -ENOMEM;
    tl_tables_read(c, i, f);
    k->instructions = (uint32_t)(c->sections[c->symbols[i].st_shndx].sh_size / INSTRUCTION_BYTES);
    k->registers = f->registers;
    write_kernel(b, name, f);
    return 0;
}

static void say_once(double block_us)
{
    static atomic_flag was_said = ATOMIC_FLAG_INIT;
    char model[64] = "a time modelled from their length";
    if (atomic_flag_test_and_set(&was_said))
        return;
    if (block_us > 0)
        snprintf(model, sizeof model, "%g us per block", block_us);
    char text[512];
    int n = snprintf(text, sizeof text,
                     "tally: TALLY_DEVICE_OPAQUE=time: kernels without PTX COMPUTE NOTHING, they "
                     "only occupy SMs for %s.\n"
                     "tally: what this process puts out is not a result.\n",
                     model);
    tl_tell(text, (size_t)n);
}

/* Finds the kernels and variables of a cubin and writes PTX that has them, kernels empty, with
 * the same names and parameters. */
CUresult tl_drv_opaque_load(const void *bytes, size_t n, uint32_t arch, struct tl_drv_image **out)
{
    struct tl_error err = {0};
    struct tl_tables c;
    struct tl_buf b = {0};
    double block_us;
    int rc = tl_tables_open(&c, bytes, n, &err);
    struct tl_drv_opaque *o = calloc(1, sizeof *o);
    struct tl_tables_facts *f = malloc(sizeof *f);
    if (rc == 0 && (o == NULL || f == NULL))
        rc = -ENOMEM;
    tl_buf_printf(&b, ".version 8.0\n.target sm_%u\n.address_size 64\n", arch > 0 ? arch : 75);
    for (uint32_t i = 0; rc == 0 && i < c.n_symbols; i++) {
        const Elf64_Sym *s = &c.symbols[i];
        const char *name = tl_tables_symbol_name(&c, i);
        if (name == NULL || !is_ptx_name(name))
            continue;
        if (tl_tables_is_kernel(&c, i))
            rc = add_kernel(o, &c, i, f, &b);
        else if (ELF64_ST_TYPE(s->st_info) == STT_OBJECT && s->st_shndx != SHN_UNDEF &&
                 s->st_shndx < c.n_sections)
            write_variable(&b, &c, s, name);
    }
    free(f);
    if (rc == 0 && b.failed)
        rc = -ENOMEM;
    CUresult r = rc == 0         ? CUDA_SUCCESS
                 : rc == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY
                                 : CUDA_ERROR_INVALID_IMAGE;
    if (rc == -EINVAL)
        tl_drv_warn("image refused: %s", err.text);
    if (r == CUDA_SUCCESS) {
        size_t length = b.n;
        r = tl_drv_image_of_text(tl_buf_take(&b), length, out);
    }
    tl_buf_finish(&b);
    if (r != CUDA_SUCCESS) {
        tl_drv_opaque_destroy(o);
        return r;
    }
    (*out)->opaque = o;
    tl_drv_opaque_is_on(&block_us);
    say_once(block_us);
    return CUDA_SUCCESS;
}

void tl_drv_opaque_destroy(struct tl_drv_opaque *o)
{
    while (o != NULL && o->kernels != NULL) {
        struct tl_drv_opaque_kernel *k = o->kernels;
        o->kernels = k->next;
        while (k->codes != NULL) {
            struct opaque_code *code = k->codes;
            k->codes = code->next;
            free(code);
        }
        free(k->name);
        free(k);
    }
    free(o);
}

static struct tl_drv_opaque_kernel *find_kernel(const struct tl_drv_opaque *o, const char *name)
{
    struct tl_drv_opaque_kernel *k = o->kernels;
    while (k != NULL && strcmp(k->name, name) != 0)
        k = k->next;
    return k;
}

uint32_t tl_drv_opaque_registers(const struct tl_drv_opaque *o, const char *name)
{
    const struct tl_drv_opaque_kernel *k = find_kernel(o, name);
    return k != NULL ? k->registers : 0;
}

/* --- lasting a while -------------------------------------------------------------------------- */

/* As a kernel's code: a signal may end it anywhere.  A long wait sleeps, its end spins, so that it
 * is as long as it should. */
static void occupy(struct tl_dev_frame *f, uint32_t first, uint32_t count)
{
    enum { SLEEPY_NS = 200000 };
    uint64_t end = tl_clock_ns() + f->variables[0] * count;
    (void)first;
    for (uint64_t now = tl_clock_ns(); now < end; now = tl_clock_ns()) {
        if (end - now > SLEEPY_NS) {
            uint64_t until = end - SLEEPY_NS / 2;
            struct timespec t = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
        } else {
            __builtin_ia32_pause();
        }
    }
}

static void never(struct tl_dev_frame *f, uint32_t warp)
{
    (void)f, (void)warp; /* `occupy` runs whole blocks */
}

static uint64_t block_ns(const struct tl_drv_opaque_kernel *k, const struct tl_drv_device *device,
                         const uint32_t block[3])
{
    double block_us;
    tl_drv_opaque_is_on(&block_us);
    if (block_us > 0)
        return (uint64_t)(block_us * 1000);
    uint64_t warps = ((uint64_t)block[0] * block[1] * block[2] + TL_DEV_WARP - 1) / TL_DEV_WARP;
    uint64_t cycles = k->instructions * warps * TRIPS / ISSUED_AT_ONCE;
    return cycles * 1000000 /
           (uint64_t)tl_drv_device_attribute(device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
}

int tl_drv_opaque_code(struct CUfunc_st *function, const uint32_t block[3],
                       struct tl_exec_object **object, uint64_t **variables, struct tl_error *err)
{
    struct tl_drv_opaque_kernel *k = find_kernel(function->module->image->opaque,
                                                 function->info->name);
    size_t name_bytes = strlen(function->info->name) + 1;
    struct opaque_code *code = k != NULL ? calloc(1, sizeof *code + name_bytes) : NULL;
    *variables = calloc(1, sizeof(uint64_t));
    if (code == NULL || *variables == NULL) {
        free(code);
        return -ENOMEM;
    }
    code->info = (struct tl_dev_info){.abi_version = TL_DEV_ABI_VERSION,
                                      .block = {block[0], block[1], block[2]},
                                      .shared_bytes = (function->info->shared_bytes + 15) & ~15u,
                                      .registers = function->info->registers,
                                      .n_instructions = k->instructions};
    memcpy(code->info.text, function->info->name, name_bytes);
    (*variables)[0] = block_ns(k, function->module->ctx->device, block);
    tl_drv_lock();
    code->next = k->codes;
    k->codes = code;
    tl_drv_unlock();
    return tl_exec_object_from(object, &code->info, never, occupy, err);
}

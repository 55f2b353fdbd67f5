/* From what a program hands over (fatbin, PTX text) to one PTX text with an index, and what the PTX
 * says of its kernels. Loading reads no function's body: a module may hold 160 kernels in 27 MB. */
#include "device/driver/choose.h"
#include "device/driver/handle.h"
#include "device/driver/known.h"
#include "device/driver/linked.h"
#include "device/driver/lock.h"
#include "device/driver/log.h"
#include "device/driver/module.h"
#include "device/driver/opaque.h"
#include "device/driver/profile.h"
#include "device/driver/state.h"
#include "tally/check.h"
#include "tally/file.h"

#include "ptx_rewrite/ast.h"
#include "ptx_rewrite/index.h"
#include "ptx_rewrite/lex.h"
#include "ptx_rewrite/program.h"
#include "tally/image.h"
#include "tally/tell.h"

#include <elf.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* "9.0" is 90, "sm_90a" is 90. */
static uint32_t version_number(struct tl_str v)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < v.n; i++)
        if (v.p[i] >= '0' && v.p[i] <= '9')
            n = n * 10 + (uint32_t)(v.p[i] - '0');
    return n;
}

/* The newest PTX that a driver of that version compiles ("Release Notes" of the PTX ISA). */
static uint32_t newest_isa(void)
{
    int driver = tl_drv_driver_version();
    return driver < 12030 ? 82 : driver < 12050 ? 84 : 90;
}

/* Nobody else has the image yet, so there is nothing to lock. */
TL_UNCHECKED CUresult tl_drv_image_of_text(char *text, size_t n, struct tl_drv_image **out)
{
    struct tl_error err = {0};
    struct tl_drv_image *image = calloc(1, sizeof *image);
    if (image == NULL) {
        free(text);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    int rc = tl_ptx_index_create(&image->index, text, n, "module", &err);
    if (rc == 0) {
        image->n_items = tl_ptx_index_count(image->index);
        image->infos = calloc(image->n_items + 1, sizeof(struct tl_drv_kernel_info *));
    }
    if (rc != 0 || image->infos == NULL) {
        if (rc != 0)
            tl_drv_warn("PTX refused: %s", err.text);
        tl_ptx_index_destroy(image->index);
        free(image);
        free(text);
        return rc == -EINVAL ? CUDA_ERROR_INVALID_PTX : CUDA_ERROR_OUT_OF_MEMORY;
    }
    image->refs = 1;
    tl_mutex_init(&image->managed_lock);
    image->text = text;
    *out = image;
    return CUDA_SUCCESS;
}

CUresult tl_drv_image_of_ptx(char *text, size_t n, struct tl_drv_image **out)
{
    CUresult r = tl_drv_image_of_text(text, n, out);
    if (r != CUDA_SUCCESS || !tl_drv_profile()->is_strict)
        return r;
    uint32_t isa = version_number(tl_ptx_index_version((*out)->index));
    if (isa <= newest_isa())
        return CUDA_SUCCESS;
    tl_drv_warn("PTX ISA %u is newer than the driver, which knows up to %u", isa, newest_isa());
    tl_drv_lock();
    tl_drv_image_unref(*out);
    tl_drv_unlock();
    return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
}

/* Tells once, whatever is logged, why kernels of a program's own cannot run: the error that the
 * program gets does not say it.  Machine code by itself comes from a compiler in the program, and
 * the interception library may still have its PTX. */
static void explain_refusal(void)
{
    static atomic_flag was_told = ATOMIC_FLAG_INIT;
    static const char why[] =
        "tally: a GPU's machine code without PTX cannot be run on the software device; the program "
        "gets CUDA_ERROR_NO_BINARY_FOR_GPU.\n"
        "tally: PyTorch: use a build that carries PTX (Debian's python3-torch-cuda, or your own "
        "with TORCH_CUDA_ARCH_LIST=\"9.0+PTX\"), or torch.compile.  Others: build with PTX (nvcc "
        "-gencode arch=compute_90,code=compute_90), or compile at run time (Triton, XLA).\n"
        "tally: on a GPU such code runs, and where `tally doctor` finds that gates work they make "
        "it preemptible (tally-run --gate=auto, the default).  "
        "TALLY_DEVICE_OPAQUE=time studies its timing here, without results.\n";
    if (!atomic_flag_test_and_set(&was_told))
        tl_tell(why, sizeof why - 1);
}

/* There is no PTX: says why that is the end, or takes a cubin as something that lasts a while. */
static CUresult without_ptx(const struct tl_drv_choice *c, struct tl_drv_image **out)
{
    struct tl_error err = {0};
    double block_us;
    void *bytes;
    size_t n;
    if (!c->has_cubin || !tl_drv_opaque_is_on(&block_us)) {
        tl_drv_log("none of %u images is PTX for compute capability %d.%d or lower%s", c->n_seen,
                   tl_drv.cc_major, tl_drv.cc_minor,
                   c->has_cubin
                       ? ", and a GPU's machine code cannot be run here.  Either compile with PTX "
                         "in the binary "
                         "(nvcc -gencode arch=compute_90,code=compute_90; for Triton and XLA, let "
                         "ptxas keep the "
                         "PTX), or, to study timing without results, set TALLY_DEVICE_OPAQUE=time"
                       : "");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    int rc = tl_image_unpack(&c->cubin, &bytes, &n, &err);
    if (rc < 0) {
        tl_drv_warn("image refused: %s", err.text);
        return rc == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_IMAGE;
    }
    CUresult r = tl_drv_opaque_load(bytes, n, c->cubin.arch, out);
    free(bytes);
    return r;
}

/* The PTX that was chosen, of the image itself or of the parts that it was linked of.
 * CUDA_ERROR_NO_BINARY_FOR_GPU if there is none. */
static CUresult text_of(const struct tl_drv_choice *c, const void *bytes, char **text, size_t *n)
{
    struct tl_error err = {0};
    void *unpacked;
    if (!c->has_one)
        return tl_drv_linked_text(bytes, c, text, n);
    int rc = tl_image_unpack(&c->best, &unpacked, n, &err);
    if (rc == 0) {
        *text = unpacked;
        return CUDA_SUCCESS;
    }
    tl_drv_warn("image refused: %s", err.text);
    return rc == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_IMAGE;
}

static CUresult load_chosen(struct tl_drv_choice *c, const void *bytes, struct tl_drv_image **out)
{
    char *text;
    size_t n;
    if (c->code_bytes != NULL) {
        CUresult known = tl_drv_gated_load(c->code_bytes, c->n_code, c->code.arch, c->has_one, out);
        if (known != CUDA_ERROR_NOT_FOUND)
            return known;
    }
    CUresult r = text_of(c, bytes, &text, &n);
    if (r == CUDA_ERROR_NO_BINARY_FOR_GPU) {
        r = without_ptx(c, out);
        if (r == CUDA_ERROR_NO_BINARY_FOR_GPU && c->has_cubin &&
            memcmp(bytes, ELFMAG, SELFMAG) != 0)
            explain_refusal();
        return r;
    }
    if (r != CUDA_SUCCESS)
        return r;
    /* Machine code was compiled elsewhere: no driver has to know its PTX. */
    r = c->has_code ? tl_drv_image_of_text(text, n, out) : tl_drv_image_of_ptx(text, n, out);
    if (r == CUDA_SUCCESS && c->has_code) {
        (*out)->code_arch = c->code.arch;
        r = tl_drv_gated_learn(c->code_bytes, c->n_code, c->code.arch, out);
    }
    return r;
}

CUresult tl_drv_image_load(const void *bytes, struct tl_drv_image **out)
{
    struct tl_drv_choice c;
    struct tl_error err = {0};
    if (tl_drv_choose(&c, bytes, 0, &err) < 0) {
        tl_drv_warn("image refused: %s", err.text);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    CUresult r = load_chosen(&c, bytes, out);
    free(c.code_bytes);
    return r;
}

CUresult tl_drv_image_read(const char *path, char **out)
{
    size_t n;
    int rc = tl_file_read(path, SIZE_MAX, out, &n);
    return rc == 0                       ? CUDA_SUCCESS
           : rc == -ENOMEM               ? CUDA_ERROR_OUT_OF_MEMORY
           : rc == -EIO || rc == -EISDIR ? CUDA_ERROR_INVALID_IMAGE
                                         : CUDA_ERROR_FILE_NOT_FOUND;
}

static void info_free(struct tl_drv_kernel_info *info)
{
    if (info == NULL)
        return;
    free(info->name);
    free(info->param_offsets);
    free(info->code_offsets);
    free(info->param_sizes);
    free(info);
}

void tl_drv_image_unref(struct tl_drv_image *image)
{
    TL_CHECK(image == NULL || image->refs > 0);
    if (image == NULL || --image->refs > 0)
        return;
    for (uint32_t i = 0; i < image->n_items; i++)
        info_free(image->infos[i]);
    free(image->infos);
    tl_drv_opaque_destroy(image->opaque);
    tl_drv_globals_destroy(image->managed);
    free(image->managed);
    tl_mutex_destroy(&image->managed_lock);
    tl_ptx_index_destroy(image->index);
    free(image->text);
    free(image);
}

/* --- what a kernel is like -------------------------------------------------------------------- */

static uint64_t decl_bytes(const struct tl_ptx_decl *d)
{
    uint64_t one = tl_ptx_type_bytes(d->type);
    if (one == 0)
        one = 8; /* references to textures, samplers and surfaces */
    return one * d->vec * d->count;
}

static uint32_t decl_align(const struct tl_ptx_decl *d)
{
    uint32_t natural = tl_ptx_type_bytes(d->type) * d->vec;
    return d->align > 0 ? d->align : natural > 0 ? natural : 8;
}

static uint32_t round_up(uint64_t value, uint32_t align)
{
    return (uint32_t)((value + align - 1) / align * align);
}

enum { MOST_PARAMS = 32764 }; /* bytes, CUDA's: buffers of launches are made for as many */

static int read_params(const struct tl_ptx_func *f, struct tl_drv_kernel_info *info,
                       struct tl_error *err)
{
    uint32_t n = 0;
    for (const struct tl_ptx_decl *d = f->params; d != NULL; d = d->next)
        n++;
    info->n_params = n;
    info->param_offsets = calloc(n + 1, sizeof(uint32_t));
    info->param_sizes = calloc(n + 1, sizeof(uint32_t));
    if (info->param_offsets == NULL || info->param_sizes == NULL)
        return -ENOMEM;
    uint32_t at = 0, i = 0;
    for (const struct tl_ptx_decl *d = f->params; d != NULL; d = d->next, i++) {
        if (d->count > MOST_PARAMS || d->align > MOST_PARAMS || decl_bytes(d) > MOST_PARAMS ||
            round_up(at, decl_align(d)) > MOST_PARAMS - decl_bytes(d))
            return tl_error_set(err, -EINVAL, "its parameters are more than %d bytes", MOST_PARAMS);
        at = round_up(at, decl_align(d));
        info->param_offsets[i] = at;
        info->param_sizes[i] = (uint32_t)decl_bytes(d);
        at += info->param_sizes[i];
    }
    info->param_bytes = at;
    return 0;
}

/* Up to three numbers behind the current word. */
static void read_numbers(struct tl_lex *lx, uint32_t v[3])
{
    v[0] = v[1] = v[2] = 1;
    tl_lex_next(lx);
    for (int i = 0; i < 3 && lx->kind == TL_TOK_NUMBER; i++) {
        v[i] = (uint32_t)strtoul(lx->text + lx->at, NULL, 0);
        tl_lex_next(lx);
        if (!tl_lex_is(lx, ','))
            break;
        tl_lex_next(lx);
    }
}

static void read_directives(const struct tl_ptx_func *f, struct tl_drv_kernel_info *info)
{
    struct tl_lex lx;
    char *text = strndup(f->directives.p != NULL ? f->directives.p : "", f->directives.n);
    info->max_threads = 1024;
    if (text == NULL)
        return;
    tl_lex_init(&lx, text, 0, f->directives.n);
    while (lx.kind != TL_TOK_END) {
        uint32_t v[3];
        if (tl_lex_is_dotword(&lx, "maxntid")) {
            read_numbers(&lx, v);
            info->max_threads = v[0] * v[1] * v[2];
        } else if (tl_lex_is_dotword(&lx, "reqntid")) {
            read_numbers(&lx, v);
            memcpy(info->required, v, sizeof v);
            info->max_threads = v[0] * v[1] * v[2];
        } else if (tl_lex_is_dotword(&lx, "maxnreg")) {
            read_numbers(&lx, v);
            if (info->max_registers == 0 || v[0] < info->max_registers)
                info->max_registers = v[0];
        } else if (tl_lex_is_dotword(&lx, "reqnctapercluster")) {
            read_numbers(&lx, info->required_cluster);
        } else {
            tl_lex_next(&lx);
        }
    }
    if (info->max_threads == 0 || info->max_threads > 1024)
        info->max_threads = 1024;
    free(text);
}

struct sizes {
    uint64_t shared, local, registers;
};

static void add_decl(const struct tl_ptx_decl *d, struct sizes *s)
{
    for (; d != NULL; d = d->next) {
        if (tl_str_starts(d->space, "shared"))
            s->shared = round_up(s->shared, decl_align(d)) + decl_bytes(d);
        else if (tl_str_is(d->space, "local"))
            s->local = round_up(s->local, decl_align(d)) + decl_bytes(d);
        else if (tl_str_is(d->space, "reg") && !tl_str_is(d->type, "pred"))
            s->registers += (d->is_range ? d->range : 1) *
                            (uint64_t)(tl_ptx_type_bytes(d->type) > 4 ? 2 : 1);
    }
}

static void add_stmts(const struct tl_ptx_stmt *s, struct sizes *sizes)
{
    for (; s != NULL; s = s->next) {
        if (s->kind == TL_STMT_DECL)
            add_decl(s->decl, sizes);
        else if (s->kind == TL_STMT_BLOCK)
            add_stmts(s->block, sizes);
    }
}

/* Parses one kernel with what it reaches, and adds up what it takes of each kind of memory.
 * Registers are guessed. 0 or -errno with why. */
static int read_kernel(struct tl_drv_image *image, struct tl_str name,
                       struct tl_drv_kernel_info *info, struct tl_error *err)
{
    struct tl_arena arena;
    struct tl_ptx_program program;
    struct sizes sizes = {0};
    tl_arena_init(&arena, 0);
    int rc = tl_ptx_program_init(&program, image->index, name, &arena, err);
    if (rc == 0)
        rc = read_params(program.entry->func, info, err);
    if (rc == 0) {
        read_directives(program.entry->func, info);
        for (struct tl_ptx_program_func *f = program.funcs; f != NULL; f = f->next)
            if (f->func != NULL && f->func->has_body)
                add_stmts(f->func->body, &sizes);
        for (struct tl_ptx_program_var *v = program.vars; v != NULL; v = v->next) {
            if (tl_ptx_var_is(v, "shared"))
                sizes.shared = round_up(sizes.shared, decl_align(v->decl)) + decl_bytes(v->decl);
            else if (tl_ptx_var_is(v, "const"))
                info->const_bytes += (uint32_t)decl_bytes(v->decl);
        }
        info->shared_bytes = (uint32_t)sizes.shared;
        info->local_bytes = round_up(sizes.local, 8);
        /* A guess: ptxas reuses registers, and a few dozen are what most kernels end up with. */
        uint64_t guess = 16 + sizes.registers / 4;
        uint32_t cap = 65536 / (info->max_threads > 0 ? info->max_threads : 1) / 8 * 8;
        cap = cap > 255 ? 255 : cap < 32 ? 32 : cap;
        if (info->max_threads == 1024)
            cap = 128;
        if (image->max_registers > 0 &&
            (info->max_registers == 0 || image->max_registers < info->max_registers))
            info->max_registers = image->max_registers;
        if (info->max_registers > 0 && info->max_registers < cap)
            cap = info->max_registers;
        info->registers = (uint32_t)(guess > cap ? cap : guess);
    }
    tl_ptx_program_finish(&program);
    tl_arena_finish(&arena);
    return rc;
}

/* Looked at when first asked for; of two threads that do so at once, the first one's result is
 * kept. */
CUresult tl_drv_kernel_info(struct tl_drv_image *image, const char *name,
                            struct tl_drv_kernel_info **out)
{
    const struct tl_ptx_item *item = tl_ptx_index_find(image->index, tl_str_of(name));
    if (item == NULL || item->kind != TL_PTX_ITEM_ENTRY)
        return CUDA_ERROR_NOT_FOUND;
    uint32_t number = (uint32_t)(item - tl_ptx_index_item(image->index, 0));
    tl_drv_lock();
    *out = image->infos[number];
    tl_drv_unlock();
    if (*out != NULL)
        return CUDA_SUCCESS;
    struct tl_error err = {0};
    struct tl_drv_kernel_info *info = calloc(1, sizeof *info);
    if (info == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    info->name = strdup(name);
    info->ptx_version = version_number(tl_ptx_index_version(image->index));
    info->target = version_number(tl_ptx_index_target(image->index));
    int rc = info->name != NULL ? read_kernel(image, item->name, info, &err) : -ENOMEM;
    if (rc == 0 && image->opaque != NULL && tl_drv_opaque_registers(image->opaque, name) > 0)
        info->registers = tl_drv_opaque_registers(image->opaque, name);
    if (rc < 0) {
        tl_drv_warn("kernel %s: %s", name, err.text);
        info_free(info);
        return rc == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
    }
    tl_drv_lock();
    if (image->infos[number] == NULL) {
        image->infos[number] = info;
        info = NULL;
    }
    *out = image->infos[number];
    tl_drv_unlock();
    info_free(info); /* another thread was faster */
    return CUDA_SUCCESS;
}

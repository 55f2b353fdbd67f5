/* Machine code that is known by digest, alone or gated (docs/gate.md), run as the PTX that it was
 * made of.
 *
 *     .text.K        = [the code of K]           runs as K's PTX
 *     .text.K        = [gate][the code of K]     runs as the gate's PTX and K's, in one function
 *     .text.K$gate   = [gate][the code of K]     the same, beside K: both have the module's variables
 *
 * What stands in front must be, byte by byte, what the compiler makes of the gate for this
 * architecture and these parameters; anything else is refused, since nobody can tell what it does.
 * All else is taken from the tables of the cubin as they are, as a GPU's driver would: where
 * parameters go, and what there is of registers and barriers.  Nothing that is wrong there is put
 * right. */
#include "device/driver/handle.h"
#include "device/driver/known.h"
#include "device/driver/log.h"

#include "ptx_rewrite/lex.h"
#include "tally/cubin.h"
#include "tally/ptx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A kernel of the cubin, and what it is. */
struct found {
    uint32_t symbol;
    const char *name; /* in the cubin */
    const struct tl_origin_kernel *kernel;
    const uint8_t *front; /* of `n_front` bytes */
    uint64_t n_front;
    bool is_twin;
    struct tl_drv_kernel_info *info; /* of `kernel`, if it is gated */
    bool is_left_out;                /* it cannot be run here */
};

struct work {
    struct tl_tables elf;
    uint32_t arch;
    const struct tl_drv_known *known;
    struct found *found;
    uint32_t n;
    struct tl_tables_facts facts;
};

/* --- which code it is ------------------------------------------------------------------------- */

static bool ends_in_code(const struct tl_tables *e, struct found *f)
{
    uint8_t digest[TL_DIGEST_BYTES];
    uint64_t n;
    const uint8_t *code = tl_tables_code(e, f->symbol, &n);
    if (code == NULL || n < f->kernel->code_bytes)
        return false;
    f->front = code;
    f->n_front = n - f->kernel->code_bytes;
    tl_digest_of(code + f->n_front, f->kernel->code_bytes, digest);
    return memcmp(digest, f->kernel->code, sizeof digest) == 0;
}

/* Makes of a twin's name that of its kernel. */
static bool is_twin_name(struct tl_str *name)
{
    static const struct tl_str suffix = TL_STR(TL_CUBIN_TWIN_SUFFIX);
    if (name->n <= suffix.n || memcmp(name->p + name->n - suffix.n, suffix.p, suffix.n) != 0)
        return false;
    name->n -= suffix.n;
    return true;
}

static bool find_kernel(const struct tl_drv_known *k, struct found *f)
{
    struct tl_str name = tl_str_of(f->name);
    f->kernel = tl_origin_kernel(k->cubin, name);
    f->is_twin = f->kernel == NULL && is_twin_name(&name);
    if (f->is_twin)
        f->kernel = tl_origin_kernel(k->cubin, name);
    return f->kernel != NULL;
}

/* Whether the cubin has the kernels of a known one and, besides, at most twins of them. */
static bool has_names_of(struct work *w, const struct tl_drv_known *k)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        if (!find_kernel(k, &w->found[i]))
            return false;
        n += !w->found[i].is_twin;
    }
    return n == k->cubin->n;
}

static bool is_made_of(struct work *w, const struct tl_drv_known *k)
{
    if (!has_names_of(w, k))
        return false;
    for (uint32_t i = 0; i < w->n; i++) {
        if (ends_in_code(&w->elf, &w->found[i]))
            continue;
        tl_drv_log("kernel %s: its code is not that of a known kernel of this name",
                   w->found[i].name);
        return false;
    }
    return true;
}

/* What a compiler has kept of the cubin: asked for by its smallest kernel, since all of them were
 * kept at once. */
static const struct tl_drv_known *recall(const struct work *w)
{
    const uint8_t *code = NULL;
    struct tl_str name = {0};
    uint64_t n = UINT64_MAX;
    for (uint32_t i = 0; i < w->n; i++) {
        struct tl_str its = tl_str_of(w->found[i].name), base = its;
        uint64_t bytes;
        const uint8_t *p = tl_tables_code(&w->elf, w->found[i].symbol, &bytes);
        if (p == NULL || bytes >= n || is_twin_name(&base))
            continue;
        code = p;
        n = bytes;
        name = its;
    }
    return code != NULL ? tl_drv_known_recall(name, code, n) : NULL;
}

/* Among what the process has shown, and else on disk. */
static void find_known(struct work *w)
{
    w->known = tl_drv_known_first();
    while (w->known != NULL && !is_made_of(w, w->known))
        w->known = w->known->next;
    const struct tl_drv_known *k = w->known == NULL ? recall(w) : NULL;
    if (k != NULL && is_made_of(w, k))
        w->known = k;
}

/* --- gates ------------------------------------------------------------------------------------ */

static struct tl_mutex gates_lock = TL_MUTEX_INITIALIZER;
static struct {
    struct tl_cubin_compiler *compiler;
    struct tl_cubin_gates *gates;
    struct tl_store store;
} forge TL_GUARDED_BY(gates_lock);

/* A gate that was compiled by whoever gated the cubin is found in the same store. */
static int open_forge(struct tl_error *err) TL_REQUIRES(gates_lock)
{
    char path[TL_STORE_PATH];
    if (forge.gates != NULL)
        return 0;
    int rc = tl_cubin_ptxas_create(&forge.compiler, NULL, err);
    if (rc < 0)
        return rc;
    bool has_store = tl_store_folder(path, NULL) == 0 &&
                     tl_store_open(&forge.store, path, tl_store_limit_mb(), NULL) == 0;
    rc = tl_cubin_gates_create(&forge.gates, forge.compiler, has_store ? &forge.store : NULL, err);
    if (rc < 0) {
        tl_cubin_ptxas_destroy(forge.compiler);
        if (has_store)
            tl_store_close(&forge.store);
    }
    return rc;
}

/* The gate for a kernel; its bytes are never freed. */
static int gate_of(uint32_t arch, const struct tl_drv_kernel_info *info,
                   struct tl_cubin_gate_code *out, struct tl_error *err)
{
    uint32_t cluster[3];
    for (int i = 0; i < 3; i++)
        cluster[i] = info->required_cluster[i] > 0 ? info->required_cluster[i] : 1;
    tl_mutex_lock(&gates_lock);
    int rc = open_forge(err);
    if (rc == 0)
        rc = tl_cubin_gates_code(forge.gates, arch, (info->param_bytes + 7u) & ~7u, cluster, out,
                                 err);
    tl_mutex_unlock(&gates_lock);
    return rc;
}

/* --- what a GPU goes by ----------------------------------------------------------------------- */

/* Parameters lie in the bank that is made for them, and all of them are in there. */
static const char *doubt_parameters(const struct tl_tables_facts *f, uint32_t needed)
{
    if (f->has_more_params)
        return "a parameter is described twice, or there are too many";
    if (f->bank_bytes != f->param_bytes || f->bank_size != f->bank_base + f->bank_bytes)
        return "the sizes of its parameters disagree";
    if (f->bank_bytes < needed)
        return "its code reads parameters that it is said not to have";
    for (uint32_t i = 0; i < f->n_params; i++)
        if (f->params[i].bytes == 0 || f->params[i].offset > f->bank_bytes ||
            f->params[i].bytes > f->bank_bytes - f->params[i].offset)
            return "a parameter is missing or outside of the others";
    return NULL;
}

static const char *doubt(const struct work *w, const struct found *f,
                         const struct tl_cubin_gate_code *gate)
{
    const struct tl_tables_facts *facts = &w->facts;
    uint32_t registers = f->kernel->registers > gate->registers ? f->kernel->registers
                                                                : gate->registers;
    uint8_t inside[TL_DIGEST_BYTES];
    tl_origin_inside(&w->elf, f->symbol, f->n_front, inside);
    if (f->n_front != gate->n || memcmp(f->front, gate->bytes, gate->n) != 0)
        return "what stands in front of its code is no gate that is known";
    if (facts->registers < registers || (w->arch < 90 && facts->section_registers < registers))
        return "its code uses more registers than it is said to have";
    if (facts->barriers < gate->barriers)
        return "its code uses a barrier that it is said not to have";
    if (gate->uses_ctaid_z && !facts->uses_ctaid_z)
        return "its code asks for the block's z, and is said not to";
    if (!tl_tables_is_loaded(&w->elf, w->elf.symbols[f->symbol].st_shndx))
        return "its code is in no segment that is loaded";
    if (tl_tables_has_second_form(&w->elf))
        return "its cubin has a second form of the code, without the gate";
    if (memcmp(inside, f->kernel->inside, sizeof inside) != 0)
        return "the functions in it are not said to be where they are";
    return doubt_parameters(facts, ((f->info->param_bytes + 7u) & ~7u) +
                                       (uint32_t)sizeof(struct tl_cubin_args));
}

/* --- parameters ------------------------------------------------------------------------------- */

/* Compilers put what is aligned to 128 bytes, as tensor maps are, where its address in the bank is,
 * which PTX does not know of. */
static bool is_placed_in_bank(const struct tl_tables_facts *f)
{
    enum { ALIGN = 128 };
    for (uint32_t i = 0; i < f->n_params; i++)
        if (f->params[i].bytes >= ALIGN && f->params[i].offset % ALIGN != 0 &&
            (f->bank_base + f->params[i].offset) % ALIGN == 0)
            return true;
    return false;
}

/* Tells callers of a kernel without a gate where its machine code has its parameters, if that is
 * elsewhere than in its PTX.  Nobody else has seen the image yet. */
static CUresult place(const struct tl_tables *t, uint32_t symbol, struct tl_drv_image *image,
                      struct tl_tables_facts *f)
{
    struct tl_drv_kernel_info *info;
    tl_tables_read(t, symbol, f);
    if (!is_placed_in_bank(f) || doubt_parameters(f, 0) != NULL)
        return CUDA_SUCCESS;
    CUresult r = tl_drv_kernel_info(image, tl_tables_symbol_name(t, symbol), &info);
    if (r != CUDA_SUCCESS || info->n_params != f->n_params || info->code_offsets != NULL)
        return r == CUDA_ERROR_OUT_OF_MEMORY ? r : CUDA_SUCCESS;
    for (uint32_t i = 0; i < f->n_params; i++)
        if (f->params[i].bytes != info->param_sizes[i])
            return CUDA_SUCCESS;
    uint32_t *offsets = calloc(f->n_params, sizeof *offsets);
    if (offsets == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < f->n_params; i++)
        offsets[i] = f->params[i].offset;
    info->code_param_bytes = f->bank_bytes;
    info->code_offsets = offsets;
    return CUDA_SUCCESS;
}

/* The same of all kernels that the image has by the names that they have in the cubin. */
static CUresult place_all(const struct tl_tables *t, const struct tl_origin *o,
                          struct tl_drv_image *image)
{
    struct tl_tables_facts *f = calloc(1, sizeof *f);
    CUresult r = f != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; r == CUDA_SUCCESS && i < o->n; i++)
        r = place(t, tl_tables_find(t, tl_str_of(o->kernels[i].name)), image, f);
    free(f);
    return r;
}

/* Whether the kernel's own parameters are where its PTX has them.  Compilers align large ones to
 * addresses in the bank, which PTX does not know of. */
static bool is_as_in_ptx(const struct work *w, const struct found *f)
{
    if (w->facts.n_params < f->info->n_params)
        return true; /* another check's business */
    for (uint32_t i = 0; i < f->info->n_params; i++)
        if (w->facts.params[i].offset != f->info->param_offsets[i] ||
            w->facts.params[i].bytes != f->info->param_sizes[i])
            return false;
    return true;
}

static CUresult check_gated(struct work *w, struct found *f)
{
    struct tl_cubin_gate_code gate;
    struct tl_error err = {0};
    CUresult r = tl_drv_kernel_info(w->known->image, f->kernel->name, &f->info);
    if (r != CUDA_SUCCESS)
        return r;
    tl_tables_read(&w->elf, f->symbol, &w->facts);
    f->is_left_out = !is_as_in_ptx(w, f);
    if (f->is_left_out) {
        tl_drv_log("gated kernel %s is left out: its parameters are not where its PTX has them",
                   f->name);
        return CUDA_SUCCESS;
    }
    if (gate_of(w->arch, f->info, &gate, &err) < 0) {
        tl_drv_log("gated kernel %s refused: which gate that is cannot be told: %s", f->name,
                   err.text);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    const char *why = doubt(w, f, &gate);
    if (why != NULL)
        tl_drv_log("gated kernel %s refused: %s", f->name, why);
    return why == NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

/* --- as PTX ----------------------------------------------------------------------------------- */

/* The offset of the ')' behind a kernel's parameters, or of its body if there is none. */
static uint32_t end_of_params(const char *text, const struct tl_ptx_item *item, bool *has_any)
{
    struct tl_lex lx;
    tl_lex_init(&lx, text, (uint32_t)(item->name.p + item->name.n - text), item->body);
    if (tl_lex_is(&lx, '('))
        tl_lex_next(&lx);
    *has_any = !tl_lex_is(&lx, ')');
    while (lx.kind != TL_TOK_END && !tl_lex_is(&lx, ')'))
        tl_lex_next(&lx);
    return lx.kind == TL_TOK_END ? item->body : lx.at;
}

static void put_gated(struct tl_buf *out, const char *text, const struct tl_ptx_item *item,
                      const struct found *f)
{
    bool has_any;
    uint32_t name_begin = (uint32_t)(item->name.p - text), name_end = name_begin + item->name.n;
    uint32_t params_end = end_of_params(text, item, &has_any);
    tl_buf_add(out, text + item->begin, name_begin - item->begin);
    tl_buf_puts(out, f->name);
    tl_buf_add(out, text + name_end, params_end - name_end);
    tl_buf_printf(out, "%s .param .align 8 .b8 tl_gate_args[%zu]", has_any ? "," : "",
                  sizeof(struct tl_cubin_args));
    tl_buf_add(out, text + params_end, item->body - params_end);
    tl_buf_puts(out, "{\n{\n");
    tl_cubin_gate_source(out, "tl_gate_", "tl_gate_args",
                         f->info->required_cluster[0] > 0 ? f->info->required_cluster
                                                          : (const uint32_t[3]){1, 1, 1});
    tl_buf_puts(out, "}\n");
    tl_buf_add(out, text + item->body + 1, item->end - item->body - 1);
    tl_buf_putc(out, '\n');
}

/* The known module with gated kernels in place of theirs, and twins behind theirs. */
static CUresult make_text(const struct work *w, char **text, size_t *n)
{
    const struct tl_drv_image *image = w->known->image;
    struct tl_buf out = {0};
    for (uint32_t i = 0; i < image->n_items; i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(image->index, i);
        bool is_entry = item->kind == TL_PTX_ITEM_ENTRY && item->body != 0;
        const struct found *gated = NULL, *twin = NULL;
        for (uint32_t j = 0; is_entry && j < w->n; j++) {
            const struct found *f = &w->found[j];
            if (f->n_front > 0 && tl_str_is(item->name, f->kernel->name))
                *(f->is_twin ? &twin : &gated) = f;
        }
        if (gated == NULL)
            tl_buf_add(&out, image->text + item->begin, item->end - item->begin);
        else if (!gated->is_left_out)
            put_gated(&out, image->text, item, gated);
        tl_buf_putc(&out, '\n');
        if (twin != NULL && !twin->is_left_out)
            put_gated(&out, image->text, item, twin);
    }
    *n = out.n;
    *text = tl_buf_take(&out);
    return *text != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Parameters and registers as the cubin has them, whatever the PTX says.  Nobody else has seen the
 * image yet. */
static CUresult describe(struct work *w, const struct found *f, struct tl_drv_image *image)
{
    struct tl_drv_kernel_info *info;
    CUresult r = tl_drv_kernel_info(image, f->name, &info);
    if (r != CUDA_SUCCESS)
        return r;
    tl_tables_read(&w->elf, f->symbol, &w->facts);
    uint32_t n = w->facts.n_params;
    uint32_t *offsets = calloc(n + 1, sizeof *offsets), *sizes = calloc(n + 1, sizeof *sizes);
    if (offsets == NULL || sizes == NULL) {
        free(offsets);
        free(sizes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < n; i++) {
        offsets[i] = w->facts.params[i].offset;
        sizes[i] = w->facts.params[i].bytes;
    }
    free(info->param_offsets);
    free(info->param_sizes);
    info->param_offsets = offsets;
    info->param_sizes = sizes;
    info->n_params = n;
    info->param_bytes = w->facts.bank_bytes;
    info->registers = w->facts.registers;
    return CUDA_SUCCESS;
}

static CUresult make_image(struct work *w, struct tl_drv_image **out)
{
    char *text;
    size_t n;
    CUresult r = CUDA_SUCCESS;
    for (uint32_t i = 0; r == CUDA_SUCCESS && i < w->n; i++)
        if (w->found[i].n_front > 0 || w->found[i].is_twin)
            r = check_gated(w, &w->found[i]);
    if (r == CUDA_SUCCESS)
        r = make_text(w, &text, &n);
    if (r == CUDA_SUCCESS)
        r = tl_drv_image_of_text(text, n, out);
    if (r != CUDA_SUCCESS)
        return r;
    for (uint32_t i = 0; r == CUDA_SUCCESS && i < w->n; i++)
        if (w->found[i].n_front > 0 && !w->found[i].is_left_out)
            r = describe(w, &w->found[i], *out);
        else if (w->found[i].n_front == 0)
            r = place(&w->elf, w->found[i].symbol, *out, &w->facts);
    if (r != CUDA_SUCCESS) {
        tl_drv_lock();
        tl_drv_image_unref(*out);
        tl_drv_unlock();
    }
    return r;
}

static CUresult list_kernels(struct work *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->elf.n_symbols; i++)
        n += tl_tables_is_kernel(&w->elf, i);
    if (!tl_tables_is_sane(&w->elf, n))
        return CUDA_ERROR_NOT_FOUND;
    w->found = calloc(n + 1u, sizeof *w->found);
    if (w->found == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < w->elf.n_symbols; i++)
        if (tl_tables_is_kernel(&w->elf, i))
            w->found[w->n++] = (struct found){.symbol = i,
                                              .name = tl_tables_symbol_name(&w->elf, i)};
    return n > 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

static bool has_twins(const struct work *w)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->found[i].is_twin)
            return true;
    return false;
}

static bool has_gates(const struct work *w)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->found[i].n_front > 0)
            return true;
    return has_twins(w);
}

CUresult tl_drv_gated_load(const void *cubin, size_t n, uint32_t arch, bool has_ptx,
                           struct tl_drv_image **out)
{
    struct work *w = calloc(1, sizeof *w);
    if (w == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = CUDA_ERROR_NOT_FOUND;
    w->arch = arch;
    if (tl_tables_open(&w->elf, cubin, n, NULL) == 0)
        r = list_kernels(w);
    if (r == CUDA_SUCCESS) {
        find_known(w);
        r = w->known != NULL && (!has_ptx || has_gates(w)) ? make_image(w, out)
                                                           : CUDA_ERROR_NOT_FOUND;
    }
    if (r == CUDA_SUCCESS) {
        (*out)->code_arch = arch;
        (*out)->has_twins = has_twins(w);
    }
    free(w->found);
    free(w);
    return r;
}

/* --- containers ------------------------------------------------------------------------------- */

/* How many parameters a kernel's PTX has; its body is not read.  UINT32_MAX if it is not there. */
static uint32_t params_in_ptx(const struct tl_drv_image *image, const char *name)
{
    const struct tl_ptx_item *item = tl_ptx_index_find(image->index, tl_str_of(name));
    struct tl_lex lx;
    uint32_t n = 0;
    if (item == NULL || item->kind != TL_PTX_ITEM_ENTRY || item->body == 0)
        return UINT32_MAX;
    tl_lex_init(&lx, image->text, (uint32_t)(item->name.p + item->name.n - image->text),
                item->body);
    for (; lx.kind != TL_TOK_END; tl_lex_next(&lx))
        n += tl_lex_is_dotword(&lx, "param");
    return n;
}

/* Takes the gate off a kernel that has one parameter more than its PTX, if that is what stands in
 * front of it. */
static CUresult strip(const struct tl_tables *t, uint32_t arch, struct tl_drv_image *image,
                      struct tl_origin_kernel *k)
{
    struct tl_cubin_gate_code gate;
    struct tl_error err = {0};
    struct tl_drv_kernel_info *info;
    uint64_t n;
    const uint8_t *code = tl_tables_code(t, tl_tables_find(t, tl_str_of(k->name)), &n);
    CUresult r = tl_drv_kernel_info(image, k->name, &info);
    if (r != CUDA_SUCCESS)
        return r;
    if (gate_of(arch, info, &gate, &err) < 0 || n < gate.n ||
        memcmp(code, gate.bytes, gate.n) != 0) {
        tl_drv_log("kernel %s has one parameter more than its PTX, and no gate that is known%s%s",
                   k->name, err.text[0] != 0 ? ": " : "", err.text);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    k->code_bytes = n - gate.n;
    tl_digest_of(code + gate.n, k->code_bytes, k->code);
    tl_origin_inside(t, tl_tables_find(t, tl_str_of(k->name)), gate.n, k->inside);
    return CUDA_SUCCESS;
}

/* Makes of a cubin's kernels those that its PTX has.  CUDA_ERROR_NOT_FOUND if the PTX is something
 * else. */
static CUresult take_gates_off(const struct tl_tables *t, uint32_t arch, struct tl_drv_image *image,
                               struct tl_origin *o, bool *has_gates_on)
{
    uint32_t n = 0;
    CUresult r = CUDA_SUCCESS;
    *has_gates_on = false;
    for (uint32_t i = 0; r == CUDA_SUCCESS && i < o->n; i++) {
        struct tl_origin_kernel *k = &o->kernels[i];
        struct tl_str base = tl_str_of(k->name);
        uint32_t by_ptx = params_in_ptx(image, k->name);
        if (by_ptx == UINT32_MAX && is_twin_name(&base)) {
            *has_gates_on = true;
            continue;
        }
        if (by_ptx != UINT32_MAX && k->n_params == by_ptx + 1) {
            *has_gates_on = true;
            r = strip(t, arch, image, k);
        } else if (k->n_params != by_ptx) {
            tl_drv_log("kernel %s: its code and the PTX beside it have other parameters", k->name);
            r = CUDA_ERROR_NOT_FOUND;
        }
        o->kernels[n++] = *k;
    }
    o->n = n;
    return r;
}

CUresult tl_drv_gated_learn(const void *cubin, size_t n, uint32_t arch, struct tl_drv_image **image)
{
    struct tl_tables t;
    struct tl_origin *o;
    struct tl_drv_image *plain = *image, *with = NULL;
    bool has_gates_on;
    if (tl_tables_open(&t, cubin, n, NULL) < 0 || tl_origin_read(&o, &t, NULL) < 0)
        return CUDA_SUCCESS;
    CUresult r = take_gates_off(&t, arch, plain, o, &has_gates_on);
    if (r == CUDA_SUCCESS && !has_gates_on)
        r = place_all(&t, o, plain);
    if (r == CUDA_SUCCESS)
        tl_drv_known_add(o, plain);
    else
        tl_origin_free(o);
    if (r == CUDA_ERROR_NOT_FOUND && !has_gates_on)
        return CUDA_SUCCESS; /* odd, and none of this file's business */
    if (r == CUDA_SUCCESS && !has_gates_on)
        return CUDA_SUCCESS;
    if (r == CUDA_SUCCESS)
        r = tl_drv_gated_load(cubin, n, arch, true, &with);
    tl_drv_lock();
    tl_drv_image_unref(plain);
    tl_drv_unlock();
    *image = with;
    return r == CUDA_ERROR_NOT_FOUND ? CUDA_ERROR_INVALID_IMAGE : r;
}

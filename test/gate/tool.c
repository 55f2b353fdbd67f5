/* gate-tool: what test/gate/compare.py needs of the libraries.
 *
 *     gate-tool prologue IN.ptx IN.cubin OUT.ptx [twin]   the gate's source in front of each kernel that
 *                                                         can be gated, or of a copy of it
 *     gate-tool gate PTXAS IN.cubin OUT.cubin [twin] [leave-out=N]
 *     gate-tool measure PTXAS ARCH FILE... [twin]         what gating all of their cubins takes
 *     gate-tool learn FILE...                             keeps in the store which PTX the machine code in
 *                                                         these programs was made of, for the software device
 *     gate-tool together PTXAS ARCH                       whether gates compiled at once are those compiled alone
 *     gate-tool ids FILE...                               which attributes their kernels have
 *     gate-tool edits                                     what can be left out
 *     gate-tool attributes                                numbers and names of known attributes */
#include "test/gate/tool.h"
#include "cubin/work.h"
#include "ptx_rewrite/lex.h"
#include "tally/file.h"
#include "tally/image.h"
#include "tally/origin.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void gate_tool_die(const char *what)
{
    fprintf(stderr, "gate-tool: %s\n", what);
    exit(1);
}

char *gate_tool_read(const char *path, size_t *n)
{
    char *bytes;
    if (tl_file_read(path, SIZE_MAX, &bytes, n) < 0)
        gate_tool_die(path);
    return bytes;
}

static void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "we");
    if (f == NULL || fwrite(bytes, 1, n, f) != n || fclose(f) != 0)
        gate_tool_die(path);
}

/* --- prologue --------------------------------------------------------------------------------- */

/* The offset of the ')' that ends a kernel's parameters, and whether it has any. */
static uint32_t end_of_params(const char *text, const struct tl_ptx_item *item, bool *has_any)
{
    struct tl_lex lx;
    uint32_t name_end = (uint32_t)(item->name.p + item->name.n - text);
    tl_lex_init(&lx, text, name_end, item->body);
    if (!tl_lex_is(&lx, '('))
        gate_tool_die("a kernel has no list of parameters");
    tl_lex_next(&lx);
    *has_any = !tl_lex_is(&lx, ')');
    while (lx.kind != TL_TOK_END && !tl_lex_is(&lx, ')'))
        tl_lex_next(&lx);
    return lx.at;
}

static void put_with_prologue(struct tl_buf *out, const char *text, const struct tl_ptx_item *item,
                              const struct tl_cubin_entry *entry, const char *suffix)
{
    bool has_any;
    uint32_t name_end = (uint32_t)(item->name.p + item->name.n - text);
    uint32_t params_end = end_of_params(text, item, &has_any);
    tl_buf_add(out, text + item->begin, name_end - item->begin);
    tl_buf_puts(out, suffix);
    tl_buf_add(out, text + name_end, params_end - name_end);
    tl_buf_printf(out, "%s .param .align 8 .b8 tl_gate_args[48]", has_any ? "," : "");
    tl_buf_add(out, text + params_end, item->body - params_end);
    tl_buf_puts(out, "{\n{\n");
    tl_cubin_gate_source(out, "tl_gate_", "tl_gate_args", entry->cluster);
    tl_buf_puts(out, "}\n");
    tl_buf_add(out, text + item->body + 1, item->end - item->body - 1);
    tl_buf_putc(out, '\n');
}

/* The PTX again, with the gate's source in front of each kernel that can be gated: what ptxas makes
 * of it is what a gated cubin is compared with. */
static void prologue(const char *ptx, const char *cubin, const char *to, bool is_twin)
{
    size_t n, n_cubin;
    struct tl_ptx_index *ix;
    struct tl_cubin *c;
    struct tl_error err;
    struct tl_buf out = {0};
    char *text = gate_tool_read(ptx, &n), *bytes = gate_tool_read(cubin, &n_cubin);
    if (tl_ptx_index_create(&ix, text, n, ptx, &err) < 0 ||
        tl_cubin_open(&c, bytes, n_cubin, &err) < 0)
        gate_tool_die(err.text);
    uint32_t at = 0;
    for (uint32_t i = 0; i < tl_ptx_index_count(ix); i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(ix, i);
        const struct tl_cubin_entry *e = item->kind == TL_PTX_ITEM_ENTRY && item->body != 0
                                             ? tl_cubin_find(c, item->name)
                                             : NULL;
        if (e == NULL || e->reason != TL_CUBIN_REASON_OK)
            continue;
        tl_buf_add(&out, text + at, (is_twin ? item->end : item->begin) - at);
        tl_buf_putc(&out, '\n');
        put_with_prologue(&out, text, item, e, is_twin ? TL_CUBIN_TWIN_SUFFIX : "");
        at = item->end;
    }
    tl_buf_add(&out, text + at, strlen(text) - at);
    if (out.failed)
        gate_tool_die("no memory");
    write_file(to, out.p, out.n);
    tl_buf_finish(&out);
    tl_ptx_index_destroy(ix);
    tl_cubin_close(c);
    free(text);
    free(bytes);
}

/* --- gate ------------------------------------------------------------------------------------- */

/* Gates by ptxas, kept in the store. */
struct forge {
    struct tl_cubin_compiler *compiler;
    struct tl_cubin_gates *gates;
    struct tl_store store;
};

static void open_forge(struct forge *f, const char *ptxas)
{
    char path[TL_STORE_PATH];
    struct tl_error err;
    if (tl_store_folder(path, &err) < 0 || tl_store_open(&f->store, path, 64, &err) < 0 ||
        tl_cubin_ptxas_create(&f->compiler, ptxas, &err) < 0 ||
        tl_cubin_gates_create(&f->gates, f->compiler, &f->store, &err) < 0)
        gate_tool_die(err.text);
}

static void close_forge(struct forge *f)
{
    tl_cubin_gates_destroy(f->gates);
    tl_cubin_ptxas_destroy(f->compiler);
    tl_store_close(&f->store);
}

static void gate(const char *ptxas, const char *from, const char *to, bool is_twin,
                 uint32_t left_out)
{
    size_t n;
    struct tl_error err;
    struct tl_cubin *c;
    struct tl_cubin_gated out;
    struct forge f;
    char *bytes = gate_tool_read(from, &n);
    open_forge(&f, ptxas);
    if (tl_cubin_open(&c, bytes, n, &err) < 0)
        gate_tool_die(err.text);
    int rc = tl__cb_gate(c, &(struct tl_cubin_options){.is_twin = is_twin}, f.gates, left_out, &out,
                         &err);
    if (rc < 0)
        gate_tool_die(err.text);
    write_file(to, out.bytes, out.n);
    for (uint32_t i = 0; i < c->n_kernels; i++) {
        const struct tl__cb_kernel *k = &c->kernels[i];
        const struct tl__cb_piece *piece = NULL;
        struct tl__cb_want want = tl__cb_want_of(c, k);
        if (k->entry.reason == TL_CUBIN_REASON_OK &&
            tl__cb_gates_get(f.gates, &want, &piece, &err) == 0)
            printf("gated " TL_STR_FMT " %u %u %u\n", TL_STR_ARG(k->entry.name), piece->code_bytes,
                   piece->registers, piece->exit);
        else
            printf("refused " TL_STR_FMT " %s %s\n", TL_STR_ARG(k->entry.name),
                   tl_cubin_reason_code(k->entry.reason), k->entry.note);
    }
    tl_cubin_gated_finish(&out);
    tl_cubin_close(c);
    close_forge(&f);
    free(bytes);
}

static void measure(const char *ptxas, const char *arch, char *const *paths, int n_paths,
                    bool is_twin)
{
    struct forge f;
    open_forge(&f, ptxas);
    gate_tool_measure(f.gates, arch, paths, n_paths, is_twin);
    close_forge(&f);
}

/* --- learn ------------------------------------------------------------------------------------ */

/* A file's bytes, a cubin in it, and the PTX of its container that it was made of. */
struct lesson {
    const char *bytes;
    size_t n;
    struct tl_store store;
    struct tl_image cubin;
    uint32_t virtual_arch, n_learnt;
    void *code;
    size_t n_code;
};

static int learn_pair(void *data, const struct tl_image *image)
{
    struct lesson *l = data;
    struct tl_error err = {0};
    void *ptx;
    size_t n;
    if (image->kind != TL_IMAGE_PTX || image->container_index != l->cubin.container_index ||
        image->arch != l->virtual_arch || image->is_arch_specific != l->cubin.is_arch_specific)
        return 0;
    if (tl_image_unpack(image, &ptx, &n, &err) < 0 ||
        tl_origin_keep(&l->store, l->code, l->n_code, ptx, n, &err) < 0)
        gate_tool_die(err.text);
    l->n_learnt++;
    free(ptx);
    return 1;
}

static int learn_cubin(void *data, const struct tl_image *image)
{
    struct lesson *l = data;
    struct tl_error err = {0};
    if (image->kind != TL_IMAGE_CUBIN)
        return 0;
    if (tl_image_unpack(image, &l->code, &l->n_code, &err) < 0)
        gate_tool_die(err.text);
    l->cubin = *image;
    l->virtual_arch = tl_cubin_virtual_arch(l->code, l->n_code);
    tl_image_walk(l->bytes, l->n, learn_pair, NULL, l);
    free(l->code);
    return 0;
}

static void learn(const char *path)
{
    struct lesson l = {0};
    struct tl_error err = {0};
    char folder[TL_STORE_PATH];
    l.bytes = gate_tool_read(path, &l.n);
    if (tl_store_folder(folder, &err) < 0 ||
        tl_store_open(&l.store, folder, tl_store_limit_mb(), &err) < 0)
        gate_tool_die(err.text);
    tl_image_walk(l.bytes, l.n, learn_cubin, NULL, &l);
    printf("%s: %u cubins\n", path, l.n_learnt);
    tl_store_close(&l.store);
    free((void *)l.bytes);
}

/* --- together --------------------------------------------------------------------------------- */

static struct tl_cubin_gates *new_gates(const struct tl_cubin_compiler *compiler)
{
    struct tl_cubin_gates *gates;
    struct tl_error err;
    if (tl_cubin_gates_create(&gates, compiler, NULL, &err) < 0)
        gate_tool_die(err.text);
    return gates;
}

/* Some gates by one run of the compiler, and each by one of its own. */
static void together(const char *ptxas, const char *arch)
{
    static const uint32_t offsets[] = {0, 8, 16, 24, 360, 2048, 4048, 0, 8};
    enum { N = sizeof offsets / sizeof offsets[0], CLUSTERED = 2 };
    struct tl_cubin_compiler *compiler;
    struct tl_error err;
    if (tl_cubin_ptxas_create(&compiler, ptxas, &err) < 0)
        gate_tool_die(err.text);
    struct tl_cubin_gates *at_once = new_gates(compiler);
    struct tl__cb_want wants[N];
    for (int i = 0; i < N; i++) {
        uint32_t x = i >= N - CLUSTERED ? 2 : 1;
        wants[i] = (struct tl__cb_want){(uint32_t)atoi(arch), offsets[i], {x, 1, 1}};
        if (tl__cb_gates_want(at_once, &wants[i], &err) < 0)
            gate_tool_die(err.text);
    }
    if (tl__cb_gates_make(at_once, &err) < 0)
        gate_tool_die(err.text);
    for (int i = 0; i < N; i++) {
        struct tl_cubin_gates *alone = new_gates(compiler);
        const struct tl__cb_piece *a, *b;
        if (tl__cb_gates_get(at_once, &wants[i], &a, &err) < 0 ||
            tl__cb_gates_get(alone, &wants[i], &b, &err) < 0)
            gate_tool_die(err.text);
        if (a->code_bytes != b->code_bytes || a->registers != b->registers || a->exit != b->exit ||
            a->base != b->base || memcmp(a->code, b->code, a->code_bytes) != 0)
            gate_tool_die("a gate that was compiled with others is not the same");
        tl_cubin_gates_destroy(alone);
    }
    printf("%u gates at once, the same as alone\n", tl_cubin_gates_compiled(at_once));
    tl_cubin_gates_destroy(at_once);
    tl_cubin_ptxas_destroy(compiler);
}

/* --- lists ------------------------------------------------------------------------------------ */

static void list_edits(void)
{
#define SAY(id, text) printf("%d %s\n", TL__CB_EDIT_##id, text);
    TL__CB_EDITS(SAY)
#undef SAY
}

static void list_attributes(void)
{
    for (uint32_t id = 0; id < 256; id++)
        if (tl_cubin_attribute_name(id) != NULL)
            printf("%02x %s %u\n", id, tl_cubin_attribute_name(id),
                   tl__cb_attr_kind((uint8_t)id)->edit);
}

int main(int argc, char **argv)
{
    bool is_twin = false;
    uint32_t left_out = 0;
    if (argc > 2 && (strcmp(argv[argc - 1], "twin") == 0)) {
        is_twin = true;
        argc--;
    }
    if (argc > 2 && strncmp(argv[argc - 1], "leave-out=", 10) == 0)
        left_out = 1u << atoi(argv[--argc] + 10);
    if (argc == 5 && strcmp(argv[1], "prologue") == 0)
        prologue(argv[2], argv[3], argv[4], is_twin);
    else if (argc == 5 && strcmp(argv[1], "gate") == 0)
        gate(argv[2], argv[3], argv[4], is_twin, left_out);
    else if (argc >= 5 && strcmp(argv[1], "measure") == 0)
        measure(argv[2], argv[3], argv + 4, argc - 4, is_twin);
    else if (argc > 2 && strcmp(argv[1], "learn") == 0)
        for (int i = 2; i < argc; i++)
            learn(argv[i]);
    else if (argc > 2 && strcmp(argv[1], "ids") == 0)
        gate_tool_ids(argv + 2, argc - 2);
    else if (argc == 4 && strcmp(argv[1], "together") == 0)
        together(argv[2], argv[3]);
    else if (argc == 2 && strcmp(argv[1], "edits") == 0)
        list_edits();
    else if (argc == 2 && strcmp(argv[1], "attributes") == 0)
        list_attributes();
    else
        gate_tool_die("see the head of test/gate/tool.c");
    return 0;
}

/* Index, full parse and printing of every image: whether they succeed, how fast, and in how much
 * memory. */
#include "tally/hash.h"
#include "test/corpus/corpus.h"

#include <stdlib.h>
#include <string.h>

#include "ptx_rewrite/ast.h"

enum { SMALL_IMAGE = 100000 }; /* below, the arena's first chunk says more than the tree */

/* --- index --- */

/* A number for each kernel of a library that stays the same from run to run. */
static uint32_t order_of(const struct corpus *c, uint32_t image, struct tl_str kernel)
{
    const uint32_t key[] = {c->options->seed, image, tl_hash(kernel.p, kernel.n)};
    uint32_t h = tl_hash(key, sizeof key);
    h ^= h >> 16; /* FNV's high bits hardly feel the last bytes */
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    return h ^ h >> 16;
}

static void find_kernels(struct corpus *c, uint32_t number)
{
    const struct tl_ptx_index *index = c->images[number].index;
    for (uint32_t i = 0; i < tl_ptx_index_count(index); i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(index, i);
        if (item->kind != TL_PTX_ITEM_ENTRY || item->body == 0)
            continue;
        c->kernels = corpus_one_more(c->kernels, c->n_kernels, &c->max_kernels,
                                     sizeof c->kernels[0]);
        c->kernels[c->n_kernels++] = (struct corpus_kernel){
            .image = &c->images[number],
            .name = item->name,
            .order = order_of(c, number, item->name),
        };
    }
}

static void index_all(struct corpus *c)
{
    struct tl_error err;
    for (uint32_t i = 0; i < c->n_images; i++) {
        struct corpus_image *image = &c->images[i];
        if (tl_ptx_index_create(&image->index, image->text, image->n, image->origin, &err) < 0) {
            image->index = NULL;
            corpus_say(c, "NOT INDEXED %s", err.text);
            continue;
        }
        c->reading.indexed++;
        find_kernels(c, i);
    }
}

/* --- fixed point --- */

/* What a text looks like once it went through parser and printer.  0, or the error has been
 * told. */
static int print_again(const struct corpus *c, const char *text, size_t n, const char *name,
                       char **out, size_t *out_n)
{
    struct tl_error err;
    struct tl_ptx_index *index;
    if (tl_ptx_index_create(&index, text, n, name, &err) < 0) {
        corpus_say(c, "NOT READ AGAIN %s", err.text);
        return -1;
    }
    int rc = tl_ptx_format(index, out, out_n, &err);
    tl_ptx_index_destroy(index);
    if (rc < 0)
        corpus_say(c, "NOT READ AGAIN %s", err.text);
    return rc;
}

static bool is_fixpoint(const struct corpus *c, const struct corpus_image *image, const char *once,
                        size_t once_n)
{
    char *twice;
    size_t twice_n, same = 0;
    if (print_again(c, once, once_n, image->origin, &twice, &twice_n) < 0)
        return false;
    while (same < once_n && same < twice_n && once[same] == twice[same])
        same++;
    bool is_equal = same == once_n && same == twice_n;
    if (!is_equal)
        corpus_say(c, "NO FIXED POINT %s: printed twice, it differs from line %u on", image->origin,
                   tl_ptx_place_of(once, once_n, (uint32_t)same).line);
    free(twice);
    return is_equal;
}

static void check_fixpoints(struct corpus *c)
{
    for (uint32_t i = 0; i < c->n_images; i++) {
        const struct corpus_image *image = &c->images[i];
        struct tl_error err;
        char *once;
        size_t n;
        if (image->index == NULL)
            continue;
        if (tl_ptx_format(image->index, &once, &n, &err) < 0) {
            corpus_say(c, "NOT PARSED %s", err.text);
            continue;
        }
        c->reading.parsed++;
        c->reading.fixpoint += is_fixpoint(c, image, once, n);
        free(once);
    }
}

/* --- speed and memory --- */

int corpus_parse_all(const struct tl_ptx_index *index, size_t *tree_bytes, struct tl_error *err)
{
    struct tl_arena arena;
    struct tl_ptx_unit unit;
    tl_arena_init(&arena, 0);
    int rc = tl_ptx_unit_init(&unit, index, &arena, err);
    for (uint32_t i = 0; rc == 0 && i < tl_ptx_index_count(index); i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(index, i);
        struct tl_ptx_func *func;
        struct tl_ptx_decl *decl;
        if (item->kind == TL_PTX_ITEM_VARIABLE)
            rc = tl_ptx_parse_var(&unit, item, &decl);
        else if (item->kind != TL_PTX_ITEM_DIRECTIVE)
            rc = tl_ptx_parse_func(&unit, item, &func);
    }
    tl_ptx_unit_finish(&unit);
    *tree_bytes = arena.bytes;
    tl_arena_finish(&arena);
    return rc;
}

static void index_pass(const struct corpus *c)
{
    for (uint32_t i = 0; i < c->n_images; i++) {
        const struct corpus_image *image = &c->images[i];
        struct tl_ptx_index *index;
        if (tl_ptx_index_create(&index, image->text, image->n, image->origin, NULL) == 0)
            tl_ptx_index_destroy(index);
    }
}

static void parse_pass(struct corpus *c)
{
    struct corpus_reading *r = &c->reading;
    for (uint32_t i = 0; i < c->n_images; i++) {
        const struct corpus_image *image = &c->images[i];
        size_t bytes;
        if (image->index == NULL || corpus_parse_all(image->index, &bytes, NULL) < 0 ||
            image->n <= SMALL_IMAGE)
            continue;
        double ratio = (double)bytes / (double)image->n;
        if (ratio > r->memory_ratio) {
            r->memory_ratio = ratio;
            r->memory_image = image->origin;
        }
    }
}

static void measure_speed(struct corpus *c)
{
    struct corpus_reading *r = &c->reading;
    for (uint32_t pass = 0; pass < c->options->passes; pass++) {
        double start = corpus_cpu_seconds();
        index_pass(c);
        double middle = corpus_cpu_seconds();
        parse_pass(c);
        double end = corpus_cpu_seconds();
        if (pass == 0 || middle - start < r->index_s)
            r->index_s = middle - start;
        if (pass == 0 || end - middle < r->parse_s)
            r->parse_s = end - middle;
    }
}

void corpus_read(struct corpus *c)
{
    struct corpus_reading *r = &c->reading;
    index_all(c);
    check_fixpoints(c);
    corpus_say(c, "%u of %u images indexed, %u parsed, %u a fixed point; %u kernels", r->indexed,
               c->n_images, r->parsed, r->fixpoint, c->n_kernels);
    measure_speed(c);
    corpus_say(c, "index %.0f MB/s, parse %.1f MB/s, tree at most %.1f times its text (%s)",
               (double)c->found.text_bytes / 1e6 / r->index_s,
               (double)c->found.text_bytes / 1e6 / r->parse_s, r->memory_ratio,
               r->memory_image != NULL ? r->memory_image : "no image is large");
}

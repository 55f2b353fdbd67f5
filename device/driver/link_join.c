/* How several modules of PTX become one: which are needed, which declarations and definitions are
 * superfluous, and what names have to be changed. */
#include "device/driver/link.h"
#include "device/driver/log.h"

#include "ptx_rewrite/lex.h"
#include "tally/ptx.h"

#include <string.h>

static bool defines(const struct tl_drv_image *image, const struct tl_ptx_item *item)
{
    const struct tl_ptx_item *other = tl_ptx_index_find(image->index, item->name);
    if (other == NULL ||
        (other->kind == TL_PTX_ITEM_VARIABLE) != (item->kind == TL_PTX_ITEM_VARIABLE))
        return false;
    return other->kind == TL_PTX_ITEM_VARIABLE ? !other->is_extern : other->body != 0;
}

/* Takes what libraries define and texts so far only declare.  True if there was any. */
static bool want_more(struct CUlinkState_st *s, const struct tl_drv_image *image)
{
    bool found = false;
    for (uint32_t k = 0; k < image->n_items; k++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(image->index, k);
        if (item->kind == TL_PTX_ITEM_DIRECTIVE || !item->is_extern || defines(image, item))
            continue;
        struct tl_drv_link_input *from = NULL;
        bool is_there = false;
        for (size_t i = 0; i < s->n && !is_there; i++) {
            bool has = defines(s->inputs[i].image, item);
            is_there = has && s->inputs[i].is_wanted;
            if (has && from == NULL)
                from = &s->inputs[i];
        }
        if (!is_there && from != NULL)
            found = from->is_wanted = true;
    }
    return found;
}

/* Whether an earlier text, or for declarations any text, already has this. */
static bool is_superfluous(const struct CUlinkState_st *s, size_t input,
                           const struct tl_ptx_item *item)
{
    if (item->kind == TL_PTX_ITEM_DIRECTIVE)
        return tl_str_is(item->name, ".version") || tl_str_is(item->name, ".target") ||
               tl_str_is(item->name, ".address_size");
    bool is_variable = item->kind == TL_PTX_ITEM_VARIABLE;
    for (size_t i = 0; i < s->n; i++) {
        const struct tl_ptx_item *other = tl_ptx_index_find(s->inputs[i].image->index, item->name);
        if (i == input || !s->inputs[i].is_wanted || other == NULL || other->kind != item->kind)
            continue;
        bool other_defines = defines(s->inputs[i].image, item);
        if (item->is_extern && is_variable && other_defines)
            return true;
        if ((item->is_weak || item->is_common) && i < input && other_defines)
            return true;
    }
    return false;
}

static bool is_own(const struct tl_ptx_item *item)
{
    return !item->is_visible && !item->is_weak && !item->is_common && !item->is_extern;
}

enum clash { NO_CLASH, OF_OWN_NAMES, OF_NAMES_FOR_ALL };

/* Whether another text of the module defines the same name and means something else by it.  A name
 * that is only the text's own can be changed. */
static enum clash clash_of(const struct CUlinkState_st *s, size_t input,
                           const struct tl_ptx_item *item)
{
    if (item->kind == TL_PTX_ITEM_DIRECTIVE || !defines(s->inputs[input].image, item) ||
        item->is_weak || item->is_common)
        return NO_CLASH;
    for (size_t i = 0; i < s->n; i++) {
        const struct tl_drv_image *image = s->inputs[i].image;
        const struct tl_ptx_item *other = tl_ptx_index_find(image->index, item->name);
        if (i == input || !s->inputs[i].is_wanted || other == NULL || !defines(image, item))
            continue;
        if (is_own(item) && (i < input || !is_own(other)))
            return OF_OWN_NAMES;
        if (!is_own(item) && !is_own(other) && !other->is_weak && !other->is_common)
            return OF_NAMES_FOR_ALL;
    }
    return NO_CLASH;
}

/* The newest of both serves all. */
static void put_head(const struct CUlinkState_st *s, struct tl_buf *out)
{
    struct tl_str version = {0}, target = {0};
    for (size_t i = 0; i < s->n; i++) {
        struct tl_str v = tl_ptx_index_version(s->inputs[i].image->index);
        struct tl_str t = tl_ptx_index_target(s->inputs[i].image->index);
        if (!s->inputs[i].is_wanted)
            continue;
        if (version.n == 0 || v.n > version.n ||
            (v.n == version.n && memcmp(v.p, version.p, v.n) > 0))
            version = v;
        if (target.n == 0 || t.n > target.n || (t.n == target.n && memcmp(t.p, target.p, t.n) > 0))
            target = t;
    }
    tl_buf_printf(out, ".version " TL_STR_FMT "\n.target " TL_STR_FMT "\n.address_size 64\n",
                  TL_STR_ARG(version), TL_STR_ARG(target));
}

/* Text as it is, but for own names that another text has as well: these get the text's number. */
static void put_text(const struct CUlinkState_st *s, size_t input, uint32_t from, uint32_t to,
                     struct tl_buf *out)
{
    const struct tl_drv_image *image = s->inputs[input].image;
    struct tl_lex lx;
    uint32_t at = from;
    for (tl_lex_init(&lx, image->text, from, to); lx.kind != TL_TOK_END && lx.end <= to;
         tl_lex_next(&lx)) {
        const struct tl_ptx_item *item = lx.kind == TL_TOK_WORD
                                             ? tl_ptx_index_find(image->index, tl_lex_str(&lx))
                                             : NULL;
        if (item == NULL || clash_of(s, input, item) != OF_OWN_NAMES)
            continue;
        tl_buf_add(out, image->text + at, lx.end - at);
        tl_buf_printf(out, "$%zu", input);
        at = lx.end;
    }
    tl_buf_add(out, image->text + at, to - at);
}

/* A kernel gets the limit of registers in front of its body, where PTX has it. */
static void put_item(const struct CUlinkState_st *s, size_t input, const struct tl_ptx_item *item,
                     bool has_clashes, struct tl_buf *out)
{
    const char *text = s->inputs[input].image->text;
    uint32_t at = item->begin, cuts[2] = {item->end, item->end};
    bool is_limited = item->kind == TL_PTX_ITEM_ENTRY && item->body != 0 && s->max_registers > 0;
    if (is_limited)
        cuts[0] = item->body;
    for (int i = 0; i < 2 && at < cuts[i]; i++) {
        if (i == 1)
            tl_buf_printf(out, "\n.maxnreg %u\n", s->max_registers);
        if (has_clashes)
            put_text(s, input, at, cuts[i], out);
        else
            tl_buf_add(out, text + at, cuts[i] - at);
        at = cuts[i];
    }
    tl_buf_putc(out, '\n');
}

/* What of a text clashes; names the first thing that cannot be helped. */
static CUresult look_for_clashes(const struct CUlinkState_st *s, size_t input, bool *has)
{
    const struct tl_drv_image *image = s->inputs[input].image;
    *has = false;
    for (uint32_t k = 0; k < image->n_items; k++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(image->index, k);
        enum clash clash = clash_of(s, input, item);
        *has |= clash == OF_OWN_NAMES;
        if (clash == OF_NAMES_FOR_ALL) {
            tl_drv_warn("linking: " TL_STR_FMT " is defined twice", TL_STR_ARG(item->name));
            return CUDA_ERROR_INVALID_PTX;
        }
    }
    return CUDA_SUCCESS;
}

CUresult tl_drv_link_join(struct CUlinkState_st *s, struct tl_buf *out)
{
    CUresult r = CUDA_SUCCESS;
    for (bool is_more = true; is_more;) {
        is_more = false;
        for (size_t i = 0; i < s->n; i++)
            is_more |= s->inputs[i].is_wanted && want_more(s, s->inputs[i].image);
    }
    put_head(s, out);
    for (size_t i = 0; i < s->n && r == CUDA_SUCCESS; i++) {
        const struct tl_drv_image *image = s->inputs[i].image;
        bool has_clashes = false;
        if (s->inputs[i].is_wanted)
            r = look_for_clashes(s, i, &has_clashes);
        for (uint32_t k = 0; k < image->n_items && s->inputs[i].is_wanted && r == CUDA_SUCCESS;
             k++) {
            const struct tl_ptx_item *item = tl_ptx_index_item(image->index, k);
            if (!is_superfluous(s, i, item))
                put_item(s, i, item, has_clashes, out);
        }
    }
    return r;
}

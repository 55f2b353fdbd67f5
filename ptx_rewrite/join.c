/* How several modules of PTX become one: which are needed, which declarations and definitions are
 * superfluous, and what names have to be changed.
 *
 *     closure    what is wanted, by names that libraries define
 *     survey     a table of all names in what is wanted: who defines, who only declares
 *     put_part   text by text, item by item, what the table says is to stay
 *
 * Each item is looked at a few times whatever the number of parts, and bodies are copied: programs
 * of a hundred parts have a hundred megabytes. */
#include "tally/join.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "ptx_rewrite/ast.h"
#include "ptx_rewrite/index.h"
#include "ptx_rewrite/lex.h"
#include "tally/table.h"

/* What all wanted parts together say of a name.  Parts are counted from 1 here; 0 is none. */
struct symbol {
    uint32_t definer;           /* for all others, strongly */
    uint32_t weak;              /* the first to define it weakly, or the largest common one */
    uint64_t bytes;             /* of that, if it is common; the most for one with a value */
    uint32_t n_owners;          /* that define it for themselves */
    uint32_t declarer;          /* of a variable that nobody defines: whose declaration stays */
    uint32_t align;             /* of that */
    bool is_declared;           /* by one that does not define it */
    bool is_known, is_variable; /* the kind, once one that is not its owner has told */
};

struct join {
    struct tl_ptx_part *parts;
    uint32_t n, max_registers;
    struct tl_arena arena;
    struct tl_table symbols; /* struct symbol */
    struct tl_buf out;
    struct tl_error *err;
};

static bool is_definition(const struct tl_ptx_item *item)
{
    return item->kind == TL_PTX_ITEM_VARIABLE ? !item->is_extern : item->body != 0;
}

static bool is_own(const struct tl_ptx_item *item)
{
    return is_definition(item) && !item->is_visible && !item->is_weak && !item->is_common &&
           !item->is_extern;
}

/* What a text says of a name most clearly: its definition, if it has one. */
static const struct tl_ptx_item *main_item(const struct tl_ptx_index *ix,
                                           const struct tl_ptx_item *item)
{
    return item->kind == TL_PTX_ITEM_DIRECTIVE ? NULL : tl_ptx_index_find(ix, item->name);
}

static int no_memory(struct join *j)
{
    return tl_error_set(j->err, -ENOMEM, "joining PTX: out of memory");
}

/* --- closure ---------------------------------------------------------------------------------- */

/* Notes in `by_name` which part defines each name for others; the first of those that are given. */
static int note_definitions(const struct join *j, struct tl_table *by_name, bool of_libraries)
{
    for (uint32_t i = 0; i < j->n; i++) {
        const struct tl_ptx_index *ix = j->parts[i].index;
        for (uint32_t k = 0; j->parts[i].is_library == of_libraries && k < ix->n_items; k++) {
            const struct tl_ptx_item *item = &ix->items[k];
            if (item->kind == TL_PTX_ITEM_DIRECTIVE || !is_definition(item) || is_own(item))
                continue;
            void **place = tl_table_place(by_name, item->name);
            if (place == NULL)
                return -ENOMEM;
            if (*place == NULL)
                *place = &j->parts[i];
        }
    }
    return 0;
}

/* Takes in the libraries that a part wants something of.  True if there were any. */
static bool want_more(const struct tl_table *by_name, const struct tl_ptx_index *ix)
{
    bool found = false;
    for (uint32_t k = 0; k < ix->n_items; k++) {
        const struct tl_ptx_item *item = &ix->items[k];
        if (item->kind == TL_PTX_ITEM_DIRECTIVE || !item->is_extern ||
            is_definition(main_item(ix, item)))
            continue;
        struct tl_ptx_part *from = tl_table_get(by_name, item->name);
        if (from == NULL || from->is_in)
            continue;
        found = from->is_in = true;
    }
    return found;
}

static int close_over(struct join *j)
{
    struct tl_table by_name = {0};
    bool has_libraries = false, has_any = false;
    for (uint32_t i = 0; i < j->n; i++) {
        j->parts[i].is_in = !j->parts[i].is_library;
        has_libraries |= j->parts[i].is_library;
        has_any |= j->parts[i].is_in;
    }
    if (!has_any)
        return tl_error_set(j->err, -EINVAL, "joining PTX: there is nothing to join");
    if (!has_libraries)
        return 0;
    int rc = note_definitions(j, &by_name, false);
    if (rc == 0)
        rc = note_definitions(j, &by_name, true);
    for (bool is_more = rc == 0; is_more;) {
        is_more = false;
        for (uint32_t i = 0; i < j->n; i++)
            is_more |= j->parts[i].is_in && want_more(&by_name, j->parts[i].index);
    }
    tl_table_finish(&by_name);
    return rc < 0 ? no_memory(j) : 0;
}

/* --- survey ----------------------------------------------------------------------------------- */

/* N of the `.align N` in front of a variable's name, or 1. */
static uint32_t align_of(const struct tl_ptx_index *ix, const struct tl_ptx_item *item)
{
    struct tl_lex lx;
    tl_lex_init(&lx, ix->text, item->begin, (uint32_t)(item->name.p - ix->text));
    while (lx.kind != TL_TOK_END && !tl_lex_is_dotword(&lx, "align"))
        tl_lex_next(&lx);
    if (lx.kind == TL_TOK_END)
        return 1;
    tl_lex_next(&lx);
    unsigned long align = lx.kind == TL_TOK_NUMBER ? strtoul(lx.text + lx.at, NULL, 0) : 1;
    return align < UINT32_MAX ? (uint32_t)align : 1;
}

/* How much memory a common variable takes, and the most there is if it has a value: linkers put
 * all of a name where the largest is, and only the largest may have a value. */
static uint64_t common_bytes(const struct tl_ptx_index *ix, const struct tl_ptx_item *item)
{
    struct tl_lex lx;
    uint64_t bytes = 0, vector = 1;
    for (tl_lex_init(&lx, ix->text, item->begin, (uint32_t)(item->name.p - ix->text));
         lx.kind != TL_TOK_END; tl_lex_next(&lx)) {
        if (tl_lex_is_dotword(&lx, "v2") || tl_lex_is_dotword(&lx, "v4"))
            vector = tl_lex_is_dotword(&lx, "v2") ? 2 : 4;
        else if (lx.kind == TL_TOK_DOTWORD && bytes == 0)
            bytes = tl_ptx_type_bytes((struct tl_str){lx.text + lx.at + 1, lx.end - lx.at - 1});
    }
    bytes *= vector;
    tl_lex_init(&lx, ix->text, (uint32_t)(item->name.p - ix->text) + item->name.n, item->end);
    for (; lx.kind != TL_TOK_END && !tl_lex_is(&lx, ',') && !tl_lex_is(&lx, ';');
         tl_lex_next(&lx)) {
        if (tl_lex_is(&lx, '='))
            return UINT64_MAX;
        if (lx.kind == TL_TOK_NUMBER &&
            __builtin_mul_overflow(bytes, strtoull(lx.text + lx.at, NULL, 0), &bytes))
            return UINT64_MAX - 1;
    }
    return bytes;
}

/* A name that a part defines. */
static int note_definition(struct join *j, uint32_t part, const struct tl_ptx_item *item,
                           struct symbol *s)
{
    if (is_own(item)) {
        s->n_owners++;
    } else if (item->is_common) {
        uint64_t bytes = common_bytes(j->parts[part - 1].index, item);
        s->weak = s->weak == 0 || bytes > s->bytes ? part : s->weak;
        s->bytes = s->weak == part ? bytes : s->bytes;
    } else if (item->is_weak) {
        s->weak = s->weak != 0 ? s->weak : part;
    } else if (s->definer != 0 && j->parts[part - 1].is_library &&
               j->parts[s->definer - 1].is_library) {
        return 0;
    } else if (s->definer != 0) {
        return tl_error_set(j->err, -EEXIST, "linking: " TL_STR_FMT " is defined twice",
                            TL_STR_ARG(item->name));
    } else {
        s->definer = part;
    }
    return 0;
}

/* A name that it only declares.  What nobody defines (shared memory whose size the launch tells)
 * is declared as strictly as by any of them. */
static void note_declaration(const struct tl_ptx_index *ix, uint32_t part,
                             const struct tl_ptx_item *item, struct symbol *s)
{
    s->is_declared = true;
    if (item->kind != TL_PTX_ITEM_VARIABLE)
        return;
    uint32_t align = align_of(ix, item);
    if (s->declarer == 0 || align > s->align) {
        s->declarer = part;
        s->align = align;
    }
}

static int note(struct join *j, uint32_t part, const struct tl_ptx_item *item)
{
    const struct tl_ptx_index *ix = j->parts[part - 1].index;
    bool is_variable = item->kind == TL_PTX_ITEM_VARIABLE;
    void **place = tl_table_place(&j->symbols, item->name);
    if (place == NULL)
        return no_memory(j);
    struct symbol *s = *place;
    if (s == NULL) {
        *place = s = tl_arena_alloc(&j->arena, sizeof *s);
        if (s == NULL)
            return no_memory(j);
        *s = (struct symbol){0};
    }
    if (!is_own(item)) {
        if (s->is_known && s->is_variable != is_variable)
            return tl_error_set(j->err, -EINVAL,
                                "linking: " TL_STR_FMT
                                " is a function in one text and a variable in another",
                                TL_STR_ARG(item->name));
        s->is_known = true;
        s->is_variable = is_variable;
    }
    if (is_definition(item))
        return note_definition(j, part, item, s);
    note_declaration(ix, part, item, s);
    return 0;
}

static int survey(struct join *j)
{
    for (uint32_t i = 0; i < j->n; i++) {
        const struct tl_ptx_index *ix = j->parts[i].index;
        if (!j->parts[i].is_in)
            continue;
        if (ix->address_size == 32)
            return tl_error_set(j->err, -EINVAL, "linking: a text has addresses of 32 bits");
        for (uint32_t k = 0; k < ix->n_items; k++) {
            const struct tl_ptx_item *item = &ix->items[k];
            int rc = main_item(ix, item) == item ? note(j, i + 1, item) : 0;
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

/* --- the text --------------------------------------------------------------------------------- */

/* "sm_90a" and "9.0" by their numbers, the suffix last. */
static uint32_t number_of(struct tl_str s)
{
    uint32_t n = 0, suffix = 0;
    for (uint32_t i = 0; i < s.n; i++) {
        if (s.p[i] >= '0' && s.p[i] <= '9')
            n = n * 10 + (uint32_t)(s.p[i] - '0');
        suffix = i + 1 == s.n && (s.p[i] == 'a' || s.p[i] == 'f');
    }
    return n < UINT32_MAX / 2 ? 2 * n + suffix : 0;
}

/* The newest of both serves all. */
static void put_head(struct join *j)
{
    struct tl_str version = {0}, target = {0};
    for (uint32_t i = 0; i < j->n; i++) {
        struct tl_str v = j->parts[i].index->version, t = j->parts[i].index->target;
        if (!j->parts[i].is_in)
            continue;
        if (version.n == 0 || number_of(v) > number_of(version))
            version = v;
        if (target.n == 0 || number_of(t) > number_of(target))
            target = t;
    }
    tl_buf_printf(&j->out, ".version " TL_STR_FMT "\n.target " TL_STR_FMT "\n.address_size 64\n",
                  TL_STR_ARG(version), TL_STR_ARG(target));
}

static const struct symbol *symbol_of(const struct join *j, struct tl_str name)
{
    return tl_table_get(&j->symbols, name);
}

/* A name that others have too, and mean something else by.  All of them are changed, also the
 * first: whoever asks for the name from outside would not know which it is. */
static bool is_renamed(const struct join *j, const struct tl_ptx_item *item)
{
    const struct symbol *s;
    if (item == NULL || !is_own(item))
        return false;
    s = symbol_of(j, item->name);
    return s->n_owners > 1 || s->definer != 0 || s->weak != 0 || s->is_declared;
}

/* Whether another part, or for declarations any, already has this. */
static bool is_superfluous(const struct join *j, uint32_t part, const struct tl_ptx_item *item)
{
    const struct tl_ptx_index *ix = j->parts[part - 1].index;
    if (item->kind == TL_PTX_ITEM_DIRECTIVE)
        return tl_str_is(item->name, ".version") || tl_str_is(item->name, ".target") ||
               tl_str_is(item->name, ".address_size");
    const struct tl_ptx_item *main = main_item(ix, item);
    const struct symbol *s = symbol_of(j, item->name);
    bool is_weak = main->is_weak || main->is_common;
    if (is_own(main))
        return false;
    if (is_definition(item))
        return is_weak ? s->definer != 0 || s->weak != part : s->definer != part;
    uint32_t definer = s->definer != 0 ? s->definer : s->weak;
    if (item->kind == TL_PTX_ITEM_VARIABLE)
        return definer != 0 ? definer != part : s->declarer != part;
    return definer != 0 && definer < part;
}

enum { SUFFIX_BYTES = sizeof "$library4294967295" };

/* What own names of a part get.  Libraries are counted by themselves: who links the same program
 * with other ones gets the same names, or ones that are not there, never those of another part. */
static void suffix_of(const struct join *j, uint32_t part, char suffix[SUFFIX_BYTES])
{
    bool is_library = j->parts[part - 1].is_library;
    uint32_t number = 0;
    for (uint32_t i = 0; i < part; i++)
        number += j->parts[i].is_library == is_library;
    snprintf(suffix, SUFFIX_BYTES, "$%s%u", is_library ? "library" : "part", number);
}

/* Text as it is, but for own names that another text has as well: these get the suffix.  A word
 * with a '.' behind it is an instruction. */
static void put_renamed(struct join *j, uint32_t part, uint32_t from, uint32_t to,
                        const char *suffix)
{
    const struct tl_ptx_index *ix = j->parts[part - 1].index;
    struct tl_lex lx;
    uint32_t at = from;
    for (tl_lex_init(&lx, ix->text, from, to); lx.kind != TL_TOK_END && lx.end <= to;
         tl_lex_next(&lx)) {
        if (lx.kind != TL_TOK_WORD || (lx.end < to && ix->text[lx.end] == '.') ||
            !is_renamed(j, tl_ptx_index_find(ix, tl_lex_str(&lx))))
            continue;
        tl_buf_add(&j->out, ix->text + at, lx.end - at);
        tl_buf_printf(&j->out, "%s", suffix);
        at = lx.end;
    }
    tl_buf_add(&j->out, ix->text + at, to - at);
}

/* A kernel gets the limit of registers in front of its body, where PTX has it.  `suffix` is NULL if
 * no name of the part changes. */
static void put_item(struct join *j, uint32_t part, const struct tl_ptx_item *item,
                     const char *suffix)
{
    const char *text = j->parts[part - 1].index->text;
    uint32_t at = item->begin, cuts[2] = {item->end, item->end};
    if (item->kind == TL_PTX_ITEM_ENTRY && item->body != 0 && j->max_registers > 0)
        cuts[0] = item->body;
    for (int i = 0; i < 2 && at < cuts[i]; i++) {
        if (i == 1)
            tl_buf_printf(&j->out, "\n.maxnreg %u\n", j->max_registers);
        if (suffix != NULL)
            put_renamed(j, part, at, cuts[i], suffix);
        else
            tl_buf_add(&j->out, text + at, cuts[i] - at);
        at = cuts[i];
    }
    tl_buf_putc(&j->out, '\n');
}

/* Whether names of the part change; -EEXIST if a new name is one that somebody has. */
static int look_for_renamed(struct join *j, uint32_t part, const char *suffix, bool *has)
{
    const struct tl_ptx_index *ix = j->parts[part - 1].index;
    struct tl_buf name = {0};
    int rc = 0;
    for (uint32_t k = 0; rc == 0 && k < ix->n_items; k++) {
        const struct tl_ptx_item *item = &ix->items[k];
        if (main_item(ix, item) != item || !is_renamed(j, item))
            continue;
        *has = true;
        name.n = 0;
        tl_buf_printf(&name, TL_STR_FMT "%s", TL_STR_ARG(item->name), suffix);
        if (name.failed)
            rc = no_memory(j);
        else if (symbol_of(j, (struct tl_str){name.p, (uint32_t)name.n}) != NULL)
            rc = tl_error_set(j->err, -EEXIST, "linking: " TL_STR_FMT " cannot be renamed",
                              TL_STR_ARG(item->name));
    }
    tl_buf_finish(&name);
    return rc;
}

static int put_part(struct join *j, uint32_t part)
{
    const struct tl_ptx_index *ix = j->parts[part - 1].index;
    char suffix[SUFFIX_BYTES];
    bool has_renamed = false;
    suffix_of(j, part, suffix);
    int rc = look_for_renamed(j, part, suffix, &has_renamed);
    for (uint32_t k = 0; rc == 0 && k < ix->n_items; k++) {
        const struct tl_ptx_item *item = &ix->items[k];
        /* several names in one statement: it stands here once, if any of them is to stay */
        bool is_wanted = !is_superfluous(j, part, item);
        while (k + 1 < ix->n_items && ix->items[k + 1].begin == item->begin)
            is_wanted |= !is_superfluous(j, part, &ix->items[++k]);
        if (is_wanted)
            put_item(j, part, item, has_renamed ? suffix : NULL);
        if (j->out.failed)
            rc = no_memory(j);
        else if (j->out.n >= INT32_MAX)
            rc = tl_error_set(j->err, -EFBIG, "linking: the parts have 2 GiB of PTX and more");
    }
    return rc;
}

int tl_ptx_join(struct tl_ptx_part *parts, uint32_t n, uint32_t max_registers, char **text,
                size_t *n_text, struct tl_error *err)
{
    struct join j = {.parts = parts, .n = n, .max_registers = max_registers, .err = err};
    tl_arena_init(&j.arena, 0);
    *text = NULL;
    *n_text = 0;
    int rc = close_over(&j);
    if (rc == 0)
        rc = survey(&j);
    if (rc == 0)
        put_head(&j);
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        if (parts[i].is_in)
            rc = put_part(&j, i + 1);
    if (rc == 0) {
        *n_text = j.out.n;
        *text = tl_buf_take(&j.out);
        rc = *text != NULL ? 0 : no_memory(&j);
    }
    tl_buf_finish(&j.out);
    tl_table_finish(&j.symbols);
    tl_arena_finish(&j.arena);
    return rc;
}

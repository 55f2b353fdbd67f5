/* Gates that were compiled: a table in memory, and files for the next process.  The gate is our own
 * code; no kernel of anybody's is ever kept here. */
#include "cubin/work.h"
#include "tally/array.h"
#include "tally/hash.h"

#include <errno.h>
#include <stdlib.h>

struct tl_cubin_gates {
    const struct tl_cubin_compiler *compiler;
    struct tl_store *store;
    struct tl_arena arena;
    struct tl__cb_piece **slots; /* a power of two, at most half of them taken */
    uint32_t n, n_slots;
    struct tl__cb_piece **missing; /* those in the table that have no code yet */
    uint32_t n_missing, cap_missing;
    uint32_t n_compiled;
};

/* How many are compiled at once: a compiler takes longer to begin than for one of them.  And how
 * many a cubin may lack, so that a hostile one cannot keep it busy for minutes; PyTorch has 161 in
 * all. */
enum { MOST_AT_ONCE = 32, MOST_MISSING = 512 };

/* --- in memory -------------------------------------------------------------------------------- */

static struct tl__cb_piece **slot_of(struct tl__cb_piece **slots, uint32_t n_slots,
                                     const struct tl__cb_want *want)
{
    uint32_t at = tl_hash(want, sizeof *want) & (n_slots - 1);
    while (slots[at] != NULL && memcmp(&slots[at]->want, want, sizeof *want) != 0)
        at = (at + 1) & (n_slots - 1);
    return &slots[at];
}

static bool grow(struct tl_cubin_gates *g)
{
    uint32_t n = g->n_slots == 0 ? 64 : g->n_slots * 2;
    struct tl__cb_piece **slots = calloc(n, sizeof(struct tl__cb_piece *));
    if (slots == NULL)
        return false;
    for (uint32_t i = 0; i < g->n_slots; i++)
        if (g->slots[i] != NULL)
            *slot_of(slots, n, &g->slots[i]->want) = g->slots[i];
    free(g->slots);
    g->slots = slots;
    g->n_slots = n;
    return true;
}

/* --- on disk ---------------------------------------------------------------------------------- */

/* The piece as it is written, with the code behind it. */
struct kept {
    uint32_t version;
    uint32_t base, registers, exit, has_ctaid_z, has_stack, code_bytes;
    struct tl__cb_want want;
};

/* By its own source, with whatever others it is compiled.  False if out of memory. */
static bool key_of(const struct tl_cubin_gates *g, const struct tl__cb_want *want,
                   struct tl_store_key *key)
{
    static const char what[] = "tally gate";
    struct tl_digest d;
    struct tl_buf source = {0};
    uint32_t version = TL_CUBIN_GATE_VERSION;
    tl__cb_source(&source, &want, 1);
    bool is_good = !source.failed;
    tl_digest_init(&d);
    tl_digest_part(&d, what, sizeof what);
    tl_digest_part(&d, &version, sizeof version);
    tl_digest_part(&d, want, sizeof *want);
    tl_digest_part(&d, source.p, source.n);
    tl_digest_part(&d, g->compiler->identity, strlen(g->compiler->identity));
    tl_digest_end(&d, key->bytes);
    tl_buf_finish(&source);
    return is_good;
}

static bool read_kept(struct tl_cubin_gates *g, const struct tl__cb_want *want, const char *bytes,
                      size_t n, struct tl__cb_piece *out)
{
    struct kept k;
    if (n < sizeof k)
        return false;
    memcpy(&k, bytes, sizeof k);
    if (k.version != TL_CUBIN_GATE_VERSION || memcmp(&k.want, want, sizeof *want) != 0 ||
        k.code_bytes > n - sizeof k || k.code_bytes % TL__CB_CODE_ALIGN != 0 ||
        k.exit >= k.code_bytes)
        return false;
    uint8_t *code = tl_arena_alloc(&g->arena, k.code_bytes);
    if (code == NULL)
        return false;
    memcpy(code, bytes + sizeof k, k.code_bytes);
    *out = (struct tl__cb_piece){
        .want = k.want,
        .base = k.base,
        .registers = k.registers,
        .exit = k.exit,
        .has_ctaid_z = k.has_ctaid_z,
        .has_stack = k.has_stack,
        .code_bytes = k.code_bytes,
        .code = code,
    };
    return true;
}

static bool find_kept(struct tl_cubin_gates *g, struct tl__cb_piece *out)
{
    struct tl_store_key key;
    char *bytes;
    size_t n;
    if (g->store == NULL || !key_of(g, &out->want, &key) ||
        tl_store_read(g->store, &key, 1 << 20, &bytes, &n) < 0)
        return false;
    const struct tl__cb_want want = out->want;
    bool is_good = read_kept(g, &want, bytes, n, out);
    free(bytes);
    return is_good;
}

/* A disk that is full or gone costs the next process time, and nothing else. */
static void keep(struct tl_cubin_gates *g, const struct tl__cb_piece *p)
{
    char path[TL_STORE_PATH];
    struct tl_store_key key;
    struct tl_buf b = {0};
    struct kept k = {
        .version = TL_CUBIN_GATE_VERSION,
        .base = p->base,
        .registers = p->registers,
        .exit = p->exit,
        .has_ctaid_z = p->has_ctaid_z,
        .has_stack = p->has_stack,
        .code_bytes = p->code_bytes,
        .want = p->want,
    };
    if (g->store == NULL || !key_of(g, &p->want, &key))
        return;
    tl_buf_add(&b, (const char *)&k, sizeof k);
    tl_buf_add(&b, (const char *)p->code, p->code_bytes);
    if (!b.failed)
        (void)tl_store_put(g->store, &key, b.p, b.n, path, sizeof path, NULL);
    tl_buf_finish(&b);
}

/* --- making them ------------------------------------------------------------------------------ */

static int compile(struct tl_cubin_gates *g, struct tl__cb_piece **pieces, uint32_t n,
                   struct tl_error *err)
{
    const struct tl__cb_want *wants[MOST_AT_ONCE];
    struct tl_buf source = {0};
    void *cubin = NULL;
    size_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        wants[i] = &pieces[i]->want;
    tl__cb_source(&source, wants, n);
    int rc = source.failed ? tl_error_set(err, -ENOMEM, "no memory for the source of a gate")
                           : g->compiler->compile(g->compiler->data, source.p, wants[0]->arch,
                                                  &cubin, &bytes, err);
    tl_buf_finish(&source);
    if (rc < 0)
        return rc;
    rc = tl__cb_pieces_cut(pieces, n, &g->arena, cubin, bytes, err);
    free(cubin);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        keep(g, pieces[i]);
        g->n_compiled++;
    }
    return rc;
}

void tl__cb_gates_forget(struct tl_cubin_gates *g)
{
    for (uint32_t i = 0; i < g->n_missing; i++)
        g->missing[i]->is_missing = false;
    g->n_missing = 0;
}

int tl__cb_gates_make(struct tl_cubin_gates *g, struct tl_error *err)
{
    int rc = 0;
    for (uint32_t at = 0; at < g->n_missing && rc == 0; at += MOST_AT_ONCE) {
        uint32_t left = g->n_missing - at;
        rc = compile(g, g->missing + at, left < MOST_AT_ONCE ? left : MOST_AT_ONCE, err);
    }
    tl__cb_gates_forget(g);
    return rc;
}

/* The piece in the table, new and without code if there was none. */
static struct tl__cb_piece *piece_for(struct tl_cubin_gates *g, const struct tl__cb_want *want)
{
    if (g->n * 2 >= g->n_slots && !grow(g))
        return NULL;
    struct tl__cb_piece **slot = slot_of(g->slots, g->n_slots, want);
    if (*slot != NULL)
        return *slot;
    struct tl__cb_piece *made = tl_arena_zalloc(&g->arena, sizeof *made);
    if (made == NULL)
        return NULL;
    made->want = *want;
    g->n++;
    *slot = made;
    return made;
}

int tl__cb_gates_want(struct tl_cubin_gates *g, const struct tl__cb_want *want,
                      struct tl_error *err)
{
    struct tl__cb_piece *piece = piece_for(g, want);
    if (piece == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for a gate");
    if (piece->code != NULL || piece->is_missing || find_kept(g, piece))
        return 0;
    if (g->n_missing == MOST_MISSING)
        return tl_error_set(err, -EFBIG, "a cubin needs more than %d gates that were never made",
                            MOST_MISSING);
    if (!TL_ARRAY_FIT(g->missing, g->cap_missing, g->n_missing + 1u))
        return tl_error_set(err, -ENOMEM, "no memory for gates");
    piece->is_missing = true;
    g->missing[g->n_missing++] = piece;
    return 0;
}

int tl__cb_gates_put(struct tl_cubin_gates *g, const struct tl__cb_piece *piece)
{
    struct tl__cb_piece *copy = piece_for(g, &piece->want);
    if (copy == NULL)
        return -ENOMEM;
    *copy = *piece;
    return 0;
}

int tl__cb_gates_get(struct tl_cubin_gates *g, const struct tl__cb_want *want,
                     const struct tl__cb_piece **out, struct tl_error *err)
{
    int rc = tl__cb_gates_want(g, want, err);
    if (rc == 0)
        rc = tl__cb_gates_make(g, err);
    if (rc == 0)
        *out = piece_for(g, want);
    return rc;
}

int tl_cubin_gates_code(struct tl_cubin_gates *gates, uint32_t arch, uint32_t offset,
                        const uint32_t cluster[3], struct tl_cubin_gate_code *out,
                        struct tl_error *err)
{
    struct tl__cb_want want = {.arch = arch, .offset = offset};
    const struct tl__cb_piece *piece;
    memcpy(want.cluster, cluster, sizeof want.cluster);
    int rc = tl__cb_gates_get(gates, &want, &piece, err);
    if (rc == 0)
        *out = (struct tl_cubin_gate_code){piece->code, piece->code_bytes, piece->registers, 1,
                                           piece->has_ctaid_z != 0};
    return rc;
}

int tl_cubin_gates_create(struct tl_cubin_gates **out, const struct tl_cubin_compiler *compiler,
                          struct tl_store *store, struct tl_error *err)
{
    struct tl_cubin_gates *g = calloc(1, sizeof *g);
    *out = g;
    if (g == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for gates");
    g->compiler = compiler;
    g->store = store;
    tl_arena_init(&g->arena, 0);
    return 0;
}

void tl_cubin_gates_destroy(struct tl_cubin_gates *g)
{
    if (g == NULL)
        return;
    tl_arena_finish(&g->arena);
    free(g->slots);
    free(g->missing);
    free(g);
}

uint32_t tl_cubin_gates_compiled(const struct tl_cubin_gates *g)
{
    return g->n_compiled;
}

/* Textures and surfaces: tex, tld4, txq, suld, sust, suq.
 *
 * What a fetch means is the driver's business (device/driver/texture.c); here each active lane in
 * turn calls out, with its handle and coordinates, and the results become vectors again. */
#include "device/abi.h"
#include "device/jit/emit.h"
#include "device/jit/value.h"

enum { MAX_WORDS = 4, COORD_WORDS = 10 };

struct access {
    uint32_t kind;     /* enum tl_dev_tex, with flags */
    uint32_t n_coords; /* that the geometry has */
    struct tl_spilled handle, coords[4];
    struct tl_spilled gradient[2][3]; /* of TL_DEV_TEX_GRAD */
    uint32_t n_gradient;
    LLVMValueRef coord_words, data_words; /* i32[4], filled for each lane */
};

/* --- operands --------------------------------------------------------------------------------- */

static bool describe_geometry(const struct tl_ptx_form *f, struct access *a)
{
    static const struct {
        const char *name;
        uint32_t kind, n;
    } all[] = {{"1d", TL_DEV_TEX_1D, 1},      {"2d", TL_DEV_TEX_2D, 2},
               {"3d", TL_DEV_TEX_3D, 3},      {"a1d", TL_DEV_TEX_A1D, 2},
               {"a2d", TL_DEV_TEX_A2D, 3},    {"cube", TL_DEV_TEX_CUBE, 3},
               {"acube", TL_DEV_TEX_ACUBE, 4}};
    for (uint32_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (!tl_ptx_form_has_text(f, all[i].name))
            continue;
        a->kind = all[i].kind;
        a->n_coords = all[i].n;
        return true;
    }
    return false;
}

/* What a reference by name is bound to: the handle that its variable holds. */
static struct tl_val bound_to(struct tl_emit *e, const struct tl_ptx_operand *name)
{
    LLVMValueRef at = LLVMBuildIntToPtr(e->b, tl_read(e, name, 64).v, e->ptr, "");
    LLVMValueRef handle = LLVMBuildLoad2(e->b, e->i64, at, "");
    tl_fault_if(e, LLVMBuildICmp(e->b, LLVMIntEQ, handle, LLVMConstInt(e->i64, 0, false), ""),
                TL_DEV_FAULT_ADDRESS);
    return (struct tl_val){handle, false};
}

/* [handle, {x, y}]; the handle is a 64-bit object, or a reference by name. */
static bool read_address(struct tl_emit *e, const struct tl_ptx_operand *o, struct access *a)
{
    if (o->kind != TL_OPD_ADDR || o->n < 1 || o->n > 2 || o->elems[0].kind != TL_OPD_SYM ||
        (o->elems[0].sym->kind != TL_SYM_REG && o->elems[0].sym->kind != TL_SYM_MODULE_VAR))
        return false;
    bool is_name = o->elems[0].sym->kind == TL_SYM_MODULE_VAR;
    a->handle = tl_spill(e, is_name ? bound_to(e, &o->elems[0]) : tl_read(e, &o->elems[0], 64));
    const struct tl_ptx_operand *c = o->n == 2 ? &o->elems[1] : NULL;
    uint32_t n = c == NULL ? 0 : c->kind == TL_OPD_VEC ? c->n : 1;
    if (n < a->n_coords)
        return false;
    for (uint32_t i = 0; i < a->n_coords; i++)
        a->coords[i] = tl_spill(e, tl_read(e, c->kind == TL_OPD_VEC ? &c->elems[i] : c, 32));
    return true;
}

static LLVMValueRef word(struct tl_emit *e, LLVMValueRef words, uint32_t i)
{
    LLVMValueRef index = LLVMConstInt(e->i32, i, false);
    return LLVMBuildGEP2(e->b, e->i32, words, &index, 1, "");
}

static LLVMValueRef new_words(struct tl_emit *e, uint32_t n)
{
    return tl_alloca(e, LLVMArrayType2(e->i32, n), "words");
}

/* Results of all lanes, one vector per word. */
struct results {
    LLVMValueRef slot[MAX_WORDS];
};

static void results_begin(struct tl_emit *e, struct results *r)
{
    for (uint32_t i = 0; i < MAX_WORDS; i++) {
        r->slot[i] = tl_alloca(e, tl_vec(e->i32), "fetched");
        LLVMBuildStore(e->b, LLVMConstNull(tl_vec(e->i32)), r->slot[i]);
    }
}

static void results_take(struct tl_emit *e, struct results *r, LLVMValueRef words,
                         LLVMValueRef lane)
{
    for (uint32_t i = 0; i < MAX_WORDS; i++) {
        LLVMValueRef v = LLVMBuildLoad2(e->b, e->i32, word(e, words, i), "");
        LLVMBuildStore(e->b, v, LLVMBuildGEP2(e->b, e->i32, r->slot[i], &lane, 1, ""));
    }
}

static struct tl_val result(struct tl_emit *e, const struct results *r, uint32_t i)
{
    return (struct tl_val){LLVMBuildLoad2(e->b, tl_vec(e->i32), r->slot[i], ""), true};
}

static void put_coords(struct tl_emit *e, const struct access *a, LLVMValueRef lane)
{
    for (uint32_t i = 0; i < a->n_coords; i++)
        LLVMBuildStore(e->b, tl_spilled_lane(e, &a->coords[i], lane), word(e, a->coord_words, i));
    for (uint32_t i = 0; i < 6 && a->n_gradient > 0; i++) {
        LLVMValueRef v = i % 3 < a->n_gradient
                             ? tl_spilled_lane(e, &a->gradient[i / 3][i % 3], lane)
                             : LLVMConstInt(e->i32, 0, false);
        LLVMBuildStore(e->b, v, word(e, a->coord_words, 4 + i));
    }
}

/* How the coordinates change from one pixel to the next: two vectors behind the address.  A layer
 * does not. */
static bool read_gradient(struct tl_emit *e, struct access *a)
{
    uint32_t geometry = a->kind;
    uint32_t n = geometry == TL_DEV_TEX_1D || geometry == TL_DEV_TEX_A1D   ? 1
                 : geometry == TL_DEV_TEX_2D || geometry == TL_DEV_TEX_A2D ? 2
                 : geometry == TL_DEV_TEX_3D                               ? 3
                                                                           : 0;
    if (n == 0 || e->inst->n_operands < 4 || tl_elements(tl_opd(e, 2)) < n ||
        tl_elements(tl_opd(e, 3)) < n)
        return false;
    for (uint32_t d = 0; d < 2; d++) {
        for (uint32_t i = 0; i < n; i++) {
            struct tl_ptx_operand o = tl_element(tl_opd(e, 2 + d), i);
            a->gradient[d][i] = tl_spill(e, tl_read(e, &o, 32));
        }
    }
    a->n_gradient = n;
    a->kind |= TL_DEV_TEX_GRAD;
    return true;
}

/* --- textures --------------------------------------------------------------------------------- */

static void fetch(struct tl_emit *e, struct access *a, bool is_float,
                  const struct tl_spilled *level, struct results *r)
{
    struct tl_lane_loop l;
    a->coord_words = new_words(e, COORD_WORDS);
    a->data_words = new_words(e, MAX_WORDS);
    results_begin(e, r);
    tl_lanes_begin(e, &l);
    put_coords(e, a, l.lane);
    if (level != NULL)
        LLVMBuildStore(e->b, tl_spilled_lane(e, level, l.lane), word(e, a->coord_words, 3));
    LLVMValueRef args[6] = {e->f->frame,
                            tl_spilled_lane(e, &a->handle, l.lane),
                            LLVMConstInt(e->i32, a->kind, false),
                            LLVMConstInt(e->i32, is_float, false),
                            a->coord_words,
                            a->data_words};
    tl_call_frame(e, offsetof(struct tl_dev_calls, tex), e->voidt, args, 6);
    results_take(e, r, a->data_words, l.lane);
    tl_lanes_end(e, &l);
}

/* tex and tld4: operands go to memory, the device fetches for all lanes in one call. */
static void emit_fetch(struct tl_emit *e)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    const struct tl_ptx_operand *to = tl_opd(e, 0);
    struct access a = {0};
    struct results r;
    struct tl_spilled level;
    bool is_gather = f->op == TL_OP_tld4, has_level = tl_ptx_form_has_text(f, "level");
    struct tl_type result_type = tl_type_of(f, 0), coord_type = tl_type_of(f, 1);
    bool has_gradient = tl_ptx_form_has_text(f, "grad");
    if (!describe_geometry(f, &a) || (has_gradient && !read_gradient(e, &a)) ||
        result_type.bits != 32 || coord_type.bits != 32 ||
        (has_level && (a.n_coords == 4 || e->inst->n_operands < 3)) ||
        (to->kind == TL_OPD_VEC && to->n > MAX_WORDS) || !read_address(e, tl_opd(e, 1), &a)) {
        tl_emit_unsupported(e, "this kind of texture fetch");
        return;
    }
    if (has_level) {
        level = tl_spill(e, tl_read(e, tl_opd(e, 2), 32));
        a.kind |= TL_DEV_TEX_LEVEL;
    }
    if (is_gather) {
        uint32_t channel = tl_ptx_form_has_text(f, "g")   ? 1
                           : tl_ptx_form_has_text(f, "b") ? 2
                           : tl_ptx_form_has_text(f, "a") ? 3
                                                          : 0;
        a.kind |= TL_DEV_TEX_GATHER | channel << TL_DEV_TEX_CHANNEL_SHIFT;
    }
    fetch(e, &a, coord_type.kind == TL_T_FLOAT, has_level ? &level : NULL, &r);
    for (uint32_t i = 0; i < (to->kind == TL_OPD_VEC ? to->n : 1); i++)
        tl_write(e, to->kind == TL_OPD_VEC ? &to->elems[i] : to, result(e, &r, i), false);
}

/* txq and suq: the answers come in one call, all of them; see enum tl_dev_tex. */
static void emit_query(struct tl_emit *e)
{
    static const char *const names[] = {"width", "height", "depth", "array_size"};
    const struct tl_ptx_form *f = e->inst->inst.form;
    struct access a = {.kind = TL_DEV_TEX_QUERY};
    struct results r;
    uint32_t which = 0;
    while (which < 4 && !tl_ptx_form_has_text(f, names[which]))
        which++;
    if (which == 4 || tl_ptx_form_has_text(f, "level") || !read_address(e, tl_opd(e, 1), &a)) {
        tl_emit_unsupported(e, "this question about a texture");
        return;
    }
    fetch(e, &a, false, NULL, &r);
    tl_write(e, tl_opd(e, 0), result(e, &r, which), false);
}

/* --- surfaces --------------------------------------------------------------------------------- */

/* Where element i of a vector of such elements begins in the words of a lane. */
static LLVMValueRef element_at(struct tl_emit *e, LLVMValueRef words, uint32_t i, uint32_t bits)
{
    LLVMValueRef offset = LLVMConstInt(e->i32, (uint64_t)i * bits / 8, false);
    return LLVMBuildGEP2(e->b, e->i8, words, &offset, 1, "");
}

/* suld and sust: each active lane calls out with its coordinates, and data goes through memory. */
static void emit_surface(struct tl_emit *e)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    bool is_store = f->op == TL_OP_sust;
    const struct tl_ptx_operand *o = tl_opd(e, is_store ? 1 : 0);
    uint32_t n = o->kind == TL_OPD_VEC ? o->n : 1, bits = tl_type_of(f, -1).bits;
    uint32_t outside = tl_ptx_form_has(f, TL_MOD_clamp)  ? TL_DEV_SURF_CLAMP
                       : tl_ptx_form_has(f, TL_MOD_zero) ? TL_DEV_SURF_ZERO
                                                         : TL_DEV_SURF_TRAP;
    struct access a = {0};
    struct tl_spilled values[MAX_WORDS];
    LLVMValueRef slots[MAX_WORDS];
    struct tl_lane_loop l;
    if (!tl_ptx_form_has_text(f, "b") || !describe_geometry(f, &a) || n > MAX_WORDS || bits == 0 ||
        n * bits > 32 * MAX_WORDS || !read_address(e, tl_opd(e, is_store ? 0 : 1), &a)) {
        tl_emit_unsupported(e, "this kind of surface access");
        return;
    }
    a.coord_words = new_words(e, COORD_WORDS);
    a.data_words = new_words(e, MAX_WORDS);
    for (uint32_t i = 0; i < n; i++) {
        if (is_store) {
            values[i] = tl_spill(e, tl_read(e, o->kind == TL_OPD_VEC ? &o->elems[i] : o, bits));
        } else {
            slots[i] = tl_alloca(e, tl_vec(tl_int(e, bits)), "fetched");
            LLVMBuildStore(e->b, LLVMConstNull(tl_vec(tl_int(e, bits))), slots[i]);
        }
    }
    tl_lanes_begin(e, &l);
    put_coords(e, &a, l.lane);
    for (uint32_t i = 0; i < n && is_store; i++)
        LLVMBuildStore(e->b, tl_spilled_lane(e, &values[i], l.lane),
                       element_at(e, a.data_words, i, bits));
    LLVMValueRef args[8] = {e->f->frame,
                            tl_spilled_lane(e, &a.handle, l.lane),
                            LLVMConstInt(e->i32, a.kind, false),
                            LLVMConstInt(e->i32, is_store, false),
                            a.coord_words,
                            LLVMConstInt(e->i32, n * bits / 8, false),
                            LLVMConstInt(e->i32, outside, false),
                            a.data_words};
    tl_call_frame(e, offsetof(struct tl_dev_calls, surf), e->voidt, args, 8);
    for (uint32_t i = 0; i < n && !is_store; i++) {
        LLVMTypeRef type = tl_int(e, bits);
        LLVMValueRef v = LLVMBuildLoad2(e->b, type, element_at(e, a.data_words, i, bits), "");
        LLVMBuildStore(e->b, v, LLVMBuildGEP2(e->b, type, slots[i], &l.lane, 1, ""));
    }
    tl_lanes_end(e, &l);
    for (uint32_t i = 0; i < n && !is_store; i++) {
        struct tl_val v = {LLVMBuildLoad2(e->b, tl_vec(tl_int(e, bits)), slots[i], ""), true};
        tl_write(e, o->kind == TL_OPD_VEC ? &o->elems[i] : o, v, false);
    }
}

bool tl_emit_texture(struct tl_emit *e)
{
    switch (e->inst->inst.form->op) {
    case TL_OP_tex:
    case TL_OP_tld4:
        emit_fetch(e);
        return true;
    case TL_OP_txq:
    case TL_OP_suq:
        emit_query(e);
        return true;
    case TL_OP_suld:
    case TL_OP_sust:
        emit_surface(e);
        return true;
    default:
        return false;
    }
}

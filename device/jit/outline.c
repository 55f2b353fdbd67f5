/* Code that stands once and is called.
 *
 * A product of matrix fragments is hundreds of vector instructions, and a large kernel has hundreds
 * of products: most of the time that such kernels take to compile goes into copies of the same
 * code.  There, bulky operations become functions of the module.  Operands and results go through
 * memory, where large kernels keep most of their values anyway on CPUs with 16 vector registers of
 * 8 lanes each; with AVX-512 all stands in place. */
#include <string.h>

#include "device/jit/emit.h"
#include "device/jit/function.h"
#include "device/jit/value.h"

/* instructions of a large kernel; memory of a vector of 64-bit lanes */
enum { LARGE = 1000, SLOT_BYTES = 256 };

struct tl_outline {
    struct tl_outline *next;
    tl_outlined_fn body;
    const void *key;
    size_t key_n;
    LLVMValueRef fn;
    LLVMTypeRef fn_type, result[TL_OUTLINED_RESULTS];
    bool is_vec[TL_OUTLINED_RESULTS];
};

bool tl_outlines(const struct tl_emit *e)
{
    if (e->quick != NULL) /* where bulky operations are functions anyway */
        return false;
    return e->options->is_least ||
           (!e->has_avx512 && (e->f->cfg.n_insts > LARGE || e->options->is_large));
}

static LLVMValueRef slot(struct tl_emit *e, LLVMValueRef area, uint32_t n)
{
    LLVMValueRef at = LLVMConstInt(e->i64, (uint64_t)n * SLOT_BYTES, false);
    return LLVMBuildGEP2(e->b, e->i8, area, &at, 1, "");
}

static LLVMValueRef load(struct tl_emit *e, LLVMTypeRef type, LLVMValueRef area, uint32_t n)
{
    LLVMValueRef v = LLVMBuildLoad2(e->b, type, slot(e, area, n), "");
    LLVMSetAlignment(v, 64);
    return v;
}

static void store(struct tl_emit *e, LLVMValueRef v, LLVMValueRef area, uint32_t n)
{
    LLVMSetAlignment(LLVMBuildStore(e->b, v, slot(e, area, n)), 64);
}

/* void function(area); the builder stands where it did. */
static void build(struct tl_emit *e, struct tl_outline *o, const struct tl_val *in, uint32_t n_in,
                  uint32_t n_out)
{
    struct tl_fn *outer = e->f, f = {.cfg.n_insts = LARGE + 1};
    LLVMBasicBlockRef was = LLVMGetInsertBlock(e->b);
    LLVMValueRef mask = e->mask;
    struct tl_val v[TL_OUTLINED_OPERANDS];
    o->fn_type = LLVMFunctionType(e->voidt, &e->ptr, 1, false);
    o->fn = f.fn = tl_new_function(e, "outlined", o->fn_type, false);
    f.allocas = LLVMAppendBasicBlockInContext(e->ctx, f.fn, "allocas");
    LLVMBasicBlockRef begin = LLVMAppendBasicBlockInContext(e->ctx, f.fn, "begin");
    LLVMPositionBuilderAtEnd(e->b, f.allocas);
    LLVMBuildBr(e->b, begin);
    LLVMPositionBuilderAtEnd(e->b, begin);
    e->f = &f;
    e->mask = NULL;
    for (uint32_t i = 0; i < n_in; i++)
        v[i] = (struct tl_val){load(e, LLVMTypeOf(in[i].v), LLVMGetParam(f.fn, 0), i),
                               in[i].is_vec};
    o->body(e, o->key, v);
    for (uint32_t i = 0; i < n_out; i++) {
        store(e, v[i].v, LLVMGetParam(f.fn, 0), i);
        o->result[i] = LLVMTypeOf(v[i].v);
        o->is_vec[i] = v[i].is_vec;
    }
    LLVMBuildRetVoid(e->b);
    e->f = outer;
    e->mask = mask;
    LLVMPositionBuilderAtEnd(e->b, was);
}

static struct tl_outline *find_outline(struct tl_emit *e, tl_outlined_fn body, const void *key,
                                       size_t key_n)
{
    struct tl_outline *o = e->outlines;
    while (o != NULL && (o->body != body || o->key_n != key_n || memcmp(o->key, key, key_n) != 0))
        o = o->next;
    return o;
}

void tl_outlined(struct tl_emit *e, tl_outlined_fn body, const void *key, size_t key_n,
                 struct tl_val *v, uint32_t n_in, uint32_t n_out)
{
    struct tl_outline *o = find_outline(e, body, key, key_n);
    if (o == NULL) {
        o = tl_arena_zalloc(e->arena, sizeof *o);
        void *kept = tl_arena_alloc(e->arena, key_n + 1);
        if (o == NULL || kept == NULL) {
            tl_emit_unsupported(e, "out of memory");
            return;
        }
        memcpy(kept, key, key_n);
        *o = (struct tl_outline){.next = e->outlines, .body = body, .key = kept, .key_n = key_n};
        build(e, o, v, n_in, n_out);
        e->outlines = o;
    }
    if (e->f->outline_area == NULL) {
        LLVMTypeRef type = LLVMArrayType2(e->i8, (uint64_t)TL_OUTLINED_OPERANDS * SLOT_BYTES);
        e->f->outline_area = tl_alloca(e, type, "area");
        LLVMSetAlignment(e->f->outline_area, 64);
    }
    LLVMValueRef area = e->f->outline_area;
    for (uint32_t i = 0; i < n_in; i++)
        store(e, v[i].v, area, i);
    LLVMBuildCall2(e->b, o->fn_type, o->fn, &area, 1, "");
    for (uint32_t i = 0; i < n_out; i++)
        v[i] = (struct tl_val){load(e, o->result[i], area, i), o->is_vec[i]};
}

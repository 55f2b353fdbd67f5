/* Any bytes as a cubin whose kernels are to be gated, in place and as twins, with a gate that needs
 * no compiler.  What comes out is opened again: it must be a cubin, with the kernels that went in;
 * those that were gated take 48 bytes more, and twins leave theirs as they were. */
#include "cubin/work.h"

#include <stdlib.h>

enum { CODE = 256, REGISTERS = 20 };

static int no_compiler(void *data, const char *ptx, uint32_t arch, void **cubin, size_t *n,
                       struct tl_error *err)
{
    (void)data, (void)ptx, (void)arch, (void)cubin, (void)n;
    return tl_error_set(err, -1, "there is no compiler here");
}

static const struct tl_cubin_compiler compiler = {no_compiler, NULL, "none"};

static void put_pieces(struct tl_cubin_gates *gates, const struct tl_cubin *c)
{
    static const uint8_t code[CODE];
    for (uint32_t i = 0; i < c->n_kernels; i++) {
        const struct tl__cb_kernel *k = &c->kernels[i];
        struct tl__cb_piece piece = {
            .want = tl__cb_want_of(c, k),
            .base = k->bank0_base,
            .registers = REGISTERS,
            .exit = CODE - 32,
            .has_ctaid_z = i & 1,
            .has_stack = 1,
            .code_bytes = CODE,
            .code = code,
        };
        if (k->entry.reason == TL_CUBIN_REASON_OK && tl__cb_gates_put(gates, &piece) < 0)
            abort();
    }
}

static void check(bool is_true)
{
    if (!is_true)
        abort();
}

/* What became of a kernel; symbols keep their order, and copies stand behind them. */
static void check_entry(const struct tl_cubin_entry *old, const struct tl_cubin_entry *new,
                        bool is_twin)
{
    check(tl_str_eq(old->name, new->name));
    if (old->reason != TL_CUBIN_REASON_OK || is_twin) {
        check(old->reason == new->reason && old->param_bytes == new->param_bytes);
        return;
    }
    check(new->reason == TL_CUBIN_REASON_OK || new->reason == TL_CUBIN_REASON_PARAMETER_SPACE);
    check(new->param_bytes == old->gate_offset + sizeof(struct tl_cubin_args));
    check(new->n_params == old->n_params + 1);
    check(new->registers == (old->registers > REGISTERS ? old->registers : REGISTERS));
}

/* A cubin that is spent for its twin makes the same one. */
static void spend(const struct tl_cubin *c, struct tl_cubin_gates *gates,
                  const struct tl_cubin_gated *expected)
{
    struct tl_cubin_gated out;
    struct tl_cubin *copy;
    struct tl_error err;
    uint8_t *bytes = malloc(c->n);
    check(bytes != NULL);
    memcpy(bytes, c->bytes, c->n);
    check(tl_cubin_open(&copy, bytes, c->n, &err) == 0);
    check(tl_cubin_gate(copy, &(struct tl_cubin_options){.is_twin = true, .spends = true}, gates,
                        &out, &err) == 0);
    check(out.n == expected->n && memcmp(out.bytes, expected->bytes, out.n) == 0);
    tl_cubin_gated_finish(&out);
    tl_cubin_close(copy);
    free(bytes);
}

static void gate(const struct tl_cubin *c, struct tl_cubin_gates *gates, bool is_twin)
{
    struct tl_cubin_gated out;
    struct tl_cubin *again;
    struct tl_error err;
    if (tl_cubin_gate(c, &(struct tl_cubin_options){.is_twin = is_twin}, gates, &out, &err) < 0)
        return;
    check(out.n_gated > 0 && tl_cubin_open(&again, out.bytes, out.n, &err) == 0);
    check(tl_cubin_count(again) == tl_cubin_count(c) + (is_twin ? out.n_gated : 0));
    for (uint32_t i = 0; i < tl_cubin_count(c); i++)
        check_entry(tl_cubin_entry(c, i), tl_cubin_entry(again, i), is_twin);
    tl_cubin_close(again);
    if (is_twin)
        spend(c, gates, &out);
    tl_cubin_gated_finish(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct tl_cubin *c;
    struct tl_cubin_gates *gates;
    struct tl_error err;
    if (tl_cubin_open(&c, bytes, n, &err) < 0)
        return 0;
    if (tl_cubin_gates_create(&gates, &compiler, NULL, &err) < 0)
        abort();
    put_pieces(gates, c);
    gate(c, gates, false);
    gate(c, gates, true);
    tl_cubin_gates_destroy(gates);
    tl_cubin_close(c);
    return 0;
}

/* One PTX instruction form alone: what it is called with, what it must give, and kernels that run
 * many of them.
 *
 * A row of a table is a form, its operands' types and a C reference.  The reference gets operands
 * and gives results as bits, and asks the parsed form for rounding, flushing and the like, so that
 * one function serves all forms of an opcode. Nothing here knows the translator: these files are
 * linked into all tests. */
#ifndef TEST_JIT_OP_H
#define TEST_JIT_OP_H

#include "tally/base.h"

enum { OP_SOURCES = 5, OP_RESULTS = 2, OP_TYPES = 8 };
/* The first four as MXCSR has them. */
enum op_rounding { ROUND_NEAREST, ROUND_DOWN, ROUND_UP, ROUND_ZERO, ROUND_AWAY };

/* A type by its name in PTX.  u8 and s8 live in 32-bit registers. */
struct op_type {
    char name[12];
    char kind;     /* 'u', 's', 'b', 'f' (f16, f32, f64), 'g' (bf16), '8' (fp8 and less), 'p' */
    uint32_t bits; /* of one element */
    uint32_t packed;
    uint32_t reg_bits; /* of the register: 1, 16, 32 or 64 */
};

struct op;
typedef void (*op_reference)(const struct op *o, const uint64_t *in, uint64_t *out);

/* As written in tables.  `operands` is results '=' sources, by type; "#5" is an immediate.
 * `relative` and `absolute` are the errors that PTX allows: the reference then gives a double,
 * whatever the type. */
struct op_row {
    const char *form;
    const char *operands;
    op_reference reference;
    double relative, absolute;
    /* of the instructions, if it is not just the form: $0.. are results, then sources; {}
     * declares */
    const char *text;
};

/* A row, understood. */
struct op {
    const struct op_row *row;
    struct op_type result[OP_RESULTS], source[OP_SOURCES];
    const char *immediate[OP_SOURCES]; /* or NULL */
    uint64_t immediate_value[OP_SOURCES];
    uint32_t n_results, n_sources;
    enum op_rounding rounding;
    bool ftz, sat, relu, nan;
    struct op_type types[OP_TYPES]; /* of the form itself */
    uint32_t n_types;
    char operand_text[128];
};

bool op_type_parse(struct op_type *t, const char *name, size_t n);
/* ends the program on a row that makes no sense */
void op_parse(struct op *o, const struct op_row *row);
bool op_has(const struct op *o, const char *modifier);
bool op_is(const struct op *o, const char *opcode);

/* --- kernels ---------------------------------------------------------------------------------- */

enum op_mode {
    OP_VARYING,  /* thread i works on vector i */
    OP_UNIFORM,  /* block i does */
    OP_GUARDED,  /* as the first, each instruction under a guard */
    OP_BRANCHED, /* as the first, all of them jumped over by the same threads */
    OP_MODES,
};

enum { OP_VECTORS = 2048 };

/* Whether a thread runs the instruction, in the modes where not all do. */
bool op_takes_part(uint32_t i);
uint64_t op_old_value(const struct op_type *t); /* what a result holds before */

/* A kernel `k(in, out)` of n instructions.  Source j of op k of vector i is at in[(k * OP_SOURCES +
 * j) * OP_VECTORS + i], results are at out[(k * OP_RESULTS + j) * OP_VECTORS + i]. */
void op_kernel(struct tl_buf *out, const struct op *ops, uint32_t n, enum op_mode mode);

/* Edge values crossed as far as they go, the rest random. */
void op_inputs(const struct op *o, uint64_t *in, uint64_t seed);
/* Whether the result is what the reference says; NaN of floats counts as NaN. */
bool op_result_is(const struct op *o, uint32_t n, uint64_t got, uint64_t want);

/* --- tables ----------------------------------------------------------------------------------- */

/* Each ends with form NULL. */
extern const struct op_row op_integer_rows[], op_float_rows[], op_convert_rows[];
/* f64 rounded in a direction: without AVX-512, in another way */
extern const struct op_row op_directed_rows[];

/* --- warps and atomics ------------------------------------------------------------------------ */

enum { OP_LANES = 32 };
enum op_warp_part {
    OP_WARP,
    OP_ATOMIC_GLOBAL,
    OP_ATOMIC_SHARED,
    OP_ATOMIC_GENERIC,
    OP_RED,
    OP_ATOMIC_VECTOR,
    OP_RED_VECTOR,
    OP_WARP_PARTS
};

/* A kernel `k(in, out)` of all rows of a part, for one block: of 32 threads, or guarded in a block
 * of 24. */
void op_warp_kernel(struct tl_buf *out, enum op_warp_part part, bool is_guarded);
void op_warp_inputs(enum op_warp_part part, uint64_t *in, uint64_t *out, uint64_t seed);
void op_warp_check(enum op_warp_part part, const uint64_t *in, const uint64_t *out, bool is_guarded,
                   struct tl_buf *wrong);
uint32_t op_warp_rows(void); /* how many there are in all parts */

/* The same of atomics on vectors, which the above call. */
void op_vector_kernel(struct tl_buf *out, bool is_red, bool is_guarded);
void op_vector_inputs(uint64_t *in, uint64_t *out, uint64_t seed);
void op_vector_check(bool is_red, const uint64_t *in, const uint64_t *out, bool is_guarded,
                     struct tl_buf *wrong);
uint32_t op_vector_rows(void);

/* --- textures: what answers them is the test's too -------------------------------------------- */

struct tl_dev_frame;
extern const struct op_row op_texture_rows[];
void op_texture_fetch(struct tl_dev_frame *f, uint64_t handle, uint32_t kind, uint32_t is_float,
                      const uint32_t *coords, uint32_t result[4]);
void op_texture_surface(struct tl_dev_frame *f, uint64_t handle, uint32_t kind, uint32_t is_store,
                        const int32_t coords[4], uint32_t bytes, uint32_t outside,
                        uint32_t data[4]);

/* --- matrices --------------------------------------------------------------------------------- */

/* A kernel `k(in, out)` of one product, load or store, for one block of 32 threads. */
uint32_t op_matrix_rows(void);
const char *op_matrix_form(uint32_t row);
void op_matrix_kernel(struct tl_buf *out, uint32_t row);
void op_matrix_inputs(uint32_t row, uint64_t *in,
                      uint64_t seed); /* the row's check must follow before another's inputs */
void op_matrix_check(uint32_t row, const uint64_t *in, const uint64_t *out, struct tl_buf *wrong);

/* --- exact arithmetic for references ---------------------------------------------------------- */

struct op_format {
    int exponent_bits, mantissa_bits;
    bool has_inf;  /* else, as in e4m3, the top exponent holds numbers and one NaN */
    bool is_plain; /* not even that: NaN is rounded to the largest number */
};
extern const struct op_format op_f16, op_bf16, op_f32, op_tf32, op_e4m3, op_e5m2, op_e2m3, op_e3m2,
    op_e2m1;

/* '+', '-', '*', '/', 'f' (a * b + c), 'r' (square root) in double under that rounding; inexact may
 * be NULL. */
double op_double(char op, double a, double b, double c, enum op_rounding mode, bool *inexact);
/* The same, rounded to odd: rounding that again to at most 50 bits is as rounding once. */
double op_odd(char op, double a, double b, double c);
uint64_t op_round(const struct op_format *f, double x, enum op_rounding mode, bool satfinite);
double op_value(const struct op_format *f, uint64_t bits);
/* By type: f16, bf16, f32, f64. */
double op_float(const struct op_type *t, uint64_t bits);
uint64_t op_bits(const struct op_type *t, double x, enum op_rounding mode);
bool op_is_nan(const struct op_type *t, uint64_t bits);
double op_flushed(const struct op *o, const struct op_type *t, double x); /* by .ftz; only f32 */

double op_exp2(double x);
double op_log2(double x);
double op_sin(double x, bool is_cos);

#endif

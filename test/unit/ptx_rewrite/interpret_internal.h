/* What the files of the interpreter share. */
#ifndef TEST_PTX_INTERPRET_INTERNAL_H
#define TEST_PTX_INTERPRET_INTERNAL_H

#include "ptx_rewrite/cfg.h"
#include "ptx_rewrite/program.h"
#include "test/unit/ptx_rewrite/interpret.h"

enum {
    MAX_FUNCS = 16,
    MAX_CALLS = 12,
    MAX_SLOTS = 24,
    BARRIERS = 16,
    MAX_COPIES = 8,
    WARP = 32,
    SHARED_LIMIT = 1 << 16
};
#define GENERIC_SHARED 0x7e00000000000000ull /* where shared memory lies among generic addresses */

struct ptx_machine {
    struct tl_ptx_index *ix;
    struct tl_arena arena;
    struct tl_ptx_program program;
    struct tl_ptx_cfg cfgs[MAX_FUNCS];
    uint32_t n_cfgs;
    struct {
        const void *what; /* declaration */
        uint32_t offset;
    } shared[32];
    uint32_t n_shared, shared_bytes;
};

/* A parameter or result of a function, or what a call is given. */
struct slot {
    const struct tl_ptx_decl *decl;
    uint64_t value;
};

struct frame {
    const struct tl_ptx_cfg *cfg;
    uint32_t pc;
    uint64_t *regs;
    struct slot slots[MAX_SLOTS];
    uint32_t n_slots;
    const struct tl_ptx_stmt *call; /* by which it was entered */
};

enum status { RUNS, AT_BARRIER, IN_WARP, GONE };

struct thread {
    struct block *block;
    uint32_t number;
    enum status status;
    uint32_t barrier;                /* AT_BARRIER */
    bool vote;                       /* its own, then everybody's */
    uint32_t mask;                   /* IN_WARP */
    const struct tl_ptx_stmt *asked; /* IN_WARP: the instruction; AT_BARRIER: one that gives */
    struct frame frames[MAX_CALLS];
    uint32_t depth;
    struct {
        uint64_t from;
        uint32_t to, bytes; /* 0 bytes: an arrival at the mbarrier `to` when all before is there */
        uint32_t group;
    } copies[MAX_COPIES]; /* that were begun */
    uint32_t n_copies, n_groups;
};

struct block {
    struct machine_run *run;
    uint32_t ctaid[3];
    uint8_t *shared;
    struct thread *threads;
    uint32_t n_threads, n_live;
    struct {
        uint32_t arrived, expected;
        bool any, all;
    } barriers[BARRIERS];
};

struct machine_run {
    struct ptx_machine *k;
    struct ptx_memory *memory;
    struct ptx_run *run;
    struct block *blocks; /* `resident` of them; threads NULL where none is */
    uint32_t n_blocks, n_begun, n_total, n_open;
    uint32_t block_threads;
    uint64_t dice;
    uint32_t last;        /* thread that ran last */
    enum ptx_end end;     /* PTX_ENDED while all is well */
    bool has_changed;     /* global memory, since its state was taken */
    uint64_t memory_hash; /* its state then */
};

struct type {
    uint32_t bits; /* 1 for predicates, 0 if it is none that is known here */
    bool is_signed, is_float;
};

/* The n-th type of a form, from 0. */
struct type ptx_type_of(const struct tl_ptx_form *f, uint32_t n);
uint64_t ptx_cut(struct type t, uint64_t v); /* as wide as the type, its sign extended */
uint64_t ptx_value(struct thread *t, const struct tl_ptx_operand *o);
void ptx_give(struct thread *t, const struct tl_ptx_operand *o, uint64_t v);
/* False if it is nothing that computes. */
bool ptx_compute(struct thread *t, const struct tl_ptx_stmt *s, uint64_t *out);
/* mov.b64 {a, b}, c and mov.b64 c, {a, b}: the first element has the lowest bits.  False if it is
 * neither. */
bool ptx_move_vector(struct thread *t, const struct tl_ptx_stmt *s);

const struct tl_ptx_operand *ptx_address_operand(const struct tl_ptx_stmt *s);
/* The byte at an address of a space, if `bytes` of them are there; else the run has failed. */
uint8_t *ptx_memory_at(struct thread *t, enum tl_ptx_mod space, uint64_t address, uint32_t bytes);
uint64_t ptx_load(struct type k, const uint8_t *p);
void ptx_put(struct thread *t, uint8_t *p, uint64_t v, uint32_t bytes);

void ptx_come_to_barrier(struct thread *t, const struct tl_ptx_stmt *s);
void ptx_come_to_warp(struct thread *t, const struct tl_ptx_stmt *s);
/* Textures and surfaces: a handle is the address of a line of 32-bit words. */
void ptx_access_image(struct thread *t, const struct tl_ptx_stmt *s);
/* Asynchronous copies, and what waits for them. */
void ptx_copy(struct thread *t, const struct tl_ptx_stmt *s);
/* What the thread has begun to copy is there from now on. */
void ptx_end_copies(struct thread *t, uint32_t leave_groups);
void ptx_meet(struct thread *t, const struct tl_ptx_stmt *s); /* mbarrier */

/* Ends the run with that outcome. */
void ptx_fail(struct thread *t, enum ptx_end end, const char *what);
/* One instruction. */
void ptx_step(struct thread *t);
void ptx_leave(struct thread *t); /* the thread is over */
/* A thread that came to a barrier or a warp-wide operation may have let all go on. */
void ptx_settle_barrier(struct block *b, uint32_t id);
void ptx_settle_warp(struct thread *t);

static inline struct frame *ptx_top(struct thread *t)
{
    return &t->frames[t->depth];
}

#endif

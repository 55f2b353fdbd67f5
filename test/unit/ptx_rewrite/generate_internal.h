/* What the files of the generator share. */
#ifndef TEST_PTX_GENERATE_INTERNAL_H
#define TEST_PTX_GENERATE_INTERNAL_H

#include "test/unit/ptx_rewrite/generate.h"

enum { GEN_ADDRESSES = 512 };

/* A kernel being written.  Registers: %r0 %ctaid.x, %r1 %nctaid.x, %r2 %tid.x, %r3 is zero but
 * comes from the host, %r4 %nctaid.x - 1 - %ctaid.x, %p0 is true for the thread that acts for its
 * block, %rd0 is `out`; others are taken as they are needed. */
struct gen {
    struct ptx_generated *g;
    struct tl_buf head, body;
    uint64_t dice;
    uint32_t n_r, n_rd, n_p, n_labels;
    uint32_t blocks, threads;
    uint32_t slot;        /* of this stage in `out` */
    bool uses_fence_call; /* functions that the module then has */
    bool uses_poll_call;
    /* then each thread has a word of shared memory for what it copies there, and an mbarrier; their
     * addresses are %r5 and %r6 */
    bool uses_copies;
    bool leaves_copy;  /* and a word of shared memory per thread for it */
    bool uses_meeting; /* the module then has an mbarrier for the block */
    /* Images: which one an address belongs to, 0 for none or not known. */
    uint8_t image_of[GEN_ADDRESSES];
    struct {
        uint32_t array, argument; /* 64-bit register, number of the buffer */
        uint32_t handle;          /* 64-bit register, 0 if there is none yet */
        bool is_surface;          /* there is no pointer: its addresses are offsets */
    } images[PTX_CASE_ARGS];
    uint32_t n_images;
};

uint32_t gen_roll(struct gen *g, uint32_t n);
/* A line of the body. */
void gen_line(struct gen *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Fresh names. */
uint32_t gen_r(struct gen *g);
uint32_t gen_rd(struct gen *g);
uint32_t gen_p(struct gen *g);
uint32_t gen_label(struct gen *g);
/* A buffer of words; the 64-bit register with its address.  `is_open`: its contents in the end are
 * not compared. */
uint32_t gen_array(struct gen *g, uint32_t words, enum ptx_case_fill fill, bool is_open);
/* The same for words that are only waited for and signalled: now and then they are a surface. */
uint32_t gen_flags(struct gen *g, uint32_t words, bool is_open);
uint32_t gen_surface(struct gen *g, uint32_t words, enum ptx_case_fill fill, bool is_open);
/* Reads a word: of a surface through it, else by a texture or an asynchronous copy. */
void gen_read_unusually(struct gen *g, uint32_t to, uint32_t address, bool by_copy);
/* A 64-bit register with the address of a word: array + 4 * (register of an index). */
uint32_t gen_at(struct gen *g, uint32_t array, uint32_t index);
/* The address of the word below. */
uint32_t gen_below(struct gen *g, uint32_t address);

/* Waits until the word at an address stands in a relation ("ge", "eq", "ne") to an operand
 * ("%r1", "5"): all threads wait, one of them or more read.  The 32-bit register with what was read
 * last, in the thread that acts. */
uint32_t gen_wait(struct gen *g, uint32_t address, const char *relation, const char *operand);
/* The acting thread writes a word that others may wait for. */
void gen_signal(struct gen *g, uint32_t address, const char *operand);
/* The acting thread stores a number at out[slot + index], and it is expected to be there. */
void gen_result(struct gen *g, const char *index, const char *operand);
void gen_expect(struct gen *g, uint32_t index, uint32_t value);

typedef void (*gen_stage)(struct gen *g);
struct gen_kind {
    const char *name;
    gen_stage emit;
};
extern const struct gen_kind gen_harmful[];
extern const uint32_t gen_n_harmful;
extern const struct gen_kind gen_harmless[];
extern const uint32_t gen_n_harmless;

#endif

/* Kernels for the examination, each with what it must compute as plain C.
 *
 * All of them take the same parameters (in, out, runs, aux, spin), and in all of them thread 0 of
 * each block first counts the block in `runs`, so that one that is left out or run twice is found
 * whatever the kernel computes, and then works for `spin` steps, so that a block lasts long enough
 * to be stopped behind.  What comes out of these steps goes into what the block computes. */
#ifndef TALLY_RUNTIME_DOCTOR_KERNELS_H
#define TALLY_RUNTIME_DOCTOR_KERNELS_H

#include "tally/base.h"

enum {
    TL_DOC_THREADS = 256,   /* of each block */
    TL_DOC_BINS = 64,       /* of the kernel that counts */
    TL_DOC_BIG_WORDS = 512, /* of the large parameter */
};

struct tl_doc_shape {
    uint32_t grid[3];
    uint32_t blocks; /* the product */
    uint32_t spin;
};

/* What a kernel reads and leaves.  `in` and `out` have a word per thread, `runs` one per block,
 * `aux` two per block and at least TL_DOC_BINS. */
struct tl_doc_data {
    uint32_t *in, *out, *runs, *aux;
    uint32_t n_out, n_aux;
    uint32_t total; /* of the kernel with module variables */
    uint32_t big[TL_DOC_BIG_WORDS];
};

struct tl_doc_kernel {
    const char *name; /* of the entry, too */
    const char *what; /* for people */
    const char *text;
    bool is_3d, has_big;
    uint32_t shared_bytes; /* dynamic */
    const char *variable;  /* a module variable that ends as data.total, or NULL */
    uint32_t least_arch;   /* 80 of sm_80; 0: any */
    bool prints;           /* each block prints TL_DOC_LINE and its number */
    /* Fills out, aux and total of zeroed data; `spun` has what thread 0 of each block comes to. */
    void (*reference)(const struct tl_doc_shape *s, const uint32_t *spun, struct tl_doc_data *d);
};

extern const struct tl_doc_kernel tl_doc_kernels[];
extern const uint32_t tl_doc_n_kernels;
/* More of them, for machine code: what a gate in front could disturb (kernels_gate.c). */
extern const struct tl_doc_kernel tl_doc_gate_kernels[];
extern const uint32_t tl_doc_n_gate_kernels;

#define TL_DOC_LINE "tally doctor: block "

/* Texts for single questions. */
extern const char tl_doc_poll_text[];    /* entry `poll`: repeats a host's word into another */
extern const char tl_doc_publish_text[]; /* entry `publish`: writes data, then says how far it is */
extern const char tl_doc_count_text[];   /* entry `count`: every thread adds one to a word */
extern const char tl_doc_meet_text[]; /* entry `meet`: all blocks wait for each other, for a time */

/* The shape of a launch of a kernel with at least so many blocks. */
struct tl_doc_shape tl_doc_shape_of(const struct tl_doc_kernel *k, uint32_t blocks, uint32_t spin);
/* Memory for a shape, with `in` and `big` filled by that seed.  0 or -ENOMEM. */
int tl_doc_data_init(struct tl_doc_data *d, const struct tl_doc_shape *s, uint64_t seed);
void tl_doc_data_finish(struct tl_doc_data *d);
/* What the kernel must leave, computed here.  0 or -ENOMEM. */
int tl_doc_reference(const struct tl_doc_kernel *k, const struct tl_doc_shape *s,
                     struct tl_doc_data *d);

/* Random numbers; the state is the caller's, and any number will do as its first. */
uint32_t tl_doc_random(uint64_t *state);

#endif

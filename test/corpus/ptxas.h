/* Running ptxas: several at once, what it said, and which one to use for a text. */
#ifndef TALLY_CORPUS_PTXAS_H
#define TALLY_CORPUS_PTXAS_H

#include "test/corpus/corpus.h"

/* One run.  The caller fills the first part and owns its texts. */
struct ptxas_run {
    const char *ptxas, *arch;
    const char *options; /* more of them, apart by blanks; may be NULL */
    const char *input;   /* the text's path; what ptxas says goes to the same with ".log" added */
    const char *output;  /* the cubin's path, NULL for none */

    bool was_accepted;
    /* of the text's only entry; spilling stores and loads together */
    uint32_t registers, stack_bytes, spill_bytes;
    char message[300]; /* the first error, if refused */
};

/* 0, or -errno if a run could not be started at all. */
int ptxas_run_all(struct ptxas_run *runs, size_t n, uint32_t jobs, struct tl_error *err);

const char *ptxas_log_path(struct tl_arena *arena, const struct ptxas_run *run);

/* How to compile texts of one ISA version and target. */
struct ptxas_choice {
    struct ptxas_choice *next;
    const char *version, *target; /* as the text has them */
    const char *ptxas;            /* NULL if there is no way */
    const char *arch;             /* the target, or the next one that this ptxas still knows */
    /* the version to write, if ptxas is too old for the text's own; else NULL */
    const char *as_version;
};

/* Found by trying, once per version and target. */
int ptxas_choose(struct corpus *c, const struct tl_ptx_index *index,
                 const struct ptxas_choice **out, struct tl_error *err);

/* --- texts for it --- */

/* A kernel's module with all other kernels left out, so that registers can be compared. */
void ptxas_original(struct tl_buf *out, const struct corpus_kernel *k);
/* Writes a text to a file, with the version that the choice asks for. */
int ptxas_write(const char *path, const char *text, size_t n, const struct ptxas_choice *choice,
                struct tl_error *err);

#endif

/* The judgement behind tl_ptx_judge and tl_ptx_rewrite, and what the passes learn from it. */
#ifndef TALLY_PTX_VERDICT_H
#define TALLY_PTX_VERDICT_H

#include "ptx_rewrite/program.h"

/* How the persistent loop meets its barriers. */
enum tl_ptx_barriers {
    /* every thread passes the same ones: one barrier at the end of each round is enough */
    TL_BARRIERS_PLAIN,
    /* some warps return early, as wholes: they keep attending until all have returned */
    TL_BARRIERS_BY_WARP,
    TL_BARRIERS_BY_THREAD, /* the same with threads of one warp at different barriers */
};

struct tl_ptx_findings {
    struct tl_ptx_verdict verdicts[TL_PTX_VARIANTS];
    enum tl_ptx_barriers barriers;
    /* a called function reads %ctaid or %nctaid, so slices need the slot too */
    bool funcs_read_grid;
    bool uses_cp_async;
    bool uses_const; /* constant variables become pointers */
};

/* 0 or -ENOMEM. */
int tl_ptx_find(struct tl_ptx_findings *f, struct tl_ptx_program *p);

/* An operation that a whole warp does together, and whether its mask is (or may be) all lanes. */
bool tl_ptx_is_warp_sync(const struct tl_ptx_stmt *s, bool *all_lanes);

/* Barriers of a block. */
enum tl_ptx_barrier_kind {
    TL_BARRIER_NONE,
    TL_BARRIER_SYNC,
    TL_BARRIER_ARRIVE,
    TL_BARRIER_RED,
};
struct tl_ptx_barrier {
    enum tl_ptx_barrier_kind kind;
    bool has_id; /* a constant */
    uint64_t id;
    bool has_count; /* number of threads given */
};
struct tl_ptx_barrier tl_ptx_barrier_of(const struct tl_ptx_stmt *s);

/* ISA version as 90 for 9.0 and compute capability as 90 for sm_90a; 0 if not given. */
uint32_t tl_ptx_isa_of(const struct tl_ptx_index *ix);
uint32_t tl_ptx_sm_of(const struct tl_ptx_index *ix);

/* Bytes of a parameter list, and how many parameters; false if a type has no known size. */
bool tl_ptx_params_layout(const struct tl_ptx_decl *params, uint32_t *bytes, uint32_t *count);
/* How many bytes of parameters such a module may have. */
uint32_t tl_ptx_params_limit(const struct tl_ptx_index *ix);

#endif

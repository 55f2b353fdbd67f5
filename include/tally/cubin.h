/* The gate: kernels of which there is only machine code become stoppable between blocks.
 *
 * A small check, compiled for the same architecture, is put in front of a kernel's code by editing
 * the ELF of its linked cubin.  Nothing is decoded: what is edited are tables whose form is known,
 * and whatever is not known is refused.  docs/gate.md says what is edited and how it was checked.
 *
 *     struct tl_cubin *c;
 *     tl_cubin_open(&c, bytes, n, &err);
 *     for (uint32_t i = 0; i < tl_cubin_count(c); i++)
 *         ... tl_cubin_entry(c, i)->reason ...
 *     tl_cubin_gate(c, &(struct tl_cubin_options){.is_twin = true}, gates, &out, &err);
 *
 * All of it works on bytes in memory and trusts none of them: sizes and offsets are checked before
 * they are used, and the time is linear in the size of the cubin.  An opened cubin is immutable, so
 * any number of threads may ask at once. */
#ifndef TALLY_CUBIN_H
#define TALLY_CUBIN_H

#include "tally/base.h"
#include "tally/store.h"

/* Part of every cache key: grows whenever the gate's source or what is kept of it changes. */
#define TL_CUBIN_GATE_VERSION 1

/* --- what is in a cubin ----------------------------------------------------------------------- */

/* Why a kernel cannot be gated.  The second column is the code in JSON, the third what a user
 * reads. */
#define TL_CUBIN_REASONS(X)                                                                        \
    X(OK, "ok", "can be gated")                                                                    \
    X(NOT_LINKED, "not-linked", "is in a relocatable cubin, which the driver links when it loads") \
    X(FORMAT, "format", "is in a cubin of a version or with flags that are not known")             \
    X(ARCHITECTURE, "architecture", "is for an architecture on which the edits were not checked")  \
    X(SECTION, "section", "its cubin has a section of a kind that is not known")                   \
    X(LAYOUT, "layout", "its cubin is not laid out as compilers lay them out")                     \
    X(ATTRIBUTE, "attribute", "has an attribute that is not known")                                \
    X(CODE_RELOCATION, "code-relocation", "its code is completed by the driver when it loads")     \
    X(SEVERAL_FUNCTIONS, "several-functions", "does not have its section of code to itself")       \
    X(CLUSTER_CONTROL, "cluster-control", "uses cluster launch control, or may use it")            \
    X(NO_EXITS, "no-exits", "has no list of its exits")                                            \
    X(NO_PARAMETERS, "no-parameters", "takes no parameters, so there is no table to add to")       \
    X(PARAMETER_SPACE, "parameter-space", "no room for the extra parameters")                      \
    X(BROKEN, "broken", "its tables contradict each other")

enum tl_cubin_reason {
#define TL_CUBIN_REASON_ENUM(id, code, text) TL_CUBIN_REASON_##id,
    TL_CUBIN_REASONS(TL_CUBIN_REASON_ENUM)
#undef TL_CUBIN_REASON_ENUM
        TL_CUBIN_REASON_COUNT,
};

const char *tl_cubin_reason_code(enum tl_cubin_reason r);
const char *tl_cubin_reason_text(enum tl_cubin_reason r);

/* A kernel of an opened cubin, in the order of the symbol table. */
struct tl_cubin_entry {
    struct tl_str name; /* in the bytes that were opened */
    enum tl_cubin_reason reason;
    /* Its module has variables that code can reach, so a second module would have its own: gate it
     * as a twin in the same module.  With reason OK only. */
    bool wants_twin;
    /* Compiled for clusters of these blocks; the gate then decides for whole clusters.  {1, 1, 1}
     * if for none: a launch that asks for clusters must run the original. */
    uint32_t cluster[3];
    uint32_t n_params, param_bytes;
    uint32_t gate_offset; /* where the gate's parameters begin */
    uint32_t registers;
    const char *note; /* what caused the refusal; may be empty */
};

struct tl_cubin;

/* Reads a cubin; `bytes` must outlive it.  What cannot be gated is still opened, and its entries
 * say why.  0, -EINVAL (not a 64-bit CUDA ELF, or broken), -ENOMEM. */
int tl_cubin_open(struct tl_cubin **out, const void *bytes, size_t n, struct tl_error *err);
void tl_cubin_close(struct tl_cubin *c); /* NULL is fine */

uint32_t tl_cubin_arch(const struct tl_cubin *c); /* 90 for sm_90 and sm_90a */
uint32_t tl_cubin_count(const struct tl_cubin *c);
const struct tl_cubin_entry *tl_cubin_entry(const struct tl_cubin *c, uint32_t i);
/* NULL if it has no kernel of that name. */
const struct tl_cubin_entry *tl_cubin_find(const struct tl_cubin *c, struct tl_str name);

/* Whether the edits were checked on sm_<arch>. */
bool tl_cubin_knows_arch(uint32_t arch);
/* The attributes of kernels that are known, by number: what cuobjdump calls them, or NULL. */
const char *tl_cubin_attribute_name(uint32_t id);

/* --- the gate's code -------------------------------------------------------------------------- */

enum { TL_CUBIN_STOP_WORDS = 4 };

/* What a gated kernel takes behind its own parameters, at the entry's gate_offset.  A launch always
 * has the whole grid.  Blocks below `first` and from `last` on leave at once.  The others claim
 * their number in `word`, unless a stop word has two unequal halves: then they close it.
 * Bit 31 of the word says closed; below it stands H, and exactly the blocks from `first` to H have
 * run when the launch is done.  The next launch has `first` = `*word` = H. */
struct tl_cubin_args {
    uint64_t stop[TL_CUBIN_STOP_WORDS]; /* device addresses of u64 {issued, completed} */
    uint64_t word;                      /* device address of the u32 */
    uint32_t first, last;
};
_Static_assert(sizeof(struct tl_cubin_args) == 48, "the gate reads 48 bytes");
#define TL_CUBIN_CLOSED 0x80000000u

/* Whoever makes machine code of PTX: ptxas, or the driver's linker. */
struct tl_cubin_compiler {
    /* The linked cubin of `ptx` for sm_<arch>; `*cubin` is the caller's to free.  0 or a negative
     * errno value with a message. */
    int (*compile)(void *data, const char *ptx, uint32_t arch, void **cubin, size_t *n,
                   struct tl_error *err);
    void *data;
    const char *identity; /* name and version: what is kept on disk depends on it */
};

/* The program ptxas, found as `path` says, or in PATH if that has no slash; NULL: the one that
 * TALLY_PTXAS names, else in PATH, CUDA_HOME/bin or /usr/local/cuda/bin.  0, -ENOENT, another
 * negative errno value; with a message. */
int tl_cubin_ptxas_create(struct tl_cubin_compiler **out, const char *path, struct tl_error *err);
void tl_cubin_ptxas_destroy(struct tl_cubin_compiler *c);

/* Gates that were compiled, by architecture, offset and cluster: in memory, and in a folder for the
 * next process if `store` is not NULL.  Belongs to one thread at a time. */
struct tl_cubin_gates;
int tl_cubin_gates_create(struct tl_cubin_gates **out, const struct tl_cubin_compiler *compiler,
                          struct tl_store *store, struct tl_error *err);
void tl_cubin_gates_destroy(struct tl_cubin_gates *g);
/* How many were compiled, that is, found neither in memory nor in the store. */
uint32_t tl_cubin_gates_compiled(const struct tl_cubin_gates *g);

/* What a gate is, for who must know one when it stands before a kernel, and do what it does: the
 * software device. */
struct tl_cubin_gate_code {
    const void *bytes; /* with what fills it up */
    uint32_t n;
    uint32_t registers, barriers; /* that it needs */
    bool uses_ctaid_z;            /* where code has to say so: before sm_90 */
};
/* The code of the gate whose parameters begin at `offset`, compiled if need be; it lives as long as
 * `gates`.  0, or what the compiler or a check of its gate says. */
int tl_cubin_gates_code(struct tl_cubin_gates *gates, uint32_t arch, uint32_t offset,
                        const uint32_t cluster[3], struct tl_cubin_gate_code *out,
                        struct tl_error *err);
/* The gate as statements of PTX: they leave the kernel, or come to their end.  `prefix` stands
 * before the names of registers, `param` is the parameter of 48 bytes. */
void tl_cubin_gate_source(struct tl_buf *out, const char *prefix, const char *param,
                          const uint32_t cluster[3]);

/* --- gating ----------------------------------------------------------------------------------- */

struct tl_cubin_options {
    struct tl_str kernel; /* only this one; empty for all that can be gated */
    bool is_twin;         /* keep the kernel and add <kernel>$gate, sharing all variables */
    /* With twins: the bytes of the cubin are private memory that nobody reads any more.  Its pages
     * become those of the result, or are given back while they are copied, so that there is no
     * moment at which all of both cubins is in memory; from a success on, the cubin can only be
     * closed and asked for names. */
    bool spends;
};
#define TL_CUBIN_TWIN_SUFFIX "$gate"

/* One cubin more, in memory of its own, which only tl_cubin_gated_finish can free. */
struct tl_cubin_gated {
    void *bytes;
    size_t n;
    uint32_t n_gated;
    size_t peak_bytes; /* what it took in memory: tables and result, without the input */
};

/* Kernels that cannot be gated stay as they are, unless one is asked for by name.  0, -ENOENT (no
 * kernel of that name, or none that can be gated), -EPERM (that one cannot be gated; the message
 * says why), -ENOMEM, or what the compiler or a check of its gate says. */
int tl_cubin_gate(const struct tl_cubin *c, const struct tl_cubin_options *options,
                  struct tl_cubin_gates *gates, struct tl_cubin_gated *out, struct tl_error *err);
void tl_cubin_gated_finish(struct tl_cubin_gated *g);

#endif

/* The annotated kernels of test/cases: see README.md there for the format. */
#ifndef TEST_PTX_CASE_H
#define TEST_PTX_CASE_H

#include <sys/types.h>

#include "tally/ptx.h"

enum { PTX_CASE_KERNELS = 32, PTX_CASE_RUNS = 8, PTX_CASE_ARGS = 16 };

enum ptx_case_arg_kind {
    PTX_ARG_BUFFER, /* device memory of `count` elements */
    PTX_ARG_BYTES,  /* `count` bytes by value */
    PTX_ARG_NUMBER, /* `value` */
    PTX_ARG_HANDLE, /* of an image whose words are those of the buffer that is argument `value` */
};

enum ptx_case_fill {
    PTX_FILL_ZERO,
    PTX_FILL_IOTA,
    PTX_FILL_COUNTDOWN,
    PTX_FILL_RANDOM, /* from `value` as seed */
};

struct ptx_case_arg {
    enum ptx_case_arg_kind kind;
    char type[4]; /* "u32"; empty for bytes */
    uint32_t element_bytes;
    uint32_t count;
    enum ptx_case_fill fill;
    uint64_t value; /* a number's bits, or the seed */
};

struct ptx_case_run {
    uint32_t grid[3], block[3], shared;
};

struct ptx_case_kernel {
    char name[128]; /* empty: holds for all kernels of the file */
    bool has_verdict;
    enum tl_ptx_reason reasons[TL_PTX_VARIANTS];
    uint32_t conditions[TL_PTX_VARIANTS];
    struct ptx_case_run runs[PTX_CASE_RUNS];
    uint32_t n_runs;
    struct ptx_case_arg args[PTX_CASE_ARGS];
    uint32_t n_args;
};

struct ptx_case {
    char *text; /* of the file, with its annotations */
    size_t n;
    bool is_cuda; /* a .cu file: to be compiled first */
    bool ptxas_refuses;
    char ptxas_options[64]; /* empty if none */
    struct ptx_case_kernel kernels[PTX_CASE_KERNELS];
    uint32_t n_kernels;
};

/* Reads a case file.  On a mistake in it, false and what is wrong in `message`. */
bool ptx_case_read(struct ptx_case *c, const char *path, char *message, size_t message_bytes);
void ptx_case_finish(struct ptx_case *c); /* zeroes are fine */
/* What is annotated for that kernel: its own lines if there are any, else those for all. */
const struct ptx_case_kernel *ptx_case_kernel_of(const struct ptx_case *c, struct tl_str kernel);

/* Bytes of a parameter's memory: of a buffer, a structure or a number. */
uint32_t ptx_case_arg_bytes(const struct ptx_case_arg *a);
/* Fills that memory, of a buffer or a structure, as it is before a run. */
void ptx_case_fill(const struct ptx_case_arg *a, void *to);

/* Replaces the text of a .cu case by what nvcc makes of it (kept under TALLY_BUILD until the case
 * changes); false if there is no nvcc or it refuses. */
bool ptx_case_compile(struct ptx_case *c, const char *path);

/* All case files by name, sorted; to be freed by the function below. */
uint32_t ptx_case_names(char ***names);
void ptx_case_names_free(char **names, uint32_t n);

/* The folder with the cases: TALLY_CASES, or test/cases from the project's folder, where tests
 * run. */
const char *ptx_cases_folder(void);
/* Starts a program (argv[0] is its path) with its output in a file; its process number, or -1. */
pid_t ptx_start(char *const argv[], const char *output);
/* Where a CUDA tool is: the variable of that name, PATH, /usr/local/cuda/bin, build/tools/cuda/bin.
 * NULL if nowhere. */
const char *ptx_cuda_tool(const char *variable, const char *name);

#endif

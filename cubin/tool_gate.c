/* cubin-gate: the gate on the command line.  See docs/man/cubin-gate.1.scd. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tally/cubin.h"
#include "tally/file.h"
#include "tally/options.h"

struct arguments {
    struct tl_cubin_options options;
    bool lists;
    const char *input, *output, *ptxas;
};

enum { KEY_TWIN = 256, KEY_LIST, KEY_PTXAS };

static const struct argp_option options[] = {
    {"output", 'o', "FILE", 0, "where to write the gated cubin", 0},
    {"kernel", 'k', "NAME", 0, "gate only this kernel (default: all that can be gated)", 0},
    {"twin", KEY_TWIN, NULL, 0,
     "keep the kernels and add gated copies beside them, called NAME$gate", 0},
    {"ptxas", KEY_PTXAS, "FILE", 0, "compiles the gate (default: $PTXAS, or ptxas in PATH)", 0},
    {"list", KEY_LIST, NULL, 0, "tell of every kernel whether it can be gated, and why not", 1},
    {0},
};

/* One word of the command line; at the end, whether what was said is enough to go on. */
static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;
    switch (key) {
    case 'o':
        a->output = arg;
        return 0;
    case 'k':
        a->options.kernel = tl_str_of(arg);
        return 0;
    case KEY_TWIN:
        a->options.is_twin = true;
        return 0;
    case KEY_PTXAS:
        a->ptxas = arg;
        return 0;
    case KEY_LIST:
        a->lists = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->input != NULL)
            argp_error(state, "one cubin at a time");
        a->input = arg;
        return 0;
    case ARGP_KEY_END:
        if (a->input == NULL)
            argp_error(state, "name a cubin");
        if (!a->lists && a->output == NULL)
            argp_error(state, "say where to write with --output, or what to tell with --list");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* --- list ------------------------------------------------------------------------------------- */

static void list(const struct tl_cubin *c)
{
    for (uint32_t i = 0; i < tl_cubin_count(c); i++) {
        const struct tl_cubin_entry *e = tl_cubin_entry(c, i);
        printf(TL_STR_FMT "\n", TL_STR_ARG(e->name));
        if (e->reason != TL_CUBIN_REASON_OK) {
            printf("  no: %s%s%s%s\n", tl_cubin_reason_text(e->reason), e->note[0] != 0 ? " (" : "",
                   e->note, e->note[0] != 0 ? ")" : "");
            continue;
        }
        printf("  yes%s; %u parameters in %u bytes, the gate's at %u; %u registers",
               e->wants_twin ? ", as a twin" : "", e->n_params, e->param_bytes, e->gate_offset,
               e->registers);
        if (e->cluster[0] * e->cluster[1] * e->cluster[2] > 1)
            printf("; clusters of %u x %u x %u", e->cluster[0], e->cluster[1], e->cluster[2]);
        putchar('\n');
    }
}

/* --- gates ------------------------------------------------------------------------------------ */

/* Everything that gating takes; what was made stays on disk for the next time, if it can. */
struct forge {
    struct tl_cubin_compiler *compiler;
    struct tl_cubin_gates *gates;
    struct tl_store store;
    bool has_store;
};

static int open_forge(struct forge *f, const char *ptxas, struct tl_error *err)
{
    char path[TL_STORE_PATH];
    *f = (struct forge){0};
    if (ptxas == NULL)
        ptxas = secure_getenv("PTXAS") != NULL ? secure_getenv("PTXAS") : "ptxas";
    int rc = tl_cubin_ptxas_create(&f->compiler, ptxas, err);
    if (rc < 0)
        return rc;
    f->has_store = tl_store_folder(path, NULL) == 0 &&
                   tl_store_open(&f->store, path, tl_store_limit_mb(), NULL) == 0;
    return tl_cubin_gates_create(&f->gates, f->compiler, f->has_store ? &f->store : NULL, err);
}

static void close_forge(struct forge *f)
{
    tl_cubin_gates_destroy(f->gates);
    if (f->has_store)
        tl_store_close(&f->store);
    tl_cubin_ptxas_destroy(f->compiler);
}

static int write_all(const char *path, const void *bytes, size_t n, struct tl_error *err)
{
    FILE *f = fopen(path, "we");
    if (f == NULL)
        return tl_error_errno(err, "cannot write %s", path);
    size_t written = fwrite(bytes, 1, n, f);
    if (fclose(f) != 0 || written != n)
        return tl_error_errno(err, "cannot write %s", path);
    return 0;
}

static int gate(const struct arguments *a, const struct tl_cubin *c, struct tl_error *err)
{
    struct forge f;
    struct tl_cubin_gated out = {0};
    int rc = open_forge(&f, a->ptxas, err);
    if (rc == 0)
        rc = tl_cubin_gate(c, &a->options, f.gates, &out, err);
    if (rc == 0)
        rc = write_all(a->output, out.bytes, out.n, err);
    if (rc == 0)
        printf("%u of %u kernels gated, %zu bytes\n", out.n_gated, tl_cubin_count(c), out.n);
    tl_cubin_gated_finish(&out);
    close_forge(&f);
    return rc;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse_option,
        .args_doc = "IN.cubin",
        .doc = "Puts a gate in front of kernels of which there is only machine code, so that they "
               "can be stopped between blocks, or tells why not.\v"
               "Exit status: 0 done, 1 refused or failed, 64 wrong use.",
    };
    struct arguments a = {0};
    struct tl_error err;
    struct tl_cubin *c = NULL;
    char *bytes = NULL;
    size_t n = 0;
    tl_options_parse("cubin-gate", &argp, argc, argv, 0, NULL, &a);
    int rc = tl_file_read(a.input, SIZE_MAX, &bytes, &n);
    if (rc < 0)
        tl_error_set(&err, rc, "cannot read %s: %s", a.input, strerror(-rc));
    else
        rc = tl_cubin_open(&c, bytes, n, &err);
    if (rc == 0 && a.lists)
        list(c);
    if (rc == 0 && c != NULL && a.output != NULL)
        rc = gate(&a, c, &err);
    if (rc < 0)
        fprintf(stderr, "cubin-gate: %s\n", err.text);
    tl_cubin_close(c);
    free(bytes);
    return rc < 0 ? 1 : 0;
}

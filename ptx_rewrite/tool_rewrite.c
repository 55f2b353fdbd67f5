/* ptx-rewrite: the PTX library on the command line.  See docs/man/ptx-rewrite.1.scd. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tally/file.h"
#include "tally/options.h"
#include "tally/ptx.h"

enum mode { REWRITE, VERDICT, CHECK };

struct arguments {
    enum mode mode;
    bool is_json, has_variant;
    struct tl_ptx_options options;
    const char *kernel, *output;
    char **inputs;
    int n_inputs;
};

static const struct argp_option options[] = {
    {"variant", 'v', "slice|ticket|persistent", 0, "rewrite a kernel into this variant", 0},
    {"kernel", 'k', "NAME", 0,
     "the kernel; may be left out where the module has just one, or with an output folder", 0},
    {"grid", 'g', "1|2|3", 0, "dimensions of the grids it will be launched with (default 3: any)",
     0},
    {"registers", 'r', "N", 0, "tell the compiler to give it at most so many registers per thread",
     0},
    {"output", 'o', "FILE", 0,
     "where to write; a folder gets one file per kernel (default: standard output)", 0},
    {"verdict", 'V', NULL, 0, "tell of every kernel which variants it may have, and why not", 1},
    {"json", 'j', NULL, 0, "with --verdict: as JSON", 1},
    {"check", 'c', NULL, 0, "parse, print, parse, print: exit 1 unless that is a fixed point", 2},
    {0},
};

/* One word of the command line; at the end, whether what was said fits together. */
static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;
    switch (key) {
    case 'v':
        for (int v = 0; v < TL_PTX_VARIANTS; v++) {
            if (strcmp(arg, tl_ptx_variant_name((enum tl_ptx_variant)v)) == 0) {
                a->options.variant = (enum tl_ptx_variant)v;
                a->has_variant = true;
                return 0;
            }
        }
        argp_error(state, "no variant is called '%s'; there are slice, ticket and persistent", arg);
        return EINVAL;
    case 'g':
        if (arg[0] < '1' || arg[0] > '3' || arg[1] != 0)
            argp_error(state, "a grid has 1, 2 or 3 dimensions, not '%s'", arg);
        a->options.grid_dims = (uint32_t)(arg[0] - '0');
        return 0;
    case 'r': {
        char *end;
        unsigned long n = strtoul(arg, &end, 10);
        if (end == arg || *end != 0 || n < 1 || n > 255)
            argp_error(state, "a thread has 1 to 255 registers, not '%s'", arg);
        a->options.max_registers = (uint32_t)n;
        return 0;
    }
    case 'k':
        a->kernel = arg;
        return 0;
    case 'o':
        a->output = arg;
        return 0;
    case 'V':
        a->mode = VERDICT;
        return 0;
    case 'j':
        a->is_json = true;
        return 0;
    case 'c':
        a->mode = CHECK;
        return 0;
    case ARGP_KEY_ARGS:
        a->inputs = state->argv + state->next;
        a->n_inputs = state->argc - state->next;
        return 0;
    case ARGP_KEY_END:
        if (a->n_inputs == 0)
            argp_error(state, "no PTX file is given");
        if (a->mode == REWRITE && !a->has_variant)
            argp_error(state,
                       "say what to do: --variant=slice|ticket|persistent, --verdict or --check");
        if (a->mode == REWRITE && a->n_inputs > 1)
            argp_error(state, "--variant takes one file at a time");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* --- files ------------------------------------------------------------------------------------ */

/* A module in memory with its index. */
struct module {
    char *text;
    size_t n;
    struct tl_ptx_index *ix;
};

static int read_all(const char *path, char **text, size_t *n, struct tl_error *err)
{
    int rc = strcmp(path, "-") == 0 ? tl_file_read_fd(STDIN_FILENO, SIZE_MAX, text, n)
                                    : tl_file_read(path, SIZE_MAX, text, n);
    return rc < 0 ? tl_error_set(err, rc, "cannot read %s: %s", path, strerror(-rc)) : 0;
}

static int open_module(struct module *m, const char *path, struct tl_error *err)
{
    *m = (struct module){0};
    int rc = read_all(path, &m->text, &m->n, err);
    if (rc < 0)
        return rc;
    return tl_ptx_index_create(&m->ix, m->text, m->n, strcmp(path, "-") == 0 ? "<stdin>" : path,
                               err);
}

static void close_module(struct module *m)
{
    tl_ptx_index_destroy(m->ix);
    free(m->text);
}

static int write_all(const char *path, const char *text, size_t n, struct tl_error *err)
{
    FILE *f = path == NULL || strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
    if (f == NULL)
        return tl_error_errno(err, "cannot write %s", path);
    size_t written = fwrite(text, 1, n, f);
    if ((f == stdout ? fflush(f) : fclose(f)) != 0 || written != n)
        return tl_error_errno(err, "cannot write %s", path == NULL ? "to standard output" : path);
    return 0;
}

static bool is_kernel(const struct tl_ptx_item *item)
{
    return item->kind == TL_PTX_ITEM_ENTRY && item->body != 0;
}

/* --- check ------------------------------------------------------------------------------------ */

static int check_one(const char *path, struct tl_error *err)
{
    struct module m;
    char *once = NULL, *twice = NULL;
    size_t n_once = 0, n_twice = 0;
    struct tl_ptx_index *again = NULL;
    int rc = open_module(&m, path, err);
    if (rc == 0)
        rc = tl_ptx_format(m.ix, &once, &n_once, err);
    if (rc == 0)
        rc = tl_ptx_index_create(&again, once, n_once, "what was printed", err);
    if (rc == 0)
        rc = tl_ptx_format(again, &twice, &n_twice, err);
    if (rc == 0 && (n_once != n_twice || memcmp(once, twice, n_once) != 0)) {
        size_t i = 0;
        while (i < n_once && i < n_twice && once[i] == twice[i])
            i++;
        struct tl_ptx_place place = tl_ptx_place_of(once, n_once, (uint32_t)i);
        rc = tl_error_set(err, -EINVAL,
                          "%s: printing is no fixed point: printed line %u, column %u differs",
                          path, place.line, place.column);
    }
    tl_ptx_index_destroy(again);
    free(once);
    free(twice);
    close_module(&m);
    return rc;
}

static int check(const struct arguments *a)
{
    int failures = 0;
    for (int i = 0; i < a->n_inputs; i++) {
        struct tl_error err;
        if (check_one(a->inputs[i], &err) < 0) {
            fprintf(stderr, "%s\n", err.text);
            failures++;
        }
    }
    printf("%d of %d files parse and print to a fixed point\n", a->n_inputs - failures,
           a->n_inputs);
    return failures > 0 ? 1 : 0;
}

/* --- verdict ---------------------------------------------------------------------------------- */

static void json_conditions(struct tl_json *j, uint32_t conditions)
{
    tl_json_key(j, "conditions");
    tl_json_array(j);
    if (conditions & TL_PTX_IF_WARPS_ARE_ROWS)
        tl_json_str(j, TL_STR("warps-are-rows"));
    if (conditions & TL_PTX_IF_GRID_IS_LINE)
        tl_json_str(j, TL_STR("grid-is-line"));
    if (conditions & TL_PTX_IF_ONE_WIDE_X)
        tl_json_str(j, TL_STR("one-wide-x"));
    if (conditions & TL_PTX_IF_ONE_WIDE_Y)
        tl_json_str(j, TL_STR("one-wide-y"));
    if (conditions & TL_PTX_IF_ONE_WIDE_Z)
        tl_json_str(j, TL_STR("one-wide-z"));
    tl_json_end_array(j);
}

static void json_kernel(struct tl_json *j, struct tl_str kernel,
                        const struct tl_ptx_verdict *verdicts)
{
    tl_json_object(j);
    tl_json_key(j, "kernel");
    tl_json_str(j, kernel);
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        const struct tl_ptx_verdict *d = &verdicts[v];
        tl_json_key(j, tl_ptx_variant_name((enum tl_ptx_variant)v));
        tl_json_object(j);
        tl_json_key_str(j, "verdict", tl_ptx_reason_code(d->reason));
        if (d->reason == TL_PTX_REASON_OK) {
            json_conditions(j, d->conditions);
        } else {
            tl_json_key_str(j, "why", tl_ptx_reason_text(d->reason));
            tl_json_key_uint(j, "line", d->place.line);
            tl_json_key_uint(j, "column", d->place.column);
        }
        if (d->note[0] != 0)
            tl_json_key_str(j, d->reason == TL_PTX_REASON_OK ? "argument" : "note", d->note);
        tl_json_end_object(j);
    }
    tl_json_end_object(j);
}

static void print_kernel(const char *path, struct tl_str kernel,
                         const struct tl_ptx_verdict *verdicts)
{
    printf(TL_STR_FMT "\n", TL_STR_ARG(kernel));
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        const struct tl_ptx_verdict *d = &verdicts[v];
        printf("  %-10s  ", tl_ptx_variant_name((enum tl_ptx_variant)v));
        if (d->reason == TL_PTX_REASON_OK)
            printf(
                "yes%s%s%s%s%s%s%s\n",
                d->conditions & TL_PTX_IF_WARPS_ARE_ROWS ? ", if warps are rows of the block" : "",
                d->conditions & TL_PTX_IF_GRID_IS_LINE ? ", if the grid is one-dimensional" : "",
                d->conditions & TL_PTX_IF_ONE_WIDE_X ? ", if the grid is one block wide in x" : "",
                d->conditions & TL_PTX_IF_ONE_WIDE_Y ? ", if the grid is one block wide in y" : "",
                d->conditions & TL_PTX_IF_ONE_WIDE_Z ? ", if the grid is one block wide in z" : "",
                d->note[0] != 0 ? "; " : "", d->note);
        else
            printf("no: %s\n              %s:%u:%u: %s\n", tl_ptx_reason_text(d->reason), path,
                   d->place.line, d->place.column, d->note);
    }
}

static int verdict_file(const struct arguments *a, const char *path, struct tl_json *j,
                        struct tl_error *err)
{
    struct module m;
    int rc = open_module(&m, path, err);
    uint32_t shown = 0;
    for (uint32_t i = 0; rc == 0 && i < tl_ptx_index_count(m.ix); i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(m.ix, i);
        if (!is_kernel(item) || (a->kernel != NULL && !tl_str_is(item->name, a->kernel)))
            continue;
        struct tl_ptx_verdict verdicts[TL_PTX_VARIANTS];
        rc = tl_ptx_judge(m.ix, item->name, verdicts, err);
        if (rc < 0)
            break;
        shown++;
        if (a->is_json)
            json_kernel(j, item->name, verdicts);
        else
            print_kernel(path, item->name, verdicts);
    }
    if (rc == 0 && a->kernel != NULL && shown == 0)
        rc = tl_error_set(err, -ENOENT,
                          "%s has no kernel '%s'; --verdict without --kernel lists them", path,
                          a->kernel);
    close_module(&m);
    return rc;
}

/* --verdict: what can be made of each kernel of each file, as lines or as JSON. */
static int verdict(const struct arguments *a)
{
    struct tl_buf out = {0};
    struct tl_json j;
    struct tl_error err;
    int failures = 0;
    tl_json_init(&j, &out);
    if (a->is_json)
        tl_json_array(&j);
    for (int i = 0; i < a->n_inputs; i++) {
        if (a->is_json) {
            tl_json_object(&j);
            tl_json_key_str(&j, "file", a->inputs[i]);
            tl_json_key(&j, "kernels");
            tl_json_array(&j);
        }
        if (verdict_file(a, a->inputs[i], &j, &err) < 0) {
            fprintf(stderr, "%s\n", err.text);
            failures++;
        }
        if (a->is_json) {
            tl_json_end_array(&j);
            tl_json_end_object(&j);
        }
    }
    if (a->is_json) {
        tl_json_end_array(&j);
        tl_buf_putc(&out, '\n');
        if (out.failed || write_all(NULL, out.p, out.n, &err) < 0)
            failures++;
    }
    tl_buf_finish(&out);
    return failures > 0 ? 1 : 0;
}

/* --- rewrite ---------------------------------------------------------------------------------- */

static void describe(FILE *f, const struct tl_ptx_rewritten *r)
{
    fprintf(f, "entry %s: %u parameters of the original (%u bytes), then\n", r->entry,
            r->original_params, r->original_bytes);
    for (uint32_t i = 0; i < r->n_args; i++) {
        const struct tl_ptx_arg *arg = &r->args[i];
        fprintf(f, "  %3u  offset %5u  %u bytes  %-20s %s%s%s\n", arg->index, arg->offset,
                arg->size, arg->name, tl_ptx_arg_kind_name(arg->kind),
                arg->variable != NULL ? " " : "", arg->variable != NULL ? arg->variable : "");
    }
    for (uint32_t i = 0; i < r->n_table; i++)
        fprintf(f, "  %s[%u] = address of %s\n", r->table_name, i, r->table[i]);
    if (r->uses_slot)
        fprintf(f, "  dynamic shared memory: original rounded up to 16, plus %u bytes\n",
                TL_PTX_SLOT_BYTES);
}

static int rewrite_kernel(const struct arguments *a, const struct module *m, struct tl_str kernel,
                          const char *output, struct tl_error *err)
{
    struct tl_ptx_rewritten r;
    struct tl_ptx_verdict d;
    int rc = tl_ptx_rewrite(m->ix, kernel, &a->options, &r, &d, err);
    if (rc < 0)
        return rc;
    rc = write_all(output, r.text, r.text_bytes, err);
    if (rc == 0 && output != NULL)
        describe(stdout, &r);
    tl_ptx_rewritten_finish(&r);
    return rc;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return path != NULL &&
           (stat(path, &st) == 0 ? S_ISDIR(st.st_mode) : path[strlen(path) - 1] == '/');
}

/* Kernel names may be longer than file names: long ones are cut and numbered. */
static void file_name(char *out, size_t n, const struct arguments *a, struct tl_str kernel,
                      uint32_t number)
{
    const char *variant = tl_ptx_variant_name(a->options.variant);
    if (kernel.n <= 180)
        snprintf(out, n, "%s/" TL_STR_FMT ".%s.ptx", a->output, TL_STR_ARG(kernel), variant);
    else
        snprintf(out, n, "%s/%.*s.%u.%s.ptx", a->output, 180, kernel.p, number, variant);
}

static int rewrite_folder(const struct arguments *a, const struct module *m, struct tl_error *err)
{
    uint32_t written = 0, refused = 0;
    if (mkdir(a->output, 0777) < 0 && errno != EEXIST)
        return tl_error_errno(err, "cannot make the folder %s", a->output);
    for (uint32_t i = 0; i < tl_ptx_index_count(m->ix); i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(m->ix, i);
        char path[4096];
        if (!is_kernel(item))
            continue;
        file_name(path, sizeof path, a, item->name, i);
        int rc = rewrite_kernel(a, m, item->name, path, err);
        if (rc < 0 && rc != -EPERM)
            return rc;
        written += rc == 0;
        refused += rc == -EPERM;
        if (rc == -EPERM)
            fprintf(stderr, "%s\n", err->text);
    }
    printf("%u kernels written to %s, %u refused\n", written, a->output, refused);
    return 0;
}

static int rewrite(const struct arguments *a)
{
    struct module m;
    struct tl_error err;
    int rc = open_module(&m, a->inputs[0], &err);
    if (rc == 0 && a->kernel != NULL) {
        rc = rewrite_kernel(a, &m, tl_str_of(a->kernel), a->output, &err);
    } else if (rc == 0 && is_folder(a->output)) {
        rc = rewrite_folder(a, &m, &err);
    } else if (rc == 0) {
        struct tl_str only = {0};
        uint32_t kernels = 0;
        for (uint32_t i = 0; i < tl_ptx_index_count(m.ix); i++) {
            if (is_kernel(tl_ptx_index_item(m.ix, i))) {
                only = tl_ptx_index_item(m.ix, i)->name;
                kernels++;
            }
        }
        if (kernels == 1)
            rc = rewrite_kernel(a, &m, only, a->output, &err);
        else
            rc = tl_error_set(
                &err, -EINVAL,
                "%s has %u kernels: name one with --kernel, or give a folder to --output",
                a->inputs[0], kernels);
    }
    if (rc < 0)
        fprintf(stderr, "%s\n", err.text);
    close_module(&m);
    return rc < 0 ? 1 : 0;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse_option,
        .args_doc = "IN.ptx...",
        .doc = "Rewrites PTX kernels so that they can be run in preemptible pieces, or tells why "
               "not.\v"
               "Exit status: 0 done, 1 refused or failed, 64 wrong use.",
    };
    struct arguments a = {.mode = REWRITE};
    tl_options_parse("ptx-rewrite", &argp, argc, argv, 0, NULL, &a);
    switch (a.mode) {
    case VERDICT:
        return verdict(&a);
    case CHECK:
        return check(&a);
    case REWRITE:
        break;
    }
    return rewrite(&a);
}

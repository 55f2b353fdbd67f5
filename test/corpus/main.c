/* corpus-tool: options, and the steps in their order. */
#include "test/corpus/corpus.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    OPTION_NEW_PTXAS = 256,
    OPTION_IDENTICAL,
    OPTION_SEED,
    OPTION_PASSES,
    OPTION_SKIP_REWRITING
};

static const char doc[] =
    "Measures the PTX library on all PTX in FILES (or in folders of them): how much of it is "
    "parsed and how fast, "
    "which "
    "kernels have which variant and why others have not, whether ptxas takes the variants, and how "
    "many registers they "
    "cost.  Writes DIR/NAME.json, DIR/NAME.facts (one `key value` per line) and "
    "DIR/NAME.verdicts.tsv.\v"
    "Exit status: 0 if all was measured, whatever the results; 1 if something could not be.";

static const struct argp_option option_table[] = {
    {"name", 'n', "NAME", 0, "What to call the results (corpus)", 0},
    {"output", 'o', "DIR", 0, "Where results go (build/corpus)", 0},
    {"ptxas", 'p', "PATH", 0,
     "Try variants with this ptxas; without it, registers are not measured", 0},
    {"new-ptxas", OPTION_NEW_PTXAS, "PATH", 0, "Another one, for PTX that the first is too old for",
     0},
    {"sample", 's', "N", 0, "Hand so many kernels to ptxas, 0 for all (500)", 0},
    {"identical", OPTION_IDENTICAL, "N", 0,
     "Compare the machine code of so many modules before and after printing (40)", 0},
    {"seed", OPTION_SEED, "N", 0, "Take another sample", 0},
    {"jobs", 'j', "N", 0, "Run so many ptxas at once (2)", 0},
    {"passes", OPTION_PASSES, "N", 0, "Take the best of so many for speed (3)", 0},
    {"skip-rewriting", OPTION_SKIP_REWRITING, NULL, 0, "Rewrite only the sample, not every kernel",
     0},
    {0},
};

static uint32_t number(const char *text, struct argp_state *state)
{
    char *end;
    errno = 0;
    unsigned long n = strtoul(text, &end, 10);
    if (errno != 0 || *end != 0 || end == text || n > UINT32_MAX)
        argp_error(state, "'%s' is not a number", text);
    return (uint32_t)n;
}

/* One word of the command line; at the end, whether the numbers make sense. */
static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct corpus_options *o = state->input;
    switch (key) {
    case 'n':
        o->library = arg;
        return 0;
    case 'o':
        o->folder = arg;
        return 0;
    case 'p':
        o->ptxas = arg;
        return 0;
    case OPTION_NEW_PTXAS:
        o->new_ptxas = arg;
        return 0;
    case 's':
        o->sample = number(arg, state);
        return 0;
    case OPTION_IDENTICAL:
        o->identical = number(arg, state);
        return 0;
    case OPTION_SEED:
        o->seed = number(arg, state);
        return 0;
    case 'j':
        o->jobs = number(arg, state);
        return 0;
    case OPTION_PASSES:
        o->passes = number(arg, state);
        return 0;
    case OPTION_SKIP_REWRITING:
        o->skips_rewriting = true;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "name at least one file or folder");
        return EINVAL;
    case ARGP_KEY_END:
        if (o->jobs == 0 || o->passes == 0)
            argp_error(state, "--jobs and --passes must be at least 1");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int make_folder(const char *path, struct tl_error *err)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST
               ? 0
               : tl_error_errno(err, "cannot make the folder %s", path);
}

static int make_folders(struct corpus *c, struct tl_error *err)
{
    const char *folder = c->options->folder;
    int rc = make_folder(folder, err);
    if (rc == 0)
        rc = make_folder(corpus_must(tl_arena_printf(&c->arena, "%s/failed", folder)), err);
    if (rc == 0)
        rc = make_folder(corpus_must(tl_arena_printf(&c->arena, "%s/work", folder)), err);
    return rc;
}

static int measure(struct corpus *c, char *const *paths, struct tl_error *err)
{
    const struct corpus_options *o = c->options;
    int rc = make_folders(c, err);
    if (rc == 0)
        rc = corpus_load(c, paths, err);
    if (rc < 0)
        return rc;
    corpus_read(c);
    rc = corpus_judge(c, err);
    if (rc < 0)
        return rc;
    corpus_time_rewriting(c);
    if (!o->skips_rewriting)
        corpus_rewrite(c);
    if (o->ptxas != NULL)
        rc = corpus_measure_registers(c, err);
    if (rc == 0 && o->ptxas != NULL)
        rc = corpus_compare_code(c, err);
    return rc == 0 ? corpus_report(c, err) : rc;
}

static void finish(struct corpus *c)
{
    for (uint32_t i = 0; i < c->n_images; i++) {
        tl_ptx_index_destroy(c->images[i].index);
        free(c->images[i].text);
    }
    free(c->images);
    free(c->kernels);
    free(c->registers.growths);
    tl_arena_finish(&c->arena);
}

int main(int argc, char **argv)
{
    struct corpus_options options = {.library = "corpus",
                                     .folder = "build/corpus",
                                     .sample = 500,
                                     .identical = 40,
                                     .jobs = 2,
                                     .passes = 3};
    static const struct argp argp = {option_table, parse_option, "FILE...", doc, NULL, NULL, NULL};
    struct corpus c = {.options = &options};
    struct tl_error err = {0};
    int first;
    setvbuf(stdout, NULL, _IOLBF, 0); /* long work is watched through its log */
    argp_parse(&argp, argc, argv, 0, &first, &options);
    tl_arena_init(&c.arena, 0);
    int rc = measure(&c, argv + first, &err);
    if (rc < 0)
        fprintf(stderr, "corpus-tool: %s\n", err.text);
    finish(&c);
    return rc < 0;
}

/* `tally inspect FILE...`: options, files, and folders with all that is in them. */
#include "runtime/tally/inspect.h"
#include "tally/options.h"
#include "tally/text.h"

#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* --- options --- */

static const char doc[] =
    "Shows the GPU code in shared libraries, executables, archives, cubins, fatbins, PTX texts, "
    "and in folders of them "
    "such "
    "as an unpacked wheel; also where no section points at it.\v"
    "Exit status: 0 if all was read, 1 if something could not be, 2 if the command line is wrong.";

static const struct argp_option option_table[] = {
    {"json", 'j', NULL, 0, "Print JSON", 0},
    {"kernels", 'v', NULL, 0, "List every kernel with its verdicts", 0},
    {"verbose", 0, NULL, OPTION_ALIAS, NULL, 0},
    {"totals", 't', NULL, 0, "Print sums only, no images", 0},
    {"gpu", 'g', "ARCH", 0, "Look only into images that this GPU can load, e.g. sm_90", 0},
    {"extract", 'x', "DIR", 0,
     "Write each image, unpacked, to DIR/FILE.CONTAINER.IMAGE.sm_XX.ptx or .cubin; DIR is made if "
     "need be",
     0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct inspect_options *o = state->input;
    switch (key) {
    case 'j':
        o->as_json = true;
        return 0;
    case 'v':
        o->with_kernels = true;
        return 0;
    case 't':
        o->only_totals = true;
        return 0;
    case 'g':
        o->gpu = inspect_gpu_of(arg);
        if (o->gpu == 0)
            argp_error(state, "--gpu wants an architecture such as sm_90, not '%s'", arg);
        return 0;
    case 'x':
        o->extract = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "name at least one file or folder");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* --- files and folders --- */

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* What extracted images of a file in a folder are called: its path from there, flattened. */
static char *flat_name(const char *path)
{
    while (*path == '/')
        path++;
    char *name = cli_must(strdup(path));
    for (char *p = name; *p != 0; p++)
        if (*p == '/')
            *p = '_';
    return name;
}

/* Reads every regular file below a folder.  Links are not followed: libraries are full of links to
 * themselves. */
static enum cli_status inspect_folder(struct inspect *in, char *path)
{
    enum cli_status status = CLI_OK;
    FTS *tree = fts_open((char *[]){path, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    if (tree == NULL) {
        cli_complain("cannot walk %s: %s", path, strerror(errno));
        return CLI_FAILED;
    }
    for (FTSENT *e = fts_read(tree); e != NULL; e = fts_read(tree)) {
        struct tl_error err;
        if (e->fts_info == FTS_DNR || e->fts_info == FTS_ERR || e->fts_info == FTS_NS) {
            cli_complain("cannot read %s: %s", e->fts_path, strerror(e->fts_errno));
            status = CLI_FAILED;
        }
        if (e->fts_info != FTS_F || !S_ISREG(e->fts_statp->st_mode))
            continue;
        cli_progress_show(&in->progress, "%s", e->fts_path);
        char *name = flat_name(e->fts_path + strlen(path));
        if (inspect_file(in, e->fts_path, name, false, &err) < 0) {
            cli_progress_clear(&in->progress);
            cli_complain("%s", err.text);
            status = CLI_FAILED;
        }
        free(name);
    }
    if (errno != 0) { /* fts_read clears it at the end of the tree */
        cli_complain("cannot walk %s further: %s", path, strerror(errno));
        status = CLI_FAILED;
    }
    fts_close(tree);
    return status;
}

enum cli_status inspect_path(struct inspect *in, char *path)
{
    struct stat st;
    struct tl_error err;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return inspect_folder(in, path);
    const char *slash = strrchr(path, '/');
    if (inspect_file(in, path, slash != NULL ? slash + 1 : path, true, &err) == 0)
        return CLI_OK;
    cli_progress_clear(&in->progress);
    cli_complain("%s", err.text);
    return CLI_FAILED;
}

/* --- the run --- */

void inspect_report_flush(struct inspect_report *r)
{
    if (r->out.failed)
        cli_must(NULL);
    if (r->out.n > 0)
        tl_text_clean(r->out.p, r->out.n, true); /* names and options are the file's */
    fwrite(r->out.p, 1, r->out.n, stdout);
    r->out.n = 0;
}

int cli_inspect(int argc, char **argv)
{
    struct inspect_options options = {0};
    static const struct argp argp = {option_table, parse_option, "FILE...", doc, NULL, NULL, NULL};
    int first;
    argp_err_exit_status = CLI_USAGE;
    tl_options_parse(NULL, &argp, argc, argv, 0, &first, &options);
    if (options.extract != NULL && mkdir(options.extract, 0777) < 0 && errno != EEXIST) {
        cli_complain("cannot make the folder %s: %s", options.extract, strerror(errno));
        return CLI_FAILED;
    }

    struct inspect_report report = {
        .ops = options.as_json ? &inspect_json_ops : &inspect_text_ops,
        .options = &options,
    };
    struct inspect in = {.options = &options, .report = &report};
    cli_progress_init(&in.progress);
    enum cli_status status = CLI_OK;
    report.ops->begin(&report);
    for (int i = first; i < argc; i++)
        if (inspect_path(&in, argv[i]) != CLI_OK)
            status = CLI_FAILED;
    cli_progress_clear(&in.progress);
    report.ops->end(&report, &in.totals);
    inspect_report_flush(&report);
    tl_buf_finish(&report.out);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        cli_complain("cannot write the report: %s", strerror(errno));
        status = CLI_FAILED;
    }
    return in.totals.problems > 0 ? CLI_FAILED : status;
}

/* `tally report`: options and files; the forms are in report_*.c. */
#include "runtime/report/report.h"
#include "runtime/tally/cli.h"
#include "tally/options.h"
#include "tally/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
    bool as_json;
    const char *html, *trace; /* files, or NULL */
    const char *kernel;       /* a regular expression, or NULL */
    enum tl_report_order order;
};

static const char doc[] =
    "Shows what happened in jobs that ran under `tally-run --report=DIR`: latencies of requests "
    "and kernels, "
    "preemptions, "
    "what ran outside control, and which kernel made a request late.  A folder of such folders, or "
    "several arguments, "
    "are "
    "runs that are compared with the first.\v"
    "Exit status: 0 if all was read, 1 if something could not be, 2 if the command line is wrong.";

static const struct argp_option option_table[] = {
    {"json", 'j', NULL, 0, "Print JSON", 0},
    {"html", 'H', "FILE", 0, "Write a page with plots, complete in itself", 0},
    {"trace", 't', "FILE", 0,
     "Write the last moments as a trace for ui.perfetto.dev or chrome://tracing", 0},
    {"sort", 's', "time|launches|p99|queued|preempted|outside|name", 0,
     "Order kernels by their time on the device, launches, and so on; outside is what ran out of "
     "control",
     0},
    {"kernel", 'k', "REGEX", 0, "List only kernels whose name matches", 0},
    {0},
};

static int order_of(const char *name)
{
    for (int o = 0; o < TL_ORDERS; o++)
        if (strcmp(tl_report_order_name((enum tl_report_order)o), name) == 0)
            return o;
    return -1;
}

/* One option of the command line (argp). */
static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    int order;
    switch (key) {
    case 'j':
        o->as_json = true;
        return 0;
    case 'H':
        o->html = arg;
        return 0;
    case 't':
        o->trace = arg;
        return 0;
    case 'k':
        o->kernel = arg;
        return 0;
    case 's':
        order = order_of(arg);
        if (order < 0)
            argp_error(
                state,
                "--sort wants time, launches, p99, queued, preempted, outside or name, not '%s'",
                arg);
        else
            o->order = (enum tl_report_order)order;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "name at least one folder of records");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Writes what was made and empties it; false with a complaint. */
static bool write_out(struct tl_buf *text, const char *path)
{
    if (text->failed)
        cli_must(NULL);
    FILE *to = path != NULL ? fopen(path, "w") : stdout;
    if (to == NULL) {
        cli_complain("cannot write %s: %s", path, strerror(errno));
        tl_buf_finish(text);
        return false;
    }
    bool is_good = fwrite(text->p, 1, text->n, to) == text->n && fflush(to) == 0;
    int code = errno;
    if (path != NULL && fclose(to) != 0) {
        code = errno;
        is_good = false;
    }
    if (!is_good)
        cli_complain("cannot write %s: %s", path != NULL ? path : "the report", strerror(code));
    tl_buf_finish(text);
    return is_good;
}

static enum cli_status write_forms(struct tl_report *report, const struct options *o)
{
    struct tl_buf text = {0};
    bool is_good = true;
    if (o->html != NULL) {
        tl_report_html(report, &text);
        is_good &= write_out(&text, o->html);
    }
    if (o->trace != NULL) {
        tl_report_trace(report, &text);
        is_good &= write_out(&text, o->trace);
    }
    if (o->as_json) {
        tl_report_json(report, &text);
        is_good &= write_out(&text, NULL);
    } else if (o->html == NULL && o->trace == NULL) {
        tl_report_text(report, &text);
        if (text.n > 0)
            tl_text_clean(text.p, text.n, true); /* whatever folders and files are called */
        is_good &= write_out(&text, NULL);
    }
    for (uint32_t i = 0; i < report->n_problems; i++)
        cli_complain("%s", report->problems[i]);
    return is_good && report->n_problems == 0 ? CLI_OK : CLI_FAILED;
}

/* `tally report`: see tally-report(1). */
int cli_report(int argc, char **argv)
{
    struct options o = {0};
    static const struct argp argp = {option_table, parse_option, "[LABEL=]DIR...", doc, NULL,
                                     NULL,         NULL};
    int first;
    argp_err_exit_status = CLI_USAGE;
    tl_options_parse(NULL, &argp, argc, argv, 0, &first, &o);

    regex_t filter;
    if (o.kernel != NULL) {
        int code = regcomp(&filter, o.kernel, REG_EXTENDED | REG_NOSUB);
        if (code != 0) {
            char why[128];
            regerror(code, &filter, why, sizeof why);
            cli_complain("--kernel=%s is no regular expression: %s", o.kernel, why);
            return CLI_USAGE;
        }
    }
    struct tl_report report;
    struct tl_error err = {0};
    enum cli_status status = CLI_OK;
    tl_report_init(&report);
    for (int i = first; i < argc && status == CLI_OK; i++)
        if (tl_report_add(&report, argv[i], &err) < 0)
            status = CLI_FAILED;
    if (status == CLI_OK &&
        tl_report_settle(&report, o.order, o.kernel != NULL ? &filter : NULL, &err) < 0)
        status = CLI_FAILED;
    if (status != CLI_OK)
        cli_complain("%s", err.text);
    else
        status = write_forms(&report, &o);
    tl_report_finish(&report);
    if (o.kernel != NULL)
        regfree(&filter);
    return status;
}

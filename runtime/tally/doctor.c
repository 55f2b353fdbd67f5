/* `tally doctor`: options, which driver is examined, and where the result goes. */
#include "runtime/doctor/doctor.h"
#include "runtime/job/find.h"
#include "runtime/tally/cli.h"
#include "runtime/tally/inspect.h"
#include "tally/clock.h"
#include "tally/options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- options --- */

static const char doc[] =
    "Tells what driver and GPUs there are and what Tally can do with them: examines each GPU, in "
    "processes of their own, and keeps the result for jobs that run there.  With files or folders, "
    "also how many of their kernels can be stopped on that GPU.\v"
    "Exit status: 0 all is well, 1 something is wrong, 2 the command line is wrong, 3 something "
    "was "
    "refused that costs something.";

enum { KEY_SEED = 256, KEY_PATIENCE, KEY_DEVICE, KEY_PROFILE, KEY_GPU, KEY_ONLY };

static const struct argp_option option_table[] = {
    {"json", 'j', NULL, 0, "Print JSON", 0},
    {"device", KEY_DEVICE, "auto|gpu|soft", 0,
     "An NVIDIA GPU or the software device; auto if not said", 0},
    {"gpu", KEY_GPU, "N", 0, "Examine only this one, counted from 0", 0},
    {"only", KEY_ONLY, "memory|slice|ticket|persistent|gate|streams|cap", 0,
     "Run only these checks, and keep nothing", 0},
    {"patience", KEY_PATIENCE, "SECONDS", 0,
     "How long a single check may take before it counts as hung; 20 if not said", 0},
    {"profile", KEY_PROFILE, "NAME", 0,
     "GPU and driver that the software device answers as, e.g. h100-r580 (TALLY_DEVICE_PROFILE)",
     0},
    {"seed", KEY_SEED, "N", 0, "For the same random stops again; the clock if not said", 0},
    {0},
};

struct options {
    bool as_json;
    const char *device;
    struct tl_doctor doctor;
};

/* A number within limits; anything else ends the program. */
static uint64_t number(struct argp_state *state, const char *name, const char *text, uint64_t most)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != 0 || errno != 0 || n > most)
        argp_error(state, "--%s wants a number up to %llu, not '%s'", name,
                   (unsigned long long)most, text);
    return n;
}

/* One word of the command line.  The profile goes into the environment: the software device, which
 * reads it there, is opened later. */
static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'j':
        o->as_json = true;
        return 0;
    case KEY_SEED:
        o->doctor.seed = number(state, "seed", arg, UINT64_MAX);
        return 0;
    case KEY_PATIENCE:
        o->doctor.patience_s = (uint32_t)number(state, "patience", arg, 86400);
        if (o->doctor.patience_s == 0)
            argp_error(state, "--patience wants at least 1 second");
        return 0;
    case KEY_GPU:
        o->doctor.gpu = (int)number(state, "gpu", arg, 1023);
        return 0;
    case KEY_ONLY:
        if (!tl_doctor_has_group(arg))
            argp_error(state, "--only: there is no group '%s'", arg);
        o->doctor.only = arg;
        return 0;
    case KEY_PROFILE:
        setenv("TALLY_DEVICE_PROFILE", arg, 1);
        return 0;
    case KEY_DEVICE:
        if (strcmp(arg, "auto") != 0 && strcmp(arg, "gpu") != 0 && strcmp(arg, "soft") != 0)
            argp_error(state, "--device wants auto, gpu or soft, not '%s'", arg);
        o->device = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* --- which driver --- */

struct choice {
    char path[PATH_MAX];
    char why[256];
};

/* Says which one and why; never the software device where somebody may take it for a GPU. */
static int choose(const char *wanted, struct choice *c, struct tl_error *err)
{
    char lib[PATH_MAX];
    const char *given = secure_getenv("TALLY_DRIVER"), *file = tl_find_gpu_file();
    const char *profile = secure_getenv("TALLY_DEVICE_PROFILE");
    if (wanted == NULL && given != NULL && given[0] != 0) {
        snprintf(c->path, sizeof c->path, "%s", given);
        snprintf(c->why, sizeof c->why, "as TALLY_DRIVER says%s",
                 file != NULL ? "" : "; there is no GPU here (no /dev/nvidia*)");
        return 0;
    }
    int rc = tl_find_our_folder(lib, sizeof lib, err);
    if (rc < 0)
        return rc;
    bool is_soft = wanted != NULL && strcmp(wanted, "soft") == 0;
    bool is_gpu = wanted != NULL && strcmp(wanted, "gpu") == 0;
    if (!is_soft && (is_gpu || file != NULL)) {
        if (!tl_find_gpu_driver(lib, c->path, sizeof c->path))
            return tl_error_set(
                err, -ENODEV,
                "%s%s no NVIDIA driver (libcuda.so.1) is installed here; "
                "TALLY_DRIVER names one in another place, --device=soft examines "
                "the software device",
                file != NULL ? "there is a GPU, " : "--device=gpu:", file != NULL ? file : "");
        snprintf(c->why, sizeof c->why, "NVIDIA's, for %s", file != NULL ? file : "--device=gpu");
        return 0;
    }
    if ((size_t)snprintf(c->path, sizeof c->path, "%.4000s/device/libcuda.so.1", lib) >=
            sizeof c->path ||
        access(c->path, R_OK) < 0)
        return tl_error_errno(err, "the software CUDA device %s", c->path);
    snprintf(c->why, sizeof c->why, "%s: Tally's software device is examined, as %.64s",
             file == NULL ? "There is no GPU here (no /dev/nvidia*)" : "--device=soft",
             profile != NULL && profile[0] != 0 ? profile : "soft");
    return 0;
}

/* --- coverage --- */

static void ignore(struct inspect_report *r)
{
    (void)r;
}

static void ignore_begin(struct inspect_report *r, const char *path, uint64_t bytes)
{
    (void)r, (void)path, (void)bytes;
}

static void ignore_container(struct inspect_report *r, const struct inspect_container *c)
{
    (void)r, (void)c;
}

static void ignore_problem(struct inspect_report *r, const char *text)
{
    (void)r, (void)text;
}

static void ignore_totals(struct inspect_report *r, const struct inspect_totals *t)
{
    (void)r, (void)t;
}

static const struct inspect_report_ops silent_ops = {
    ignore, ignore_begin, ignore_container, ignore_problem, ignore_totals, ignore_totals};

/* Files for a GPU: as text by `tally inspect --totals --gpu=`, as JSON into the object. */
static enum cli_status put_coverage(struct tl_json *j, const char *arch, char **paths, int n)
{
    struct inspect_options options = {.only_totals = true, .gpu = inspect_gpu_of(arch)};
    struct inspect_report report = {.ops = j != NULL ? &silent_ops : &inspect_text_ops,
                                    .options = &options};
    struct inspect in = {.options = &options, .report = &report};
    enum cli_status status = CLI_OK;
    cli_progress_init(&in.progress);
    report.ops->begin(&report);
    for (int i = 0; i < n; i++)
        if (inspect_path(&in, paths[i]) != CLI_OK)
            status = CLI_FAILED;
    cli_progress_clear(&in.progress);
    report.ops->end(&report, &in.totals);
    inspect_report_flush(&report);
    tl_buf_finish(&report.out);
    if (j != NULL) {
        tl_json_object(j);
        tl_json_key_str(j, "gpu", arch);
        inspect_json_totals(j, &in.totals);
        tl_json_end_object(j);
    }
    return in.totals.problems > 0 ? CLI_FAILED : status;
}

/* Once for each architecture among the GPUs that were examined. */
static enum cli_status put_coverages(const struct tl_doctor *d, struct tl_json *j, char **paths,
                                     int n)
{
    char last[16] = "", arch[16];
    enum cli_status status = CLI_OK;
    for (int gpu = 0; gpu < 1024 && n > 0; gpu++) {
        tl_doctor_arch(d, gpu, arch, sizeof arch);
        if (arch[0] == 0)
            break;
        if ((d->gpu >= 0 && d->gpu != gpu) || strcmp(arch, last) == 0)
            continue;
        memcpy(last, arch, sizeof last);
        if (j == NULL)
            printf("\nCoverage on %s\n", arch);
        if (put_coverage(j, arch, paths, n) != CLI_OK)
            status = CLI_FAILED;
    }
    return status;
}

/* --- the run --- */

static void show_progress(void *data, int gpu, const char *group, const char *name)
{
    if (gpu >= 0)
        cli_progress_show(data, "examining GPU %d: %s, %s", gpu, group, name);
    else
        cli_progress_show(data, "examining: %s", name);
}

/* Keeps what was found of each GPU; what is said of that goes to `said`, a line each. */
static void keep(const struct tl_doctor *d, struct tl_buf *said, struct tl_json *j)
{
    char path[PATH_MAX];
    struct tl_error err = {0};
    for (int gpu = 0; gpu < 1024 && tl_doctor_fact(d, gpu, "name") != NULL; gpu++) {
        if (d->only != NULL || (d->gpu >= 0 && d->gpu != gpu))
            continue;
        int rc = tl_doctor_keep(d, gpu, path, sizeof path, &err);
        if (j != NULL && rc == 0)
            tl_json_str(j, tl_str_of(path));
        if (rc < 0)
            cli_complain("the result for GPU %d is not kept: %s", gpu, err.text);
        else
            tl_buf_printf(said, "GPU %d: what works is kept for jobs, in\n  %s\n", gpu, path);
    }
}

static int print_json(const struct tl_doctor *d, char **paths, int n)
{
    struct tl_buf out = {0}, said = {0};
    struct tl_json j;
    tl_json_init(&j, &out);
    tl_json_object(&j);
    tl_doctor_json(d, &j);
    tl_json_key(&j, "kept");
    tl_json_array(&j);
    keep(d, &said, &j);
    tl_json_end_array(&j);
    enum cli_status status = CLI_OK;
    if (n > 0) {
        tl_json_key(&j, "coverage");
        tl_json_array(&j);
        status = put_coverages(d, &j, paths, n);
        tl_json_end_array(&j);
    }
    tl_json_end_object(&j);
    tl_buf_putc(&out, '\n');
    cli_must(out.failed ? NULL : out.p);
    fwrite(out.p, 1, out.n, stdout);
    tl_buf_finish(&out);
    tl_buf_finish(&said);
    return status;
}

static int print_text(const struct tl_doctor *d, char **paths, int n)
{
    static const char *const ends[] = {
        "All is well.", "Something is wrong.", "",
        "Nothing is wrong; something that Tally could use was refused."};
    struct tl_buf out = {0};
    int found = tl_doctor_status(d);
    tl_doctor_text(d, &out);
    tl_buf_printf(&out, "\n%s\n", ends[found & 3]);
    keep(d, &out, NULL);
    cli_must(out.failed ? NULL : out.p);
    fwrite(out.p, 1, out.n, stdout);
    tl_buf_finish(&out);
    return put_coverages(d, NULL, paths, n);
}

int cli_doctor(int argc, char **argv)
{
    struct options o = {.doctor = {.seed = tl_clock_ns(), .patience_s = 20, .gpu = -1}};
    static const struct argp argp = {option_table, parse_option, "[FILE...]", doc,
                                     NULL,         NULL,         NULL};
    struct cli_progress progress;
    struct choice choice;
    struct tl_error err = {0};
    int first;
    argp_err_exit_status = CLI_USAGE;
    tl_options_parse(NULL, &argp, argc, argv, 0, &first, &o);
    if (choose(o.device, &choice, &err) < 0) {
        cli_complain("%s", err.text);
        return CLI_FAILED;
    }
    o.doctor.driver = choice.path;
    o.doctor.why = choice.why;
    cli_progress_init(&progress);
    o.doctor.progress = show_progress;
    o.doctor.progress_data = &progress;
    int rc = tl_doctor_examine(&o.doctor);
    cli_progress_clear(&progress);
    cli_must(rc < 0 ? NULL : &o);
    rc = o.as_json ? print_json(&o.doctor, argv + first, argc - first)
                   : print_text(&o.doctor, argv + first, argc - first);
    int status = tl_doctor_status(&o.doctor);
    tl_doctor_finish(&o.doctor);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        cli_complain("cannot write the report: %s", strerror(errno));
        return CLI_FAILED;
    }
    return rc != CLI_OK ? CLI_FAILED : status;
}

/* Files and folders: each folder with .tally files in it is a run. */
#include "runtime/report/report.h"
#include "tally/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILE_BYTES = 64 << 20, MAX_FILES = 4096 };

void tl_report_init(struct tl_report *r)
{
    *r = (struct tl_report){0};
    tl_arena_init(&r->arena, (size_t)2 << 30);
}

void tl_report_finish(struct tl_report *r)
{
    tl_arena_finish(&r->arena);
    *r = (struct tl_report){0};
}

/* Room for one more in an array of the arena that grows by doubling; NULL if out of memory. */
static void *one_more(struct tl_report *r, void *array, uint32_t n, size_t size)
{
    if (n > 0 && (n & (n - 1)) != 0)
        return array;
    void *larger = tl_arena_zalloc(&r->arena, (n > 0 ? 2 * (size_t)n : 1) * size);
    if (larger != NULL && n > 0)
        memcpy(larger, array, n * size);
    return larger;
}

static int add_problem(struct tl_report *r, const char *path, const char *text)
{
    const char **list = one_more(r, r->problems, r->n_problems, sizeof *list);
    char *line = tl_arena_printf(&r->arena, "%s: %s", path, text);
    if (list == NULL || line == NULL)
        return -ENOMEM;
    r->problems = list;
    r->problems[r->n_problems++] = line;
    return 0;
}

/* --- files --- */

/* All of a file.  The caller frees it. */
static int read_bytes(const char *path, char **bytes, size_t *n, struct tl_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return tl_error_errno(err, "cannot be opened");
    struct stat st;
    int rc = 0;
    *bytes = NULL;
    *n = 0;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        rc = tl_error_set(err, -EINVAL, "is no regular file");
    } else {
        rc = tl_file_read_fd(fd, MAX_FILE_BYTES, bytes, n);
        if (rc == -EFBIG)
            tl_error_set(err, rc, "is larger than a record can be");
        else if (rc == -ENOMEM)
            tl_error_set(err, rc, "is too large for the memory at hand");
        else if (rc < 0)
            tl_error_set(err, rc, "cannot be read: %s", strerror(-rc));
    }
    close(fd);
    return rc;
}

/* Adds a file to the run.  0, also if it is a problem; -ENOMEM. */
static int add_file(struct tl_report *r, struct tl_report_run *run, const char *path)
{
    struct tl_error err;
    char *bytes = NULL;
    size_t n = 0;
    int rc = read_bytes(path, &bytes, &n, &err);
    if (rc < 0)
        return add_problem(r, path, err.text);
    struct tl_report_job job;
    const char *problem;
    rc = tl_report_read(&job, &problem, &r->arena, bytes, n, &err);
    free(bytes);
    if (rc < 0)
        return add_problem(r, path, err.text);
    if (problem != NULL && add_problem(r, path, problem) < 0)
        return -ENOMEM;
    struct tl_report_job *jobs = one_more(r, run->jobs, run->n_jobs, sizeof *jobs);
    if (jobs == NULL)
        return -ENOMEM;
    run->jobs = jobs;
    run->jobs[run->n_jobs++] = job;
    return 0;
}

/* --- folders --- */

static bool is_record(const char *name)
{
    size_t n = strlen(name);
    return n > strlen(".tally") && name[0] != '.' &&
           strcmp(name + n - strlen(".tally"), ".tally") == 0;
}

static int visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* Adds a run to the report, if it has any job.  0 or -ENOMEM. */
static int keep_run(struct tl_report *r, const struct tl_report_run *run)
{
    if (run->n_jobs == 0)
        return 0;
    struct tl_report_run *runs = one_more(r, r->runs, r->n_runs, sizeof *runs);
    if (runs == NULL)
        return -ENOMEM;
    r->runs = runs;
    r->runs[r->n_runs++] = *run;
    return 0;
}

/* A run, if the folder has records.  0, or -errno. */
static int add_run(struct tl_report *r, const char *label, const char *path,
                   struct dirent **entries, int n)
{
    struct tl_report_run run = {.label = tl_arena_copy(&r->arena, tl_str_of(label)),
                                .path = tl_arena_copy(&r->arena, tl_str_of(path))};
    if (run.label == NULL || run.path == NULL)
        return -ENOMEM;
    int files = 0;
    for (int i = 0; i < n; i++) {
        if (!is_record(entries[i]->d_name))
            continue;
        if (files++ == MAX_FILES)
            return add_problem(r, path, "has too many records; the rest is left out");
        char *file = tl_arena_printf(&r->arena, "%s/%s", path, entries[i]->d_name);
        if (file == NULL || add_file(r, &run, file) < 0)
            return -ENOMEM;
    }
    return keep_run(r, &run);
}

/* Baselines come first, what is to be judged last. */
static int rank_of(const char *name)
{
    return strcmp(name, "alone") == 0 ? 0 : strncmp(name, "tally", 5) == 0 ? 2 : 1;
}

static int by_rank(const struct dirent **a, const struct dirent **b)
{
    int ranks = rank_of((*a)->d_name) - rank_of((*b)->d_name);
    return ranks != 0 ? ranks : strcmp((*a)->d_name, (*b)->d_name);
}

static void free_entries(struct dirent **entries, int n)
{
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free(entries);
}

static int add_folder(struct tl_report *r, const char *label, const char *path, bool with_folders,
                      struct tl_error *err)
{
    struct dirent **entries;
    int n = scandir(path, &entries, visible, by_rank);
    if (n < 0)
        return tl_error_errno(err, "cannot read the folder %s", path);
    int rc = add_run(r, label, path, entries, n);
    for (int i = 0; i < n && rc == 0 && with_folders; i++) {
        struct stat st;
        char *inner = tl_arena_printf(&r->arena, "%s/%s", path, entries[i]->d_name);
        if (inner == NULL)
            rc = -ENOMEM;
        else if (stat(inner, &st) == 0 && S_ISDIR(st.st_mode))
            rc = add_folder(r, entries[i]->d_name, inner, false, err);
    }
    free_entries(entries, n);
    return rc == -ENOMEM ? tl_error_set(err, rc, "out of memory") : rc;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != 0 ? slash + 1 : path;
}

static int add_one_file(struct tl_report *r, const char *label, const char *path)
{
    struct tl_report_run run = {.label = tl_arena_copy(&r->arena, tl_str_of(label)),
                                .path = tl_arena_copy(&r->arena, tl_str_of(path))};
    if (run.label == NULL || run.path == NULL || add_file(r, &run, path) < 0)
        return -ENOMEM;
    return keep_run(r, &run);
}

int tl_report_add(struct tl_report *r, const char *path, struct tl_error *err)
{
    struct stat st;
    const char *label = last_part(path), *equals = strchr(path, '=');
    char *given = NULL;
    int rc = stat(path, &st);
    if (rc < 0 && equals != NULL && equals > path) {
        given = strndup(path, (size_t)(equals - path));
        label = given;
        path = equals + 1;
        rc = stat(path, &st);
    }
    uint32_t runs = r->n_runs, problems = r->n_problems;
    if (rc < 0)
        rc = tl_error_errno(err, "cannot read %s", path);
    else if (label == NULL)
        rc = tl_error_set(err, -ENOMEM, "out of memory");
    else if (S_ISDIR(st.st_mode))
        rc = add_folder(r, label, path, true, err);
    else if (add_one_file(r, label, path) < 0)
        rc = tl_error_set(err, -ENOMEM, "out of memory");
    if (rc == 0 && r->n_runs == runs && r->n_problems == problems)
        rc = tl_error_set(err, -ENOENT,
                          "no records (*.tally) in %s; run a job with tally-run --report=%s first",
                          path, path);
    free(given);
    return rc;
}

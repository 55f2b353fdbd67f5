/* A record in a folder of its own, told things by threads, and read back. */
#ifndef TALLY_TEST_RECORD_HELP_H
#define TALLY_TEST_RECORD_HELP_H

#include "runtime/record/format.h"
#include "runtime/report/report.h"
#include "test/unit/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unity.h"

static char folder[4096];
static struct tl_arena arena;

void setUp(void)
{
    TEST_ASSERT_NOT_NULL(mkdtemp(scratch_path(folder, sizeof folder, "record-XXXXXX")));
    tl_arena_init(&arena, 0);
}

void tearDown(void)
{
    tl_arena_finish(&arena);
    DIR *d = opendir(folder);
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d))
        unlinkat(dirfd(d), e->d_name, 0);
    if (d != NULL)
        closedir(d);
    rmdir(folder);
}

static const struct tl_record_job some_job = {.name = "job",
                                              .command = "./job --fast",
                                              .device = "test device",
                                              .policy = "tally",
                                              .level = TL_LEVEL_HIGH};

static inline struct tl_record *open_record(void)
{
    struct tl_record *r = NULL;
    struct tl_error err = {0};
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_record_open(&r, folder, &some_job, &err), err.text);
    return r;
}

/* The only record in the folder (or the one of that pid). */
static inline struct tl_report_job read_back_of(pid_t pid, const char **problem)
{
    char path[5000] = "", want[64];
    snprintf(want, sizeof want, ".%ld.tally", (long)pid);
    DIR *d = opendir(folder);
    TEST_ASSERT_NOT_NULL(d);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        if (strstr(e->d_name, want) != NULL)
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    closedir(d);
    int fd = open(path, O_RDONLY);
    TEST_ASSERT_TRUE_MESSAGE(fd >= 0, path);
    struct stat st;
    fstat(fd, &st);
    char *bytes = malloc((size_t)st.st_size);
    TEST_ASSERT_EQUAL_INT64(st.st_size, read(fd, bytes, (size_t)st.st_size));
    close(fd);
    struct tl_report_job job;
    struct tl_error err = {0};
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0, tl_report_read(&job, problem, &arena, bytes, (size_t)st.st_size, &err), err.text);
    free(bytes);
    return job;
}

static inline struct tl_report_job read_back(void)
{
    const char *problem;
    struct tl_report_job job = read_back_of(getpid(), &problem);
    TEST_ASSERT_NULL(problem);
    return job;
}

static inline const struct tl_report_kernel *kernel_named(const struct tl_report_job *j,
                                                          const char *name)
{
    for (uint32_t i = 0; i < j->n_kernels; i++)
        if (strcmp(j->kernels[i].name, name) == 0)
            return &j->kernels[i];
    TEST_FAIL_MESSAGE(name);
    return NULL;
}

enum { THREADS = 4, TURNS = 20000 };

static inline void *tell(void *data)
{
    struct tl_record *r = data;
    for (int i = 0; i < TURNS; i++) {
        char name[16];
        snprintf(name, sizeof name, "k%d", i % 50);
        struct tl_record_kernel *k = tl_record_kernel(r, name);
        tl_record_launched(k, TL_RUNG_SLICE, 3);
        tl_record_ran(k, (uint64_t)i, (uint64_t)i * 37);
        tl_record_spanned(r, TL_SPAN_RUN, k, 0, 1000000 + (uint64_t)i, 1000000 + (uint64_t)i * 2);
        if (i % 16 == 0)
            tl_record_request(r, 1000000, 1000000 + (uint64_t)i, false);
        tl_record_note(r, name);
    }
    return NULL;
}

#endif

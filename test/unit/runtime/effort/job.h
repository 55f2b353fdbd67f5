/* For tests of the best-effort part in a job of its own: the interception library in front of a
 * driver that keeps a list of what reaches it (test/standin/witness.c), on one profile after the
 * other. */
#ifndef TALLY_TEST_EFFORT_JOB_H
#define TALLY_TEST_EFFORT_JOB_H

#include "../../intercept/help.h"
#include "test/standin/witness.h"

#include <sys/wait.h>

static inline const struct witness_call *calls(uint32_t *n)
{
    return ((__typeof__(witness_calls) *)symbol_of(driver, "witness_calls"))(n);
}

static inline void forget_calls(void)
{
    ((__typeof__(witness_forget) *)symbol_of(driver, "witness_forget"))();
}

/* A small device, so that kernels are cut; a context, current.  `socket` is that of the tallyd that
 * the job joins, or NULL. */
static inline void begin_job_beside(const char *profile, const char *rung, const char *socket)
{
    CUcontext ctx;
    char name[64];
    snprintf(name, sizeof name, "tally-test-job-%d", (int)getpid());
    setenv("TALLY_DEVICE_NAME", name, 1);
    setenv("TALLY_DEVICE_PROFILE", profile, 1);
    setenv("TALLY_DEVICE_SMS", "1", 1);
    setenv("TALLY_DEVICE_BLOCKS_PER_SM", "1", 1);
    if (rung != NULL)
        setenv("TALLY_FORCE", rung, 1);
    open_shim("test/standin/witness.so");
    setenv("TALLY_PRIORITY", "low", 1);
    if (socket != NULL)
        setenv("TALLY_SOCKET", socket, 1);
    OK(CALL(cuInit)(0));
    OK(CALL(cuDevicePrimaryCtxRetain)(&ctx, 0));
    OK(CALL(cuCtxSetCurrent)(ctx));
}

static inline void begin_job(const char *profile, const char *rung)
{
    begin_job_beside(profile, rung, NULL);
}

static inline void end_job(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "/dev/shm/%s.2", getenv("TALLY_DEVICE_NAME"));
    unlink(path);
}

/* Runs each in a process of its own, since a process has one device: `run` for every profile and
 * every rung of a list that ends with NULL.  0 if none failed. */
static inline int each_job(int (*run)(const char *profile, const char *rung),
                           const char *const *rungs)
{
    static const char *const profiles[] = {"soft", "a100-r535", "h100-r580"};
    int failed = 0;
    for (int p = 0; p < 3; p++) {
        for (int i = 0; rungs[i] != NULL; i++) {
            int status = 1;
            printf("%s, %s\n", profiles[p], rungs[i]);
            fflush(stdout);
            pid_t child = fork();
            if (child == 0)
                exit(run(profiles[p], rungs[i]) == 0 ? 0 : 1);
            if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
                failed = 1;
        }
    }
    return failed;
}

#endif

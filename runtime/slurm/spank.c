/* Slurm's hooks.  In srun, sbatch and salloc: the options, refused before anything is submitted if
 * they make no sense.  In root's slurmstepd: what the job has, and the right to it.  In each task:
 * the environment that tally-run would give it.  Around the job: tallyd, and what it used.
 *
 * Whatever goes wrong here, the job runs as it would without this plugin; only `fail closed` in the
 * configuration keeps jobs from running that Tally concerns and cannot manage. */
#include "runtime/slurm/plugin.h"

#include <slurm/spank.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#pragma GCC visibility push(default)
SPANK_PLUGIN(tally, 1)
#pragma GCC visibility pop

enum { NOT_RUN = 125 }; /* exit status of a task, as tally-run's own */

/* A process of Slurm is one job's (slurmstepd, srun), so this is as well. */
static struct {
    bool is_ready; /* the configuration was read */
    struct plugin_config config;
    struct plugin_wishes asked;
    struct plugin_plan plan;
    bool is_admitted;             /* a file of this process is there */
    char problem[PLUGIN_MESSAGE]; /* why it could not be let in, for its tasks to tell */
    uint32_t ended;               /* tasks */
} here;

static int take_option(int val, const char *optarg, int remote)
{
    struct tl_error err;
    int rc = plugin_wish(&here.asked, (enum plugin_option)val, optarg, &err);
    if (rc < 0)
        slurm_error("tally: %s", err.text);
    return remote != 0 ? 0 : rc; /* what came this far runs */
}

static struct spank_option option_table[PLUGIN_OPTIONS] = {
    {(char *)"tally-priority", (char *)"high|low|N",
     (char *)"Share the GPU by priority: its level, N is from -100 to 100", 1, PLUGIN_PRIORITY,
     take_option},
    {(char *)"tally-memory", (char *)"SIZE",
     (char *)"Device memory that the job may hold on each GPU, e.g. 8G", 1, PLUGIN_MEMORY,
     take_option},
    {(char *)"tally-slo", (char *)"pN:TIME",
     (char *)"Latency that the job has to keep, e.g. p99:8ms", 1, PLUGIN_SLO, take_option},
};

/* Once per process; with a configuration that makes no sense, Tally is as good as not there. */
static bool is_ready(int ac, char **av)
{
    struct tl_error err;
    if (here.is_ready)
        return true;
    plugin_config_init(&here.config);
    if (plugin_config_read(&here.config, ac, av, &err) < 0) {
        slurm_error("tally: %s; jobs run without Tally", err.text);
        plugin_config_finish(&here.config);
        return false;
    }
    here.is_ready = true;
    return true;
}

/* What a job on this node is to have.  False if Tally does not concern it, or if nobody knows. */
static bool decide(uint32_t job)
{
    const struct plugin_class *class;
    struct tl_error err;
    if (plugin_job_class(&here.config, job, &class, &err) < 0) {
        slurm_error("tally: %s; job %u has what tallyd's rules give it", err.text, job);
        class = NULL;
    }
    plugin_decide(class, &here.asked, job, &here.plan);
    return here.plan.is_concerned;
}

/* Slurm overlooks what a plugin returns that plugstack.conf calls optional, so who must not run is
 * ended where nothing but its task is. */
static int when_it_fails(const char *what)
{
    slurm_spank_log("tally: %s: %s", what,
                    here.config.is_closed ? "the job does not run (`fail closed`)"
                                          : "the job runs without Tally");
    if (here.config.is_closed)
        _exit(NOT_RUN);
    return 0;
}

/* 0, also if there is nothing to note; or what went wrong, after a message.  That a job has ended
 * is worth one only when nobody will try again. */
static int note_usage(uint32_t job, bool is_last)
{
    char account[TL_ADMIT_NAME];
    struct plugin_note note;
    struct tl_error err = {0};
    snprintf(account, sizeof account, "slurm:%u", job);
    int rc = plugin_account(&here.config, account, &note, &err);
    if (rc == -ENOENT || rc == -ECONNREFUSED) /* most jobs have nothing to do with it */
        return 0;
    if (rc == 0)
        rc = plugin_job_comment(here.config.comment, job, &note, &err);
    if (rc < 0 && (is_last || rc != -ESTALE))
        slurm_info("tally: %s", err.text);
    return rc;
}

/* --- everywhere ------------------------------------------------------------------------------- */

#pragma GCC visibility push(default)

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    (void)ac;
    (void)av;
    switch (spank_context()) {
    case S_CTX_LOCAL:
    case S_CTX_ALLOCATOR:
    case S_CTX_REMOTE:
        for (int i = 0; i < PLUGIN_OPTIONS; i++)
            if (spank_option_register(sp, &option_table[i]) != ESPANK_SUCCESS)
                slurm_error("tally: --%s cannot be offered", option_table[i].name);
        break;
    default:
        break;
    }
    return 0;
}

/* --- in a step: root, before its tasks -------------------------------------------------------- */

int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
    uint32_t job = 0;
    struct tl_error err;
    if (spank_context() != S_CTX_REMOTE || spank_get_item(sp, S_JOB_ID, &job) != ESPANK_SUCCESS ||
        !is_ready(ac, av) || !decide(job))
        return 0;
    if (!here.plan.is_admitted)
        return 0;
    here.is_admitted = tl_admit_write(here.config.socket, getpid(), &here.plan.rights, &err) == 0;
    if (!here.is_admitted)
        snprintf(here.problem, sizeof here.problem, "%.400s", err.text);
    return 0;
}

/* Sets what tally-run would have set. */
static void take_environment(spank_t sp, char *text, size_t n)
{
    for (char *at = text; at < text + n; at += strlen(at) + 1) {
        char *equals = strchr(at, '=');
        if (equals == NULL || equals == at)
            continue;
        size_t name = (size_t)(equals - at);
        *equals = 0;
        if (spank_setenv(sp, at, equals + 1, 1) != ESPANK_SUCCESS)
            slurm_error("tally: %s cannot be set", at);
        at[name] = '=';
    }
}

int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
    uint32_t job = 0, step = 0;
    char **environment = NULL, **argv = NULL, *text = NULL, name[64];
    int argc = 0;
    size_t n = 0;
    struct tl_error err;
    (void)ac;
    (void)av;
    if (!here.plan.is_concerned)
        return 0;
    if (here.problem[0] != 0)
        return when_it_fails(here.problem);
    if (here.plan.remark[0] != 0)
        slurm_spank_log("tally: %s", here.plan.remark);
    if (spank_get_item(sp, S_JOB_ID, &job) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_STEPID, &step) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_ENV, &environment) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS || argc < 1)
        return when_it_fails("Slurm does not tell what is to run");
    if (step < 0xfffffff0) /* above are the batch script and the like */
        snprintf(name, sizeof name, "slurm:%u.%u", job, step);
    else
        snprintf(name, sizeof name, "slurm:%u", job);
    if (plugin_environment(&here.config, &here.plan.has, name, environment, argv[0], &text, &n,
                           &err) < 0)
        return when_it_fails(err.text);
    take_environment(sp, text, n);
    free(text);
    return 0;
}

/* What the job has used so far goes into its comment while slurmctld still changes it: when the
 * last task of a step ends. */
int slurm_spank_task_exit(spank_t sp, int ac, char **av)
{
    uint32_t job = 0, tasks = 0;
    (void)ac;
    (void)av;
    if (!here.plan.is_admitted || here.config.comment == PLUGIN_NO_COMMENT ||
        spank_get_item(sp, S_JOB_ID, &job) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_LOCAL_TASK_COUNT, &tasks) != ESPANK_SUCCESS)
        return 0;
    if (++here.ended >= tasks)
        (void)note_usage(job, false);
    return 0;
}

int slurm_spank_exit(spank_t sp, int ac, char **av)
{
    (void)sp;
    (void)ac;
    (void)av;
    if (here.is_admitted && getuid() == 0)
        tl_admit_remove(here.config.socket, getpid());
    here.is_admitted = false;
    if (here.is_ready)
        plugin_config_finish(&here.config);
    here.is_ready = false;
    return 0;
}

/* --- around the job: root --------------------------------------------------------------------- */

/* What was asked for is told differently there. */
static void ask_options(spank_t sp)
{
    for (int i = 0; i < PLUGIN_OPTIONS; i++) {
        char *value = NULL;
        if (spank_option_getopt(sp, &option_table[i], &value) == ESPANK_SUCCESS && value != NULL)
            (void)plugin_wish(&here.asked, (enum plugin_option)i, value, NULL);
    }
}

int slurm_spank_job_prolog(spank_t sp, int ac, char **av)
{
    uint32_t job = 0;
    struct tl_error err;
    if (!is_ready(ac, av) || spank_get_item(sp, S_JOB_ID, &job) != ESPANK_SUCCESS)
        return 0;
    ask_options(sp);
    if (decide(job) && plugin_see_to_daemon(&here.config, &err) < 0)
        slurm_error("tally: %s", err.text); /* a job that wants it is told when it starts */
    return 0;
}

int slurm_spank_job_epilog(spank_t sp, int ac, char **av)
{
    uint32_t job = 0;
    if (!is_ready(ac, av) || here.config.comment == PLUGIN_NO_COMMENT ||
        spank_get_item(sp, S_JOB_ID, &job) != ESPANK_SUCCESS)
        return 0;
    (void)note_usage(job, true);
    return 0;
}

#pragma GCC visibility pop

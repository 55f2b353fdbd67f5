/* ptxas as a child process, a few at once, and the reading of what -v prints. */
#include "test/corpus/ptxas.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CPU_SECONDS = 900 }; /* the largest kernels take one or two minutes */

/* --- what it said --- */

const char *ptxas_log_path(struct tl_arena *arena, const struct ptxas_run *r)
{
    return corpus_must(tl_arena_printf(arena, "%s.log", r->input));
}

static void read_line(struct ptxas_run *r, const char *line)
{
    const char *used = strstr(line, "Used ");
    uint32_t stack, stores, loads;
    if (used != NULL && strstr(used, " registers") != NULL)
        r->registers = (uint32_t)strtoul(used + strlen("Used "), NULL, 10);
    /* Called functions have such a line as well; what they spill is spilt too. */
    if (sscanf(line, " %u bytes stack frame, %u bytes spill stores, %u bytes spill loads", &stack,
               &stores, &loads) == 3) {
        r->stack_bytes += stack;
        r->spill_bytes += stores + loads;
    }
    bool is_error = strstr(line, "error  ") != NULL || strstr(line, "fatal  ") != NULL;
    if (is_error && r->message[0] == 0)
        snprintf(r->message, sizeof r->message, "%s", line);
}

static void read_log(struct ptxas_run *r)
{
    struct tl_arena arena;
    tl_arena_init(&arena, 0);
    FILE *f = fopen(ptxas_log_path(&arena, r), "re");
    char *line = NULL;
    size_t cap = 0;
    while (f != NULL && getline(&line, &cap, f) > 0) {
        line[strcspn(line, "\n")] = 0;
        read_line(r, line);
    }
    free(line);
    if (f != NULL)
        fclose(f);
    tl_arena_finish(&arena);
}

/* --- processes --- */

/* Of an image's options, those that decide about registers.  Others name files of the machine it
 * was built on. */
static bool is_wanted(const char *option)
{
    return strstr(option, "maxrregcount") != NULL || strstr(option, "register-usage-level") != NULL;
}

/* Splits options at blanks, into at most `max` words that are wanted. */
static void split(char *options, char **words, size_t max)
{
    size_t n = 0;
    char *rest = NULL;
    for (char *word = strtok_r(options, " ", &rest); word != NULL && n < max;
         word = strtok_r(NULL, " ", &rest))
        if (is_wanted(word))
            words[n++] = word;
}

static int start(const struct ptxas_run *r, pid_t *pid, struct tl_error *err)
{
    enum { MAX_OPTIONS = 16 };
    struct tl_arena arena;
    tl_arena_init(&arena, 0);
    const char *log = ptxas_log_path(&arena, r);
    char *options = corpus_must(tl_arena_copy(&arena, tl_str_of(r->options)));
    char *output = (char *)(r->output != NULL ? r->output : "/dev/null");
    /* posix_spawn takes char *, and changes nothing. */
    char *argv[8 + MAX_OPTIONS] = {(char *)r->ptxas, "-v", "-arch", (char *)r->arch, "-o", output,
                                   (char *)r->input};
    split(options, argv + 7, MAX_OPTIONS);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_TRUNC,
                                     0666);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    int rc = posix_spawnp(pid, r->ptxas, &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    tl_arena_finish(&arena);
    if (rc != 0)
        return tl_error_set(err, -rc, "cannot start %s: %s", r->ptxas, strerror(rc));
    (void)prlimit(*pid, RLIMIT_CPU, &(struct rlimit){CPU_SECONDS, CPU_SECONDS}, NULL);
    return 0;
}

static void take_result(struct ptxas_run *r, int status)
{
    r->was_accepted = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    read_log(r);
    if (!r->was_accepted && r->message[0] == 0)
        snprintf(r->message, sizeof r->message,
                 WIFSIGNALED(status) ? "killed by signal %d" : "wait status %d",
                 WIFSIGNALED(status) ? WTERMSIG(status) : status);
}

int ptxas_run_all(struct ptxas_run *runs, size_t n, uint32_t jobs, struct tl_error *err)
{
    struct {
        pid_t pid;
        struct ptxas_run *run;
    } *running = corpus_must(calloc(jobs, sizeof *running));
    size_t next = 0;
    uint32_t active = 0;
    int rc = 0;
    while ((next < n && rc == 0) || active > 0) {
        if (next < n && rc == 0 && active < jobs) {
            running[active].run = &runs[next++];
            rc = start(running[active].run, &running[active].pid, err);
            active += rc == 0;
            continue;
        }
        int status;
        pid_t pid = waitpid(-1, &status, 0);
        for (uint32_t i = 0; i < active; i++) {
            if (running[i].pid != pid)
                continue;
            take_result(running[i].run, status);
            running[i] = running[--active];
            break;
        }
    }
    free(running);
    return rc;
}

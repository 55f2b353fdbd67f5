/* A compiler that runs inside jobs: a stand-in for ptxas tells how it was run, and the process,
 * which may wait for any child of its own, has not noticed. */
#include "tally/cubin.h"
#include "test/unit/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

static char folder[128], program[160];
static struct tl_cubin_compiler *compiler;
static struct tl_error err;
static _Atomic int n_deaths;

static void count_death(int signal)
{
    (void)signal;
    n_deaths++;
}

void setUp(void)
{
    TEST_ASSERT_NOT_NULL(mkdtemp(scratch_path(folder, sizeof folder, "ptxas-XXXXXX")));
    snprintf(program, sizeof program, "%s/pt xas", folder); /* with a blank */
    n_deaths = 0;
    signal(SIGCHLD, count_death);
}

void tearDown(void)
{
    tl_cubin_ptxas_destroy(compiler);
    compiler = NULL;
    signal(SIGCHLD, SIG_DFL);
    unlink(program);
    rmdir(folder);
}

/* A program of that text. */
static void write_program(const char *text)
{
    int fd = open(program, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    TEST_ASSERT_EQUAL_INT((int)strlen(text), write(fd, text, strlen(text)));
    close(fd);
}

static int compile(void **cubin, size_t *n)
{
    return compiler->compile(compiler->data, "the source", 80, cubin, n, &err);
}

/* -o OUT IN are the last; OUT gets the first argument and all of IN. */
static const char copies[] = "#!/bin/sh\n[ \"$1\" != --version ] || { echo version 7; exit 0; }\n"
                             "{ printf '%s:' \"$1\"; cat \"$4\"; } >\"$3\"\n";

static void it_is_given_the_source_and_asked_for_the_code(void)
{
    void *cubin;
    size_t n;
    write_program(copies);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_cubin_ptxas_create(&compiler, program, &err), err.text);
    TEST_ASSERT_NOT_NULL(strstr(compiler->identity, "version 7"));
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, compile(&cubin, &n), err.text);
    TEST_ASSERT_EQUAL_UINT32(22, n);
    TEST_ASSERT_EQUAL_STRING_LEN("-arch=sm_80:the source", cubin, n);
    free(cubin);
}

static void a_path_is_the_jobs(void)
{
    void *cubin;
    size_t n;
    char here[1024];
    write_program(copies);
    TEST_ASSERT_NOT_NULL(getcwd(here, sizeof here));
    TEST_ASSERT_EQUAL_INT(0, chdir(folder));
    int rc = tl_cubin_ptxas_create(&compiler, "./pt xas", &err);
    TEST_ASSERT_EQUAL_INT(0, chdir(here)); /* it may go elsewhere, too */
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, rc, err.text);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, compile(&cubin, &n), err.text);
    free(cubin);
}

static void the_job_has_no_child_of_ours(void)
{
    void *cubin;
    size_t n;
    write_program(copies);
    TEST_ASSERT_EQUAL_INT(0, tl_cubin_ptxas_create(&compiler, program, &err));
    TEST_ASSERT_EQUAL_INT(0, compile(&cubin, &n));
    free(cubin);
    TEST_ASSERT_EQUAL_INT(-1, waitpid(-1, NULL, WNOHANG));
    TEST_ASSERT_EQUAL_INT(ECHILD, errno);
    TEST_ASSERT_EQUAL_INT(0, n_deaths);
}

/* A job that takes in whatever child ends does not take this end away. */
static void who_ignores_children_can_compile(void)
{
    void *cubin;
    size_t n;
    signal(SIGCHLD, SIG_IGN);
    write_program(copies);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_cubin_ptxas_create(&compiler, program, &err), err.text);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, compile(&cubin, &n), err.text);
    free(cubin);
}

static void it_is_not_what_jobs_are_preloaded_with(void)
{
    void *cubin;
    size_t n;
    write_program("#!/bin/sh\n[ \"$1\" = --version ] || echo \"${LD_PRELOAD-none}\" >\"$3\"\n");
    setenv("LD_PRELOAD", "/nowhere/libcuda.so.1", 1);
    TEST_ASSERT_EQUAL_INT(0, tl_cubin_ptxas_create(&compiler, program, &err));
    TEST_ASSERT_EQUAL_INT(0, compile(&cubin, &n));
    unsetenv("LD_PRELOAD");
    TEST_ASSERT_EQUAL_STRING_LEN("none\n", cubin, n);
    free(cubin);
}

static void what_it_complains_of_is_told(void)
{
    void *cubin;
    size_t n;
    write_program("#!/bin/sh\n[ \"$1\" = --version ] || { echo bad line 5 >&2; exit 3; }\n");
    TEST_ASSERT_EQUAL_INT(0, tl_cubin_ptxas_create(&compiler, program, &err));
    TEST_ASSERT_EQUAL_INT(-EINVAL, compile(&cubin, &n));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, "bad line 5"), err.text);
}

static void a_program_that_is_not_there_is_named(void)
{
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_cubin_ptxas_create(&compiler, program, &err));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, "pt xas"), err.text);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(it_is_given_the_source_and_asked_for_the_code);
    RUN_TEST(a_path_is_the_jobs);
    RUN_TEST(the_job_has_no_child_of_ours);
    RUN_TEST(who_ignores_children_can_compile);
    RUN_TEST(it_is_not_what_jobs_are_preloaded_with);
    RUN_TEST(what_it_complains_of_is_told);
    RUN_TEST(a_program_that_is_not_there_is_named);
    return UNITY_END();
}

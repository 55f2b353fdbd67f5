/* The compiler service for tests; see the header. */
#include "test/unit/device/service/help.h"
#include "test/unit/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unity.h>

char service_folder[512], service_cache[600], service_program[1024];
const uint32_t service_block[3] = {64, 2, 1};

const char *service_ptx(const char *kernel)
{
    static _Thread_local char text[300];
    snprintf(text, sizeof text,
             ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry %s() { ret; }\n",
             kernel);
    return text;
}

const char *service_says(const char *command)
{
    static char text[300];
    char line[1200];
    snprintf(line, sizeof line, "'%s' %s", service_program, command);
    FILE *f = popen(line, "r");
    TEST_ASSERT_NOT_NULL(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    pclose(f);
    return text;
}

long service_number(const char *word)
{
    const char *text = service_says("status"), *at = strstr(text, word);
    if (at == NULL)
        return -1;
    while (at > text && at[-1] != ' ')
        at--;
    while (at > text && (at[-1] == ' ' || (at[-1] >= '0' && at[-1] <= '9')))
        at--;
    return strtol(at, NULL, 10);
}

void service_wait_number(const char *word, long least)
{
    for (int i = 0; i < 4000; i++) {
        if (service_number(word) >= least)
            return;
        service_sleep_ms(5);
    }
    TEST_FAIL_MESSAGE(service_says("status"));
}

pid_t service_pid(void)
{
    const char *text = service_says("status");
    return strncmp(text, "pid ", 4) == 0 ? (pid_t)strtol(text + 4, NULL, 10) : -1;
}

void service_sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

void service_wait(bool is_there)
{
    for (int i = 0; i < 2000; i++) {
        if ((service_pid() > 0) == is_there)
            return;
        service_sleep_ms(5);
    }
    TEST_FAIL_MESSAGE(is_there ? "the service does not start" : "the service does not end");
}

void service_set_up(void)
{
    static const char *const unset[] = {
        "TALLY_JIT_TEST_CRASH", "TALLY_LOG",          "TALLY_PROGRESS", "TALLY_JIT_SECONDS",
        "TALLY_JIT_MEMORY_MB",  "TALLY_JIT_FEATURES", "TALLY_CACHE_MB", "TALLY_PRIORITY",
        "TALLY_JIT_WORKERS",    "TALLY_FAIL"};
    const char *build = getenv("TALLY_BUILD");
    scratch_path(service_folder, sizeof service_folder, "jit_XXXXXX");
    TEST_ASSERT_NOT_NULL(mkdtemp(service_folder));
    snprintf(service_cache, sizeof service_cache, "%s/cache", service_folder);
    snprintf(service_program, sizeof service_program, "%s/test/tally-jit-standin",
             build != NULL ? build : "build");
    setenv("XDG_RUNTIME_DIR", service_folder, 1);
    setenv("TALLY_CACHE", service_cache, 1);
    setenv("TALLY_JIT", service_program, 1);
    setenv("TALLY_JIT_IDLE", "20", 1);
    for (size_t i = 0; i < sizeof unset / sizeof unset[0]; i++)
        unsetenv(unset[i]);
}

void service_tear_down(void)
{
    char command[600];
    (void)service_says("stop");
    service_wait(false);
    snprintf(command, sizeof command, "rm -rf '%s'", service_folder);
    TEST_ASSERT_EQUAL_INT(0, system(command));
}

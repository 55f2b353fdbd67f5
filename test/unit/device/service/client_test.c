/* The driver's side of the compiler service, against the real service with a stand-in for the
 * translator. */
#include "device/abi.h"
#include "device/service/client.h"
#include "device/service/wire.h"
#include "test/unit/device/service/help.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <unity.h>

static char path[2048];
static struct tl_error err;
static atomic_int n_signals;

static int get(const char *kernel)
{
    const char *ptx = service_ptx(kernel);
    return tl_jit_client_get(ptx, strlen(ptx), kernel, service_block, path, sizeof path, &err);
}

static void assert_got(const char *kernel)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, get(kernel), err.text);
}

static void assert_refused(const char *kernel, int code, const char *word)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(code, get(kernel), err.text);
    if (strstr(err.text, word) == NULL || strstr(err.text, kernel) == NULL)
        TEST_FAIL_MESSAGE(err.text);
}

static void on_signals(int number)
{
    (void)number;
    n_signals++;
}

void setUp(void)
{
    service_set_up();
    err = (struct tl_error){0};
    path[0] = '\0';
}

void tearDown(void)
{
    service_tear_down();
}

typedef void (*warp_fn)(struct tl_dev_frame *f, uint32_t warp);

/* Loads what `path` names and runs a warp of it, as the driver does. */
static void assert_runs(void)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    TEST_ASSERT_NOT_NULL_MESSAGE(handle, handle == NULL ? dlerror() : "");
    const struct tl_dev_info *info = dlsym(handle, "tally_info");
    void *p = dlsym(handle, "tally_warp");
    TEST_ASSERT_NOT_NULL(info);
    TEST_ASSERT_NOT_NULL(p);
    TEST_ASSERT_EQUAL_UINT32(service_block[0], info->block[0]);
    warp_fn warp;
    memcpy(&warp, &p, sizeof warp);
    uint32_t out = 0;
    uint32_t *params[1] = {&out};
    struct tl_dev_frame frame = {.params = (const uint8_t *)params};
    warp(&frame, 3);
    TEST_ASSERT_EQUAL_UINT32(service_block[0] + 3, out);
    dlclose(handle);
}

static int count_descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    TEST_ASSERT_NOT_NULL(d);
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n;
}

/* --- plain use -------------------------------------------------------------------------------- */

static void a_kernel_is_compiled_loaded_and_run(void)
{
    assert_got("plain");
    TEST_ASSERT_EQUAL_STRING("", err.text);
    TEST_ASSERT_EQUAL_STRING_LEN(service_cache, path, strlen(service_cache));
    assert_runs();
}

static void a_warm_kernel_needs_no_service(void)
{
    assert_got("plain");
    (void)service_says("stop");
    service_wait(false);
    assert_got("plain");
    TEST_ASSERT_EQUAL_STRING("", err.text);
    assert_runs();
    TEST_ASSERT_EQUAL_INT(-1, service_pid());
}

static void block_size_and_features_make_another_object(void)
{
    char first[2048], second[2048];
    const char *ptx = service_ptx("plain");
    const uint32_t other[3] = {32, 1, 1};
    assert_got("plain");
    strcpy(first, path);
    TEST_ASSERT_EQUAL_INT(
        0, tl_jit_client_get(ptx, strlen(ptx), "plain", other, second, sizeof second, &err));
    TEST_ASSERT_TRUE(strcmp(first, second) != 0);
    setenv("TALLY_JIT_FEATURES", "+avx2", 1);
    assert_got("plain");
    TEST_ASSERT_TRUE(strcmp(first, path) != 0);
    TEST_ASSERT_TRUE(strcmp(second, path) != 0);
}

static void one_kernel_of_many_is_taken_out(void)
{
    const char *ptx = ".version 7.0\n.target sm_75\n.address_size 64\n"
                      ".visible .entry one() { ret; }\n.visible .entry two() { ret; }\n";
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0, tl_jit_client_get(ptx, strlen(ptx), "two", service_block, path, sizeof path, &err),
        err.text);
    assert_runs();
    TEST_ASSERT_EQUAL_INT(
        -EINVAL, tl_jit_client_get("nonsense", 8, "x", service_block, path, sizeof path, &err));
}

static void errors_come_back_with_code_and_text(void)
{
    assert_refused("refused_kernel", -ENOTSUP, "tcgen05.mma");
    assert_refused("calls_memcpy", -ENOTSUP, "memcpy");
}

static void what_was_refused_once_is_not_compiled_again(void)
{
    char file[700], line[2000];
    assert_refused("refused_kernel_again", -ENOTSUP, "tcgen05.mma");
    TEST_ASSERT_EQUAL_INT(1, service_number("failed"));
    assert_refused("refused_kernel_again", -ENOTSUP, "tcgen05.mma");
    TEST_ASSERT_EQUAL_INT(1, service_number("failed"));
    /* Another process gets the service's answer. */
    snprintf(file, sizeof file, "%s/refused.ptx", service_folder);
    FILE *f = fopen(file, "w");
    TEST_ASSERT_NOT_NULL(f);
    fputs(service_ptx("refused_kernel_again"), f);
    fclose(f);
    snprintf(line, sizeof line, "'%s' get '%s' --block 64,2,1 2>&1", service_program, file);
    f = popen(line, "r");
    TEST_ASSERT_NOT_NULL(f);
    char text[1000];
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    TEST_ASSERT_TRUE(pclose(f) != 0);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "tcgen05.mma"), text);
    TEST_ASSERT_EQUAL_INT(1, service_number("failed"));
}

static void what_is_fetched_ahead_is_compiled_while_nobody_waits(void)
{
    const char *ptx = service_ptx("ahead");
    tl_jit_client_prefetch(ptx, strlen(ptx), "ahead", service_block);
    for (int i = 0; i < 2000 && service_number("compiled") != 1; i++)
        service_sleep_ms(5);
    TEST_ASSERT_EQUAL_INT(1, service_number("compiled"));
    assert_got("ahead");
    assert_runs();
    tl_jit_client_prefetch(ptx, strlen(ptx), "ahead", service_block);
    TEST_ASSERT_EQUAL_INT(1, service_number("compiled"));
}

static void a_quick_version_is_kept_apart_and_gives_way(void)
{
    const char *ptx = service_ptx("soon");
    char quick[sizeof path];
    bool is_quick = false;
    for (int i = 0; i < 2; i++) {
        TEST_ASSERT_EQUAL_INT_MESSAGE(0,
                                      tl_jit_client_get_soon(ptx, strlen(ptx), "soon",
                                                             service_block, path, sizeof path,
                                                             &is_quick, &err),
                                      err.text);
        TEST_ASSERT_TRUE(is_quick);
        TEST_ASSERT_EQUAL_INT(1, service_number("compiled"));
    }
    assert_runs();
    strcpy(quick, path);
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_jit_client_improved(ptx, strlen(ptx), "soon", service_block,
                                                          path, sizeof path));
    tl_jit_client_improve(ptx, strlen(ptx), "soon", service_block);
    for (int i = 0; i < 2000 && service_number("compiled") != 2; i++)
        service_sleep_ms(5);
    TEST_ASSERT_EQUAL_INT(
        0, tl_jit_client_improved(ptx, strlen(ptx), "soon", service_block, path, sizeof path));
    assert_runs();
    TEST_ASSERT_TRUE(strcmp(quick, path) != 0);
    TEST_ASSERT_EQUAL_INT(0, tl_jit_client_get_soon(ptx, strlen(ptx), "soon", service_block, quick,
                                                    sizeof quick, &is_quick, &err));
    TEST_ASSERT_FALSE(is_quick);
    TEST_ASSERT_EQUAL_STRING(path, quick);
    TEST_ASSERT_EQUAL_INT(2, service_number("compiled"));
}

static void a_name_of_thousands_of_letters_hides_no_reason(void)
{
    static char name[20001], text[21000];
    memset(name, 'x', sizeof name - 1);
    snprintf(text, sizeof text,
             ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry %s() { ret; }\n",
             name);
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0, tl_jit_client_get(text, strlen(text), name, service_block, path, sizeof path, &err),
        err.text);
    assert_runs();
    for (size_t i = 0; i < strlen("calls"); i++)
        name[i] = "calls"[i];
    snprintf(text, sizeof text,
             ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry %s() { ret; }\n",
             name);
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, tl_jit_client_get(text, strlen(text), name, service_block, path,
                                                      sizeof path, &err));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, "memcpy"), err.text);
    setenv("TALLY_JIT", "/nowhere", 1);
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_jit_client_get(text, strlen(text), name, service_block, path,
                                                     sizeof path, &err));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, "/nowhere"), err.text);
}

static void a_megabyte_of_ptx_goes_through(void)
{
    size_t n = 8 << 20;
    char *ptx = malloc(n);
    memset(ptx, '\n', n);
    memcpy(ptx, service_ptx("large"), strlen(service_ptx("large")));
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0, tl_jit_client_get(ptx, n, "large", service_block, path, sizeof path, &err), err.text);
    TEST_ASSERT_EQUAL_INT(-E2BIG, tl_jit_client_get(ptx, (64u << 20) + 1, "large", service_block,
                                                    path, sizeof path, &err));
    free(ptx);
}

static void a_path_that_does_not_fit_is_told(void)
{
    const char *ptx = service_ptx("plain");
    TEST_ASSERT_EQUAL_INT(
        -ENAMETOOLONG, tl_jit_client_get(ptx, strlen(ptx), "plain", service_block, path, 20, &err));
}

static void a_deep_runtime_folder_works(void)
{
    char deep[1000];
    int n = snprintf(deep, sizeof deep, "%s", service_folder);
    for (int i = 0; i < 4; i++) {
        n += snprintf(deep + n, sizeof deep - (size_t)n, "/%040d", i);
        TEST_ASSERT_EQUAL_INT(0, mkdir(deep, 0700));
    }
    setenv("XDG_RUNTIME_DIR", deep, 1);
    assert_got("plain");
    assert_runs();
    TEST_ASSERT_TRUE(service_pid() > 0);
}

/* --- many at once ----------------------------------------------------------------------------- */

struct asker {
    char kernel[32];
    int rc;
    struct tl_error err;
    char path[2048];
};

static void *ask_in_thread(void *argument)
{
    struct asker *a = argument;
    const char *ptx = service_ptx(a->kernel);
    a->rc = tl_jit_client_get(ptx, strlen(ptx), a->kernel, service_block, a->path, sizeof a->path,
                              &a->err);
    return NULL;
}

static void ask_eight(struct asker askers[8], bool is_same)
{
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) {
        snprintf(askers[i].kernel, sizeof askers[i].kernel, "k%d", is_same ? 0 : i);
        TEST_ASSERT_EQUAL_INT(0, pthread_create(&threads[i], NULL, ask_in_thread, &askers[i]));
    }
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 8; i++)
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, askers[i].rc, askers[i].err.text);
}

static void eight_clients_of_one_kernel_compile_it_once(void)
{
    static struct asker askers[8];
    setenv("TALLY_JIT_TEST_CRASH", "k0@slow", 1);
    ask_eight(askers, true);
    for (int i = 1; i < 8; i++)
        TEST_ASSERT_EQUAL_STRING(askers[0].path, askers[i].path);
    TEST_ASSERT_EQUAL_INT(1, service_number("compiled"));
}

static void eight_clients_of_eight_kernels_are_served(void)
{
    static struct asker askers[8];
    ask_eight(askers, false);
    for (int i = 0; i < 8; i++) {
        strcpy(path, askers[i].path);
        assert_runs();
    }
    TEST_ASSERT_EQUAL_INT(8, service_number("compiled"));
}

static void eight_processes_start_one_service(void)
{
    pid_t children[8];
    for (int i = 0; i < 8; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            char name[16];
            snprintf(name, sizeof name, "k%d", i % 4);
            _exit(get(name) != 0);
        }
    }
    for (int i = 0; i < 8; i++) {
        int status = -1;
        TEST_ASSERT_EQUAL_INT(children[i], waitpid(children[i], &status, 0));
        TEST_ASSERT_EQUAL_INT(0, status);
    }
    TEST_ASSERT_EQUAL_INT(4, service_number("compiled"));
}

/* --- what dies -------------------------------------------------------------------------------- */

static void a_kernel_that_kills_the_compiler_gets_an_error(void)
{
    setenv("TALLY_JIT_TEST_CRASH", "poison", 1);
    assert_refused("poison", -EIO, "LLVM ERROR: not really");
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, "twice"), err.text);
    TEST_ASSERT_EQUAL_INT(2, service_number("deaths"));
    assert_got("healthy");
    assert_runs();
    TEST_ASSERT_EQUAL_INT(2, service_number("deaths"));
}

static void a_worker_that_dies_once_is_replaced(void)
{
    setenv("TALLY_JIT_TEST_CRASH", "flaky@once", 1);
    assert_got("flaky");
    assert_runs();
    TEST_ASSERT_EQUAL_INT(1, service_number("deaths"));
}

static void a_kernel_that_takes_too_long_is_stopped(void)
{
    setenv("TALLY_JIT_TEST_CRASH", "endless@spin", 1);
    setenv("TALLY_JIT_SECONDS", "1", 1);
    assert_refused("endless", -ETIMEDOUT, "1 s");
    assert_got("healthy");
}

/* As LLVM does with some kernels: the second attempt goes another way. */
static void a_kernel_that_does_not_end_is_tried_in_another_way(void)
{
    setenv("TALLY_JIT_TEST_CRASH", "lost@stuck", 1);
    setenv("TALLY_JIT_SECONDS", "4", 1);
    assert_got("lost");
    assert_runs();
    TEST_ASSERT_EQUAL_INT(1, service_number("deaths"));
}

static void a_wait_of_seconds_is_told_of(void)
{
    char text[300];
    int ends[2], kept = dup(STDERR_FILENO);
    TEST_ASSERT_EQUAL_INT(0, pipe2(ends, O_CLOEXEC | O_NONBLOCK));
    dup2(ends[1], STDERR_FILENO);
    setenv("TALLY_JIT_TEST_CRASH", "told@spin", 1);
    setenv("TALLY_JIT_SECONDS", "3", 1);
    int rc = get("told");
    dup2(kept, STDERR_FILENO);
    close(kept);
    ssize_t n = read(ends[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    close(ends[0]);
    close(ends[1]);
    TEST_ASSERT_EQUAL_INT(-ETIMEDOUT, rc);
    TEST_ASSERT_EQUAL_STRING_LEN("tally: compiling kernels ", text, 25);
}

static void a_kernel_that_takes_too_much_memory_is_stopped(void)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    TEST_IGNORE_MESSAGE("memory is not limited under sanitizers, which reserve terabytes");
#endif
    setenv("TALLY_JIT_TEST_CRASH", "greedy@eat", 1);
    setenv("TALLY_JIT_MEMORY_MB", "1024", 1);
    assert_refused("greedy", -EIO, "Aborted");
    assert_got("healthy");
}

static void a_worker_cannot_reach_out(void)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    TEST_IGNORE_MESSAGE("there is no sandbox under sanitizers, which read files");
#endif
    setenv("TALLY_JIT_TEST_CRASH", "burglar@escape", 1);
    assert_got("burglar");
    assert_runs();
}

/* Kills the service when it has taken a request, so many times. */
static void *kill_in_thread(void *argument)
{
    int times = *(int *)argument;
    pid_t last = -1;
    for (int i = 0; i < 4000 && times > 0; i++) {
        pid_t pid = service_pid();
        if (pid > 0 && pid != last && service_number("in work") == 1) {
            kill(pid, SIGKILL);
            last = pid;
            times--;
        }
        service_sleep_ms(2);
    }
    return NULL;
}

static void a_service_killed_in_the_middle_is_restarted(void)
{
    pthread_t thread;
    int times = 1;
    setenv("TALLY_JIT_TEST_CRASH", "slow@slow", 1);
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, kill_in_thread, &times));
    int rc = get("slow");
    pthread_join(thread, NULL);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, rc, err.text);
    assert_runs();
}

static void a_service_killed_every_time_is_an_error(void)
{
    pthread_t thread;
    int times = 8;
    setenv("TALLY_JIT_TEST_CRASH", "slow@spin", 1); /* it is still there when it is killed */
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, kill_in_thread, &times));
    int rc = get("slow");
    pthread_join(thread, NULL);
    TEST_ASSERT_EQUAL_INT_MESSAGE(-EIO, rc, err.text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, "slow"), err.text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, "8 times"), err.text);
}

/* A killed service leaves its socket behind. */
static void a_stale_socket_is_replaced(void)
{
    assert_got("one");
    kill(service_pid(), SIGKILL);
    service_wait(false);
    assert_got("two");
    assert_runs();
}

static void an_idle_service_ends(void)
{
    setenv("TALLY_JIT_IDLE", "1", 1);
    assert_got("one");
    pid_t pid = service_pid();
    TEST_ASSERT_TRUE(pid > 0);
    for (int i = 0; i < 1000 && kill(pid, 0) == 0; i++)
        service_sleep_ms(10);
    TEST_ASSERT_EQUAL_INT(-1, kill(pid, 0));
    assert_got("two");
}

/* --- the cache -------------------------------------------------------------------------------- */

static void damaged_entries_are_compiled_again(void)
{
    assert_got("plain");
    TEST_ASSERT_EQUAL_INT(0, truncate(path, 100));
    assert_got("plain");
    assert_runs();
    FILE *f = fopen(path, "r+");
    TEST_ASSERT_NOT_NULL(f);
    fseek(f, 0x18, SEEK_SET);
    fputs("foreign", f);
    fclose(f);
    assert_got("plain");
    assert_runs();
    TEST_ASSERT_EQUAL_INT(3, service_number("compiled"));
}

static void without_a_cache_it_works_and_says_so_once(void)
{
    char first[2048];
    TEST_ASSERT_EQUAL_INT(0, mkdir(service_cache, 0700));
    TEST_ASSERT_EQUAL_INT(0, chmod(service_cache, 0777));
    assert_got("loose_one");
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, "others may write"), err.text);
    TEST_ASSERT_EQUAL_INT(0, err.code);
    assert_runs();
    strcpy(first, path);
    assert_got("loose_one");
    TEST_ASSERT_EQUAL_STRING(first, path);
    assert_got("loose_two");
    TEST_ASSERT_EQUAL_STRING("", err.text);
    TEST_ASSERT_TRUE(strcmp(first, path) != 0);
    assert_runs();
    TEST_ASSERT_EQUAL_INT(2, service_number("compiled"));
}

/* --- manners ---------------------------------------------------------------------------------- */

static void nothing_is_left_in_the_job(void)
{
    struct sigaction count = {.sa_handler = on_signals, .sa_flags = SA_RESTART}, old, old_user;
    sigset_t before, after;
    sigprocmask(SIG_SETMASK, NULL, &before);
    sigaction(SIGCHLD, &count, &old);
    sigaction(SIGUSR1, &count, &old_user);
    n_signals = 0;
    int descriptors = count_descriptors();
    assert_got("one");
    assert_got("one");
    TEST_ASSERT_EQUAL_INT(descriptors, count_descriptors());
    TEST_ASSERT_EQUAL_INT(0, n_signals);
    errno = 0;
    TEST_ASSERT_EQUAL_INT(-1, waitpid(-1, NULL, WNOHANG | __WALL));
    TEST_ASSERT_EQUAL_INT(ECHILD, errno);
    sigprocmask(SIG_SETMASK, NULL, &after);
    for (int i = 1; i < NSIG; i++)
        TEST_ASSERT_EQUAL_INT(sigismember(&before, i), sigismember(&after, i));
    /* Its handlers are as they were, whoever keeps a list of them in the job's memory: a sanitizer
     * does. */
    raise(SIGUSR1);
    TEST_ASSERT_EQUAL_INT(1, n_signals);
    sigaction(SIGUSR1, &old_user, NULL);
    sigaction(SIGCHLD, &old, NULL);
}

static const char *read_link(pid_t pid, const char *what)
{
    static char target[1024];
    char name[128];
    snprintf(name, sizeof name, "/proc/%ld/%s", (long)pid, what);
    ssize_t n = readlink(name, target, sizeof target - 1);
    target[n > 0 ? n : 0] = '\0';
    return target;
}

static void the_service_has_nothing_of_the_job(void)
{
    int leak[2];
    char name[64], environment[16384];
    setenv("LD_LIBRARY_PATH", "/nowhere", 1);
    setenv("MY_SECRET", "x", 1);
    TEST_ASSERT_EQUAL_INT(0, pipe(leak)); /* not close-on-exec */
    cpu_set_t old, one, theirs;
    TEST_ASSERT_EQUAL_INT(0, sched_getaffinity(0, sizeof old, &old));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &old))
            CPU_SET(i, &one);
    TEST_ASSERT_EQUAL_INT(0, sched_setaffinity(0, sizeof one, &one));
    assert_got("one");
    unsetenv("LD_LIBRARY_PATH");
    TEST_ASSERT_EQUAL_INT(0, sched_setaffinity(0, sizeof old, &old));
    pid_t pid = service_pid();
    TEST_ASSERT_EQUAL_INT(0, sched_getaffinity(pid, sizeof theirs, &theirs));
    TEST_ASSERT_TRUE(CPU_COUNT(&theirs) >= CPU_COUNT(&old));
    TEST_ASSERT_EQUAL_STRING("/", read_link(pid, "cwd"));
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "fd/%d", i);
        TEST_ASSERT_EQUAL_STRING("/dev/null", read_link(pid, name));
    }
    for (int i = 3; i < 100; i++) {
        snprintf(name, sizeof name, "fd/%d", i);
        TEST_ASSERT_NULL(strstr(read_link(pid, name), "pipe:"));
    }
    TEST_ASSERT_TRUE(getsid(pid) != getsid(0));
    snprintf(name, sizeof name, "/proc/%ld/environ", (long)pid);
    FILE *f = fopen(name, "r");
    TEST_ASSERT_NOT_NULL(f);
    size_t n = fread(environment, 1, sizeof environment - 1, f);
    fclose(f);
    TEST_ASSERT_TRUE(n > 0);
    TEST_ASSERT_NULL(memmem(environment, n, "LD_", 3));
    TEST_ASSERT_NULL(memmem(environment, n, "MY_SECRET", 9));
    unsetenv("MY_SECRET");
    close(leak[0]);
    close(leak[1]);
}

static void a_missing_or_wrong_service_is_told(void)
{
    char script[600];
    setenv("TALLY_JIT", "/nowhere/tally-jit", 1);
    assert_refused("one", -ENOENT, "/nowhere/tally-jit");
    snprintf(script, sizeof script, "%s/script", service_folder);
    FILE *f = fopen(script, "w");
    TEST_ASSERT_NOT_NULL(f);
    fputs("#!/bin/sh\n", f);
    fclose(f);
    chmod(script, 0700);
    setenv("TALLY_JIT", script, 1);
    TEST_ASSERT_EQUAL_INT(-ENOEXEC, get("one"));
}

/* Messages that no client of ours sends; the service answers or hangs up, and goes on. */
static void nonsense_does_not_hurt_the_service(void)
{
    char id[TL_JIT_COMPILER_ID_BYTES], where[TL_STORE_PATH], name[64],
        message[TL_JIT_MESSAGE_BYTES];
    struct sockaddr_un address;
    assert_got("one");
    pid_t pid = service_pid();
    TEST_ASSERT_EQUAL_INT(0, tl_jit_compiler_id(service_program, id, &err));
    int there = tl_jit_runtime_folder(where, &err);
    TEST_ASSERT_TRUE(there >= 0);
    tl_jit_service_name(id, service_cache, ".sock", name);
    tl_jit_address(&address, there, where, name);
    unsigned seed = 7;
    for (int i = 0; i < 300; i++) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), got_fd = -1;
        TEST_ASSERT_EQUAL_INT(0, connect(fd, (struct sockaddr *)&address, sizeof address));
        struct tl_jit_ask a = {.magic = TL_JIT_WIRE_MAGIC,
                               .version = TL_JIT_WIRE_VERSION,
                               .kind = 1 + (uint32_t)i % 2};
        uint32_t *words = (uint32_t *)&a;
        size_t n = i % 3 == 0 ? (size_t)rand_r(&seed) % 200 : sizeof a + 4;
        a.kernel_bytes = a.cpu_bytes = a.features_bytes = a.cache_bytes = 1;
        if (i % 4 != 0)
            words[(unsigned)rand_r(&seed) % (sizeof a / 4)] = (uint32_t)rand_r(&seed);
        memset(message, 0, sizeof message);
        memcpy(message, &a, sizeof a);
        int pass = i % 5 == 0 ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
        TEST_ASSERT_EQUAL_INT(0, tl_jit_send(fd, message, n, pass));
        if (pass >= 0)
            close(pass);
        if (i % 7 != 0 && n > 0) {
            const char *text;
            int got = tl_jit_receive(fd, message, sizeof message, &got_fd);
            if (got > 0)
                TEST_ASSERT_EQUAL_INT(0, tl_jit_answer_check(message, (size_t)got, &text, &err));
        }
        close(fd);
    }
    close(there);
    TEST_ASSERT_EQUAL_INT(pid, service_pid());
    assert_got("two");
    assert_runs();
}

/* --- time ------------------------------------------------------------------------------------- */

static double elapsed_ms(const struct timespec *begin)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - begin->tv_sec) * 1e3 +
           (double)(end.tv_nsec - begin->tv_nsec) / 1e6;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Prints what it costs; the bound of 2 ms for a warm kernel is asked of the median, since the
 * machine may be busy. */
static void a_warm_kernel_takes_no_time(void)
{
    struct timespec begin;
    double warm[101], cold[21];
    size_t n = 100000;
    char *ptx = malloc(n), name[16];
    memset(ptx, '\n', n);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    assert_got("first");
    double first = elapsed_ms(&begin);
    for (int i = 0; i < 21; i++) {
        snprintf(name, sizeof name, "k%d", i);
        clock_gettime(CLOCK_MONOTONIC, &begin);
        assert_got(name);
        cold[i] = elapsed_ms(&begin);
    }
    memcpy(ptx, service_ptx("large"), strlen(service_ptx("large")));
    for (int i = 0; i < 101; i++) {
        clock_gettime(CLOCK_MONOTONIC, &begin);
        TEST_ASSERT_EQUAL_INT(
            0, tl_jit_client_get(ptx, n, "large", service_block, path, sizeof path, &err));
        warm[i] = elapsed_ms(&begin);
    }
    qsort(warm + 1, 100, sizeof warm[0], ascending);
    qsort(cold, 21, sizeof cold[0], ascending);
    printf("first with start of the service %.1f ms, new kernel %.2f ms, warm kernel of 100 kB PTX "
           "%.3f ms (medians)\n",
           first, cold[10], warm[50]);
    free(ptx);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    TEST_ASSERT_TRUE(warm[50] < 2);
#endif
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_kernel_is_compiled_loaded_and_run);
    RUN_TEST(a_warm_kernel_needs_no_service);
    RUN_TEST(block_size_and_features_make_another_object);
    RUN_TEST(one_kernel_of_many_is_taken_out);
    RUN_TEST(errors_come_back_with_code_and_text);
    RUN_TEST(what_was_refused_once_is_not_compiled_again);
    RUN_TEST(what_is_fetched_ahead_is_compiled_while_nobody_waits);
    RUN_TEST(a_quick_version_is_kept_apart_and_gives_way);
    RUN_TEST(a_name_of_thousands_of_letters_hides_no_reason);
    RUN_TEST(a_megabyte_of_ptx_goes_through);
    RUN_TEST(a_path_that_does_not_fit_is_told);
    RUN_TEST(a_deep_runtime_folder_works);
    RUN_TEST(eight_clients_of_one_kernel_compile_it_once);
    RUN_TEST(eight_clients_of_eight_kernels_are_served);
    RUN_TEST(eight_processes_start_one_service);
    RUN_TEST(a_kernel_that_kills_the_compiler_gets_an_error);
    RUN_TEST(a_worker_that_dies_once_is_replaced);
    RUN_TEST(a_kernel_that_takes_too_long_is_stopped);
    RUN_TEST(a_kernel_that_does_not_end_is_tried_in_another_way);
    RUN_TEST(a_wait_of_seconds_is_told_of);
    RUN_TEST(a_kernel_that_takes_too_much_memory_is_stopped);
    RUN_TEST(a_worker_cannot_reach_out);
    RUN_TEST(a_service_killed_in_the_middle_is_restarted);
    RUN_TEST(a_service_killed_every_time_is_an_error);
    RUN_TEST(a_stale_socket_is_replaced);
    RUN_TEST(an_idle_service_ends);
    RUN_TEST(damaged_entries_are_compiled_again);
    RUN_TEST(without_a_cache_it_works_and_says_so_once);
    RUN_TEST(nothing_is_left_in_the_job);
    RUN_TEST(the_service_has_nothing_of_the_job);
    RUN_TEST(a_missing_or_wrong_service_is_told);
    RUN_TEST(nonsense_does_not_hurt_the_service);
    RUN_TEST(a_warm_kernel_takes_no_time);
    return UNITY_END();
}

/* Starting and killing tallyd and its clients; see the header. */
#include "test/unit/runtime/tallyd/help.h"
#include "tally/clock.h"
#include "test/unit/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <unity.h>

enum { MAX_STARTED = 64 };

static char folder[64];
static pid_t started[MAX_STARTED];
static int n_started;

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

const char *daemon_test_path(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *which = "bin/tallyd";

void daemon_test_hardened(void)
{
    which = "test/tallyd-asan";
}

static const char *program(void)
{
    static char path[PATH_MAX]; /* realpath wants so much */
    const char *build = getenv("TALLY_BUILD");
    char relative[512];
    snprintf(relative, sizeof relative, "%s/%s", build != NULL ? build : "build", which);
    TEST_ASSERT_NOT_NULL_MESSAGE(realpath(relative, path), relative);
    return path;
}

void daemon_test_begin(void)
{
    static const char *const names[] = {"TALLY_PRIORITY", "TALLY_SLO",       "TALLY_POLICY",
                                        "TALLY_RULES",    "TALLY_FAIL",      "TALLY_JOB",
                                        "TALLY_WEIGHT",   "TALLY_MIN_SHARE", "TALLY_OFF",
                                        "TALLY_LOG",      "TALLY_FORCE",     "TALLY_TURNAROUND"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
    scratch_path(folder, sizeof folder, "d-XXXXXX");
    TEST_ASSERT_NOT_NULL(mkdtemp(folder));
    setenv("TALLY_SOCKET", daemon_test_path("d.sock"), 1);
    setenv("TALLY_DAEMON", "no", 1);
    setenv("TALLY_DAEMON_IDLE", "20", 1);
    n_started = 0;
}

void daemon_may_start(void)
{
    setenv("TALLY_DAEMON", program(), 1);
}

static void forget(pid_t pid)
{
    for (int i = 0; i < n_started; i++)
        if (started[i] == pid)
            started[i] = started[--n_started];
}

static void remember(pid_t pid)
{
    TEST_ASSERT_TRUE(n_started < MAX_STARTED);
    started[n_started++] = pid;
}

void daemon_test_end(void)
{
    while (n_started > 0)
        daemon_kill(started[0]);
    DIR *d = opendir(folder);
    for (const struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d))
        (void)unlinkat(dirfd(d), e->d_name, 0);
    if (d != NULL)
        closedir(d);
    (void)rmdir(folder);
}

/* --- tallyd ----------------------------------------------------------------------------------- */

pid_t daemon_start(const char *const *arguments)
{
    const char *argv[16] = {program()};
    for (int i = 0; arguments != NULL && arguments[i] != NULL && i < 14; i++)
        argv[i + 1] = arguments[i];
    pid_t pid = fork();
    if (pid == 0) {
        int log = open(daemon_test_path("log"), O_WRONLY | O_CREAT | O_APPEND, 0600);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(log, STDERR_FILENO);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    remember(pid);
    for (uint64_t end = tl_clock_ns() + DAEMON_PATIENCE_NS; tl_clock_ns() < end; pause_briefly()) {
        int fd = tl_wire_connect_patiently(getenv("TALLY_SOCKET"), NULL);
        if (fd >= 0) {
            close(fd);
            return pid;
        }
        if (waitpid(pid, NULL, WNOHANG) == pid)
            break;
    }
    TEST_FAIL_MESSAGE("tallyd does not start");
    return -1;
}

void daemon_kill(pid_t pid)
{
    int status;
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    forget(pid);
}

int daemon_end(pid_t pid)
{
    int status = -1;
    (void)kill(pid, SIGTERM);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    forget(pid);
    return status;
}

/* --- clients ---------------------------------------------------------------------------------- */

struct tl_client *daemon_client(int level, struct tl_error *remark)
{
    struct tl_settings s;
    struct tl_client *c;
    struct tl_error err = {0};
    TEST_ASSERT_EQUAL_INT(0, tl_settings_read(&s, NULL));
    s.level = level;
    TEST_ASSERT_EQUAL_INT(0, tl_client_create(&c, &s, remark != NULL ? remark : &err));
    return c;
}

static void serve_child(int level, int from, int to)
{
    struct tl_client *c = daemon_client(level, NULL);
    char byte = daemon_await_joined(c, true) ? '+' : '-'; /* a loaded machine may take its time */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (write(to, &byte, 1) == 1 && read(from, &byte, 1) == 1) {
        struct tl_client_page *page = tl_client_page(c);
        if (byte == 'b')
            tl_client_issue(c, 1);
        else
            tl_client_complete(c, atomic_load(&page->issued) - atomic_load(&page->completed));
        tl_client_backlog(c, byte == 'b');
    }
    _exit(0);
}

struct daemon_child daemon_child_start(int level)
{
    int there[2], back[2];
    char byte = 0;
    TEST_ASSERT_EQUAL_INT(0, pipe2(there, O_CLOEXEC));
    TEST_ASSERT_EQUAL_INT(0, pipe2(back, O_CLOEXEC));
    pid_t pid = fork();
    if (pid == 0) {
        close(there[1]);
        close(back[0]);
        serve_child(level, there[0], back[1]);
    }
    remember(pid);
    close(there[0]);
    close(back[1]);
    TEST_ASSERT_EQUAL_INT(1, read(back[0], &byte, 1));
    TEST_ASSERT_EQUAL_CHAR('+', byte);
    return (struct daemon_child){pid, there[1], back[0]};
}

void daemon_child_set(struct daemon_child *c, bool is_busy)
{
    char byte = is_busy ? 'b' : 'i';
    TEST_ASSERT_EQUAL_INT(1, write(c->to, &byte, 1));
    TEST_ASSERT_EQUAL_INT(1, read(c->from, &byte, 1));
}

void daemon_child_kill(struct daemon_child *c)
{
    daemon_kill(c->pid);
    close(c->to);
    close(c->from);
}

/* --- a peer that speaks the protocol by hand -------------------------------------------------- */

int daemon_connect(void)
{
    int fd = tl_wire_connect_patiently(getenv("TALLY_SOCKET"), NULL);
    TEST_ASSERT_TRUE(fd >= 0);
    return fd;
}

int daemon_listen(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", getenv("TALLY_SOCKET"));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    TEST_ASSERT_EQUAL_INT(0, bind(fd, (struct sockaddr *)&address, sizeof address));
    TEST_ASSERT_EQUAL_INT(0, listen(fd, 8));
    return fd;
}

int daemon_receive(int fd, struct tl_wire_packet *packet)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, poll(&p, 1, (int)(DAEMON_PATIENCE_NS / 1000000)),
                                  "tallyd says nothing");
    return tl_wire_receive(fd, packet, NULL);
}

struct tl_wire_packet daemon_ask(enum tl_wire_kind kind, void *question, size_t bytes)
{
    struct tl_wire_packet packet;
    int fd = daemon_connect();
    TEST_ASSERT_EQUAL_INT(0, tl_wire_send(fd, kind, question, bytes, NULL, 0));
    TEST_ASSERT_EQUAL_INT(1, daemon_receive(fd, &packet));
    close(fd);
    return packet;
}

uint32_t daemon_count_clients(void)
{
    struct tl_wire_list list = {.after = 0};
    uint32_t n = 0;
    for (;; n++) {
        struct tl_wire_packet packet = daemon_ask(TL_WIRE_LIST, &list, sizeof list);
        if (packet.m.head.kind != TL_WIRE_CLIENT)
            return n;
        TEST_ASSERT_TRUE(packet.m.status.id > list.after);
        list.after = packet.m.status.id;
    }
}

struct tl_wire_hello daemon_hello(int level)
{
    struct tl_sched_client c = {.level = level};
    return (struct tl_wire_hello){
        .share_version = TL_SHARE_VERSION, .client = tl_wire_pack(&c), .job = "raw"};
}

int daemon_page(void)
{
    void *at;
    int fd = tl_share_create("own", &at);
    TEST_ASSERT_TRUE(fd >= 0);
    struct tl_client_page *page = at;
    page->magic = TL_CLIENT_MAGIC;
    page->version = TL_SHARE_VERSION;
    munmap(at, TL_SHARE_PAGE);
    return fd;
}

/* --- waiting ---------------------------------------------------------------------------------- */

#define AWAIT(condition)                                                                           \
    for (uint64_t end = tl_clock_ns() + DAEMON_PATIENCE_NS; tl_clock_ns() < end; pause_briefly())  \
        if (condition)                                                                             \
            return true;                                                                           \
    return false

bool daemon_await_preempted(struct tl_client *c, bool is_wanted)
{
    AWAIT(tl_client_is_preempted(c) == is_wanted);
}

bool daemon_await_words(struct tl_client *c, uint32_t n)
{
    const _Atomic uint64_t *words[TL_SHARE_WORDS];
    AWAIT(tl_client_words(c, words) == n);
}

bool daemon_is_told(struct tl_client *c)
{
    struct tl_copy_page *polled[TL_SHARE_WORDS];
    bool is_told = false;
    tl_client_polled(c, polled);
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++)
        is_told |= polled[i] != NULL && tl_word_is_busy(atomic_load(&polled[i]->word));
    return is_told;
}

bool daemon_await_kept(struct tl_client *c)
{
    AWAIT(tl_client_is_kept(c));
}

bool daemon_await_told(struct tl_client *c, bool is_wanted)
{
    AWAIT(daemon_is_told(c) == is_wanted);
}

bool daemon_await_clients(uint32_t n)
{
    AWAIT(daemon_count_clients() == n);
}

/* What a thread of this process is doing, by its name. */
enum doing { GONE, ASLEEP, AWAKE };

static enum doing doing_of(const char *thread)
{
    enum doing found = GONE;
    char wanted[32];
    DIR *tasks = opendir("/proc/self/task");
    snprintf(wanted, sizeof wanted, "(%s) ", thread);
    for (const struct dirent *e = tasks != NULL ? readdir(tasks) : NULL; e != NULL;
         e = readdir(tasks)) {
        char path[300], line[256] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", e->d_name);
        FILE *f = fopen(path, "r");
        if (f == NULL)
            continue; /* it has ended meanwhile */
        const char *name = fgets(line, sizeof line, f) != NULL ? strstr(line, wanted) : NULL;
        fclose(f);
        if (name != NULL)
            found = name[strlen(wanted)] != 'S' ? AWAKE : found != AWAKE ? ASLEEP : found;
    }
    if (tasks != NULL)
        closedir(tasks);
    return tasks != NULL ? found : AWAKE;
}

bool daemon_await_asleep(const char *thread)
{
    AWAIT(doing_of(thread) == ASLEEP);
}

bool daemon_await_deaf(struct tl_client *c)
{
    AWAIT(doing_of("tally-client") == GONE ||
          (!tl_client_is_joined(c) && doing_of("tally-client") == ASLEEP));
}

bool daemon_await_set(const _Atomic uint32_t *flag)
{
    AWAIT(atomic_load(flag) != 0);
}

bool daemon_await_joined(struct tl_client *c, bool is_wanted)
{
    AWAIT(tl_client_is_joined(c) == is_wanted);
}

static bool may_run(struct tl_client *c)
{
    struct tl_grant g;
    tl_client_grant(c, &g);
    return g.may_run;
}

bool daemon_await_may_run(struct tl_client *c, bool is_wanted)
{
    AWAIT(may_run(c) == is_wanted);
}

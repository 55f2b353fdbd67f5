/* Whom the compiler service serves, where it writes, and what it does without its sandbox. */
#include "device/service/client.h"
#include "device/service/wire.h"
#include "test/unit/device/service/help.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

static struct tl_error err;

void setUp(void)
{
    service_set_up();
    err = (struct tl_error){0};
}

void tearDown(void)
{
    service_tear_down();
}

static int get(const char *kernel)
{
    char path[2048];
    const char *ptx = service_ptx(kernel);
    return tl_jit_client_get(ptx, strlen(ptx), kernel, service_block, path, sizeof path, &err);
}

/* Where the service listens. */
static struct sockaddr_un address_of_service(void)
{
    char id[TL_JIT_COMPILER_ID_BYTES], where[TL_STORE_PATH], name[64];
    struct sockaddr_un address;
    TEST_ASSERT_EQUAL_INT(0, tl_jit_compiler_id(service_program, id, &err));
    int folder = tl_jit_runtime_folder(where, &err);
    TEST_ASSERT_TRUE(folder >= 0);
    tl_jit_service_name(id, service_cache, ".sock", name);
    tl_jit_address(&address, folder, where, name);
    close(folder);
    return address;
}

/* Asks for a kernel to be kept in that folder; returns the kind of the answer. */
static enum tl_jit_kind ask_for_folder(const char *cache, char *text, size_t text_n)
{
    static char message[TL_JIT_MESSAGE_BYTES];
    struct sockaddr_un address = address_of_service();
    struct tl_jit_ask a = {.magic = TL_JIT_WIRE_MAGIC,
                           .version = TL_JIT_WIRE_VERSION,
                           .kind = TL_JIT_COMPILE,
                           .block = {1, 1, 1},
                           .kernel_bytes = 2,
                           .cpu_bytes = 1,
                           .features_bytes = 1,
                           .cache_bytes = (uint32_t)strlen(cache) + 1};
    const char *said;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), got_fd;
    TEST_ASSERT_EQUAL_INT(0, connect(fd, (struct sockaddr *)&address, sizeof address));
    int ptx = tl_jit_memory("ptx", "x", 1);
    memset(message, 0, sizeof message);
    memcpy(message, &a, sizeof a);
    message[sizeof a] = 'k';
    strcpy(message + sizeof a + 4, cache);
    TEST_ASSERT_EQUAL_INT(0, tl_jit_send(fd, message, sizeof a + 4 + strlen(cache) + 1, ptx));
    close(ptx);
    int n = tl_jit_receive(fd, message, sizeof message, &got_fd);
    close(fd);
    TEST_ASSERT_TRUE(n > 0);
    TEST_ASSERT_EQUAL_INT(0, tl_jit_answer_check(message, (size_t)n, &said, &err));
    snprintf(text, text_n, "%s", said);
    struct tl_jit_answer answer;
    memcpy(&answer, message, sizeof answer);
    return (enum tl_jit_kind)answer.kind;
}

static void no_folder_but_its_own_is_written_to(void)
{
    char other[700], text[1000];
    struct stat st;
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, get("one"), err.text);
    snprintf(other, sizeof other, "%s/elsewhere", service_folder);
    TEST_ASSERT_EQUAL_INT(TL_JIT_FAILED, ask_for_folder(other, text, sizeof text));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "nowhere else"), text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, service_cache), text);
    TEST_ASSERT_EQUAL_INT(-1, stat(other, &st));
    TEST_ASSERT_EQUAL_INT(TL_JIT_TAKEN, ask_for_folder(service_cache, text, sizeof text));
}

/* Two caches have two services, so that nobody is refused who only keeps his kernels elsewhere. */
static void another_cache_has_a_service_of_its_own(void)
{
    char other[700];
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, get("one"), err.text);
    pid_t first = service_pid();
    snprintf(other, sizeof other, "%s/elsewhere", service_folder);
    setenv("TALLY_CACHE", other, 1);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, get("one"), err.text);
    TEST_ASSERT_EQUAL_STRING("", err.text);
    pid_t second = service_pid();
    TEST_ASSERT_TRUE(second > 0 && second != first);
    (void)service_says("stop");
    service_wait(false);
    setenv("TALLY_CACHE", service_cache, 1);
    TEST_ASSERT_EQUAL_INT(first, service_pid());
}

/* Somebody else gets to the socket only if the folder lets him; then he is hung up on. */
static void another_user_is_turned_away(void)
{
    if (geteuid() != 0)
        TEST_IGNORE_MESSAGE("only root can be another user");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, get("one"), err.text);
    struct sockaddr_un address = address_of_service(), here = {.sun_family = AF_UNIX};
    char *name = strrchr(address.sun_path, '/');
    *name++ = '\0';
    strcpy(here.sun_path, name);
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        _exit(chdir(address.sun_path) < 0 || chmod(".", 0711) < 0 || chmod(name, 0666) < 0 ||
              setuid(65534) < 0 || connect(fd, (struct sockaddr *)&here, sizeof here) < 0 ||
              recv(fd, &byte, 1, 0) != 0);
    }
    int status = -1;
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, chmod(address.sun_path, 0700));
    TEST_ASSERT_EQUAL_INT(0, status);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, get("two"), err.text);
}

/* --- without a sandbox ------------------------------------------------------------------------ */

/* From now on this process and what it starts cannot set up seccomp: as in a container whose own
 * filter forbids it. */
static void forbid_seccomp(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_SECCOMP, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        _exit(3);
}

/* In a child that forbids it: what is told, how often, and what is refused. */
static void go_without_sandbox(void)
{
    forbid_seccomp();
    bool is_told = get("one") == 0 && strstr(err.text, "without its sandbox") != NULL;
    bool is_told_again = get("two") != 0 || err.text[0] != '\0';
    setenv("TALLY_FAIL", "closed", 1);
    bool is_refused = get("three") == -EPERM && strstr(err.text, "TALLY_FAIL=closed") != NULL;
    if (!is_told || is_told_again || !is_refused)
        fprintf(stderr, "told %d, again %d, refused %d: %s\n", is_told, is_told_again, is_refused,
                err.text);
    _exit(!is_told || is_told_again || !is_refused);
}

static void a_missing_sandbox_is_told_once_and_refused_if_closed(void)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    TEST_IGNORE_MESSAGE("workers with a sanitizer have no sandbox");
#endif
    pid_t pid = fork();
    TEST_ASSERT_TRUE(pid >= 0);
    if (pid == 0)
        go_without_sandbox();
    int status = -1;
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 3)
        TEST_IGNORE_MESSAGE("seccomp cannot be set up here");
    TEST_ASSERT_EQUAL_INT(0, status);
}

static void with_a_sandbox_closed_is_served(void)
{
    setenv("TALLY_FAIL", "closed", 1);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, get("one"), err.text);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(no_folder_but_its_own_is_written_to);
    RUN_TEST(another_cache_has_a_service_of_its_own);
    RUN_TEST(another_user_is_turned_away);
    RUN_TEST(a_missing_sandbox_is_told_once_and_refused_if_closed);
    RUN_TEST(with_a_sandbox_closed_is_served);
    return UNITY_END();
}

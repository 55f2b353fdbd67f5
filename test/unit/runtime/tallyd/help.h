/* A tallyd and clients of it in processes of their own, for tests that kill them. */
#ifndef TALLY_DAEMON_HELP_H
#define TALLY_DAEMON_HELP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/job/client.h"
#include "runtime/job/wire.h"

/* How long something may take before a test gives up on it; nothing here waits that long when all
 * is well. */
#define DAEMON_PATIENCE_NS UINT64_C(20000000000)

/* Sets TALLY_* and a folder of its own for the test; every test begins with it. */
void daemon_test_begin(void);
/* The tallyd of this test has the address sanitizer inside. */
void daemon_test_hardened(void);
/* From here on clients start a tallyd where there is none. */
void daemon_may_start(void);
/* Ends what the test started. */
void daemon_test_end(void);

/* Path of a file in the test's folder; valid until the next call. */
const char *daemon_test_path(const char *name);

/* Starts tallyd with these further arguments (ended by NULL; or NULL) and waits until it
 * listens. */
pid_t daemon_start(const char *const *arguments);
/* kill -9, or an orderly end; waits for it. */
void daemon_kill(pid_t pid);
/* Waits for the end and returns its status as waitpid has it. */
int daemon_end(pid_t pid);

/* A client in this process, with the settings of the environment at that level. */
struct tl_client *daemon_client(int level, struct tl_error *remark);

/* A client in a process of its own, joined; its word is busy or not as it was told last. */
struct daemon_child {
    pid_t pid;
    int to, from;
};
struct daemon_child daemon_child_start(int level);
void daemon_child_set(struct daemon_child *c, bool is_busy);
void daemon_child_kill(struct daemon_child *c);

/* A peer that speaks the protocol by hand. */
int daemon_connect(void);
/* The next message, or 0 if tallyd closed the connection. */
int daemon_receive(int fd, struct tl_wire_packet *packet);
/* Listens in tallyd's place, where none runs. */
int daemon_listen(void);
/* What tallyd answers to a question. */
struct tl_wire_packet daemon_ask(enum tl_wire_kind kind, void *question, size_t bytes);
uint32_t daemon_count_clients(void);
struct tl_wire_hello daemon_hello(int level);
/* A page as a client makes it: its descriptor. */
int daemon_page(void);

/* Waits until it is so; false if that takes too long. */
bool daemon_await_preempted(struct tl_client *c, bool is_wanted);
bool daemon_await_words(struct tl_client *c, uint32_t n);
bool daemon_await_kept(struct tl_client *c); /* until all that its kernels poll is kept true */
bool daemon_await_told(struct tl_client *c, bool is_wanted);
/* Whether kernels of it would be told to leave. */
bool daemon_is_told(struct tl_client *c);
bool daemon_await_clients(uint32_t n); /* until tallyd knows so many */
bool daemon_await_joined(struct tl_client *c, bool is_wanted);
bool daemon_await_set(const _Atomic uint32_t *flag); /* to another value than 0 */
bool daemon_await_may_run(struct tl_client *c, bool is_wanted);

/* Until the thread of that name in this process sleeps in the kernel. */
bool daemon_await_asleep(const char *thread);
/* Until the thread of the only client in this process has ended, or has lost tallyd and has nothing
 * to do. */
bool daemon_await_deaf(struct tl_client *c);

#endif

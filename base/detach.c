/* Starting a service of ours from inside somebody else's process, without the process noticing; see
 * the header. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tally/base.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

void tl_close_from(int first)
{
    struct rlimit most;
    if (syscall(SYS_close_range, first, ~0u, 0) == 0)
        return;
    /* Linux before 5.9.  A limit of a million is common in containers, and as many calls take a
     * second. */
    int end = getrlimit(RLIMIT_NOFILE, &most) == 0 && most.rlim_cur < 65536 ? (int)most.rlim_cur
                                                                            : 65536;
    for (int i = first; i < end; i++)
        (void)close(i);
}

/* As the kernel has them (signal(7), "C library/kernel differences"). */
#define KERNEL_SIGSET_BYTES ((size_t)8)
struct kernel_sigaction {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

/* glibc's clone(), under the name that no tool takes: ThreadSanitizer's takes a child that shares
 * our memory for a fork, and sees nothing of what the job's thread does from then on. */
int __clone(int (*f)(void *), void *stack, int flags, void *argument, ...);

struct start {
    const char *program;
    char *const *arguments, *const *environment;
    const sigset_t *none;
    char *stack_end; /* of the second child */
    int out, null;   /* descriptors */
    /* written by the children, which share our memory until the second calls exec */
    int error;
};

static _Noreturn void end(int status)
{
    for (;;)
        (void)syscall(SYS_exit_group, status);
}

/* The second child: not a leader of its session, and nobody's child once the first has ended. */
static int start_second(void *argument)
{
    struct start *s = argument;
    (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, s->none, NULL, KERNEL_SIGSET_BYTES);
    (void)syscall(SYS_execve, s->program, s->arguments, s->environment);
    s->error = errno;
    end(127);
}

/* Runs in a child with our memory and a copy of everything else, all signals blocked: only system
 * calls, and those past the C library, because functions of its names need not be its own:
 * sanitizers and other tools put theirs in their place and keep in memory, which is the job's as
 * well, what they were told.  By sigaction() the job would lose its handlers, and whoever has one
 * for SIGSEGV would fault for ever; of execve() a tool that counts who is inside would wait for
 * the return. */
static int start_first(void *argument)
{
    struct start *s = argument;
    static const struct kernel_sigaction plain; /* SIG_DFL, no flags */
    for (int i = 1; i < NSIG; i++)
        (void)syscall(SYS_rt_sigaction, i, &plain, NULL, KERNEL_SIGSET_BYTES);
    (void)syscall(SYS_setsid);
    if (syscall(SYS_chdir, "/") < 0 || syscall(SYS_dup2, s->null, 0) < 0 ||
        syscall(SYS_dup2, s->out, 1) < 0 || syscall(SYS_dup2, s->null, 2) < 0) {
        s->error = errno;
        end(127);
    }
    tl_close_from(3);
    if (__clone(start_second, s->stack_end, CLONE_VM | CLONE_VFORK, s) < 0)
        s->error = errno;
    end(0);
}

/* A child that tells nobody when it ends (no SIGCHLD, and wait() of the job does not see it), made
 * without copying the job's memory.  Since exec would bring the signal back, a child of the child
 * calls it. */
static int run_child(struct start *s)
{
    enum { STACK = 64 << 10 };
    char *stack = mmap(NULL, (size_t)2 * STACK, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED)
        return -errno;
    s->stack_end = stack + (size_t)2 * STACK;
    sigset_t all, old;
    /* As posix_spawn does it: no handler of the job may run in a child that has the job's
     * memory. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int pid = __clone(start_first, stack + STACK, CLONE_VM | CLONE_VFORK, s);
    int rc = pid < 0 ? -errno : -s->error;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    munmap(stack, (size_t)2 * STACK);
    int status;
    while (pid > 0 && waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
        ;
    return rc;
}

int tl_start_detached(const char *program, char *const *arguments, char *const *environment,
                      int out)
{
    sigset_t none;
    struct start s = {.program = program,
                      .arguments = arguments,
                      .environment = environment,
                      .none = &none,
                      .out = out};
    sigemptyset(&none);
    s.null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (s.null < 0)
        return -errno;
    int rc = run_child(&s);
    close(s.null);
    return rc;
}

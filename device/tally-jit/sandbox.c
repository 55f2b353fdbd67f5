/* A list of system calls for workers, enforced by seccomp.
 *
 * A worker turns untrusted text into code by way of some million lines of compiler.  Whatever goes
 * wrong in there, the process must not be able to do more than fail. */
#include "device/tally-jit/sandbox.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* clang-format off */
static const uint16_t allowed[] = {
    /* memory */
    SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_brk,
    /* descriptors that it has; the memfd for its result */
    SYS_read, SYS_write, SYS_pread64, SYS_pwrite64, SYS_writev, SYS_lseek, SYS_close, SYS_fstat, SYS_fcntl,
    SYS_ftruncate, SYS_sendmsg, SYS_recvmsg, SYS_poll, SYS_ppoll, SYS_memfd_create,
    /* time and limits */
    SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday, SYS_getrusage, SYS_times,
    SYS_getrlimit, SYS_sched_yield, SYS_sched_getaffinity, SYS_sysinfo, SYS_uname,
    /* itself */
    SYS_getpid, SYS_gettid, SYS_getuid, SYS_geteuid, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn,
    SYS_sigaltstack, SYS_futex, SYS_getrandom, SYS_restart_syscall, SYS_set_robust_list, SYS_exit, SYS_exit_group,
};
/* clang-format on */

/* Calls whose first argument must be this process: abort sends itself a signal, limits are for
 * itself. */
static const uint16_t to_itself[] = {SYS_tgkill, SYS_kill, SYS_prlimit64};

enum {
    N_ALLOWED = sizeof allowed / sizeof allowed[0],
    N_ITSELF = sizeof to_itself / sizeof to_itself[0],
    N_FILTER = 5 + 2 * N_ALLOWED + 6 * N_ITSELF + 1,
};

static struct sock_filter load(size_t at)
{
    return (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)at);
}

static struct sock_filter answer(uint32_t what)
{
    return (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what);
}

/* Goes on with the next instruction if the loaded word is `value`, else skips some. */
static struct sock_filter unless_equal_skip(uint32_t value, uint8_t n)
{
    return (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, n);
}

int tl_jit_sandbox_enter(void)
{
    struct sock_filter filter[N_FILTER];
    uint16_t n = 0;
    filter[n++] = load(offsetof(struct seccomp_data, arch));
    filter[n++] = unless_equal_skip(AUDIT_ARCH_X86_64, 1);
    filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0);
    filter[n++] = answer(SECCOMP_RET_KILL_PROCESS); /* another instruction set's numbers */
    filter[n++] = load(offsetof(struct seccomp_data, nr));
    for (uint32_t i = 0; i < N_ALLOWED; i++) {
        filter[n++] = unless_equal_skip(allowed[i], 1);
        filter[n++] = answer(SECCOMP_RET_ALLOW);
    }
    for (uint32_t i = 0; i < N_ITSELF; i++) {
        filter[n++] = unless_equal_skip(to_itself[i], 5);
        filter[n++] = load(offsetof(struct seccomp_data, args));
        filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)getpid(), 1,
                                                   0);
        filter[n++] = unless_equal_skip(to_itself[i] == SYS_prlimit64 ? 0 : (uint32_t)getpid(), 1);
        filter[n++] = answer(SECCOMP_RET_ALLOW);
        filter[n++] = answer(SECCOMP_RET_ERRNO | EPERM);
    }
    filter[n++] = answer(SECCOMP_RET_ERRNO | EPERM);
    struct sock_fprog program = {.len = n, .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        return -errno;
    return 0;
}

/* Signals: what a kernel does wrong becomes a fault of its launch, and everything else goes where
 * it went before.
 *
 * The handlers are the process's, so they must look like nobody's to the program: they act only on
 * a worker thread inside kernel code and hand everything else to whoever was installed before.
 * Programs install handlers of their own later, may or may not call ours from theirs, and may put
 * back what they found.  So ours move in front only while kernels run, and then what the program
 * had there is put back.
 *
 * A handler leaves kernel code by switching to the worker's own stack (device/exec/fiber.c);
 * neither sigsetjmp nor a system call is paid per block.  In TSan builds asynchronous signals come
 * late and this is not tested. */
#include "device/exec/internal.h"
#include "tally/lock.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ALTERNATE_BYTES ((size_t)64 << 10)

static const int fault_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
#define N_SIGNALS 5 /* these and the watchdog's */

/* What was there before us: the first time, and now.  Read in handlers, so `now` has two places,
 * written in turn. */
static struct sigaction earliest[N_SIGNALS], before[N_SIGNALS][2];
static atomic_uint current_before[N_SIGNALS];
static atomic_int watchdog_signal;
/* Where a handler returns to if the kernel has called it. */
static void *_Atomic kernel_return;
static bool (*_Atomic pages)(const void *address);
static struct tl_mutex install_lock = TL_MUTEX_INITIALIZER;
/* Workers that run kernels; where we stand before a handler that came after us, a bit per
 * signal. */
static uint32_t n_inside TL_GUARDED_BY(install_lock);
static uint32_t displacing TL_GUARDED_BY(install_lock);

/* initial-exec: reading them in a handler must not allocate, not even on a thread that we have
 * never seen. */
static _Thread_local struct tl__engine *attached __attribute__((tls_model("initial-exec")));

static int index_of(int signal_number)
{
    for (int i = 0; i < N_SIGNALS - 1; i++) {
        if (fault_signals[i] == signal_number)
            return i;
    }
    return N_SIGNALS - 1;
}

static void call_action(const struct sigaction *a, int number, siginfo_t *info, void *context)
{
    if ((a->sa_flags & SA_SIGINFO) == 0 && (a->sa_handler == SIG_DFL || a->sa_handler == SIG_IGN)) {
        bool was_sent = info->si_code <= 0;
        if (a->sa_handler == SIG_IGN && was_sent)
            return;
        if (number == atomic_load_explicit(&watchdog_signal, memory_order_relaxed) &&
            a->sa_handler == SIG_IGN)
            return;
        /* The default ends the process: let it, from the very instruction. */
        struct sigaction fresh;
        memset(&fresh, 0, sizeof fresh);
        fresh.sa_handler = SIG_DFL;
        sigaction(number, &fresh, NULL);
        if (was_sent)
            syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), number);
        return;
    }
    sigset_t old;
    pthread_sigmask(SIG_BLOCK, &a->sa_mask, &old);
    if ((a->sa_flags & SA_SIGINFO) != 0)
        a->sa_sigaction(number, info, context);
    else
        a->sa_handler(number);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* Hands a signal that is not ours to the one before us.  If it is not the kernel that has called
 * us, it is a handler that was installed after us and knows us as its predecessor, perhaps after we
 * ourselves have called it: then the turn is with the one that was there first.  (Counting calls
 * would not do: handlers leave by siglongjmp.) */
static void chain(int number, siginfo_t *info, void *context, bool is_from_kernel)
{
    int i = index_of(number);
    unsigned which = atomic_load_explicit(&current_before[i], memory_order_acquire) & 1;
    struct sigaction a = is_from_kernel ? before[i][which] : earliest[i];
    call_action(&a, number, info, context);
}

__attribute__((noreturn, no_sanitize_address)) static void
become_fault(struct tl__engine *e, int number, const siginfo_t *info, const ucontext_t *context)
{
    struct tl__fiber *at = e->current;
    uint32_t warp = at != NULL ? at->warp : 0;
    uint64_t address = (uintptr_t)info->si_addr;
    /* We shall not return from this handler, so what it blocks must be unblocked by hand. */
    pthread_sigmask(SIG_SETMASK, &context->uc_sigmask, NULL);
    if (number == SIGILL || number == SIGFPE)
        tl__engine_fault(e, warp, TL_DEV_FAULT_TRAP, address,
                         number == SIGILL ? "trap at %#llx" : "division fault at %#llx",
                         (unsigned long long)address);
    if (at != NULL && tl__fiber_is_guard(at, info->si_addr))
        tl__engine_fault(e, warp, TL_DEV_FAULT_STACK, address, "stack overflow");
    if (number == SIGBUS && info->si_code == BUS_ADRALN)
        tl__engine_fault(e, warp, TL_DEV_FAULT_MISALIGNED, address, "misaligned access to %#llx",
                         (unsigned long long)address);
    if (number == SIGSEGV && info->si_code == SI_KERNEL)
        tl__engine_fault(e, warp, TL_DEV_FAULT_ADDRESS, 0,
                         "access to an address that no pointer can have");
    tl__engine_fault(e, warp, TL_DEV_FAULT_ADDRESS, address, "illegal access to %#llx",
                     (unsigned long long)address);
}

/* Memory that is elsewhere comes now.  The watchdog must not end the kernel in the middle of that:
 * it finds a worker outside kernel code, and the kernel ends afterwards. */
static bool fetch_page(struct tl__engine *e, const siginfo_t *info, const ucontext_t *context)
{
    bool (*fetch)(const void *) = atomic_load_explicit(&pages, memory_order_acquire);
    if (fetch == NULL)
        return false;
    bool was_in_kernel = e != NULL && e->in_kernel;
    if (was_in_kernel)
        e->in_kernel = 0;
    bool is_there = fetch(info->si_addr);
    if (was_in_kernel) {
        e->in_kernel = 1;
        if (e->must_die != 0) {
            pthread_sigmask(SIG_SETMASK, &context->uc_sigmask, NULL);
            tl__engine_die(e);
        }
    }
    return is_there;
}

void tl__fault_pages(bool (*f)(const void *address))
{
    atomic_store_explicit(&pages, f, memory_order_release);
}

/* One of our signals on any thread of the process: ours if it hits kernel code on a worker, or is
 * the watchdog; all others go to whom they would have gone without us. */
__attribute__((no_sanitize_address)) static void on_signal(int number, siginfo_t *info,
                                                           void *context)
{
    void *caller = __builtin_return_address(0),
         *from = atomic_load_explicit(&kernel_return, memory_order_relaxed);
    struct tl__engine *e = attached;
    int saved = errno;
    if (e != NULL && number == atomic_load_explicit(&watchdog_signal, memory_order_relaxed)) {
        struct tl_exec_run *run = e->run;
        if (run != NULL && atomic_load_explicit(&run->cancelled, memory_order_relaxed)) {
            e->must_die = 1;
            if (e->in_kernel && !tl__fiber_defers(number)) {
                const ucontext_t *c = context;
                pthread_sigmask(SIG_SETMASK, &c->uc_sigmask, NULL);
                tl__engine_die(e);
            }
        }
        errno = saved;
        return;
    }
    if (number == SIGSEGV && info->si_code == SEGV_ACCERR && fetch_page(e, info, context)) {
        errno = saved;
        return;
    }
    if (e != NULL && info->si_code > 0) {
        bool is_overflow = e->current != NULL && number == SIGSEGV &&
                           tl__fiber_is_guard(e->current, info->si_addr);
        if (e->in_kernel || is_overflow)
            become_fault(e, number, info, context);
    }
    chain(number, info, context, from == NULL || caller == from);
    errno = saved;
}

static int install(int number) TL_REQUIRES(install_lock)
{
    int i = index_of(number);
    struct sigaction there, ours;
    if (sigaction(number, NULL, &there) < 0)
        return -errno;
    if ((there.sa_flags & SA_SIGINFO) != 0 && there.sa_sigaction == on_signal)
        return 0;
    unsigned which = atomic_load_explicit(&current_before[i], memory_order_relaxed);
    if (which == 0)
        earliest[i] = there;
    else
        displacing |= 1U << i;
    before[i][(which + 1) & 1] = there;
    /* the copy before its number */
    atomic_store_explicit(&current_before[i], which + 1, memory_order_release);
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_signal;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&ours.sa_mask);
    if (sigaction(number, &ours, NULL) < 0 || sigaction(number, NULL, &there) < 0)
        return -errno;
    atomic_store_explicit(&kernel_return, (void *)there.sa_restorer, memory_order_relaxed);
    return 0;
}

/* A real-time signal that nobody uses; the program may of course take it later, then we are asked
 * first. */
static int choose_watchdog(void)
{
    for (int number = SIGRTMAX - 2; number > SIGRTMIN; number--) {
        struct sigaction there;
        if (sigaction(number, NULL, &there) == 0 && (there.sa_flags & SA_SIGINFO) == 0 &&
            there.sa_handler == SIG_DFL)
            return number;
    }
    return SIGRTMAX - 2;
}

static int signal_of(int i)
{
    return i < N_SIGNALS - 1 ? fault_signals[i]
                             : atomic_load_explicit(&watchdog_signal, memory_order_relaxed);
}

static int install_all(void) TL_REQUIRES(install_lock)
{
    int rc = 0;
    if (atomic_load_explicit(&watchdog_signal, memory_order_relaxed) == 0)
        atomic_store_explicit(&watchdog_signal, choose_watchdog(), memory_order_relaxed);
    for (int i = 0; rc == 0 && i < N_SIGNALS; i++)
        rc = install(signal_of(i));
    return rc;
}

int tl__fault_install(void)
{
    tl_mutex_lock(&install_lock);
    int rc = install_all();
    tl_mutex_unlock(&install_lock);
    return rc;
}

static bool is_ours(const struct sigaction *a)
{
    return (a->sa_flags & SA_SIGINFO) != 0 && a->sa_sigaction == on_signal;
}

void tl__fault_enter(void)
{
    struct sigaction there;
    tl_mutex_lock(&install_lock);
    n_inside++;
    /* A look at one of them is enough: who minds these signals minds SIGSEGV. */
    if (sigaction(SIGSEGV, NULL, &there) == 0 && !is_ours(&there))
        install_all();
    tl_mutex_unlock(&install_lock);
}

void tl__fault_leave(void)
{
    tl_mutex_lock(&install_lock);
    if (--n_inside == 0 && displacing != 0) {
        for (int i = 0; i < N_SIGNALS; i++) {
            unsigned which = atomic_load_explicit(&current_before[i], memory_order_relaxed);
            struct sigaction there;
            if ((displacing >> i & 1) == 0 || sigaction(signal_of(i), NULL, &there) < 0 ||
                !is_ours(&there))
                continue;
            sigaction(signal_of(i), &before[i][which & 1], NULL);
            before[i][(which + 1) & 1] = earliest[i];
            atomic_store_explicit(&current_before[i], which + 1, memory_order_release);
        }
        displacing = 0;
    }
    tl_mutex_unlock(&install_lock);
}

/* There is no other thread. */
TL_UNCHECKED void tl__fault_forget(void)
{
    tl_mutex_init(&install_lock);
    n_inside = 0;
}

int tl__fault_signal(void)
{
    return atomic_load_explicit(&watchdog_signal, memory_order_relaxed);
}

/* Gives the thread a stack for its handlers, and takes it away again with NULL.  The watchdog's
 * signal is let through while it is attached. 0, -ENOMEM, -errno. */
int tl__fault_attach(struct tl__engine *e)
{
    stack_t stack;
    memset(&stack, 0, sizeof stack);
    if (e == NULL) {
        struct tl__engine *old = attached;
        attached = NULL;
        stack.ss_flags = SS_DISABLE;
        sigaltstack(&stack, NULL);
        if (old != NULL && old->alternate_stack != NULL) {
            munmap(old->alternate_stack, ALTERNATE_BYTES);
            old->alternate_stack = NULL;
        }
        return 0;
    }
    void *map = mmap(NULL, ALTERNATE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                     0);
    if (map == MAP_FAILED)
        return -ENOMEM;
    stack.ss_sp = map;
    stack.ss_size = ALTERNATE_BYTES;
    if (sigaltstack(&stack, NULL) < 0) {
        munmap(map, ALTERNATE_BYTES);
        return -errno;
    }
    e->alternate_stack = map;
    attached = e;
    /* The program's signals are for its own threads; ours must get through. */
    sigset_t mask;
    sigfillset(&mask);
    for (int i = 0; i < N_SIGNALS - 1; i++)
        sigdelset(&mask, fault_signals[i]);
    sigdelset(&mask, tl__fault_signal());
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    return 0;
}

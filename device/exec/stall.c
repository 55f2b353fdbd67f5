/* The kernel counts for each thread how long it was ready to run and did not (/proc/PID/schedstat,
 * the second number), and adds to it when the thread gets a processor.  So a thread that asks about
 * itself has the whole truth, and others would miss what is under way; that is why holders tell.
 * The count grows at switches only: while a thread's number of those stays the same, which is
 * cheaper to ask for, there is nothing to read. */
#include "device/exec/stall.h"
#include "device/exec/shared.h"
#include "device/exec/sm.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tally/clock.h"

#define TELL_NS 20000 /* so often at most: blocks can be shorter than the asking */

static _Thread_local struct {
    pid_t tid; /* whose the rest is: a forked child has its parent's */
    int fd;    /* 0: not open yet; -1: there is none */
    long switches;
    uint64_t delay_ns;
} self __attribute__((tls_model("initial-exec")));

/* How long the calling thread has waited for processors so far; what was known before if the kernel
 * does not say. */
static uint64_t delay_ns(void)
{
    struct rusage usage;
    char text[96];
    unsigned long long ran, delay;
    if (getrusage(RUSAGE_THREAD, &usage) < 0)
        return self.delay_ns;
    long switches = usage.ru_nvcsw + usage.ru_nivcsw;
    if (self.fd > 0 && switches == self.switches)
        return self.delay_ns;
    if (self.fd == 0)
        self.fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t n = self.fd > 0 ? pread(self.fd, text, sizeof text - 1, 0) : -1;
    if (n <= 0)
        return self.delay_ns;
    text[n] = '\0';
    if (sscanf(text, "%llu %llu", &ran, &delay) != 2)
        return self.delay_ns;
    self.switches = switches; /* asked for first: what came since is read the next time */
    return delay;
}

void tl__stall_begin(struct tl__stall *st)
{
    pid_t tid = gettid();
    if (self.tid != tid)
        tl__stall_end_thread();
    self.tid = tid;
    uint64_t now = tl_clock_ns(); /* first: what comes between the two counts for nothing */
    self.delay_ns = delay_ns();
    atomic_store_explicit(&st->told_ns, now, memory_order_release);
}

static void tell(struct tl__stall *st)
{
    uint64_t now = tl_clock_ns();
    if (now - atomic_load_explicit(&st->told_ns, memory_order_relaxed) < TELL_NS)
        return;
    uint64_t delay = delay_ns();
    if (delay > self.delay_ns) {
        atomic_fetch_add_explicit(&st->total_ns, delay - self.delay_ns, memory_order_relaxed);
        self.delay_ns = delay;
    }
    /* The time before the asking: what is known until then.  Release: who sees it sees the sum. */
    atomic_store_explicit(&st->told_ns, now, memory_order_release);
}

void tl__sm_note_block(struct tl__sm *s, uint32_t slot)
{
    if (s->waits != NULL && !tl__sm_has_lost(s, slot))
        tell(&s->m->slots[slot].stall);
}

void tl__stall_end_thread(void)
{
    if (self.fd > 0)
        close(self.fd);
    self.fd = 0;
}

uint64_t tl__stall_ran_ns(uint64_t begin_ns, uint64_t end_ns, uint64_t told_ns, uint64_t stalled_ns)
{
    uint64_t wait = end_ns > begin_ns ? end_ns - begin_ns : 0;
    uint64_t before = begin_ns > told_ns ? begin_ns - told_ns : 0;
    uint64_t inside = stalled_ns > before ? stalled_ns - before : 0;
    return inside < wait ? wait - inside : 0;
}

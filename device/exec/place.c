/* Which CPUs threads run on: SMs have some of their own, if there are more CPUs than SMs.
 *
 * An SM of a GPU is not interrupted when a thread of a program wakes up.  Here both are threads,
 * programs come first, and the kernel's scheduler likes to wake a thread where it slept or where
 * its waker runs, even if another CPU is idle.  So the workers of all processes keep to the last
 * CPUs, as many as there are SMs, and who finds itself there without being a worker leaves: the
 * driver's own threads for good, and those of the interception library, which have names of ours;
 * those of the program without losing the affinity that they have. */
#include "device/exec/internal.h"
#include "tally/clock.h"

#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static struct {
    cpu_set_t sms, others; /* constant once is_on */
    atomic_bool is_on;
} place;

static _Thread_local bool is_worker __attribute__((tls_model("initial-exec")));
static _Thread_local uint64_t stepped_ns __attribute__((tls_model("initial-exec")));

static bool is_on(void)
{
    return atomic_load_explicit(&place.is_on, memory_order_acquire);
}

void tl__place_sms(uint32_t n_slots)
{
    cpu_set_t all;
    if (is_on() || sched_getaffinity(getpid(), sizeof all, &all) < 0 ||
        (uint32_t)CPU_COUNT(&all) <= n_slots)
        return;
    CPU_ZERO(&place.sms);
    place.others = all;
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0 && n_slots > 0; cpu--) {
        if (!CPU_ISSET(cpu, &all))
            continue;
        CPU_SET(cpu, &place.sms);
        CPU_CLR(cpu, &place.others);
        n_slots--;
    }
    atomic_store_explicit(&place.is_on, true, memory_order_release);
}

void tl__place_worker(void)
{
    is_worker = true;
    if (is_on())
        (void)sched_setaffinity(0, sizeof place.sms, &place.sms);
}

/* This thread's affinity, and the part of it that SMs do not have; false if there is nothing to go
 * to, or no need to. */
static bool elsewhere(cpu_set_t *own, cpu_set_t *others)
{
    if (!is_on() || is_worker || sched_getaffinity(0, sizeof *own, own) < 0)
        return false;
    CPU_AND(others, own, &place.others);
    return CPU_COUNT(others) > 0 && !CPU_EQUAL(own, others);
}

void tl_exec_stay_aside(bool is_of_worker)
{
    cpu_set_t own, others;
    if (is_of_worker && is_on())
        (void)sched_setaffinity(0, sizeof place.others, &place.others);
    else if (elsewhere(&own, &others))
        (void)sched_setaffinity(0, sizeof others, &others);
}

bool tl_exec_is_worker(void)
{
    return is_worker;
}

static bool is_ours(void)
{
    char name[16] = "";
    return prctl(PR_GET_NAME, name) == 0 && strncmp(name, "tally-", 6) == 0;
}

void tl_exec_step_aside(void)
{
    enum { OFTEN_NS = 1000000 }; /* the scheduler may have its reasons to bring it back */
    cpu_set_t own, others;
    int cpu = is_on() ? sched_getcpu() : -1;
    if (cpu < 0 || !CPU_ISSET(cpu, &place.sms))
        return;
    uint64_t now = tl_clock_ns();
    if (now - stepped_ns < OFTEN_NS || !elsewhere(&own, &others))
        return;
    stepped_ns = now;
    if (sched_setaffinity(0, sizeof others, &others) == 0 && !is_ours())
        (void)sched_setaffinity(0, sizeof own, &own);
}

void tl_exec_wait_aside(struct tl_exec_aside *a)
{
    a->is_moved = elsewhere(&a->own, &a->others) &&
                  sched_setaffinity(0, sizeof a->others, &a->others) == 0;
}

void tl_exec_waited(const struct tl_exec_aside *a)
{
    cpu_set_t now;
    if (a->is_moved && sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, &a->others))
        (void)sched_setaffinity(0, sizeof a->own, &a->own);
}

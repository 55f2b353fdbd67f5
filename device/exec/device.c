/* A process's end of the shared device: settings, the thread that lives for it and watches over
 * launches, fork. */
#include "device/exec/device.h"
#include "device/exec/waits.h"
#include "tally/clock.h"
#include "tally/lock.h"
#include "tally/thread.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_HEAP ((uint64_t)8 << 20)
#define PARAMS_HEAP ((uint64_t)64 << 20) /* reserved, and taken as it is written to */
#define DEFAULT_BUS ((uint64_t)12 << 30)
#define SPIN_NS 100000   /* waited for without sleeping */
#define TICK_NS 50000000 /* how often the watchdog looks while something runs */

/* --- settings --------------------------------------------------------------------------------- */

/* A number, with K, M, G or T behind it if `has_suffix`.  0 if the variable is not set. */
static int read_number(const char *name, uint64_t most, bool has_suffix, uint64_t *out,
                       struct tl_error *err)
{
    const char *text = secure_getenv(name);
    *out = 0;
    if (text == NULL || *text == '\0')
        return 0;
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    uint32_t shift = 0;
    if (has_suffix && *end != '\0') {
        static const char suffixes[] = "KMGT";
        const char *s = strchr(suffixes, *end >= 'a' ? *end - 'a' + 'A' : *end);
        if (s != NULL) {
            shift = 10 * (uint32_t)(s - suffixes + 1);
            end++;
        }
    }
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || v == 0 || v > most >> shift)
        return tl_error_set(err, -EINVAL, "%s=%s: a number from 1 to %llu is needed", name, text,
                            (unsigned long long)most);
    *out = (uint64_t)v << shift;
    return 0;
}

static uint32_t usable_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (uint32_t)CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}

static int read_mode(const char *given, enum tl_exec_mode *mode, struct tl_error *err)
{
    static const char *const names[] = {"mps", "mps-priority", "timeslice"};
    const char *text = given != NULL ? given : secure_getenv("TALLY_DEVICE_MODE");
    *mode = TL_EXEC_MPS;
    if (text == NULL || *text == '\0')
        return 0;
    for (uint32_t i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *mode = (enum tl_exec_mode)i;
            return 0;
        }
    }
    return tl_error_set(err, -EINVAL,
                        "TALLY_DEVICE_MODE=%s: mps, mps-priority or timeslice is needed", text);
}

/* What the caller leaves open comes from the environment, and what that leaves open from the
 * machine. 0, -EINVAL. */
static int read_settings(struct tl_exec_device *d, const struct tl_exec_config *c,
                         struct tl_error *err)
{
    uint64_t slots, memory, quantum, watchdog, bus, resident;
    int rc = read_number("TALLY_DEVICE_SMS", 256, false, &slots, err);
    if (rc == 0)
        rc = read_number("TALLY_DEVICE_MEM", (uint64_t)1 << 46, true, &memory, err);
    if (rc == 0)
        rc = read_number("TALLY_DEVICE_QUANTUM_US", 10000000, false, &quantum, err);
    if (rc == 0)
        rc = read_number("TALLY_DEVICE_WATCHDOG", 1000000, false, &watchdog, err);
    if (rc == 0)
        rc = read_number("TALLY_DEVICE_BUS", (uint64_t)1 << 46, true, &bus, err);
    if (rc == 0)
        rc = read_number("TALLY_DEVICE_BLOCKS_PER_SM", 4096, false, &resident, err);
    if (rc == 0)
        rc = read_mode(c->mode, &d->sm_config.mode, err);
    if (rc < 0)
        return rc;
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    d->sm_config.n_slots = c->n_slots != 0 ? c->n_slots
                           : slots != 0    ? (uint32_t)slots
                                           : usable_cores();
    d->sm_config.memory_bytes = c->memory_bytes != 0 ? c->memory_bytes
                                : memory != 0        ? memory
                                                     : machine / 4 * 3;
    d->sm_config.quantum_us = c->quantum_us != 0 ? c->quantum_us
                              : quantum != 0     ? (uint32_t)quantum
                                                 : 2000;
    d->env.n_told = c->n_told;
    d->watchdog_ns = (c->watchdog_s != 0 ? c->watchdog_s : watchdog) * 1000000000U;
    d->bus_bytes = c->bus_bytes != 0 ? c->bus_bytes : bus != 0 ? bus : DEFAULT_BUS;
    d->blocks_per_sm = c->blocks_per_sm != 0 ? c->blocks_per_sm : (uint32_t)resident;
    d->heap_bytes = c->heap_bytes != 0 ? c->heap_bytes : DEFAULT_HEAP;
    const char *name = c->name != NULL ? c->name : secure_getenv("TALLY_DEVICE_NAME");
    int n;
    if (name == NULL || *name == '\0')
        n = snprintf(d->name, sizeof d->name, "tally-%u-%u", (unsigned)getuid(), c->ordinal);
    else if (c->name == NULL && c->ordinal > 0)
        n = snprintf(d->name, sizeof d->name, "%s-%u", name, c->ordinal);
    else
        n = snprintf(d->name, sizeof d->name, "%s", name);
    if (n < 0 || (size_t)n >= sizeof d->name)
        return tl_error_set(err, -EINVAL, "TALLY_DEVICE_NAME is too long");
    d->sm_config.name = d->name;
    d->sm_config.shares_faults = c->shares_faults;
    d->sm_config.is_preferred = c->is_preferred;
    d->has_own_cpus = c->has_own_cpus;
    return 0;
}

/* --- the thread that lives for the process ---------------------------------------------------- */

/* Ends launches that run for too long, and all where a fault is everybody's; tells them again until
 * they are gone. */
static bool watch(struct tl_exec_device *d) TL_REQUIRES(d->lock)
{
    bool has_runs = false, has_fault = tl__sm_fault(d->sm) != 0;
    uint64_t now = tl_clock_ns();
    for (struct tl_exec_run *run = d->runs; run != NULL; run = run->next_run) {
        uint64_t begin = atomic_load_explicit(&run->begin_ns, memory_order_relaxed);
        has_runs = true;
        if ((begin != 0 && now > begin && d->watchdog_ns != 0 && now - begin > d->watchdog_ns) ||
            has_fault)
            tl__run_cancel(d, run);
    }
    return has_runs;
}

static void wait_for_change(struct tl_exec_device *d, uint64_t until_ns) TL_REQUIRES(d->lock)
{
    struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    tl_mutex_wait_until(&d->lock, &d->changed, &until);
}

/* Joins the shared device, and writes down what is lost to others there if somebody wants that. */
static int join(struct tl_exec_device *d)
{
    const char *folder = secure_getenv("TALLY_DEVICE_WAITS");
    struct tl__waits *waits = NULL;
    int rc = folder != NULL && *folder != '\0'
                 ? tl__waits_create(&waits, folder, d->name, &d->error)
                 : 0;
    if (rc == 0)
        rc = tl__sm_open(&d->sm, &d->sm_config, &d->error);
    if (rc == 0)
        tl__sm_keep_waits(d->sm, waits);
    else
        tl__waits_destroy(waits);
    return rc;
}

static void *monitor_main(void *argument)
{
    struct tl_exec_device *d = argument;
    /* Nobody has to make way when it is told something. */
    (void)sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0});
    int rc = join(d);
    tl_mutex_lock(&d->lock);
    d->monitor_result = rc;
    d->monitor_is_up = true;
    pthread_cond_broadcast(&d->changed);
    while (rc == 0 && !d->is_closing) {
        bool has_runs = (d->watchdog_ns != 0 || d->sm_config.shares_faults) && watch(d);
        if (d->look_ns != 0 && tl_clock_ns() >= d->look_ns) {
            d->look_ns = 0;
            tl__workers_nudge(d); /* that one goes on looking by itself */
        } else if (d->look_ns != 0) {
            tl_exec_stay_aside(false);
            wait_for_change(d, d->look_ns);
        } else if (has_runs) {
            wait_for_change(d, tl_clock_ns() + TICK_NS);
        } else {
            tl_mutex_wait(&d->lock, &d->changed);
        }
    }
    tl_mutex_unlock(&d->lock);
    if (rc == 0)
        tl__sm_close(d->sm);
    return NULL;
}

/* Joins the shared device. */
static int attach(struct tl_exec_device *d, struct tl_error *err) TL_REQUIRES(d->lock)
{
    static const struct tl_thread_kind kind = {.name = "tally-device"};
    d->monitor_is_up = false;
    d->is_closing = false;
    int rc = tl_thread_start(&d->monitor, &kind, monitor_main, d);
    if (rc < 0)
        return tl_error_set(err, rc, "cannot start the device's thread");
    while (!d->monitor_is_up)
        tl_mutex_wait(&d->lock, &d->changed);
    if (d->monitor_result < 0) {
        pthread_join(d->monitor, NULL);
        if (err != NULL)
            *err = d->error;
        return d->monitor_result;
    }
    d->env.n_slots = tl__sm_slots(d->sm);
    d->env.n_told = d->env.n_told > d->env.n_slots ? d->env.n_told : d->env.n_slots;
    d->env.max_units = d->env.n_told * 32 < 64 ? 64 : d->env.n_told * 32;
    d->env.claims_singly = d->blocks_per_sm != 0;
    /* A slot stands for as many SMs as there are more than slots. */
    if (d->blocks_per_sm != 0)
        d->env.max_units = d->blocks_per_sm *
                           ((d->env.n_told + d->env.n_slots - 1) / d->env.n_slots);
    d->n_cores = usable_cores();
    if (d->has_own_cpus)
        tl__place_sms(d->env.n_slots);
    d->is_attached = true;
    return 0;
}

int tl__device_attach(struct tl_exec_device *d)
{
    return d->is_attached ? 0 : attach(d, NULL);
}

/* --- fork ------------------------------------------------------------------------------------- */

/* All devices of the process, for fork. */
static struct tl_mutex devices_lock = TL_MUTEX_INITIALIZER;
static struct tl_exec_device *devices TL_GUARDED_BY(devices_lock);
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* All locks are held while the process forks, so that the child finds everything in order. */
TL_UNCHECKED static void before_fork(void)
{
    tl_mutex_lock(&devices_lock);
    for (struct tl_exec_device *d = devices; d != NULL; d = d->next)
        tl_mutex_lock(&d->lock);
}

TL_UNCHECKED static void after_fork_parent(void)
{
    for (struct tl_exec_device *d = devices; d != NULL; d = d->next)
        tl_mutex_unlock(&d->lock);
    tl_mutex_unlock(&devices_lock);
}

static void init_locks(struct tl_exec_device *d)
{
    pthread_condattr_t attr;
    tl_mutex_init(&d->lock);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&d->changed, &attr);
    pthread_condattr_destroy(&attr);
}

/* The child has none of the parent's threads, launches or slots: it begins anew with its next
 * launch.  What the parent's threads held in memory is left alone. */
TL_UNCHECKED static void after_fork_child(void)
{
    tl__fault_forget();
    for (struct tl_exec_device *d = devices; d != NULL; d = d->next) {
        init_locks(d);
        tl__out_init(&d->out, false);
        tl__out_init(&d->errors, true);
        d->heap = d->params = NULL;
        if (d->is_attached)
            tl__sm_abandon(d->sm);
        d->sm = NULL;
        d->is_attached = false;
        d->look_ns = 0;
        tl__workers_forget(d);
    }
    tl_mutex_init(&devices_lock);
}

static void register_fork(void)
{
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* --- opening ---------------------------------------------------------------------------------- */

/* Joins the shared device, which tells how large it is; workers are started by launches.  After a
 * fork the child joins anew with its next launch. 0 or -errno with why. */
int tl_exec_device_open(struct tl_exec_device **out, const struct tl_exec_config *config,
                        struct tl_error *err)
{
    static const struct tl_exec_config nothing;
    const struct tl_exec_config *c = config != NULL ? config : &nothing;
    struct tl_exec_device *d = calloc(1, sizeof *d);
    if (d == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for the device");
    init_locks(d);
    tl__out_init(&d->out, false);
    tl__out_init(&d->errors, true);
    int rc = read_settings(d, c, err);
    if (rc < 0)
        goto fail;
    d->calls = tl__exec_calls;
    if (c->tex != NULL)
        d->calls.tex = c->tex;
    if (c->surf != NULL)
        d->calls.surf = c->surf;
    d->env.is_host = c->is_host;
    d->env.reach_ns = c->reach_ns;
    d->env.calls = &d->calls;
    d->env.device = d;
    tl__workers_init(d);
    rc = tl__fault_install();
    if (rc < 0) {
        tl_error_set(err, rc, "cannot install signal handlers");
        goto fail;
    }
    tl_mutex_lock(&d->lock);
    rc = attach(d, err);
    tl_mutex_unlock(&d->lock);
    if (rc < 0)
        goto fail;
    pthread_once(&fork_once, register_fork);
    tl_mutex_lock(&devices_lock);
    d->next = devices;
    devices = d;
    tl_mutex_unlock(&devices_lock);
    *out = d;
    return 0;
fail:
    tl__out_finish(&d->out);
    tl__out_finish(&d->errors);
    pthread_cond_destroy(&d->changed);
    tl_mutex_destroy(&d->lock);
    free(d);
    return rc;
}

void tl_exec_device_close(struct tl_exec_device *d)
{
    if (d == NULL)
        return;
    tl_mutex_lock(&devices_lock);
    for (struct tl_exec_device **p = &devices; *p != NULL; p = &(*p)->next) {
        if (*p == d) {
            *p = d->next;
            break;
        }
    }
    tl_mutex_unlock(&devices_lock);
    tl__workers_stop(d);
    if (d->is_attached) {
        tl_mutex_lock(&d->lock);
        d->is_closing = true;
        pthread_cond_broadcast(&d->changed);
        tl_mutex_unlock(&d->lock);
        pthread_join(d->monitor, NULL);
    }
    tl_exec_printf_flush(d);
    tl__out_finish(&d->out);
    tl__out_finish(&d->errors);
    tl__heap_destroy(d->heap);
    tl__heap_destroy(d->params);
    pthread_cond_destroy(&d->changed);
    tl_mutex_destroy(&d->lock);
    free(d);
}

/* --- small things ----------------------------------------------------------------------------- */

uint32_t tl_exec_device_slots(const struct tl_exec_device *d)
{
    return d->env.n_slots;
}

uint32_t tl_exec_domain_fault(const struct tl_exec_device *d)
{
    return tl__sm_fault(d->sm);
}

void tl_exec_domain_fail(struct tl_exec_device *d, uint32_t what)
{
    tl__sm_fail(d->sm, what);
}

uint32_t tl_exec_device_blocks_per_sm(const struct tl_exec_device *d)
{
    return d->blocks_per_sm;
}

enum tl_exec_mode tl_exec_device_mode(const struct tl_exec_device *d)
{
    return d->sm != NULL ? tl__sm_mode(d->sm) : d->sm_config.mode;
}

/* The shared device, which a forked child joins anew; NULL if it cannot. */
static struct tl__sm *sm_of(struct tl_exec_device *d)
{
    tl_mutex_lock(&d->lock);
    struct tl__sm *s = tl__device_attach(d) == 0 ? d->sm : NULL;
    tl_mutex_unlock(&d->lock);
    return s;
}

int tl_exec_memory_take(struct tl_exec_device *d, uint64_t bytes)
{
    struct tl__sm *s = sm_of(d);
    return s != NULL ? tl__sm_memory_take(s, bytes) : -ENOMEM;
}

void tl_exec_memory_give(struct tl_exec_device *d, uint64_t bytes)
{
    struct tl__sm *s = sm_of(d);
    if (s != NULL)
        tl__sm_memory_give(s, bytes);
}

uint64_t tl_exec_memory_mine(struct tl_exec_device *d)
{
    struct tl__sm *s = sm_of(d);
    return s != NULL ? tl__sm_memory_mine(s) : 0;
}

void tl_exec_memory_info(struct tl_exec_device *d, uint64_t *free_bytes, uint64_t *total_bytes)
{
    struct tl__sm *s = sm_of(d);
    *free_bytes = *total_bytes = 0;
    if (s != NULL)
        tl__sm_memory_info(s, free_bytes, total_bytes);
}

int tl_exec_memory_demand(struct tl_exec_device *d, uint64_t bytes, uint32_t below)
{
    struct tl__sm *s = sm_of(d);
    return s != NULL ? tl__sm_memory_demand(s, bytes, below) : -ENOMEM;
}

void tl_exec_memory_mark(struct tl_exec_device *d, uint32_t rank, int64_t bytes)
{
    struct tl__sm *s = sm_of(d);
    if (s != NULL)
        tl__sm_memory_mark(s, rank, bytes);
}

void tl_exec_memory_serve(struct tl_exec_device *d,
                          void (*give)(void *user, uint32_t rank, uint64_t bytes), void *user)
{
    struct tl__sm *s = sm_of(d);
    while (s != NULL) {
        uint32_t seen = tl__sm_memory_asked(s);
        for (uint32_t rank = 0; rank < TL_EXEC_RANKS; rank++) {
            uint64_t owed = tl__sm_memory_owed(s, rank);
            if (owed > 0)
                give(user, rank, owed);
        }
        tl__sm_memory_wait(s, seen);
    }
}

void tl_exec_wait_until(uint64_t ns)
{
    /* A sleep takes its time to end, so the last bit is waited for. */
    for (uint64_t now = tl_clock_ns(); now < ns; now = tl_clock_ns()) {
        if (ns - now > SPIN_NS)
            nanosleep(&(struct timespec){.tv_sec = (time_t)((ns - now - SPIN_NS) / 1000000000),
                                         .tv_nsec = (long)((ns - now - SPIN_NS) % 1000000000)},
                      NULL);
    }
}

static uint64_t bus_ns(const struct tl_exec_device *d, uint64_t bytes)
{
    return (uint64_t)((double)bytes * 1e9 / (double)d->bus_bytes);
}

void tl_exec_bus(struct tl_exec_device *d, uint64_t bytes)
{
    struct tl__sm *s = bytes > 0 ? sm_of(d) : NULL;
    if (s != NULL)
        tl_exec_wait_until(tl__sm_bus(s, bus_ns(d, bytes)));
}

struct tl_exec_turn tl_exec_engine(struct tl_exec_device *d, uint32_t engine, uint64_t bytes,
                                   uint64_t setup_ns)
{
    struct tl__sm *s = sm_of(d);
    uint64_t ns = setup_ns + bus_ns(d, bytes), end = s != NULL ? tl__sm_engine(s, engine, ns) : 0;
    return (struct tl_exec_turn){.begin_ns = end > ns ? end - ns : 0, .end_ns = end};
}

void tl_exec_pages(bool (*f)(const void *address))
{
    tl__fault_pages(f);
    /* in front of what the program has installed since; without it, a fault is a fault */
    (void)tl__fault_install();
}

void tl_exec_printf_flush(struct tl_exec_device *d)
{
    tl__out_flush(&d->out);
    tl__out_flush(&d->errors);
}

int tl_exec_heap_limit(struct tl_exec_device *d, uint64_t bytes)
{
    int rc = 0;
    if (bytes == 0 || bytes > (uint64_t)1 << 36)
        return -EINVAL;
    tl_mutex_lock(&d->lock);
    if (d->heap != NULL)
        rc = -EBUSY;
    else
        d->heap_bytes = bytes;
    tl_mutex_unlock(&d->lock);
    return rc;
}

uint64_t tl_exec_heap_bytes(const struct tl_exec_device *d)
{
    return d->heap_bytes;
}

struct tl__out *tl__device_out(struct tl_exec_device *d, bool is_error)
{
    return is_error ? &d->errors : &d->out;
}

static struct tl__heap *heap_at(struct tl_exec_device *d, struct tl__heap **at, uint64_t bytes)
{
    tl_mutex_lock(&d->lock);
    if (*at == NULL)
        *at = tl__heap_create(bytes);
    struct tl__heap *heap = *at;
    tl_mutex_unlock(&d->lock);
    return heap;
}

struct tl__heap *tl__device_heap(struct tl_exec_device *d)
{
    return heap_at(d, &d->heap, d->heap_bytes);
}

void *tl_exec_params_alloc(struct tl_exec_device *d, uint64_t bytes)
{
    struct tl__heap *heap = heap_at(d, &d->params, PARAMS_HEAP);
    return heap != NULL ? tl__heap_alloc(heap, bytes) : NULL;
}

void tl_exec_params_free(struct tl_exec_device *d, void *p)
{
    if (p != NULL)
        (void)tl__heap_free(d->params, p);
}

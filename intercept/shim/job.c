/* A job begins with its first successful cuInit: settings are read, the record is opened, tallyd is
 * joined, and the hooks of the job's kind are put in place.  A process that never uses the device
 * (a shell, a launcher) pays nothing.
 *
 * A child of a fork forgets the parent's job without a trace; if it uses the device itself, its own
 * cuInit begins a new one.  At exit nothing is unmapped or freed: other threads and other exit
 * handlers may still launch. */
#include "intercept/doors/doors.h"
#include "intercept/high/high.h"
#include "tally/clock.h"
#include "tally/file.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tally/check.h"
#include "tally/lock.h"
#include "tally/thread.h"

enum { PATIENCE_S = 5 };

struct tl_job tl_job;
static struct tl_mutex lock = TL_MUTEX_INITIALIZER; /* of beginning, and of becoming lower */
static struct {
    bool is_running;
    bool has_handlers;
    /* the best-effort part was tried once, in vain: what is wrong with the files stays wrong */
    bool has_no_effort;
} state TL_GUARDED_BY(lock);

/* --- the best-effort part --- */

/* The real functions, but memory is accounted for there as well, and streams have the priority that
 * the job may have.  What that part allocates for itself is its own. */
static void *find_below(const char *name)
{
    const struct tl_hook *lists[] = {tl_memory_hooks, tl_pool_hooks, tl_physical_hooks,
                                     tl_graph_hooks, tl_priority_hooks};
    void *real = tl_driver_find(name);
    if (real == NULL || strcmp(name, "cuMemAlloc_v2") == 0)
        return real;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const struct tl_hook *h = lists[i]; h->name != NULL; h++)
            if (strcmp(h->name, name) == 0)
                return h->function;
    return real;
}

/* Says why the job goes on without that part, or with TALLY_FAIL=closed, why it does not go on. */
static void no_effort(const char *format, ...) __attribute__((format(printf, 1, 2)))
TL_REQUIRES(lock);
static void no_effort(const char *format, ...)
{
    char why[3 * PATH_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    tl_log(tl_job.settings.is_closed ? 0 : 1, "kernels of this job cannot be preempted: %s", why);
    state.has_no_effort = true;
}

/* The best-effort part, opened and begun; false if it cannot be had, which is logged the first
 * time. */
static bool open_effort(void) TL_REQUIRES(lock);
/* Both libraries must be of one build: they share layouts that no version covers. */
static bool open_effort(void)
{
    TL_CHECK(tl_job.effort == NULL);
    char path[PATH_MAX];
    const char *asked = secure_getenv("TALLY_EFFORT");
    if (state.has_no_effort)
        return false;
    int n = asked != NULL && *asked != '\0'
                ? snprintf(path, sizeof path, "%s", asked)
                : snprintf(path, sizeof path, "%s/libtally-effort.so", tl_driver_folder());
    if (n >= (int)sizeof path) {
        no_effort("the path of libtally-effort.so is too long");
        return false;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        no_effort("%s", dlerror());
        return false;
    }
    const struct tl_effort *effort = tl_libc_dlsym_of(library, TL_EFFORT_TABLE);
    if (effort == NULL || strcmp(effort->build, tl_build_id) != 0) {
        no_effort("%s (build %.16s) and %s/libcuda.so.1 (build %.16s) are not of one build; "
                  "install both from the "
                  "same build of Tally%s",
                  path, effort != NULL ? effort->build : "unknown", tl_driver_folder(), tl_build_id,
                  asked != NULL ? ", or let TALLY_EFFORT name the one that belongs to it" : "");
        return false;
    }
    const struct tl_hook *hooks = effort->start(&tl_job.shim);
    if (hooks == NULL) {
        no_effort("%s could not start", path);
        return false;
    }
    tl_job.effort = effort;
    tl_driver_hook(hooks);
    return true;
}

/* --- begin --- */

static void open_record(void)
{
    struct tl_error err;
    char command[256] = "";
    int n = tl_file_head("/proc/self/cmdline", command, sizeof command);
    for (int i = 0; i + 1 < n; i++)
        command[i] = command[i] != '\0' ? command[i] : ' ';
    struct tl_record_job job = {.name = tl_job.settings.job,
                                .command = command,
                                .device = tl_driver_path(),
                                .policy = tl_job.settings.policy,
                                .level = tl_job.settings.level,
                                .ops = &tl_ops};
    if (tl_record_open(&tl_job.record, tl_job.settings.report, &job, &err) < 0) {
        tl_log(1, "no report of this job: %s", err.text);
        tl_job.record = NULL;
    }
}

/* In the child, which has one thread: there is nobody to lock out. */
TL_UNCHECKED static void forked(void)
{
    tl_mutex_init(&lock);
    tl_capture_forked();
    tl_memory_forked();
    tl_priority_forked();
    tl_doors_forked();
    tl_doors_link_forked();
    tl_doors_lto_forked();
    tl_ops_forked();
    if (!state.is_running)
        return;
    state.is_running = false;
    tl_driver_reset_hooks(tl_job.settings.is_off);
    tl_high_forked();
    if (tl_job.effort != NULL && tl_job.effort->forked != NULL)
        tl_job.effort->forked();
    if (tl_job.record != NULL)
        tl_record_abandon(tl_job.record);
    if (tl_job.client != NULL)
        tl_client_abandon(tl_job.client);
    tl_job.effort = NULL;
    tl_job.record = NULL;
    tl_job.client = NULL;
}

/* A job that must not run leaves tallyd and its record, so that another cuInit may try again. */
static void give_up(void)
{
    tl_record_close(tl_job.record);
    tl_client_destroy(tl_job.client);
    tl_job.record = NULL;
    tl_job.client = NULL;
}

/* Everything that a job begins with.  False if it must not run: TALLY_FAIL=closed, and it would be
 * unmanaged. */
static bool begin(void) TL_REQUIRES(lock);
/* In this order: settings, the line to tallyd (whose page is made before the first launch), the
 * record, and the best-effort part, which is given all of these. */
static bool begin(void)
{
    TL_CHECK(!state.is_running && tl_job.client == NULL && tl_job.record == NULL);
    struct tl_error err;
    if (tl_settings_read(&tl_job.settings, &err) < 0)
        tl_log(0, "%s", err.text);
    tl_log_level(tl_job.settings.log);
    if (tl_job.settings.is_off) {
        tl_driver_reset_hooks(true);
        return true;
    }
    if (!state.has_handlers) {
        state.has_handlers = pthread_atfork(NULL, NULL, forked) == 0;
        atexit(tl_high_stop); /* before the driver's own end */
    }
    if (tl_client_create(&tl_job.client, &tl_job.settings, &err) < 0) {
        tl_log(tl_job.settings.is_closed ? 0 : 1, "%s", err.text);
        tl_job.client = NULL;
        if (tl_job.settings.is_closed)
            return false;
    } else if (err.text[0] != '\0') {
        tl_log(1, "%s", err.text);
    }
    CUdevice first; /* until it is known which one it uses */
    if (tl_job.client != NULL && TL_REAL(cuDeviceGet)(&first, 0) == CUDA_SUCCESS)
        tl_job_describe(tl_client_page(tl_job.client), first);
    if (tl_job.settings.report[0] != '\0')
        open_record();
    tl_share_begin();
    tl_job.shim = (struct tl_shim){
        .settings = &tl_job.settings,
        .client = tl_job.client,
        .record = tl_job.record,
        .real = find_below,
        .kernel = tl_capture_kernel,
        .op = tl_op_now,
        .place = tl_job_place,
        .log = tl_log,
    };
    int level = tl_job.client != NULL ? tl_client_level(tl_job.client) : tl_job.settings.level;
    if (tl_job.client != NULL && level < TL_LEVEL_HIGH && !open_effort() &&
        tl_job.settings.is_closed) {
        give_up();
        return false;
    }
    if (tl_job.client != NULL &&
        tl_job.effort == NULL) /* also what cannot give way is accounted for */
        tl_high_start();
    tl_log(2, "job %s on %s, level %d%s", tl_job.settings.job, tl_driver_path(), level,
           tl_job.effort != NULL ? ", preemptible" : "");
    return true;
}

bool tl_job_lower(void)
{
    tl_mutex_lock(&lock);
    if (state.is_running && tl_job.effort == NULL)
        (void)open_effort(); /* a job that runs goes on in any case */
    bool is_lower = tl_job.effort != NULL;
    tl_priority_lower();
    tl_log(2, "level %d now%s", tl_client_level(tl_job.client), is_lower ? ", preemptible" : "");
    if (!is_lower)
        tl_high_start();
    tl_mutex_unlock(&lock);
    return is_lower;
}

/* Beginning a job opens libraries.  If another thread does that and this one is in the middle of a
 * dlopen, each waits for the other: this one gives in, and its first work may go by unseen. */
static bool lock_in_time(void) TL_LOCK_CHECK(try_acquire_capability(true, lock));
TL_UNCHECKED static bool lock_in_time(void)
{
    return tl_thread_lock_within(&lock.m, PATIENCE_S * TL_SECOND_NS) == 0;
}

static CUresult hook_cuInit(unsigned flags)
{
    CUresult r = TL_REAL(cuInit)(flags);
    if (r != CUDA_SUCCESS || !lock_in_time())
        return r;
    if (!state.is_running)
        state.is_running = begin();
    if (!state.is_running)
        r = CUDA_ERROR_SYSTEM_NOT_READY;
    tl_mutex_unlock(&lock);
    return r;
}

const struct tl_hook tl_job_hooks[] = {
    {"cuInit", (void *)hook_cuInit},
    {NULL, NULL},
};

int tl_job_unloading(const void *module, const void *library)
{
    const struct tl_effort *effort = tl_job.effort;
    return effort != NULL && effort->unloading != NULL ? effort->unloading(module, library) : 0;
}

void tl_job_forget(struct tl_captured_image *image)
{
    const struct tl_effort *effort = tl_job.effort;
    if (effort != NULL && effort->forget != NULL && (image->user != NULL || image->twin != NULL))
        effort->forget(image);
}

/* --- end --- */

/* The last thing of an exit that is not a crash.  A child of a vfork or fork that never used the
 * device has nothing to do. */
__attribute__((destructor)) static void end(void)
{
    const struct tl_effort *effort = tl_job.effort;
    if (effort != NULL && effort->stop != NULL)
        effort->stop();
    tl_share_end();
    tl_record_end(tl_job.record);
    if (tl_job.client != NULL) {
        /* What is still in flight now nobody will wait for. */
        struct tl_client_page *page = tl_client_page(tl_job.client);
        uint32_t issued = atomic_load(&page->issued),
                 completed = atomic_exchange(&page->completed, issued);
        tl_client_ended(tl_job.client, issued);
        tl_log(3, "end: %u pieces of work issued, %u in flight", issued, issued - completed);
    }
}

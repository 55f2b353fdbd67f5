/* Beginning and end of the best-effort part. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/effort/alloc.h"
#include "runtime/effort/event.h"
#include "runtime/effort/executor.h"
#include "runtime/effort/flight.h"
#include "runtime/effort/hooks.h"
#include "runtime/effort/kernel.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/moment.h"
#include "runtime/effort/permit.h"
#include "runtime/effort/profile.h"
#include "runtime/effort/queue.h"
#include "runtime/effort/real.h"
#include "runtime/effort/rescue.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"
#include "runtime/effort/texts.h"
#include "runtime/effort/twins.h"
#include "runtime/effort/variant.h"

struct tl_eff_state tl_eff;
static struct tl_hook *hooks;

void tl_eff_note(const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tl_record_note(tl_eff.record, text);
}

static void forget(struct tl_captured_image *image)
{
    tl_eff_texts_forget(image);
    tl_eff_twins_forget(image);
}

static void forked(void)
{
    atomic_store(&tl_eff.is_over, true); /* a straggler in the child passes through */
    tl_eff_variants_forked();
    tl_eff_streams_forked();
    tl_eff_permit_forget();
}

/* Never waits: who holds the lock may be a thread that has gone. */
static void keep_what_was_learnt(void)
{
    if (!tl_eff_trylock())
        return;
    tl_eff_kernels_keep();
    tl_eff_unlock();
    tl_eff_profile_save();
}

/* What is queued is lost, as with CUDA; whoever waits for it comes free. */
static void stop(void)
{
    keep_what_was_learnt();
    atomic_store(&tl_eff.is_over, true);
    if (tl_eff_trylock()) {
        pthread_cond_broadcast(&tl_eff_queues.submitted);
        tl_eff_unlock();
    }
}

/* Hooks of functions that the driver has. */
static bool gather_hooks(const struct tl_shim *shim)
{
    const struct tl_hook *lists[] = {
        tl_eff_call_hooks,   tl_eff_copy_hooks,  tl_eff_event_hooks,     tl_eff_sync_hooks,
        tl_eff_kernel_hooks, tl_eff_graph_hooks, tl_eff_attribute_hooks, tl_eff_alloc_hooks};
    size_t n = 0, at = 0;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        for (const struct tl_hook *h = lists[i]; h->name != NULL; h++)
            n++;
    }
    hooks = calloc(n + 1, sizeof *hooks);
    if (hooks == NULL)
        return false;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        for (const struct tl_hook *h = lists[i]; h->name != NULL; h++) {
            if (shim->real(h->name) != NULL)
                hooks[at++] = *h;
        }
    }
    return true;
}

/* Called by the shim for a job that has to make room for others: the calls that this part takes
 * over, or NULL if it cannot begin. */
static const struct tl_hook *start(const struct tl_shim *shim)
{
    struct tl_error err = {0};
    if (tl_eff_real_find(shim, &err) < 0) {
        shim->log(1, "%s", err.text);
        return NULL;
    }
    tl_eff = (struct tl_eff_state){.shim = shim,
                                   .settings = shim->settings,
                                   .client = shim->client,
                                   .record = shim->record,
                                   .page = tl_client_page(shim->client),
                                   .trusts_waits = secure_getenv("TALLY_TEST_TRUST_WAITS") != NULL};
    if (tl_eff.trusts_waits) {
        const char *refused = secure_getenv("TALLY_TEST_REFUSE_BESIDE");
        tl_eff.n_refused_beside = refused != NULL ? (uint32_t)strtoul(refused, NULL, 10) : 0;
        tl_eff_note("TALLY_TEST_TRUST_WAITS is set: kernels are cut whose blocks may wait for each "
                    "other");
        shim->log(1, "TALLY_TEST_TRUST_WAITS is set: this is a test, and this job may hang");
    }
    tl_eff_lock_start();
    tl_eff_queues_start();
    tl_eff_moment_start();
    tl_eff_streams_start();
    tl_eff_events_start();
    tl_eff_allocs_start();
    tl_eff_kernels_start();
    tl_eff_flight_start();
    tl_eff_permit_start();
    tl_eff_executor_forget();
    if (hooks == NULL && !gather_hooks(shim)) {
        shim->log(1, "no memory for the list of functions to replace");
        return NULL;
    }
    /* now, and not with the first work that has to wait: nobody would ever take it */
    tl_eff_lock();
    int rc = tl_eff_executor_start();
    tl_eff_unlock();
    if (rc < 0) {
        shim->log(1, "no thread for work that waits: %s", strerror(-rc));
        return NULL;
    }
    tl_eff_profile_load();
    tl_eff_rescue_load();
    return hooks;
}

__attribute__((visibility("default"))) const struct tl_effort tl_effort_table = {
    .build = tl_build_id,
    .start = start,
    .unloading = tl_eff_unloading,
    .twin = tl_eff_twin,
    .twinned = tl_eff_twinned,
    .forget = forget,
    .forked = forked,
    .stop = stop,
};

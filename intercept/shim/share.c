/* What became of a share that was asked for: a line in the job's report. */
#include "intercept/shim/internal.h"
#include "tally/clock.h"

#include <stdio.h>

static uint64_t begun_ns, device_before_ns;

void tl_share_begin(void)
{
    begun_ns = tl_clock_ns();
    device_before_ns = tl_job.client != NULL
                           ? atomic_load(&tl_client_page(tl_job.client)->device_ns)
                           : 0;
}

/* Why it got less: the larger of the two reasons that there can be. */
static const char *why(double got, double waited, const struct tl_sched_client *c)
{
    if (got * 1000 >= 0.95 * c->min_permille)
        return c->max_permille != 0 && waited > 0.05 ? "; it was held at its bound" : "";
    return waited > 1 - got - waited ? ", because others had the device while it had work"
                                     : ", because it had no more work";
}

void tl_share_end(void)
{
    struct tl_sched_client c;
    uint64_t elapsed = tl_clock_ns() - begun_ns;
    char text[256], bound[48] = "";
    if (tl_job.client == NULL || tl_job.record == NULL || begun_ns == 0 || elapsed == 0)
        return;
    tl_client_wish(tl_job.client, &c);
    if (c.min_permille == 0 && c.max_permille == 0)
        return;
    const struct tl_client_page *page = tl_client_page(tl_job.client);
    double got = (double)(atomic_load(&page->device_ns) - device_before_ns) / (double)elapsed;
    double waited = (double)atomic_load(&page->waited_ns) / (double)elapsed;
    if (c.max_permille != 0)
        snprintf(bound, sizeof bound, " and %u.%u %% at most", c.max_permille / 10,
                 c.max_permille % 10);
    snprintf(text, sizeof text,
             "share of the device: asked %u.%u %% at least%s, got %.1f %% of %.1f s%s (work of it "
             "waited for %.1f %% of the time)",
             c.min_permille / 10, c.min_permille % 10, bound, 100 * got, (double)elapsed / 1e9,
             why(got, waited, &c), 100 * (waited < 1 ? waited : 1));
    tl_record_note(tl_job.record, text);
}

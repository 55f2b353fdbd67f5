/* What a program that knows of Tally may say: see include/tally/mark.h, which finds these functions
 * at run time. */
#include "intercept/high/high.h"

#define EXPORTED __attribute__((visibility("default")))
EXPORTED uint64_t tally_request_begin(void);
EXPORTED void tally_request_end(uint64_t request);
EXPORTED void tally_iteration(void);
EXPORTED uint32_t tally_in_flight(void);

/* A request is named by the time that it began. */
uint64_t tally_request_begin(void)
{
    uint64_t now = tl_record_now();
    tl_request_mark(now);
    return now;
}

void tally_request_end(uint64_t request)
{
    uint64_t now = tl_record_now();
    tl_request_unmark();
    if (request == 0 || request > now)
        return;
    tl_record_request(tl_job.record, request, now, true);
    if (tl_job.client != NULL)
        tl_client_request(tl_job.client, now - request);
}

void tally_iteration(void)
{
    if (tl_job.client != NULL)
        atomic_fetch_add_explicit(&tl_client_page(tl_job.client)->iterations, 1,
                                  memory_order_relaxed);
}

uint32_t tally_in_flight(void)
{
    if (tl_job.client == NULL)
        return 0;
    if (tl_job.effort == NULL)
        return tl_seats_in_flight();
    uint64_t word = atomic_load(&tl_client_page(tl_job.client)->word);
    return (uint32_t)word - (uint32_t)(word >> 32);
}

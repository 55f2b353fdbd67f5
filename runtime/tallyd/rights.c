/* Holds jobs to what the rules allow them; see rules.c. */
#include "runtime/tallyd/tallyd.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool daemon_is_own(uid_t uid)
{
    return uid == 0 || uid == geteuid();
}

/* Adds a remark behind what is there. */
static void __attribute__((format(printf, 3, 4)))
remark(char *text, size_t size, const char *format, ...)
{
    size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    n += (size_t)snprintf(text + n, size - n, "%s", n > 0 ? "; " : "");
    if (n < size)
        (void)vsnprintf(text + n, size - n, format, args);
    va_end(args);
}

void daemon_rights_limit(const struct daemon_rights *rights, struct tl_sched_client *c, char *text,
                         size_t size)
{
    text[0] = 0;
    if (c->level > rights->highest) {
        remark(text, size, "priority %d is more than the rules of tallyd allow; it is %d now",
               c->level, rights->highest);
        c->level = rights->highest;
    }
    if (c->min_permille > rights->min_permille) {
        remark(text, size, "they allow a min-share of %u.%u%%", rights->min_permille / 10,
               rights->min_permille % 10);
        c->min_permille = rights->min_permille;
    }
    if (c->max_permille != 0 && c->level >= TL_LEVEL_HIGH) {
        remark(text, size, "the highest level has no bound on its share");
        c->max_permille = 0;
    }
    if (c->max_permille != 0 && c->max_permille < c->min_permille)
        c->max_permille = c->min_permille;
    if (c->weight > rights->weight) {
        remark(text, size, "they allow a weight of %u", rights->weight);
        c->weight = rights->weight;
    }
    if (c->turnaround_ns > rights->turnaround_ns) {
        remark(text, size, "they allow a turnaround of %" PRIu64 ".%" PRIu64 " us",
               rights->turnaround_ns / 1000, rights->turnaround_ns % 1000 / 100);
        c->turnaround_ns = rights->turnaround_ns;
    }
    if (rights->memory_limit != 0 &&
        (c->memory_limit == 0 || c->memory_limit > rights->memory_limit)) {
        if (c->memory_limit != 0)
            remark(text, size, "they allow %" PRIu64 " MiB of device memory",
                   rights->memory_limit >> 20);
        c->memory_limit = rights->memory_limit;
    }
    if (c->memory_request > rights->memory_request) {
        remark(text, size, "they allow a memory-request of %" PRIu64 " MiB",
               rights->memory_request >> 20);
        c->memory_request = rights->memory_request;
    }
    if (c->slo_ns != 0 && !rights->may_have_slo) {
        remark(text, size, "they allow no SLO");
        c->slo_ns = c->slo_percentile = 0;
    }
}

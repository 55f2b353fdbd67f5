/* Clients that are stopped: Ctrl-Z, SIGSTOP, a debugger.
 *
 * A job that is stopped in the middle of a burst says for ever that it is busy, and all below it
 * would wait for as long as somebody leaves it there.  So after DAEMON_STOPPED_MS it loses its
 * place: those below do not see its word any more, and the policy hears that it has nothing to do.
 * It gets both back when it is seen to go on, some hundred milliseconds later at most.  Only those
 * who are in somebody's way are looked at. */
#include "runtime/tallyd/tallyd.h"
#include "tally/file.h"

#include <stdio.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define LOOK_NS (100 * MS) /* between two looks at all of them */

/* Whether the kernel says so.  The pid is that of a living process, since its pidfd is watched; one
 * that cannot be seen from here counts as going on. */
static bool is_stopped_now(pid_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (pid <= 0 || tl_file_head(path, text, sizeof text) <= 0)
        return false;
    /* Behind the name in brackets, in which anything may be. */
    const char *state = strrchr(text, ')');
    return state != NULL && (strncmp(state, ") T", 3) == 0 || strncmp(state, ") t", 3) == 0);
}

static bool is_in_the_way(const struct daemon_peer *p)
{
    return p->stopped_ns != 0 || atomic_load(&p->page->has_backlog) != 0 ||
           tl_word_is_busy(atomic_load_explicit(&p->page->word, memory_order_relaxed)) != 0;
}

bool daemon_is_stopped(const struct daemon_peer *p)
{
    return is_in_the_way(p) && is_stopped_now(p->who.pid);
}

/* True if it lost or got back its place. */
static bool look_at(struct daemon_peer *p, uint64_t now)
{
    bool is_stopped = daemon_is_stopped(p), was_out = p->is_set_aside;
    if (!is_stopped)
        p->stopped_ns = 0;
    else if (p->stopped_ns == 0)
        p->stopped_ns = now;
    p->is_set_aside = is_stopped && now - p->stopped_ns >= DAEMON_STOPPED_MS * MS;
    if (p->is_set_aside && !was_out)
        daemon_log(LOG_WARNINGS,
                   "process %d (%s) is stopped while it has work: others go on without it until it "
                   "does (kill -CONT %d)",
                   (int)p->who.pid, p->job, (int)p->who.pid);
    else if (was_out && !p->is_set_aside)
        daemon_log(LOG_EVENTS, "process %d (%s) goes on, and has its place again", (int)p->who.pid,
                   p->job);
    return p->is_set_aside != was_out;
}

void daemon_look_for_stopped(struct daemon *d, uint64_t now)
{
    bool has_changed = false;
    if (now - d->stopped_look_ns < LOOK_NS)
        return;
    d->stopped_look_ns = now;
    for (uint32_t i = 0; i < d->n_clients; i++)
        has_changed |= look_at(d->clients[i], now);
    if (has_changed)
        daemon_words_update(d);
}

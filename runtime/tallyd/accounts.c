/* Who an engine vouches for (runtime/job/admit.h), and what its jobs have used of the device: the
 * sum over their processes, those that have ended, too.
 *
 * An account is kept until there are too many: then the one goes that has been without a process
 * for the longest.  What a process used is what its page says, which is the process's own, but
 * never more than the time that it was here for. */
#include "runtime/job/admit.h"
#include "runtime/tallyd/tallyd.h"
#include "tally/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ACCOUNTS = 4096 };

struct daemon_account {
    struct daemon_account *next;
    char name[TL_ADMIT_NAME];
    uid_t uid;
    uint32_t processes, running;
    uint64_t device_ns, waited_ns, preemptions; /* of those that have ended */
    uint64_t most_bytes;                        /* that one of them held when it was looked at */
    uint64_t used_ns;                           /* when the last one left or came */
};

struct daemon_rights daemon_rights_of(const struct daemon *d, const struct daemon_who *who,
                                      char account[TL_ADMIT_NAME])
{
    struct tl_admission a;
    struct daemon_rights rights;
    if (account != NULL)
        account[0] = 0;
    if (tl_admit_find(d->place.path, who->pid, &a) < 0)
        return daemon_rules_rights(d->rules, who);
    const char *problem = daemon_rights_parse(&rights, a.rights);
    if (problem != NULL) {
        daemon_log(LOG_WARNINGS, "the admission of process %d ('%s') says nothing: %s",
                   (int)who->pid, a.rights, problem);
        return daemon_rules_rights(d->rules, who);
    }
    if (account != NULL)
        memcpy(account, a.account, TL_ADMIT_NAME);
    return rights;
}

/* --- sums ------------------------------------------------------------------------------------- */

static struct daemon_account *account_named(const struct daemon *d, const char *name, uid_t uid)
{
    struct daemon_account *a = d->accounts;
    while (a != NULL && (a->uid != uid || strcmp(a->name, name) != 0))
        a = a->next;
    return a;
}

static void forget_oldest(struct daemon *d)
{
    struct daemon_account **oldest = NULL;
    uint32_t n = 0;
    for (struct daemon_account **at = &d->accounts; *at != NULL; at = &(*at)->next, n++)
        if ((*at)->running == 0 && (oldest == NULL || (*at)->used_ns < (*oldest)->used_ns))
            oldest = at;
    if (n < MOST_ACCOUNTS || oldest == NULL)
        return;
    struct daemon_account *a = *oldest;
    *oldest = a->next;
    free(a);
}

void daemon_account_join(struct daemon *d, struct daemon_peer *p, const char *name)
{
    p->account = NULL;
    if (name[0] == 0)
        return;
    struct daemon_account *a = account_named(d, name, p->who.uid);
    if (a == NULL) {
        forget_oldest(d);
        a = calloc(1, sizeof *a);
        if (a == NULL)
            return;
        memcpy(a->name, name, sizeof a->name);
        a->uid = p->who.uid;
        a->next = d->accounts;
        d->accounts = a;
    }
    a->processes++;
    a->running++;
    a->used_ns = p->joined_ns;
    p->account = a;
}

/* What a client has used since it came here, and before if it was with another tallyd. */
static uint64_t device_ns_of(const struct daemon_peer *p, uint64_t now)
{
    uint64_t said = atomic_load_explicit(&p->page->device_ns, memory_order_relaxed);
    uint64_t gpus = (uint64_t)__builtin_popcountll(p->gpus);
    uint64_t most = p->before_ns + (now - p->joined_ns) * (gpus > 0 ? gpus : 1);
    return said < most ? said : most;
}

static void note_memory(struct daemon_account *a, const struct daemon_peer *p)
{
    if (p->seen.memory_bytes > a->most_bytes)
        a->most_bytes = p->seen.memory_bytes;
}

void daemon_account_leave(struct daemon_peer *p, uint64_t now)
{
    struct daemon_account *a = p->account;
    if (a == NULL)
        return;
    a->device_ns += device_ns_of(p, now);
    a->waited_ns += atomic_load_explicit(&p->page->waited_ns, memory_order_relaxed);
    a->preemptions += atomic_load_explicit(&p->page->preemptions, memory_order_relaxed);
    note_memory(a, p);
    a->running--;
    a->used_ns = now;
    p->account = NULL;
}

int daemon_account_tell(const struct daemon *d, const char *name, uid_t uid, bool is_anybodys,
                        struct tl_wire_accounted *told)
{
    const struct daemon_account *a = d->accounts;
    uint64_t now = tl_clock_ns();
    while (a != NULL && (strcmp(a->name, name) != 0 || (!is_anybodys && a->uid != uid)))
        a = a->next;
    if (a == NULL)
        return -ENOENT;
    *told = (struct tl_wire_accounted){
        .uid = a->uid,
        .processes = a->processes,
        .running = a->running,
        .device_ns = a->device_ns,
        .waited_ns = a->waited_ns,
        .preemptions = a->preemptions,
        .most_bytes = a->most_bytes,
    };
    for (uint32_t i = 0; i < d->n_clients; i++) {
        const struct daemon_peer *p = d->clients[i];
        if (p->account != a)
            continue;
        told->device_ns += device_ns_of(p, now);
        told->waited_ns += atomic_load_explicit(&p->page->waited_ns, memory_order_relaxed);
        told->preemptions += atomic_load_explicit(&p->page->preemptions, memory_order_relaxed);
        if (p->seen.memory_bytes > told->most_bytes)
            told->most_bytes = p->seen.memory_bytes;
    }
    return 0;
}

void daemon_accounts_finish(struct daemon *d)
{
    while (d->accounts != NULL) {
        struct daemon_account *a = d->accounts;
        d->accounts = a->next;
        free(a);
    }
}

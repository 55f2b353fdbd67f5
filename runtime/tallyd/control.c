/* Answers `tally ps`, `tally set`, `tally policy` and `tally account`. */
#include "runtime/tallyd/tallyd.h"
#include "tally/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void answer(struct daemon *d, struct daemon_peer *p, int code, const char *text)
{
    struct tl_wire_answer a = {.code = code};
    memcpy(a.policy, d->policy, sizeof a.policy);
    tl_wire_text(a.text, sizeof a.text, text);
    if (tl_wire_send(p->socket, TL_WIRE_ANSWER, &a, sizeof a, NULL, 0) < 0)
        daemon_drop(d, p, "does not read answers");
}

/* Masters may change all jobs; others may change their own, unless those may have more than
 * themselves: somebody whom the rules keep low does not pause what they let be high. */
static const char *why_not(const struct daemon_rights *rights, const struct daemon_peer *p,
                           const struct daemon_peer *c)
{
    if (rights->is_master)
        return NULL;
    if (p->who.uid != c->who.uid)
        return "that job is another user's";
    return c->rights.highest > rights->highest
               ? "the rules of tallyd let that job have more than who asks for this"
               : NULL;
}

/* --- tally ps --------------------------------------------------------------------------------- */

static int compare_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Of the requests that its page still has. */
static uint64_t p99_of(const struct daemon_peer *c)
{
    enum { RING = 64 };
    uint64_t list[RING], n = c->seen.requests < RING ? c->seen.requests : RING;
    for (uint64_t i = 0; i < n; i++)
        list[i] = atomic_load_explicit(&c->page->requests_ns[i], memory_order_relaxed);
    qsort(list, n, sizeof list[0], compare_ns);
    return n > 0 ? list[(n * 99 + 99) / 100 - 1] : 0;
}

/* A client as tools see it. */
static void describe(const struct daemon *d, const struct daemon_peer *c, struct tl_wire_status *s)
{
    const struct tl_client_page *page = c->page;
    char name[TL_SHARE_NAME];
    *s = (struct tl_wire_status){
        .id = c->id,
        .pid = c->who.pid,
        .uid = c->who.uid,
        .highest_level = c->rights.highest,
        .client = tl_wire_pack(&c->c),
        .may_run = c->grant->grant.may_run,
        .yields = c->grant->grant.yields,
        .is_busy = tl_word_is_busy(page->word) != 0,
        .has_backlog = c->seen.has_backlog,
        .rung = page->rung,
        .in_flight = page->in_flight,
        .share_permille = c->seen.share_permille,
        .is_stopped = c->stopped_ns != 0,
        .joined_ns = c->joined_ns,
        .device_ns = c->seen.device_ns,
        .blocks = c->seen.blocks,
        .launches = c->seen.launches,
        .waited_ns = c->seen.waited_ns,
        .preemptions = page->preemptions,
        .uncontrolled_ns = page->uncontrolled_ns,
        .memory_bytes = c->seen.memory_bytes,
        .requests = c->seen.requests,
        .p99_ns = p99_of(c),
        .device_memory_bytes = page->device_memory_bytes,
    };
    DAEMON_FOR_GPUS(d, c, g)
    s->tree_bytes += daemon_tree_held(c->tree, d->gpus[g].uuid);
    memcpy(s->job, c->job, sizeof s->job);
    if ((c->gpus & (c->gpus - 1)) == 0) {
        tl_share_get_name(page->device_name, name);
        tl_wire_text(s->device, sizeof s->device, name);
    }
    daemon_gpus_of(d, c, &s->gpus);
}

static void list(struct daemon *d, struct daemon_peer *p, uint32_t after)
{
    const struct daemon_peer *next = NULL;
    struct tl_wire_status status;
    if (after == 0)
        (void)daemon_look(d, tl_clock_ns()); /* it may have slept */
    for (uint32_t i = 0; i < d->n_clients; i++)
        if (d->clients[i]->id > after && (next == NULL || d->clients[i]->id < next->id))
            next = d->clients[i];
    if (next == NULL) {
        answer(d, p, 0, "");
        return;
    }
    describe(d, next, &status);
    if (tl_wire_send(p->socket, TL_WIRE_CLIENT, &status, sizeof status, NULL, 0) < 0)
        daemon_drop(d, p, "does not read answers");
}

/* --- tally set -------------------------------------------------------------------------------- */

static void merge(struct tl_sched_client *c, const struct tl_sched_client *with, uint32_t what)
{
    if ((what & TL_SET_LEVEL) != 0)
        c->level = with->level;
    if ((what & TL_SET_SLO) != 0) {
        c->slo_percentile = with->slo_percentile;
        c->slo_ns = with->slo_ns;
    }
    if ((what & TL_SET_PAUSED) != 0)
        c->is_paused = with->is_paused;
    if ((what & TL_SET_WEIGHT) != 0)
        c->weight = with->weight;
    if ((what & TL_SET_MIN_SHARE) != 0)
        c->min_permille = with->min_permille;
    if ((what & TL_SET_MAX_SHARE) != 0)
        c->max_permille = with->max_permille;
    if ((what & TL_SET_MEMORY) != 0)
        c->memory_limit = with->memory_limit;
    if ((what & TL_SET_MEMORY_REQUEST) != 0)
        c->memory_request = with->memory_request;
    if ((what & TL_SET_MEMORY_SOFT) != 0)
        c->memory_soft = with->memory_soft;
}

/* Limits of memory are those of the whole tree: the others in it are told, too. */
static void tell_tree(struct daemon *d, const struct daemon_peer *changed)
{
    daemon_tree_set(changed->tree, &changed->c);
    for (uint32_t i = 0; changed->tree != NULL && i < d->n_clients; i++) {
        struct daemon_peer *p = d->clients[i];
        if (p->tree != changed->tree || p == changed)
            continue;
        daemon_tree_limits(p->tree, &p->c);
        daemon_gpus_change(d, p, tl_clock_ns());
        p->published = UINT64_MAX;
    }
}

/* SET: changes one client, if the peer may do that to it, and answers. */
static void set(struct daemon *d, struct daemon_peer *p, const struct tl_wire_set *m)
{
    struct tl_sched_client with;
    struct daemon_rights rights = daemon_rights_of(d, &p->who, NULL);
    char text[512] = "";
    bool was_found = false;
    if ((m->what & ~(uint32_t)TL_SET_ALL) != 0 || m->what == 0 ||
        !tl_wire_unpack(&m->client, &with)) {
        answer(d, p, -EINVAL, "that cannot be set");
        return;
    }
    /* A process that opened the driver twice (fork without exec) may be there more than once; all
     * of it is meant.  Changing one moves it in the order, so the list is gone through by id. */
    for (uint32_t id = 1; id <= d->last_id && d->n_clients > 0; id++) {
        struct daemon_peer *c = NULL;
        for (uint32_t i = 0; i < d->n_clients; i++)
            if (d->clients[i]->id >= id && (c == NULL || d->clients[i]->id < c->id))
                c = d->clients[i];
        if (c == NULL)
            break;
        id = c->id;
        if (c->who.pid != m->pid)
            continue;
        const char *reason = why_not(&rights, p, c);
        if (reason != NULL) {
            answer(d, p, -EPERM, reason);
            return;
        }
        struct tl_sched_client changed = c->c;
        merge(&changed, &with, m->what);
        daemon_rights_limit(&c->rights, &changed, text, sizeof text);
        daemon_change(d, c, &changed);
        tell_tree(d, c);
        daemon_log(LOG_EVENTS, "process %d (%s): level %d%s, set by process %d", (int)c->who.pid,
                   c->job, changed.level, changed.is_paused ? ", paused" : "", (int)p->who.pid);
        was_found = true;
    }
    if (!was_found) {
        snprintf(text, sizeof text, "process %d is no client of tallyd; `tally ps` lists them",
                 (int)m->pid);
        answer(d, p, -ESRCH, text);
        return;
    }
    (void)daemon_look(d, tl_clock_ns()); /* published before the answer */
    answer(d, p, 0, text);
}

/* --- tally policy ----------------------------------------------------------------------------- */

static void policy(struct daemon *d, struct daemon_peer *p, const struct tl_wire_policy *m)
{
    struct tl_error err = {0};
    int rc = 0;
    if (m->policy[0] != 0 && !daemon_rights_of(d, &p->who, NULL).may_choose_policy)
        rc = tl_error_set(&err, -EPERM,
                          "only the user who runs tallyd may change its policy, and whom its rules "
                          "let");
    else if (m->policy[0] != 0)
        rc = daemon_set_policy(d, m->policy, m->parameters, &err);
    if (rc == 0 && m->policy[0] != 0)
        (void)daemon_look(d, tl_clock_ns());
    answer(d, p, rc, rc < 0 ? err.text : d->parameters);
}

/* --- tally account ---------------------------------------------------------------------------- */

static void account(struct daemon *d, struct daemon_peer *p, const struct tl_wire_account *m)
{
    struct tl_wire_accounted told;
    bool is_anybodys = daemon_is_own(p->who.uid); /* also an engine, which has let itself in */
    (void)daemon_look(d, tl_clock_ns());          /* it may have slept */
    if (daemon_account_tell(d, m->name, p->who.uid, is_anybodys, &told) < 0) {
        answer(d, p, -ENOENT,
               "no job of that name has used the device since this tallyd began, or it is another "
               "user's");
        return;
    }
    if (tl_wire_send(p->socket, TL_WIRE_ACCOUNTED, &told, sizeof told, NULL, 0) < 0)
        daemon_drop(d, p, "does not read answers");
}

void daemon_control(struct daemon *d, struct daemon_peer *p, const struct tl_wire_packet *packet)
{
    switch (packet->m.head.kind) {
    case TL_WIRE_LIST:
        list(d, p, packet->m.list.after);
        break;
    case TL_WIRE_SET:
        set(d, p, &packet->m.set);
        break;
    case TL_WIRE_POLICY:
        policy(d, p, &packet->m.policy);
        break;
    case TL_WIRE_ACCOUNT:
        account(d, p, &packet->m.account);
        break;
    default:
        daemon_drop(d, p, "says what only tallyd says");
    }
}

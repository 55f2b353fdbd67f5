/* Clients come, change and go; policies are swapped under them. */
#include "runtime/tallyd/tallyd.h"
#include "tally/clock.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- order ------------------------------------------------------------------------------------ */

/* Behind everybody of its level or above. */
static void insert(struct daemon *d, struct daemon_peer *p)
{
    uint32_t at = d->n_clients;
    assert(p->id != 0 && !p->is_gone && d->n_clients < DAEMON_MAX_PEERS);
    while (at > 0 && d->clients[at - 1]->c.level < p->c.level)
        at--;
    memmove(d->clients + at + 1, d->clients + at,
            (d->n_clients - at) * sizeof(struct daemon_peer *));
    d->clients[at] = p;
    d->n_clients++;
}

static void take_out(struct daemon *d, const struct daemon_peer *p)
{
    uint32_t at = 0;
    while (at < d->n_clients && d->clients[at] != p)
        at++;
    assert(at < d->n_clients);
    d->n_clients--;
    memmove(d->clients + at, d->clients + at + 1,
            (d->n_clients - at) * sizeof(struct daemon_peer *));
}

/* --- joining ---------------------------------------------------------------------------------- */

void daemon_refuse(struct daemon_peer *p, int code, const char *text)
{
    struct tl_wire_answer answer = {.code = code};
    tl_wire_text(answer.text, sizeof answer.text, text);
    (void)tl_wire_send(p->socket, TL_WIRE_REFUSED, &answer, sizeof answer, NULL, 0);
    daemon_log(LOG_WARNINGS, "process %d is refused: %s", (int)p->who.pid, text);
}

/* A page is the page of one client, which made it.  A process whose connection broke comes again
 * with the page that it had; it may be heard before its old connection is. */
static int check_owner(struct daemon *d, struct daemon_peer *p, int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    for (uint32_t i = 0; i < d->n_clients; i++) {
        struct daemon_peer *other = d->clients[i];
        if (other->page_number != st.st_ino)
            continue;
        if (other->who.pid != p->who.pid || other->who.uid != p->who.uid)
            return -EBUSY;
        daemon_drop(d, other, "came again");
        break;
    }
    p->page_number = st.st_ino;
    return st.st_uid == p->who.uid ? 0 : -EPERM;
}

/* Maps the page that the client made.  A page that was with another tallyd before is sealed and can
 * only be read: then its word cannot be equalised from here, and lower levels are told to forget
 * it. */
static int take_page(struct daemon *d, struct daemon_peer *p, int fd)
{
    int rc = fd >= 0 ? check_owner(d, p, fd) : -EINVAL; /* -1: it was no page */
    if (rc < 0)
        return rc;
    p->page = tl_share_map(fd, true);
    p->is_page_writable = p->page != NULL;
    if (p->page == NULL)
        p->page = tl_share_map(fd, false);
    if (p->page == NULL)
        return -errno;
    if (p->page->magic != TL_CLIENT_MAGIC || p->page->version != TL_SHARE_VERSION)
        return -EINVAL; /* somebody's grants, say */
    tl_share_seal(fd);
    p->page_reader = tl_share_reader(fd);
    return p->page_reader < 0 ? p->page_reader : 0;
}

/* Makes its grant page; returns the descriptor for it, or -errno. */
static int make_grant(struct daemon_peer *p)
{
    void *page;
    int fd = tl_share_create("tally-grant", &page), reader;
    if (fd < 0)
        return fd;
    p->grant = page;
    p->grant->magic = TL_GRANT_MAGIC;
    p->grant->version = TL_SHARE_VERSION;
    tl_share_seal(fd);
    reader = tl_share_reader(fd);
    close(fd);
    return reader;
}

static void forget_pages(struct daemon_peer *p)
{
    if (p->page != NULL)
        munmap(p->page, TL_SHARE_PAGE);
    if (p->grant != NULL)
        munmap(p->grant, TL_SHARE_PAGE);
    if (p->page_reader >= 0)
        close(p->page_reader);
    p->page = NULL;
    p->grant = NULL;
    p->page_reader = -1;
    p->page_number = 0;
    daemon_words_finish(p);
    daemon_copies_finish(p);
}

/* A wish for a policy is granted to the first who comes, if he may choose it; later it needs `tally
 * policy`. */
static void hear_policy_wish(struct daemon *d, const struct daemon_rights *rights, const char *wish,
                             char *remark, size_t size)
{
    struct tl_error err;
    if (wish[0] == 0 || strcmp(wish, d->policy) == 0)
        return;
    if (!rights->may_choose_policy)
        snprintf(remark, size,
                 "the policy in force is '%s', not '%s': the rules of tallyd do not let this job "
                 "choose",
                 d->policy, wish);
    else if (d->n_clients > 0)
        snprintf(remark, size,
                 "the policy in force is '%s', not '%s'; `tally policy %s` changes it for all",
                 d->policy, wish, wish);
    else if (daemon_set_policy(d, wish, "", &err) < 0)
        snprintf(remark, size, "%.300s; '%s' stays in force", err.text, d->policy);
}

/* Where the sums of a page begin for this tallyd: what was before is not usage. */
static void begin_seen(struct daemon_peer *p, uint64_t now)
{
    const struct tl_client_page *page = p->page;
    p->before_ns = page->device_ns;
    p->seen = (struct daemon_seen){
        .device_ns = page->device_ns,
        .blocks = page->blocks,
        .launches = page->launches,
        .waited_ns = page->waited_ns,
        .iterations = page->iterations,
        .requests = page->n_requests,
        .share_from_ns = now,
        .share_device_ns = page->device_ns,
    };
}

/* Makes a client of a peer; what was made of it so far is the caller's to forget if this fails. */
static int enter(struct daemon *d, struct daemon_peer *p, int page_fd, int *grant_fd,
                 struct tl_error *err)
{
    assert(p->page == NULL && p->grant == NULL && p->page_reader < 0);
    int rc = take_page(d, p, page_fd);
    if (rc < 0)
        return tl_error_set(err, rc, "its page cannot be used (%s)", strerror(-rc));
    *grant_fd = make_grant(p);
    if (*grant_fd < 0)
        return tl_error_set(err, *grant_fd, "no shared memory for its grants (%s)",
                            strerror(-*grant_fd));
    uint64_t now = tl_clock_ns();
    rc = daemon_gpus_enter(d, p, d->last_id + 1, now);
    if (rc < 0)
        return tl_error_set(err, rc, "out of memory");
    p->id = ++d->last_id;
    p->joined_ns = now;
    begin_seen(p, now);
    insert(d, p);
    return 0;
}

/* HELLO: checks what it asks for, lets it in at the level that it may have, and tells everybody
 * concerned; or refuses and drops it. */
void daemon_join(struct daemon *d, struct daemon_peer *p, struct tl_wire_packet *packet)
{
    const struct tl_wire_hello *hello = &packet->m.hello;
    struct tl_wire_answer welcome = {0};
    struct tl_error err = {0};
    char account[TL_ADMIT_NAME];
    int grant_fd = -1;
    if (p->id != 0 || hello->share_version != TL_SHARE_VERSION ||
        !tl_wire_unpack(&hello->client, &p->c)) {
        daemon_refuse(p, -EPROTO,
                      p->id != 0 ? "it joined already"
                      : hello->share_version != TL_SHARE_VERSION
                          ? "its shared pages are of another version"
                          : "its settings are out of range");
        daemon_drop(d, p, "refused");
        return;
    }
    tl_wire_text(p->job, sizeof p->job, hello->job);
    p->rights = daemon_rights_of(d, &p->who, account);
    daemon_rights_limit(&p->rights, &p->c, welcome.text, sizeof welcome.text);
    if (welcome.text[0] == 0) /* there is room for one remark */
        hear_policy_wish(d, &p->rights, hello->policy, welcome.text, sizeof welcome.text);
    if (enter(d, p, packet->fds[0], &grant_fd, &err) < 0) {
        daemon_refuse(p, err.code, err.text);
        forget_pages(p);
        daemon_drop(d, p, "refused");
        return;
    }
    daemon_account_join(d, p, account);
    int fds[2] = {grant_fd,
                  daemon_tree_join(d, p, hello->tree, packet->n_fds > 1 ? packet->fds[1] : -1)};
    if (hello->gpus.n != 0)
        daemon_use_gpus(d, p, &hello->gpus);
    if (p->is_gone) {
        close(grant_fd);
        return;
    }
    daemon_look(d, p->joined_ns); /* its grant is published before it sees the page */
    welcome.level = p->c.level;
    memcpy(welcome.policy, d->policy, sizeof welcome.policy);
    int rc = tl_wire_send(p->socket, TL_WIRE_WELCOME, &welcome, sizeof welcome, fds,
                          fds[1] >= 0 ? 2 : 1);
    close(grant_fd);
    daemon_log(LOG_EVENTS, "process %d (%s) %s at level %d%s%s", (int)p->who.pid, p->job,
               hello->is_return != 0 ? "is back" : "joined", p->c.level,
               welcome.text[0] != 0 ? "; it is told: " : "", welcome.text);
    if (rc < 0)
        daemon_drop(d, p, strerror(-rc));
    else
        daemon_words_update(d);
}

/* --- leaving and changing --------------------------------------------------------------------- */

/* Whatever a dead process had in flight: nobody waits for it any more.  One that lives counts on,
 * whether it has a tallyd or not; written to by two, its word would differ for ever.  Whom it held
 * back is told of its leaving by the words. */
static void equalise(struct daemon_peer *p)
{
    if (!p->is_page_writable || poll(&(struct pollfd){.fd = p->pidfd, .events = POLLIN}, 1, 0) != 1)
        return;
    uint64_t issued = (uint32_t)atomic_load_explicit(&p->page->word, memory_order_relaxed);
    atomic_store_explicit(&p->page->word, issued | issued << 32, memory_order_release);
    tl_share_tell_idle(p->page);
}

void daemon_leave(struct daemon *d, struct daemon_peer *p)
{
    uint64_t now = tl_clock_ns();
    assert(p->id != 0 && p->page != NULL && p->grant != NULL);
    equalise(p);
    daemon_account_leave(p, now);
    daemon_tree_leave(d, p);
    take_out(d, p);
    daemon_gpus_leave(d, p, now);
    p->id = 0;
    forget_pages(p);
    d->since_client_ns = now;
    if (!d->is_ending)
        daemon_words_update(d);
}

void daemon_change(struct daemon *d, struct daemon_peer *p, const struct tl_sched_client *c)
{
    take_out(d, p);
    p->c = *c;
    insert(d, p);
    daemon_gpus_change(d, p, tl_clock_ns());
    p->published = UINT64_MAX; /* also what the grant does not tell */
    daemon_words_update(d);
}

void daemon_moved(struct daemon *d, struct daemon_peer *p, const struct tl_wire_gpus *gpus)
{
    struct tl_wire_bare placed;
    if (p->id == 0) {
        daemon_drop(d, p, "has no place yet");
        return;
    }
    daemon_use_gpus(d, p, gpus);
    if (p->is_gone)
        return;
    (void)daemon_look(d, tl_clock_ns()); /* published before the answer */
    daemon_words_update(d);
    /* one that does not read its messages goes on after a while */
    (void)tl_wire_send(p->socket, TL_WIRE_PLACED, &placed, sizeof placed, NULL, 0);
}

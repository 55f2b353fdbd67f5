/* Whether GPUs and tallyd are well.  A driver whose GPU is broken may take its time or never
 * answer, so it is asked in a thread; a look that does not end is as bad as one that fails. */
#include "runtime/job/wire.h"
#include "runtime/tally-device-plugin/plugin.h"
#include "tally/clock.h"
#include "tally/thread.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A look may take so long beyond the time between two. */
#define PATIENCE_NS (30 * TL_SECOND_NS)

bool plugin_health_ask_tallyd(const struct plugin_health *h, struct tl_error *err)
{
    int fd = tl_wire_connect(h->socket, err);
    if (fd >= 0)
        close(fd);
    /* A queue that is full is one of somebody who listens. */
    return fd >= 0 || fd == -EAGAIN;
}

static void look(struct plugin_health *h)
{
    struct tl_error err = {0};
    bool is_there[PLUGIN_GPUS] = {false}, is_tallyd_there = plugin_health_ask_tallyd(h, &err);
    for (uint32_t i = 0; i < h->gpus->n; i++)
        is_there[i] = plugin_gpu_is_there(&h->gpus->list[i]);
    tl_mutex_lock(&h->lock);
    bool is_first = h->looked_ns == 0, has_changed = is_tallyd_there != h->is_tallyd_there;
    if (has_changed || (is_first && !is_tallyd_there)) {
        if (is_tallyd_there)
            plugin_say("tallyd listens on %s", h->socket);
        else
            plugin_say("no tallyd, so nothing is handed out: %s", err.text);
    }
    for (uint32_t i = 0; i < h->gpus->n; i++)
        if (is_there[i] != h->is_gpu_there[i]) {
            has_changed = true;
            if (!is_first || !is_there[i])
                plugin_say("%s %s", h->gpus->list[i].uuid,
                           is_there[i] ? "answers again" : "does not answer");
        }
    h->is_tallyd_there = is_tallyd_there;
    memcpy(h->is_gpu_there, is_there, sizeof is_there);
    h->looked_ns = tl_clock_ns();
    tl_mutex_unlock(&h->lock);
    uint64_t one = 1;
    if (has_changed && write(h->bell, &one, sizeof one) < 0)
        plugin_say("the bell does not ring: %s", strerror(errno));
}

static void *look_again_and_again(void *argument)
{
    struct plugin_health *h = argument;
    struct timespec pause = tl_clock_timespec(h->every_ns);
    for (;;) {
        (void)nanosleep(&pause, NULL);
        look(h);
    }
    return NULL;
}

int plugin_health_start(struct plugin_health *h, struct tl_error *err)
{
    static const struct tl_thread_kind kind = {.name = "health"};
    tl_mutex_init(&h->lock);
    h->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (h->bell < 0)
        return tl_error_errno(err, "an event descriptor");
    look(h);
    int rc = tl_thread_start(NULL, &kind, look_again_and_again, h);
    return rc == 0 ? 0 : tl_error_set(err, rc, "a thread: %s", strerror(-rc));
}

bool plugin_health_is_late(struct plugin_health *h)
{
    tl_mutex_lock(&h->lock);
    bool is_late = tl_clock_ns() - h->looked_ns > h->every_ns + PATIENCE_NS;
    tl_mutex_unlock(&h->lock);
    return is_late;
}

bool plugin_health_is_well(struct plugin_health *h, uint32_t gpu, char why[160])
{
    tl_mutex_lock(&h->lock);
    bool is_tallyd_there = h->is_tallyd_there, is_gpu_there = h->is_gpu_there[gpu];
    tl_mutex_unlock(&h->lock);
    if (why != NULL && !is_tallyd_there)
        snprintf(why, 160, "tallyd does not listen on %s", h->socket);
    else if (why != NULL)
        snprintf(why, 160, "%s does not answer", h->gpus->list[gpu].uuid);
    return is_tallyd_there && is_gpu_there && !plugin_health_is_late(h);
}

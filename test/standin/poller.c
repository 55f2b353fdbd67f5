/* A client of a low level that has nothing to run but polls, as its kernels would, what the clients
 * above it tell them.
 *
 *     poller
 *
 * Prints "ready" when somebody above keeps a copy of its word for it, and ends when its standard
 * input is closed. */
#include <poll.h>
#include <stdio.h>
#include <time.h>

#include "runtime/job/client.h"

/* How many are told to leave. */
static uint32_t look(struct tl_client *client)
{
    struct tl_copy_page *polled[TL_SHARE_WORDS];
    uint32_t n = tl_client_polled(client, polled), busy = 0;
    for (uint32_t i = 0; i < n; i++)
        busy += polled[i] != NULL && tl_word_is_busy(atomic_load(&polled[i]->word));
    return busy;
}

static void pause_us(long us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

int main(void)
{
    struct tl_settings settings;
    struct tl_client *client;
    struct tl_error err = {0};
    struct tl_copy_page *polled[TL_SHARE_WORDS];
    uint64_t looks = 0, busy = 0;
    if (tl_settings_read(&settings, &err) < 0)
        fprintf(stderr, "poller: %s\n", err.text);
    settings.level = TL_LEVEL_LOW;
    if (tl_client_create(&client, &settings, &err) < 0 || !tl_client_is_joined(client)) {
        fprintf(stderr, "poller: cannot join: %s\n", err.text);
        return 1;
    }
    struct pollfd in = {.fd = 0, .events = POLLIN};
    bool is_ready = false;
    for (; poll(&in, 1, 0) == 0; pause_us(20)) {
        busy += look(client) != 0;
        looks++;
        if (is_ready || tl_client_polled(client, polled) == 0 || !tl_client_is_kept(client))
            continue;
        is_ready = true;
        puts("ready");
        fflush(stdout);
    }
    printf("%llu of %llu looks found somebody busy\n", (unsigned long long)busy,
           (unsigned long long)looks);
    tl_client_destroy(client);
    return 0;
}

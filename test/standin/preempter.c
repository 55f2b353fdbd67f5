/* A client of a high level that has nothing to run but is busy at random: it drives everybody below off the device and lets
 * them come back, again and again.
 *
 *     preempter [SECONDS [SEED]]     prints "ready" when it has joined; ends by itself or when its standard input is closed */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/client.h"

static uint64_t state;

static uint32_t roll(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % n;
}

static void pause_us(uint32_t us)
{
    struct timespec t = {us / 1000000, (long)(us % 1000000) * 1000};
    nanosleep(&t, NULL);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    state = (argc > 2 ? strtoull(argv[2], NULL, 0) : 1) * 0x9E3779B97F4A7C15ull + 1;
    struct tl_settings settings;
    struct tl_client *client;
    struct tl_error err = {0};
    if (tl_settings_read(&settings, &err) < 0)
        fprintf(stderr, "preempter: %s\n", err.text);
    settings.level = TL_LEVEL_HIGH;
    if (tl_client_create(&client, &settings, &err) < 0 || !tl_client_is_joined(client)) {
        fprintf(stderr, "preempter: cannot join: %s\n", err.text);
        return 1;
    }
    puts("ready");
    fflush(stdout);
    struct tl_client_page *page = tl_client_page(client);
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double end = (double)t.tv_sec + (double)t.tv_nsec * 1e-9 + seconds, now = 0;
    while (now < end) {
        uint32_t issued = atomic_load(&page->issued) + 1;
        atomic_store(&page->issued, issued);
        pause_us(roll(8) == 0 ? roll(3000) : roll(200));
        atomic_store(&page->completed, issued);
        pause_us(roll(8) == 0 ? roll(6000) : roll(400));
        struct pollfd in = {.fd = 0, .events = POLLIN};
        if (poll(&in, 1, 0) > 0)
            break; /* closed, or somebody said something */
        clock_gettime(CLOCK_MONOTONIC, &t);
        now = (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
    }
    tl_client_destroy(client);
    return 0;
}

/* A client of a high level that has nothing to run but is busy at random: it drives everybody below
 * off the device and lets them come back, again and again.
 *
 *     preempter [SECONDS [SEED [BUSY [GAP [GPU]]]]]
 *
 * Prints "ready" when it has joined, and ends by itself or when its standard input is closed.  It
 * is busy for up to BUSY (200) microseconds and then not for up to GAP (400); one of eight times is
 * up to 15 times as long.  It has to do with all GPUs, or with that of the software device. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "runtime/job/client.h"
#include "tally/clock.h"

static uint64_t state;

static uint32_t roll(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % n;
}

static void pause_up_to(uint32_t most_us)
{
    uint32_t us = roll(8) == 0 ? roll(15 * most_us + 1) : roll(most_us + 1);
    struct timespec t = {us / 1000000, (long)(us % 1000000) * 1000};
    nanosleep(&t, NULL);
}

/* As the software device has them. */
static void use_gpu(struct tl_client *client, int number)
{
    uint8_t uuid[16] = "tally software ";
    uuid[15] = (uint8_t)number;
    tl_client_place(client, uuid);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    state = (argc > 2 ? strtoull(argv[2], NULL, 0) : 1) * 0x9E3779B97F4A7C15ull + 1;
    uint32_t busy_us = argc > 3 ? (uint32_t)atoi(argv[3]) : 200,
             gap_us = argc > 4 ? (uint32_t)atoi(argv[4]) : 400;
    struct tl_settings settings;
    struct tl_client *client;
    struct tl_error err = {0};
    if (tl_settings_read(&settings, &err) < 0)
        fprintf(stderr, "preempter: %s\n", err.text);
    settings.level = TL_LEVEL_HIGH;
    int rc = tl_client_create(&client, &settings, &err);
    /* on a busy machine tallyd may answer later than a job waits for it; it joins then */
    for (int i = 0; rc == 0 && i < 6000 && !tl_client_is_joined(client); i++)
        usleep(10000);
    if (rc < 0 || !tl_client_is_joined(client)) {
        fprintf(stderr, "preempter: cannot join: %s\n", err.text);
        return 1;
    }
    if (argc > 5)
        use_gpu(client, atoi(argv[5]));
    puts("ready");
    fflush(stdout);
    struct tl_client_page *page = tl_client_page(client);
    uint64_t end = tl_clock_ns() + (uint64_t)(seconds * 1e9);
    prctl(PR_SET_TIMERSLACK, 1);
    while (tl_clock_ns() < end) {
        /* preemptions whose beginning is not known are not in a report */
        atomic_store(&page->burst_ns, tl_clock_ns());
        tl_client_issue(client, 1);
        pause_up_to(busy_us);
        tl_client_complete(client, 1);
        tl_client_tell_idle(client);
        pause_up_to(gap_us);
        struct pollfd in = {.fd = 0, .events = POLLIN};
        if (poll(&in, 1, 0) > 0)
            break; /* closed, or somebody said something */
    }
    tl_client_destroy(client);
    return 0;
}

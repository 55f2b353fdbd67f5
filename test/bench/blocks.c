/* What a stop takes that waits for the running block and for nothing else, where blocks compute.
 *
 *     blocks SECONDS BLOCK_US...
 *
 * stalls.c tells what a machine does to a CPU that needs no memory.  Blocks need some, and then one
 * takes longer than the other without anything having stood still.  This computes tiles of a matrix
 * product on the last CPU, as an SM of the software device, so deep that a tile lasts for the given
 * time in the median, and notes how long each took.  From that it tells the time between a random
 * moment and the end of the tile, in median tiles: long ones are met more often than short ones.
 * If all were alike it would be spread evenly between 0 and 1.  Prints one line of JSON. */
#include "test/bench/sm.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 1024, TILE = 32, MOST = 1 << 20, TRIALS = 400 };

static float a[SIZE][SIZE], b[SIZE][SIZE], c[SIZE][SIZE];
static uint32_t took_ns[MOST];

/* Tile number n of the product, through the first `depth` of k. */
static void tile(uint32_t n, uint32_t depth)
{
    uint32_t row = n / (SIZE / TILE) % (SIZE / TILE) * TILE, column = n % (SIZE / TILE) * TILE;
    float sum[TILE][TILE] = {{0}};
    for (uint32_t k = 0; k < depth; k++) {
        for (uint32_t i = 0; i < TILE; i++) {
            for (uint32_t j = 0; j < TILE; j++)
                sum[i][j] += a[row + i][k % SIZE] * b[k % SIZE][column + j];
        }
    }
    for (uint32_t i = 0; i < TILE; i++) {
        for (uint32_t j = 0; j < TILE; j++)
            c[row + i][column + j] = sum[i][j];
    }
    __asm__ volatile("" ::"r"(c) : "memory"); /* or the compiler sees that nobody wants it */
}

static int by_size(const void *x, const void *y)
{
    uint32_t p = *(const uint32_t *)x, q = *(const uint32_t *)y;
    return (p > q) - (p < q);
}

static uint32_t median_of(uint32_t n)
{
    return took_ns[n / 2];
}

/* Runs tiles for so long, or so many; returns how many, with their times in ascending order. */
static uint32_t run(uint32_t depth, uint64_t for_ns, uint32_t most)
{
    uint32_t n = 0;
    uint64_t begin = now_ns(), last = begin;
    while (n < most && last - begin < for_ns) {
        tile(n, depth);
        uint64_t now = now_ns();
        took_ns[n++] = (uint32_t)(now - last);
        last = now;
    }
    qsort(took_ns, n, sizeof *took_ns, by_size);
    return n;
}

static uint32_t depth_for(double block_ns)
{
    uint32_t depth = 64;
    /* what does not grow with the depth makes the first guess wrong */
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t n = run(depth, UINT64_MAX, TRIALS);
        double next = depth * block_ns / median_of(n);
        depth = next < 1 ? 1 : next > 1e6 ? 1000000 : (uint32_t)next;
    }
    return depth;
}

/* In median tiles: what a part `share` of all moments has to wait at most. */
static double wait_of(uint32_t n, double share)
{
    double sum = 0, median = median_of(n), low = 0, high = took_ns[n - 1] / median;
    for (uint32_t i = 0; i < n; i++)
        sum += took_ns[i];
    for (uint32_t step = 0; step < 50; step++) {
        double middle = (low + high) / 2, longer = 0;
        for (uint32_t i = n; i-- > 0 && took_ns[i] > middle * median;)
            longer += took_ns[i] - middle * median;
        if (longer > (1 - share) * sum)
            low = middle;
        else
            high = middle;
    }
    return high;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: blocks SECONDS BLOCK_US...\n");
        return 2;
    }
    stay_on_last_cpu();
    for (uint32_t i = 0; i < SIZE * SIZE; i++)
        a[i / SIZE][i % SIZE] = b[i / SIZE][i % SIZE] = (float)(i % 7);
    printf("{\"seconds\": %g, \"blocks\": [", atof(argv[1]));
    for (int i = 2; i < argc; i++) {
        uint32_t n = run(depth_for(atof(argv[i]) * 1000),
                         (uint64_t)(atof(argv[1]) * 1e9 / (argc - 2)), MOST);
        printf("%s{\"block_us\": %g, \"median_us\": %.2f, \"p50\": %.2f, \"p90\": %.2f, \"p99\": "
               "%.2f}",
               i > 2 ? ", " : "", atof(argv[i]), median_of(n) / 1000.0, wait_of(n, 0.5),
               wait_of(n, 0.9), wait_of(n, 0.99));
    }
    printf("]}\n");
    return 0;
}

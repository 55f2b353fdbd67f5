/* Atomics of all kinds, in global and shared memory: all that the hardware has, and others through compare-and-swap. */
#include "check.h"

#define THREADS 96
#define BLOCKS 5

struct cells {
    int add, sub, exchanged, low, high, bits_and, bits_or, bits_xor;
    unsigned inc, dec, ulow, uhigh;
    unsigned long long wide, wide_high, wide_and;
    float fadd, fmax_by_cas;
    double dadd;
    unsigned short short_cas;
    int locked, in_lock;
};

__device__ float max_by_cas(float *p, float v)
{
    int *word = (int *)p, old = *word, assumed;
    do {
        assumed = old;
        if (__int_as_float(assumed) >= v)
            break;
        old = atomicCAS(word, assumed, __float_as_int(v));
    } while (assumed != old);
    return __int_as_float(old);
}

__device__ void work(struct cells *c, int i)
{
    atomicAdd(&c->add, i);
    atomicSub(&c->sub, 2 * i);
    atomicMin(&c->low, i * 7 % 101 - 50);
    atomicMax(&c->high, i * 7 % 101 - 50);
    atomicMin(&c->ulow, 0x80000000u + (unsigned)(i % 13));
    atomicMax(&c->uhigh, 0x80000000u + (unsigned)(i % 13));
    atomicAnd(&c->bits_and, ~(1 << i % 20));
    atomicOr(&c->bits_or, 1 << i % 30);
    atomicXor(&c->bits_xor, i * i);
    atomicInc(&c->inc, 9);
    atomicDec(&c->dec, 6);
    atomicExch(&c->exchanged, i);
    atomicAdd(&c->wide, 0x100000001ull * (unsigned)i);
    atomicMax(&c->wide_high, (unsigned long long)i << 33);
    atomicAnd(&c->wide_and, ~(1ull << i % 64));
    atomicAdd(&c->fadd, 0.5f * (float)i); /* exact: multiples of a half below 2^23 */
    atomicAdd(&c->dadd, 0.25 * i);
    max_by_cas(&c->fmax_by_cas, (float)(i * 31 % 97) - 20.5f);
    unsigned short seen = c->short_cas, assumed;
    do {
        assumed = seen;
        seen = atomicCAS(&c->short_cas, assumed, (unsigned short)(assumed + 3));
    } while (seen != assumed);
}

__global__ void in_global(struct cells *c, int *old)
{
    int i = blockIdx.x * THREADS + threadIdx.x;
    work(c, i);
    old[i] = atomicAdd(&c->locked, 1); /* each gets a number of its own */
}

__global__ void in_shared(struct cells *out, const struct cells *start)
{
    __shared__ struct cells c;
    if (threadIdx.x == 0)
        c = *start;
    __syncthreads();
    work(&c, threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0)
        out[blockIdx.x] = c;
}

/* A spin lock, taken by one thread of each block. */
__global__ void with_lock(struct cells *c)
{
    if (threadIdx.x == 0) {
        while (atomicCAS(&c->locked, 0, 1) != 0)
            ;
        __threadfence();
        *(volatile int *)&c->in_lock = *(volatile int *)&c->in_lock + 1;
        __threadfence();
        atomicExch(&c->locked, 0);
    }
}

static void expect(checker *check, const struct cells *got, const struct cells *start, int n, const char *where)
{
    struct cells w = *start;
    for (int i = 0; i < n; i++) {
        int v = i * 7 % 101 - 50;
        unsigned u = 0x80000000u + (unsigned)(i % 13);
        float f = (float)(i * 31 % 97) - 20.5f;
        w.add += i;
        w.sub -= 2 * i;
        w.low = v < w.low ? v : w.low;
        w.high = v > w.high ? v : w.high;
        w.ulow = u < w.ulow ? u : w.ulow;
        w.uhigh = u > w.uhigh ? u : w.uhigh;
        w.bits_and &= ~(1 << i % 20);
        w.bits_or |= 1 << i % 30;
        w.bits_xor ^= i * i;
        w.inc = w.inc >= 9 ? 0 : w.inc + 1;
        w.dec = w.dec == 0 || w.dec > 6 ? 6 : w.dec - 1;
        w.wide += 0x100000001ull * (unsigned)i;
        w.wide_high = (unsigned long long)i << 33 > w.wide_high ? (unsigned long long)i << 33 : w.wide_high;
        w.wide_and &= ~(1ull << i % 64);
        w.fadd += 0.5f * (float)i;
        w.dadd += 0.25 * i;
        w.fmax_by_cas = f > w.fmax_by_cas ? f : w.fmax_by_cas;
        w.short_cas = (unsigned short)(w.short_cas + 3);
    }
    check->is(got->add == w.add && got->sub == w.sub, where, 1);
    check->is(got->low == w.low && got->high == w.high, where, 2);
    check->is(got->ulow == w.ulow && got->uhigh == w.uhigh, where, 3);
    check->is(got->bits_and == w.bits_and && got->bits_or == w.bits_or && got->bits_xor == w.bits_xor, where, 4);
    check->is(got->inc == w.inc && got->dec == w.dec, where, 5);
    check->is(got->exchanged >= 0 && got->exchanged < n, where, 6);
    check->is(got->wide == w.wide && got->wide_high == w.wide_high && got->wide_and == w.wide_and, where, 7);
    check->is(got->fadd == w.fadd && got->dadd == w.dadd, where, 8);
    check->is(got->fmax_by_cas == w.fmax_by_cas, where, 9);
    check->is(got->short_cas == w.short_cas, where, 10);
}

int main()
{
    checker check("atomics");
    const int n = THREADS * BLOCKS;
    std::vector<struct cells> start(1);
    memset(&start[0], 0, sizeof(start[0]));
    start[0].bits_and = -1;
    start[0].wide_and = ~0ull;
    start[0].ulow = ~0u;
    start[0].dec = 3;
    start[0].exchanged = -1;
    start[0].fmax_by_cas = -1000;
    struct cells *c = to_device(start), *fresh = to_device(start), *shared = device_array<struct cells>(BLOCKS);
    int *old = device_array<int>(n);
    in_global<<<BLOCKS, THREADS>>>(c, old);
    FINISH();
    struct cells got = to_host(c, 1)[0];
    expect(&check, &got, &start[0], n, "global");
    std::vector<int> numbers = to_host(old, n);
    std::vector<bool> seen(n, false);
    for (int i = 0; i < n; i++) {
        bool is_new = numbers[i] >= 0 && numbers[i] < n && !seen[numbers[i]];
        check.is(is_new, "returned number", i);
        if (is_new)
            seen[numbers[i]] = true;
    }
    in_shared<<<BLOCKS, THREADS>>>(shared, fresh);
    FINISH();
    for (const struct cells &s : to_host(shared, BLOCKS))
        expect(&check, &s, &start[0], THREADS, "shared");
    with_lock<<<200, 32>>>(fresh);
    FINISH();
    check.is(to_host(fresh, 1)[0].in_lock == 200, "lock");
    return check.done();
}

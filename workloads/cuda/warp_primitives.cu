/* What lanes of a warp do together: votes, shuffles of all kinds and widths, match, reduce, with partial masks. */
#include "check.h"

#define RESULTS 20

__global__ void together(unsigned *out, const unsigned *in)
{
    unsigned lane = threadIdx.x % 32, v = in[threadIdx.x], *o = out + RESULTS * threadIdx.x, all = 0xffffffffu;
    o[0] = __ballot_sync(all, v & 1);
    o[1] = (unsigned)__any_sync(all, v == 5) | (unsigned)__all_sync(all, v < 1000) << 1;
    o[2] = __shfl_sync(all, v, (int)(v % 32));
    o[3] = __shfl_sync(all, v, 3, 8);
    o[4] = __shfl_up_sync(all, v, 5);
    o[5] = __shfl_up_sync(all, v, 3, 16);
    o[6] = __shfl_down_sync(all, v, 9);
    o[7] = __shfl_down_sync(all, v, 2, 4);
    o[8] = __shfl_xor_sync(all, v, 21);
    o[9] = __shfl_xor_sync(all, v, 12, 8);
    o[10] = __match_any_sync(all, v % 7);
    int same;
    o[11] = __match_all_sync(all, v % 7, &same);
    o[11] += (unsigned)same;
    o[12] = __match_all_sync(all, 77, &same);
    o[12] ^= (unsigned)same;
    o[13] = __reduce_add_sync(all, v) ^ __reduce_xor_sync(all, v);
    o[14] = (unsigned)__reduce_min_sync(all, (int)v - 300) ^ __reduce_max_sync(all, v);
    o[15] = __reduce_and_sync(all, v | 64) | __reduce_or_sync(all, v) << 16;
    unsigned long long wide = __shfl_xor_sync(all, (unsigned long long)v << 32 | lane, 1);
    o[16] = (unsigned)(wide >> 32) ^ (unsigned)wide;
    /* Two halves of a branch, each with the mask of its own lanes. */
    if (v & 1) {
        unsigned mask = __activemask();
        o[17] = __ballot_sync(mask, v & 2);
        o[18] = __reduce_add_sync(mask, v);
    } else {
        unsigned mask = __activemask();
        o[17] = ~__ballot_sync(mask, v & 4);
        o[18] = (unsigned)__popc(__match_any_sync(mask, v & 8));
    }
    __syncwarp();
    o[19] = (unsigned)__double2int_rn(__shfl_down_sync(all, (double)v * 0.5, 1) * 2);
}

/* The last step of a reduction, done by two lanes: the others, which the barrier names too, have only to return. */
__global__ void tail(unsigned *out, const unsigned *in)
{
    __shared__ unsigned part[128];
    part[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 2) {
        part[threadIdx.x] += part[threadIdx.x + 2];
        __syncwarp();
        out[threadIdx.x] = part[0] + part[1];
    }
}

int main()
{
    checker check("warp_primitives");
    const int n = 128;
    std::vector<unsigned> v(n), want(RESULTS * n);
    struct sequence s = {60};
    for (unsigned &x : v)
        x = s.next() % 600;
    for (int t = 0; t < n; t++) {
        const unsigned *w = &v[t / 32 * 32];
        unsigned l = t % 32, x = v[t], *o = &want[RESULTS * t], any = 0, all = 1, match = 0, odd = 0;
        unsigned sum = 0, exclusive = 0, most = 0, bits = ~0u, some = 0, odd_sum = 0, two = 0, four = 0, eights = 0;
        unsigned same = 1;
        int least = INT_MAX;
        for (unsigned k = 0; k < 32; k++) {
            any |= w[k] == 5;
            all &= w[k] < 1000;
            odd |= (w[k] & 1) << k;
            match |= (unsigned)(w[k] % 7 == x % 7) << k;
            same &= w[k] % 7 == w[0] % 7;
            sum += w[k];
            exclusive ^= w[k];
            most = w[k] > most ? w[k] : most;
            least = (int)w[k] - 300 < least ? (int)w[k] - 300 : least;
            bits &= w[k] | 64;
            some |= w[k];
            if (w[k] & 1) {
                odd_sum += w[k];
                two |= (unsigned)((w[k] & 2) != 0) << k;
            } else {
                four |= (unsigned)((w[k] & 4) != 0) << k;
                eights += (w[k] & 8) == (x & 8);
            }
        }
        o[0] = odd;
        o[1] = any | all << 1;
        o[2] = w[x % 32];
        o[3] = w[l / 8 * 8 + 3];
        o[4] = l >= 5 ? w[l - 5] : x;
        o[5] = l % 16 >= 3 ? w[l - 3] : x;
        o[6] = l + 9 < 32 ? w[l + 9] : x;
        o[7] = l % 4 + 2 < 4 ? w[l + 2] : x;
        o[8] = w[l ^ 21];
        /* A partner in a later segment is out of reach, one in an earlier segment is not. */
        o[9] = (l ^ 12) / 8 <= l / 8 ? w[l ^ 12] : x;
        o[10] = match;
        o[11] = same ? 0xffffffffu + 1u : 0;
        o[12] = 0xffffffffu ^ 1u;
        o[13] = sum ^ exclusive;
        o[14] = (unsigned)least ^ most;
        o[15] = bits | some << 16;
        o[16] = w[l ^ 1] ^ (l ^ 1);
        o[17] = x & 1 ? two : ~four;
        o[18] = x & 1 ? odd_sum : eights;
        o[19] = l < 31 ? w[l + 1] : x;
    }
    unsigned *in = to_device(v), *out = device_array<unsigned>(RESULTS * n);
    together<<<1, n>>>(out, in);
    FINISH();
    std::vector<unsigned> got = to_host(out, RESULTS * n);
    for (int i = 0; i < RESULTS * n; i++) {
        char what[40];
        snprintf(what, sizeof(what), "result %d of lane", i % RESULTS);
        check.is(got[i] == want[i], what, i / RESULTS);
    }
    unsigned *two = device_array<unsigned>(2);
    tail<<<1, n>>>(two, in);
    FINISH();
    std::vector<unsigned> ends = to_host(two, 2);
    check.is(ends[0] == v[0] + v[1] + v[2] + v[3] && ends[1] == ends[0], "sum of two lanes");
    return check.done();
}

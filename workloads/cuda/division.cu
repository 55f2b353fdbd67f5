/* Integer division of 32 and 64 bits, signed and unsigned, wide products, shifts, bit counts: exact, at the edges too. */
#include "check.h"

typedef long long i64;
typedef unsigned long long u64;
#define RESULTS 16

__global__ void divide(u64 *out, const u64 *a, const u64 *b, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    u64 x = a[i], y = b[i], *o = out + RESULTS * i;
    i64 sx = (i64)x, sy = (i64)y;
    o[0] = x / y;
    o[1] = x % y;
    bool overflows = sy == -1 && x == 1ull << 63;
    o[2] = overflows ? 0 : (u64)(sx / sy);
    o[3] = overflows ? 0 : (u64)(sx % sy);
    unsigned px = (unsigned)x, py = (unsigned)y | 1;
    o[4] = px / py;
    o[5] = px % py;
    int qx = (int)px, qy = (int)(py & 0x7fffffff);
    o[6] = (u64)(i64)(qx / qy);
    o[7] = (u64)(i64)(qx % qy);
    o[8] = __umul64hi(x, y);
    o[9] = (u64)__mul64hi(sx, sy);
    o[10] = x * y + (u64)(sx >> 7);
    o[11] = (u64)__clzll((i64)x) << 32 | (unsigned)__popcll(x);
    o[12] = (u64)(unsigned)__ffsll((i64)x) << 32 | (unsigned)__clz((int)px);
    o[13] = __brevll(x);
    o[14] = x / 10 + x % 1000003; /* by constants: multiplications instead */
    o[15] = (u64)(sx / 7) ^ (x << (y & 63)) ^ (x >> (y & 31));
}

int main()
{
    checker check("division");
    const u64 edges[] = {1,
                         2,
                         3,
                         7,
                         10,
                         0x7fffffff,
                         0x80000000,
                         0xffffffff,
                         0x100000000,
                         0x7fffffffffffffff,
                         0x8000000000000000,
                         0x8000000000000001,
                         0xfffffffffffffffe,
                         0xffffffffffffffff};
    std::vector<u64> a, b;
    for (u64 x : edges) {
        for (u64 y : edges) {
            a.push_back(x);
            b.push_back(y);
        }
    }
    struct sequence s = {61};
    for (int i = 0; i < 20000; i++) {
        u64 x = (u64)s.next() << 32 | s.next(), y = (u64)s.next() << 32 | s.next();
        a.push_back(x >> s.next() % 64);
        b.push_back((y >> s.next() % 64) | 1);
    }
    int n = (int)a.size();
    u64 *da = to_device(a), *db = to_device(b), *out = device_array<u64>((size_t)RESULTS * n);
    divide<<<(n + 127) / 128, 128>>>(out, da, db, n);
    FINISH();
    std::vector<u64> got = to_host(out, (size_t)RESULTS * n);
    for (int i = 0; i < n; i++) {
        u64 x = a[i], y = b[i], want[RESULTS], reversed = 0;
        i64 sx = (i64)x, sy = (i64)y;
        bool overflows = sy == -1 && x == 1ull << 63;
        unsigned px = (unsigned)x, py = (unsigned)y | 1, ones = 0, leading = 64, first = 0, leading32 = 32;
        int qx = (int)px, qy = (int)(py & 0x7fffffff);
        for (unsigned k = 0; k < 64; k++) {
            if (x >> k & 1) {
                ones++;
                leading = 63 - k;
                first = first == 0 ? k + 1 : first;
                leading32 = k < 32 ? 31 - k : leading32;
                reversed |= 1ull << (63 - k);
            }
        }
        want[0] = x / y;
        want[1] = x % y;
        want[2] = overflows ? 0 : (u64)(sx / sy);
        want[3] = overflows ? 0 : (u64)(sx % sy);
        want[4] = px / py;
        want[5] = px % py;
        want[6] = (u64)(i64)(qx / qy);
        want[7] = (u64)(i64)(qx % qy);
        want[8] = (u64)((unsigned __int128)x * y >> 64);
        want[9] = (u64)((__int128)sx * sy >> 64);
        want[10] = x * y + (u64)(sx >> 7);
        want[11] = (u64)leading << 32 | ones;
        want[12] = (u64)first << 32 | leading32;
        want[13] = reversed;
        want[14] = x / 10 + x % 1000003;
        want[15] = (u64)(sx / 7) ^ (x << (y & 63)) ^ (x >> (y & 31));
        for (int k = 0; k < RESULTS; k++) {
            char what[40];
            snprintf(what, sizeof(what), "result %d", k);
            check.is(got[(size_t)RESULTS * i + k] == want[k], what, i);
        }
    }
    return check.done();
}

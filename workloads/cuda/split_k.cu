/* A product that is split along k, and its parts added up in turn by a word per tile, as CUTLASS does: the rounding shows the
 * order.  The word is left as it was found, so that the next launch can use it. */
#include "check.h"

enum { TILE = 16, PARTS = 7, DEPTH = 24, K = PARTS * DEPTH };

__global__ void split_product(const float *a, const float *b, float *c, int n, int *words)
{
    __shared__ float left[TILE][TILE + 1], right[TILE][TILE + 1];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
    float sum = 0.0f;
    for (int k = blockIdx.z * DEPTH; k < (int)(blockIdx.z + 1) * DEPTH; k += TILE / 2) {
        __syncthreads();
        if (x < TILE / 2)
            left[y][x] = a[row * K + k + x];
        if (y < TILE / 2)
            right[y][x] = b[(k + y) * n + column];
        __syncthreads();
        for (int i = 0; i < TILE / 2; i++)
            sum = __fadd_rn(sum, __fmul_rn(left[y][i], right[i][x]));
    }

    int *word = words + blockIdx.y * gridDim.x + blockIdx.x, state = -1, turn = blockIdx.z;
    bool polls = x == 0 && y == 0;
    while (__syncthreads_and(state != turn)) {
        if (polls)
            asm volatile("ld.global.acquire.gpu.b32 %0, [%1];" : "=r"(state) : "l"(word) : "memory");
    }
    __syncthreads();
    volatile float *to = c + row * n + column;
    *to = turn == 0 ? sum : __fadd_rn(__fmul_rn(*to, 0.75f), sum);
    __threadfence();
    __syncthreads();
    if (polls) {
        int next = turn + 1 == (int)gridDim.z ? 0 : turn + 1;
        asm volatile("st.global.release.gpu.b32 [%0], %1;" : : "l"(word), "r"(next) : "memory");
    }
}

int main()
{
    checker check("split_k");
    const int n = 3 * TILE, m = 2 * TILE;
    std::vector<float> a(m * K), b(K * n), want(m * n);
    for (int i = 0; i < m * K; i++)
        a[i] = (float)(i * 37 % 101) / 64.0f - 0.7f;
    for (int i = 0; i < K * n; i++)
        b[i] = (float)(i * 53 % 97) / 32.0f - 1.3f;
    for (int i = 0; i < m * n; i++) {
        for (int part = 0; part < PARTS; part++) {
            float sum = 0.0f;
            for (int k = part * DEPTH; k < (part + 1) * DEPTH; k++) {
                volatile float product = a[i / n * K + k] * b[k * n + i % n];
                sum += product;
            }
            volatile float before = want[i] * 0.75f;
            want[i] = part == 0 ? sum : before + sum;
        }
    }
    float *device_a = to_device(a), *device_b = to_device(b);
    int *words = to_device(std::vector<int>(m * n / TILE / TILE, 0));
    for (int again = 0; again < 4; again++) {
        float *c = device_array<float>(m * n);
        split_product<<<dim3(n / TILE, m / TILE, PARTS), dim3(TILE, TILE)>>>(device_a, device_b, c, n, words);
        FINISH();
        check.same(to_host(c, m * n), want, "product");
    }
    check.same(to_host(words, m * n / TILE / TILE), std::vector<int>(m * n / TILE / TILE, 0), "word");
    return check.done();
}

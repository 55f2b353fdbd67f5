/* Constant memory and device variables that the host changes between launches, with initial values of their own. */
#include "check.h"

struct setting {
    float scale;
    int shift[3];
    double weight;
};

__constant__ struct setting settings[4] = {{1, {1, 2, 3}, 0.5}, {2, {4, 5, 6}, 1.5}};
__constant__ int table[256];
__device__ int counter = 41;
__device__ const char *names[2] = {"first", "second"};
__device__ int *pointer = &counter;

__global__ void use(double *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    const struct setting *s = &settings[i % 4];
    out[i] = s->scale * (float)i + s->shift[i % 3] + s->weight * table[(i * 5) % 256];
    if (i == 0) {
        ++*pointer;
        counter += names[1][2]; /* 'c' */
    }
}

static double reference(const struct setting *settings_now, const int *table_now, int i)
{
    const struct setting *s = &settings_now[i % 4];
    return s->scale * (float)i + s->shift[i % 3] + s->weight * table_now[(i * 5) % 256];
}

int main()
{
    checker check("constant");
    const int n = 2000;
    struct setting now[4] = {{1, {1, 2, 3}, 0.5}, {2, {4, 5, 6}, 1.5}, {}, {}};
    int values[256] = {};
    double *out = device_array<double>(n);
    for (int turn = 0; turn < 4; turn++) {
        use<<<(n + 63) / 64, 64>>>(out, n);
        FINISH();
        std::vector<double> got = to_host(out, n);
        for (int i = 0; i < n; i++)
            check.is(got[i] == reference(now, values, i), "value", i);
        /* All products and sums here are exact in their types, so fusing them changes nothing. */
        for (int i = 0; i < 256; i++)
            values[i] = i * (turn + 1) - 100;
        CUDA(cudaMemcpyToSymbol(table, values, sizeof(values)));
        now[turn].weight = 0.25 * turn;
        now[turn].shift[1] = -turn;
        CUDA(cudaMemcpyToSymbol(settings, &now[turn], sizeof(now[0]), turn * sizeof(now[0])));
    }
    int count;
    CUDA(cudaMemcpyFromSymbol(&count, counter, sizeof(count)));
    check.is(count == 41 + 4 * (1 + 'c'), "counter", (size_t)count);
    void *address;
    size_t size;
    CUDA(cudaGetSymbolAddress(&address, table));
    CUDA(cudaGetSymbolSize(&size, table));
    check.is(address != NULL && size == sizeof(values), "symbol");
    /* Through its address, as asynchronous copies do. */
    int ninety = 90;
    CUDA(cudaMemcpyAsync((int *)address + 5, &ninety, sizeof(int), cudaMemcpyHostToDevice, 0));
    values[5] = 90;
    use<<<(n + 63) / 64, 64>>>(out, n);
    FINISH();
    std::vector<double> got = to_host(out, n);
    for (int i = 0; i < n; i++)
        check.is(got[i] == reference(now, values, i), "value through the address", i);
    return check.done();
}

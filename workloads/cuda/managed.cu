/* Managed memory: host and device take turns on one pointer, a linked list is followed on the device; mapped memory. */
#include "check.h"

struct node {
    int value;
    struct node *next;
};

__managed__ int total;
__device__ __managed__ double table[100];

__global__ void walk(const struct node *first)
{
    int sum = 0;
    for (const struct node *n = first; n != NULL; n = n->next)
        sum += n->value;
    total = sum;
}

__global__ void double_all(int *v, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        v[i] *= 2;
    if (i < 100)
        table[i] += 0.25;
}

int main()
{
    checker check("managed");
    const int n = 3000;
    int *v;
    CUDA(cudaMallocManaged(&v, n * sizeof(int)));
    for (int i = 0; i < n; i++)
        v[i] = i;
    for (int i = 0; i < 100; i++)
        table[i] = i;
    for (int turn = 0; turn < 4; turn++) {
        double_all<<<(n + 255) / 256, 256>>>(v, n);
        FINISH();
        for (int i = 0; i < n; i++)
            v[i] += 1;
    }
    for (int i = 0; i < n; i++)
        check.is(v[i] == i * 16 + 15, "value", i);
    for (int i = 0; i < 100; i++)
        check.is(table[i] == i + 1.0, "table", i);

    struct node *nodes;
    int want = 0;
    CUDA(cudaMallocManaged(&nodes, 100 * sizeof(struct node)));
    for (int i = 0; i < 100; i++) {
        nodes[i].value = i * i;
        nodes[i].next = &nodes[(i + 37) % 100];
        want += i * i;
    }
    nodes[63].next = NULL; /* 0 + 37 * k (mod 100) visits all, 63 is the last before 0 */
    walk<<<1, 1>>>(nodes);
    FINISH();
    check.is(total == want, "sum of the list", (size_t)total);

    cudaPointerAttributes attributes;
    CUDA(cudaPointerGetAttributes(&attributes, v));
    check.is(attributes.type == cudaMemoryTypeManaged && attributes.devicePointer == v, "attributes");

    int *mapped, *seen;
    CUDA(cudaHostAlloc(&mapped, n * sizeof(int), cudaHostAllocMapped));
    CUDA(cudaHostGetDevicePointer(&seen, mapped, 0));
    for (int i = 0; i < n; i++)
        mapped[i] = 7 * i;
    double_all<<<(n + 255) / 256, 256>>>(seen, n);
    FINISH();
    for (int i = 0; i < n; i++)
        check.is(mapped[i] == 14 * i, "mapped value", i);
    CUDA(cudaFree(v));
    CUDA(cudaFree(nodes));
    CUDA(cudaFreeHost(mapped));
    return check.done();
}

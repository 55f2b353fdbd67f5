/* Conditional nodes: a loop that a kernel ends, and a choice inside of it. */
#include "check.h"

/* One Newton step towards the square roots; whether another is needed is the loop's condition. */
__global__ void step(float *x, const float *a, int n, int *rounds, cudaGraphConditionalHandle again,
                     cudaGraphConditionalHandle odd)
{
    __shared__ int is_rough;
    if (threadIdx.x == 0)
        is_rough = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float next = 0.5f * (x[i] + a[i] / x[i]);
        if (fabsf(next - x[i]) > 1e-6f * next)
            is_rough = 1;
        x[i] = next;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        ++*rounds;
        cudaGraphSetConditional(again, is_rough);
        cudaGraphSetConditional(odd, *rounds & 1);
    }
}

__global__ void note(int *count)
{
    ++*count;
}

static cudaGraphNode_t add_kernel(cudaGraph_t graph, cudaGraphNode_t *after, void *kernel, int threads,
                                  void **arguments)
{
    cudaGraphNode_t node;
    cudaKernelNodeParams params = {};
    params.func = kernel;
    params.gridDim = dim3(1);
    params.blockDim = dim3(threads);
    params.kernelParams = arguments;
    CUDA(cudaGraphAddKernelNode(&node, graph, after, after != NULL, &params));
    return node;
}

int main()
{
    checker check("graph_conditional");
    const int n = 1000;
    std::vector<float> a(n), x(n, 1.0f);
    for (int i = 0; i < n; i++)
        a[i] = 1.0f + 3.0f * i;
    float *d_a = to_device(a), *d_x = to_device(x);
    int *counts = to_device(std::vector<int>(3, 0)), *odds = counts + 1, *evens = counts + 2, length = n;

    cudaGraph_t graph;
    CUDA(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle again, odd;
    CUDA(cudaGraphConditionalHandleCreate(&again, graph, 1, cudaGraphCondAssignDefault));
    CUDA(cudaGraphConditionalHandleCreate(&odd, graph, 0, 0));
    cudaGraphNodeParams loop = {cudaGraphNodeTypeConditional};
    loop.conditional.handle = again;
    loop.conditional.type = cudaGraphCondTypeWhile;
    loop.conditional.size = 1;
    cudaGraphNode_t loop_node, choice_node;
    CUDA(cudaGraphAddNode(&loop_node, graph, NULL, NULL, 0, &loop));
    cudaGraph_t body = loop.conditional.phGraph_out[0];
    void *arguments[] = {&d_x, &d_a, &length, &counts, &again, &odd};
    cudaGraphNode_t stepped = add_kernel(body, NULL, (void *)step, 256, arguments);
    cudaGraphNodeParams choice = {cudaGraphNodeTypeConditional};
    choice.conditional.handle = odd;
    choice.conditional.type = cudaGraphCondTypeIf;
    choice.conditional.size = 2;
    CUDA(cudaGraphAddNode(&choice_node, body, &stepped, NULL, 1, &choice));
    void *of_odd[] = {&odds}, *of_even[] = {&evens};
    add_kernel(choice.conditional.phGraph_out[0], NULL, (void *)note, 1, of_odd);
    add_kernel(choice.conditional.phGraph_out[1], NULL, (void *)note, 1, of_even);

    cudaGraphExec_t instance;
    CUDA(cudaGraphInstantiate(&instance, graph, 0));
    CUDA(cudaGraphLaunch(instance, 0));
    CUDA(cudaDeviceSynchronize());
    x = to_host(d_x, n);
    std::vector<int> got = to_host(counts, 3);
    double worst = 0;
    for (int i = 0; i < n; i++)
        worst = std::fmax(worst, std::fabs(x[i] / std::sqrt((double)a[i]) - 1));
    check.is(worst < 1e-6, "roots");
    check.is(got[0] > 5 && got[0] < 30, "rounds");
    check.is(got[1] == (got[0] + 1) / 2 && got[2] == got[0] / 2, "choices");
    CUDA(cudaGraphLaunch(instance, 0)); /* the condition is 1 again, and one round finds nothing to do */
    CUDA(cudaDeviceSynchronize());
    check.is(to_host(counts, 3)[0] == got[0] + 1, "second launch");
    CUDA(cudaGraphExecDestroy(instance));
    CUDA(cudaGraphDestroy(graph));
    return check.done();
}

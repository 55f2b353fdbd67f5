/* CUDA graphs made node by node: memset, copies, kernels, a host function; parameters set anew in the instantiated one. */
#include "check.h"

__global__ void fill(int *v, int n, int first)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        v[i] += first + i;
}

__global__ void square(int *v, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        v[i] *= v[i];
}

static void CUDART_CB count(void *counter)
{
    ++*(int *)counter;
}

int main()
{
    checker check("graph_explicit");
    const int n = 1000;
    int *d = device_array<int>(n), length = n, first = 5, calls = 0;
    std::vector<int> host(n, -1);

    cudaGraph_t graph, clone;
    CUDA(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t clear, filled, squared, copied, called;
    cudaMemsetParams memset_params = {};
    memset_params.dst = d;
    memset_params.value = 2;
    memset_params.elementSize = 4;
    memset_params.width = n;
    memset_params.height = 1;
    CUDA(cudaGraphAddMemsetNode(&clear, graph, NULL, 0, &memset_params));
    void *fill_arguments[] = {&d, &length, &first}, *square_arguments[] = {&d, &length};
    cudaKernelNodeParams fill_params = {}, square_params = {};
    fill_params.func = (void *)fill;
    fill_params.gridDim = dim3(8);
    fill_params.blockDim = dim3(128);
    fill_params.kernelParams = fill_arguments;
    square_params = fill_params;
    square_params.func = (void *)square;
    square_params.kernelParams = square_arguments;
    CUDA(cudaGraphAddKernelNode(&filled, graph, &clear, 1, &fill_params));
    CUDA(cudaGraphAddKernelNode(&squared, graph, NULL, 0, &square_params));
    CUDA(cudaGraphAddDependencies(graph, &filled, &squared, NULL, 1));
    CUDA(
        cudaGraphAddMemcpyNode1D(&copied, graph, &squared, 1, host.data(), d, n * sizeof(int), cudaMemcpyDeviceToHost));
    cudaHostNodeParams host_params = {count, &calls};
    CUDA(cudaGraphAddHostNode(&called, graph, &copied, 1, &host_params));

    size_t nodes = 0, edges = 0;
    CUDA(cudaGraphGetNodes(graph, NULL, &nodes));
    CUDA(cudaGraphGetEdges(graph, NULL, NULL, NULL, &edges));
    check.is(nodes == 5 && edges == 4, "shape");
    cudaGraphNodeType type;
    CUDA(cudaGraphNodeGetType(filled, &type));
    check.is(type == cudaGraphNodeTypeKernel, "type");

    cudaGraphExec_t exec;
    cudaStream_t stream;
    CUDA(cudaStreamCreate(&stream));
    CUDA(cudaGraphClone(&clone, graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    first = 77; /* the parameters were copied: this changes nothing */
    std::vector<int> want(n);
    for (int repeat = 0; repeat < 3; repeat++) {
        CUDA(cudaGraphLaunch(exec, stream));
        CUDA(cudaStreamSynchronize(stream));
    }
    for (int i = 0; i < n; i++)
        want[i] = (2 + 5 + i) * (2 + 5 + i);
    check.same(host, want, "value");
    check.is(calls == 3, "calls of the host", calls);

    first = -40;
    CUDA(cudaGraphExecKernelNodeSetParams(exec, filled, &fill_params));
    memset_params.value = 9;
    CUDA(cudaGraphExecMemsetNodeSetParams(exec, clear, &memset_params));
    CUDA(cudaGraphLaunch(exec, stream));
    CUDA(cudaStreamSynchronize(stream));
    for (int i = 0; i < n; i++)
        want[i] = (9 - 40 + i) * (9 - 40 + i);
    check.same(host, want, "value after new parameters");

    cudaGraphExec_t other;
    CUDA(cudaGraphInstantiate(&other, clone, 0));
    CUDA(cudaGraphLaunch(other, stream));
    CUDA(cudaStreamSynchronize(stream));
    for (int i = 0; i < n; i++)
        want[i] = (2 + 5 + i) * (2 + 5 + i);
    check.same(host, want, "value of the clone");
    check.is(calls == 5, "calls of the host", calls);
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphExecDestroy(other));
    CUDA(cudaGraphDestroy(clone));
    CUDA(cudaGraphDestroy(graph));
    return check.done();
}

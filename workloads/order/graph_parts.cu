/* Large graphs with branches, of many short kernels and a few long ones, with fills, copies, host functions, empty nodes, graphs
 * inside and events: launched often, changed in between, ended under way.  Long enough to be cut, if somebody is above. */
#include "order.h"

static const int arrays = 6, elements = 3000, threads = 128, blocks = (elements + threads - 1) / threads;
static uint32_t state;

static uint32_t roll(uint32_t n)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}

/* x -> 3 x + y[i] + k */
static __global__ void mix(uint32_t *v, const uint32_t *y, int n, uint32_t k, int rounds)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    uint32_t waste = v[i];
    for (int r = 0; r < rounds; r++)
        waste = waste * 1664525u + 1013904223u;
    v[i] = v[i] * 3u + y[i] + k + (waste == 0x12345678u && rounds < 0);
}

static void push(void *count)
{
    ++*(int *)count;
}

enum kind { KERNEL, FILL, COPY, HOST, EMPTY, CHILD, RECORD, KINDS };

/* What a node does, for the graph and for the model. */
struct task {
    kind what;
    int to, from;
    uint32_t k;
    int rounds;
    bool is_on = true;
    cudaGraphNode_t node = NULL;
    std::vector<int> after;
};

struct plan {
    std::vector<task> tasks;
    int calls = 0, want_calls = 0;
    uint32_t *v[arrays], want[arrays];
    cudaEvent_t event;

    /* Each comes behind who wrote what it reads or writes, and who read what it writes. */
    explicit plan(uint32_t seed, int n, bool has_events)
    {
        state = seed;
        std::vector<int> writer(arrays, -1);
        std::vector<std::vector<int>> readers(arrays);
        for (int i = 0; i < n; i++) {
            task t;
            uint32_t r = roll(100);
            t.what = r < 72 ? KERNEL : r < 80 ? FILL : r < 88 ? COPY : r < 91 ? HOST : r < 94 ? EMPTY : r < 98 ? CHILD : RECORD;
            if (t.what == RECORD && !has_events)
                t.what = KERNEL;
            t.to = roll(arrays), t.from = (t.to + 1 + roll(arrays - 1)) % arrays;
            t.k = 1 + roll(1000), t.rounds = roll(20) == 0 ? 20000 : 20;
            if (writer[t.to] >= 0)
                t.after.push_back(writer[t.to]);
            if (t.what != FILL && writer[t.from] >= 0 && writer[t.from] != writer[t.to])
                t.after.push_back(writer[t.from]);
            for (int x : readers[t.to])
                if (x != writer[t.to] && (t.after.empty() || x != t.after.back()))
                    t.after.push_back(x);
            readers[t.to].clear();
            writer[t.to] = i;
            if (t.what != FILL)
                readers[t.from].push_back(i);
            tasks.push_back(t);
        }
        for (auto &t : tasks) { /* no edge twice */
            std::vector<int> once;
            for (int x : t.after) {
                bool has = false;
                for (int y : once)
                    has |= x == y;
                if (!has)
                    once.push_back(x);
            }
            t.after = once;
        }
        for (int i = 0; i < arrays; i++) {
            MUST(cudaMalloc(&v[i], elements * sizeof(uint32_t)));
            MUST(cudaMemset(v[i], 0, elements * sizeof(uint32_t)));
            want[i] = 0;
        }
        MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }

    cudaKernelNodeParams params(task &t, int *n, void **args)
    {
        *n = elements;
        args[0] = &v[t.to], args[1] = &v[t.from], args[2] = n, args[3] = &t.k, args[4] = &t.rounds;
        cudaKernelNodeParams p = {};
        p.func = (void *)mix, p.gridDim = blocks, p.blockDim = threads, p.kernelParams = args;
        return p;
    }

    void add(cudaGraph_t graph, task &t)
    {
        std::vector<cudaGraphNode_t> deps;
        for (int i : t.after)
            deps.push_back(tasks[i].node);
        int n;
        void *args[5];
        cudaKernelNodeParams p = params(t, &n, args);
        cudaMemsetParams fill = {};
        fill.dst = v[t.to], fill.elementSize = 4, fill.width = elements, fill.height = 1, fill.value = t.k;
        cudaHostNodeParams host = {push, &calls};
        cudaGraph_t child;
        cudaGraphNode_t first, second;
        const cudaGraphNode_t *d = deps.data();
        switch (t.what) {
        case FILL:
            MUST(cudaGraphAddMemsetNode(&t.node, graph, d, deps.size(), &fill));
            break;
        case COPY:
            MUST(cudaGraphAddMemcpyNode1D(&t.node, graph, d, deps.size(), v[t.to], v[t.from], elements * sizeof(uint32_t),
                                          cudaMemcpyDeviceToDevice));
            break;
        case HOST:
            MUST(cudaGraphAddHostNode(&t.node, graph, d, deps.size(), &host));
            break;
        case EMPTY:
            MUST(cudaGraphAddEmptyNode(&t.node, graph, d, deps.size()));
            break;
        case RECORD:
            MUST(cudaGraphAddEventRecordNode(&t.node, graph, d, deps.size(), event));
            break;
        case CHILD:
            MUST(cudaGraphCreate(&child, 0));
            MUST(cudaGraphAddKernelNode(&first, child, NULL, 0, &p));
            MUST(cudaGraphAddKernelNode(&second, child, &first, 1, &p));
            MUST(cudaGraphAddChildGraphNode(&t.node, graph, d, deps.size(), child));
            MUST(cudaGraphDestroy(child));
            break;
        default:
            MUST(cudaGraphAddKernelNode(&t.node, graph, d, deps.size(), &p));
        }
    }

    cudaGraph_t build()
    {
        cudaGraph_t graph;
        MUST(cudaGraphCreate(&graph, 0));
        for (auto &t : tasks)
            add(graph, t);
        return graph;
    }

    void model()
    {
        for (auto &t : tasks) {
            if (!t.is_on)
                continue;
            for (int i = 0; i < (t.what == CHILD ? 2 : t.what == KERNEL ? 1 : 0); i++)
                want[t.to] = want[t.to] * 3 + want[t.from] + t.k;
            if (t.what == FILL)
                want[t.to] = t.k;
            if (t.what == COPY)
                want[t.to] = want[t.from];
            want_calls += t.what == HOST;
        }
    }

    void launch(cudaGraphExec_t exec, int times, cudaStream_t s)
    {
        for (int i = 0; i < times; i++) {
            MUST(cudaGraphLaunch(exec, s));
            model();
            if (i % 3 == 0) { /* something between two launches */
                mix<<<blocks, threads, 0, s>>>(v[0], v[1], elements, 7, 20);
                want[0] = want[0] * 3 + want[1] + 7;
            }
            if (i % 5 == 4)
                MUST(cudaStreamSynchronize(s));
        }
    }

    void look(order_check &check, const char *what)
    {
        MUST(cudaDeviceSynchronize());
        std::vector<uint32_t> host(elements);
        bool ok = calls == want_calls;
        for (int a = 0; a < arrays; a++) {
            MUST(cudaMemcpy(host.data(), v[a], elements * sizeof(uint32_t), cudaMemcpyDeviceToHost));
            for (uint32_t x : host)
                ok &= x == want[a];
        }
        check.is(ok, what);
    }

    /* The first kernel of the graph itself from `at` on. */
    task &kernel(int at)
    {
        while (tasks[at % tasks.size()].what != KERNEL)
            at++;
        return tasks[at % tasks.size()];
    }
};

static void try_one(order_check &check, uint32_t seed, bool has_events)
{
    plan p(seed, 60, has_events);
    cudaStream_t a, b;
    MUST(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    MUST(cudaDeviceSynchronize());
    cudaGraph_t graph = p.build();
    cudaGraphExec_t exec;
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    p.launch(exec, 24, a);
    p.look(check, "a large graph, again and again");

    task &one = p.kernel(11), &two = p.kernel(31);
    int n;
    void *args[5];
    MUST(cudaGraphLaunch(exec, a)); /* with the old parameter, perhaps still queued */
    p.model();
    one.k += 4711;
    cudaKernelNodeParams changed = p.params(one, &n, args);
    MUST(cudaGraphExecKernelNodeSetParams(exec, one.node, &changed));
    p.launch(exec, 8, a);
    p.look(check, "with another parameter");

    MUST(cudaGraphLaunch(exec, a));
    p.model();
    MUST(cudaGraphNodeSetEnabled(exec, two.node, 0));
    two.is_on = false;
    p.launch(exec, 8, a);
    p.look(check, "without one node");
    MUST(cudaGraphNodeSetEnabled(exec, two.node, 1));
    two.is_on = true;

    for (auto &t : p.tasks)
        t.k += 3;
    cudaGraph_t other = p.build();
    cudaGraphExecUpdateResultInfo info;
    MUST(cudaGraphExecUpdate(exec, other, &info));
    MUST(cudaGraphDestroy(graph));
    p.launch(exec, 8, a);
    MUST(cudaStreamSynchronize(a)); /* what is put between launches in one stream knows nothing of the other */
    p.launch(exec, 4, b);
    MUST(cudaGraphDestroy(other));
    MUST(cudaGraphExecDestroy(exec)); /* with launches under way */
    p.look(check, "exchanged as a whole, in two streams");
}

int main()
{
    order_check check("graph_parts");
    for (uint32_t seed = 1; seed <= 4; seed++)
        try_one(check, seed, seed % 2 == 0);
    return check.done();
}

/* Graphs as they are read, and the sub-graphs that are made of them, against a driver that only has
 * graphs: random ones, with nodes that do nothing and graphs inside.  What comes behind what is
 * compared with an independent account of the original. */
#include "runtime/effort/subgraph.h"

#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "runtime/effort/cut.h"
#include "runtime/effort/graph.h"
#include "runtime/effort/real.h"
#include "runtime/effort/stream.h"
#include "tally/effort.h"
#include "test/unit/runtime/effort/facts.h"

const char tl_build_id[] = "a test";

enum { MOST = 24, DEEPEST = 2, POINTS = 2 * 512, TIMES = 400 };

struct CUgraphNode_st {
    CUgraphNodeType type;
    uint32_t number; /* of fills: which */
    CUgraphNode deps[MOST];
    size_t n_deps;
    CUgraph child;
    uint32_t begin, end; /* points of the account */
};

struct CUgraph_st {
    CUgraphNode nodes[POINTS];
    size_t n;
};

/* --- the driver ------------------------------------------------------------------------------- */

static struct CUgraph_st *made; /* the sub-graph that was instantiated last */

static CUresult get_nodes(CUgraph g, CUgraphNode *nodes, size_t *n)
{
    for (size_t i = 0; nodes != NULL && i < g->n; i++)
        nodes[i] = g->nodes[i];
    *n = g->n;
    return CUDA_SUCCESS;
}

static CUresult get_type(CUgraphNode n, CUgraphNodeType *type)
{
    *type = n->type;
    return CUDA_SUCCESS;
}

static CUresult get_deps(CUgraphNode n, CUgraphNode *deps, size_t *count)
{
    for (size_t i = 0; deps != NULL && i < n->n_deps; i++)
        deps[i] = n->deps[i];
    *count = n->n_deps;
    return CUDA_SUCCESS;
}

static CUresult get_fill(CUgraphNode n, CUDA_MEMSET_NODE_PARAMS *p)
{
    *p = (CUDA_MEMSET_NODE_PARAMS){.dst = n->number, .elementSize = 1, .width = 1, .height = 1};
    return CUDA_SUCCESS;
}

static CUresult get_child(CUgraphNode n, CUgraph *child)
{
    *child = n->child;
    return CUDA_SUCCESS;
}

static CUresult create(CUgraph *g, unsigned flags)
{
    (void)flags;
    *g = calloc(1, sizeof **g);
    return CUDA_SUCCESS;
}

static CUgraphNode add(CUgraph g, CUgraphNodeType type, const CUgraphNode *deps, size_t n)
{
    CUgraphNode node = calloc(1, sizeof *node);
    TEST_ASSERT_TRUE(node != NULL && g->n < POINTS && n <= MOST);
    node->type = type;
    for (size_t i = 0; i < n; i++)
        node->deps[node->n_deps++] = deps[i];
    g->nodes[g->n++] = node;
    return node;
}

static CUresult add_fill(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n,
                         const CUDA_MEMSET_NODE_PARAMS *p, CUcontext c)
{
    (void)c;
    *out = add(g, CU_GRAPH_NODE_TYPE_MEMSET, deps, n);
    (*out)->number = (uint32_t)p->dst;
    return CUDA_SUCCESS;
}

static CUresult add_empty(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n)
{
    *out = add(g, CU_GRAPH_NODE_TYPE_EMPTY, deps, n);
    return CUDA_SUCCESS;
}

static void free_graph(CUgraph g)
{
    for (size_t i = 0; g != NULL && i < g->n; i++) {
        free_graph(g->nodes[i]->child);
        free(g->nodes[i]);
    }
    free(g);
}

static CUresult instantiate(CUgraphExec *out, CUgraph g, unsigned long long flags)
{
    (void)flags;
    made = g;
    *out = (CUgraphExec)(void *)g;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUgraph g)
{
    if (g != made) /* the test looks at it, and ends it */
        free_graph(g);
    return CUDA_SUCCESS;
}

/* Of what is not used here it only matters that it is there. */
static CUresult never(void)
{
    TEST_FAIL_MESSAGE("nobody asked for that");
    return CUDA_ERROR_UNKNOWN;
}

void setUp(void)
{
    void *unused = (void *)never;
    tl_eff_real = (struct tl_eff_real){.cuGraphGetNodes = get_nodes,
                                       .cuGraphNodeGetType = get_type,
                                       .cuGraphNodeGetDependencies = get_deps,
                                       .cuGraphMemsetNodeGetParams = get_fill,
                                       .cuGraphChildGraphNodeGetGraph = get_child,
                                       .cuGraphCreate = create,
                                       .cuGraphDestroy = destroy,
                                       .cuGraphAddMemsetNode = add_fill,
                                       .cuGraphAddEmptyNode = add_empty,
                                       .cuGraphInstantiateWithFlags = instantiate};
    *(void **)&tl_eff_real.cuGraphAddKernelNode_v2 = unused;
    *(void **)&tl_eff_real.cuGraphKernelNodeSetAttribute = unused;
    *(void **)&tl_eff_real.cuGraphAddMemcpyNode = unused;
    *(void **)&tl_eff_real.cuGraphLaunch = unused;
    *(void **)&tl_eff_real.cuGraphExecDestroy = unused;
}

void tearDown(void)
{
}

/* --- random graphs, and the account of them --------------------------------------------------- */

static uint32_t n_fills;

/* Nodes in an order that has nothing to do with what depends on what. */
static CUgraph any_nodes(int depth)
{
    CUgraph g;
    create(&g, 0);
    size_t n = depth == 0 ? 2 + any(MOST - 2) : any(5);
    for (size_t i = 0; i < n; i++) {
        uint64_t roll = any(10);
        CUgraphNodeType type = roll < 6   ? CU_GRAPH_NODE_TYPE_MEMSET
                               : roll < 8 ? CU_GRAPH_NODE_TYPE_EMPTY
                                          : CU_GRAPH_NODE_TYPE_GRAPH;
        if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth >= DEEPEST)
            type = CU_GRAPH_NODE_TYPE_MEMSET;
        CUgraphNode node = add(g, type, NULL, 0);
        for (size_t k = 0; k < i; k++) {
            if (any(4) == 0)
                node->deps[node->n_deps++] = g->nodes[k];
        }
        if (type == CU_GRAPH_NODE_TYPE_MEMSET)
            node->number = n_fills++;
        if (type == CU_GRAPH_NODE_TYPE_GRAPH)
            node->child = any_nodes(depth + 1);
    }
    for (size_t i = n; i > 1; i--) {
        size_t k = any(i);
        CUgraphNode was = g->nodes[i - 1];
        g->nodes[i - 1] = g->nodes[k];
        g->nodes[k] = was;
    }
    return g;
}

/* Which moment comes before which: begin and end of each node. */
static bool before[POINTS][POINTS];
static uint32_t n_points, begins[POINTS], ends[POINTS]; /* of fills, by number */

static void number_points(CUgraph g)
{
    for (size_t i = 0; i < g->n; i++) {
        g->nodes[i]->begin = n_points++;
        g->nodes[i]->end = n_points++;
        if (g->nodes[i]->child != NULL)
            number_points(g->nodes[i]->child);
    }
}

static void note_order(CUgraph g, const struct CUgraphNode_st *outer)
{
    for (size_t i = 0; i < g->n; i++) {
        const struct CUgraphNode_st *n = g->nodes[i];
        before[n->begin][n->end] = true;
        for (size_t k = 0; k < n->n_deps; k++)
            before[n->deps[k]->end][n->begin] = true;
        if (outer != NULL)
            before[outer->begin][n->begin] = before[n->end][outer->end] = true;
        if (n->child != NULL)
            note_order(n->child, n);
        if (n->type == CU_GRAPH_NODE_TYPE_MEMSET) {
            begins[n->number] = n->begin;
            ends[n->number] = n->end;
        }
    }
}

static void close_over(bool (*m)[POINTS], uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t j = 0; m[i][k] && j < n; j++)
                m[i][j] |= m[k][j];
        }
    }
}

static CUgraph any_graph(struct tl_eff_steps *steps)
{
    n_fills = n_points = 0;
    memset(before, 0, sizeof before);
    CUgraph g = any_nodes(0);
    number_points(g);
    TEST_ASSERT_TRUE(n_points <= POINTS);
    note_order(g, NULL);
    close_over(before, n_points);
    TEST_ASSERT_EQUAL(0, tl_eff_steps_read(steps, g));
    TEST_ASSERT_EQUAL(n_fills, steps->n);
    return g;
}

static uint32_t fill_of(const struct tl_eff_steps *steps, uint32_t i)
{
    return (uint32_t)steps->steps[i].fill.dst;
}

static bool comes_before(const struct tl_eff_steps *steps, uint32_t a, uint32_t b)
{
    return before[ends[fill_of(steps, a)]][begins[fill_of(steps, b)]];
}

/* --- tests ------------------------------------------------------------------------------------ */

static void steps_have_the_order_of_the_graph_and_no_other(void)
{
    static bool found[POINTS][POINTS];
    for (int i = 0; i < TIMES; i++) {
        struct tl_eff_steps steps;
        CUgraph g = any_graph(&steps);
        memset(found, 0, sizeof found);
        for (uint32_t e = 0; e < steps.n_edges; e++) {
            TEST_ASSERT_TRUE(steps.edges[e].from < steps.edges[e].to);
            TEST_ASSERT_TRUE(e == 0 || steps.edges[e - 1].to <= steps.edges[e].to);
            found[steps.edges[e].from][steps.edges[e].to] = true;
        }
        close_over(found, steps.n);
        for (uint32_t a = 0; a < steps.n; a++) {
            for (uint32_t b = 0; b < steps.n; b++)
                TEST_ASSERT_EQUAL(comes_before(&steps, a, b), found[a][b]);
        }
        tl_eff_steps_finish(&steps);
        free_graph(g);
    }
}

/* The sub-graph that was made of these steps: one node for each, in the same order. */
static void check_made(const struct tl_eff_steps *steps, uint32_t first, uint32_t n)
{
    static bool found[POINTS][POINTS];
    TEST_ASSERT_EQUAL(n, made->n);
    memset(found, 0, sizeof found);
    for (uint32_t i = 0; i < n; i++) {
        bool is_disabled = steps->steps[first + i].is_disabled;
        TEST_ASSERT_EQUAL(is_disabled ? CU_GRAPH_NODE_TYPE_EMPTY : CU_GRAPH_NODE_TYPE_MEMSET,
                          made->nodes[i]->type);
        if (!is_disabled)
            TEST_ASSERT_EQUAL(fill_of(steps, first + i), made->nodes[i]->number);
        for (size_t k = 0; k < made->nodes[i]->n_deps; k++) {
            uint32_t at = 0;
            while (at < i && made->nodes[at] != made->nodes[i]->deps[k])
                at++;
            TEST_ASSERT_TRUE_MESSAGE(at < i, "it depends on one in front of it, inside");
            found[at][i] = true;
        }
    }
    close_over(found, n);
    for (uint32_t a = 0; a < n; a++) {
        for (uint32_t b = 0; b < n; b++)
            TEST_ASSERT_EQUAL(steps->is_line ? a < b : comes_before(steps, first + a, first + b),
                              found[a][b]);
    }
}

static void make_all(struct tl_eff_steps *steps)
{
    struct tl_eff_context context = {0};
    struct tl_eff_cut_step times[POINTS] = {{0}};
    uint32_t n_nodes = 0;
    for (uint32_t i = 0; i < steps->n; i++) {
        times[i] = (struct tl_eff_cut_step){.ns = any(100), .is_alone = any(10) == 0};
        steps->steps[i].is_disabled = any(8) == 0;
    }
    for (uint32_t at = 0, n; at < steps->n; at += n) {
        CUgraphExec exec = NULL;
        n = tl_eff_cut_next(times, steps->n, at, 300);
        TEST_ASSERT_EQUAL(0, tl_eff_subgraph_make(steps, at, n, &context, &exec));
        check_made(steps, at, n);
        n_nodes += n;
        free_graph(made);
        made = NULL;
    }
    TEST_ASSERT_EQUAL(steps->n, n_nodes);
}

static void sub_graphs_have_each_step_once_and_the_order_among_them(void)
{
    for (int i = 0; i < TIMES; i++) {
        struct tl_eff_steps steps;
        CUgraph g = any_graph(&steps);
        make_all(&steps);
        steps.is_line = true;
        make_all(&steps);
        tl_eff_steps_finish(&steps);
        free_graph(g);
    }
}

/* Many nodes joined with many by one that does nothing: more dependencies than are kept. */
static void too_many_dependencies_make_a_line(void)
{
    enum { WIDE = 24, LAYERS = 6 };
    struct tl_eff_steps steps;
    CUgraph g;
    create(&g, 0);
    CUgraphNode joint = NULL;
    for (int layer = 0; layer < LAYERS; layer++) {
        CUgraphNode row[WIDE];
        for (int i = 0; i < WIDE; i++)
            row[i] = add(g, CU_GRAPH_NODE_TYPE_MEMSET, &joint, joint != NULL);
        joint = add(g, CU_GRAPH_NODE_TYPE_EMPTY, row, WIDE);
    }
    TEST_ASSERT_EQUAL(0, tl_eff_steps_read(&steps, g));
    TEST_ASSERT_EQUAL(WIDE * LAYERS, steps.n);
    TEST_ASSERT_FALSE(steps.is_line); /* 24 each */
    tl_eff_steps_finish(&steps);
    CUgraphNode both[MOST];
    size_t n = 0;
    for (size_t i = 0; i < g->n && n < MOST; i++) {
        if (g->nodes[i]->type == CU_GRAPH_NODE_TYPE_EMPTY)
            both[n++] = g->nodes[i];
    }
    CUgraphNode all = add(g, CU_GRAPH_NODE_TYPE_EMPTY, both, n); /* all 144 of them */
    for (int i = 0; i < 100; i++)
        add(g, CU_GRAPH_NODE_TYPE_MEMSET, &all, 1);
    TEST_ASSERT_EQUAL(0, tl_eff_steps_read(&steps, g));
    TEST_ASSERT_TRUE(steps.is_line);
    tl_eff_steps_finish(&steps);
    free_graph(g);
}

static void a_driver_without_such_nodes_is_told_apart(void)
{
    struct tl_eff_steps steps;
    struct tl_eff_context context = {0};
    CUgraphExec exec = NULL;
    CUgraph g = any_graph(&steps);
    tl_eff_real.cuGraphAddEmptyNode = NULL;
    TEST_ASSERT_TRUE(tl_eff_subgraph_make(&steps, 0, steps.n, &context, &exec) < 0);
    tl_eff_steps_finish(&steps);
    free_graph(g);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(steps_have_the_order_of_the_graph_and_no_other);
    RUN_TEST(sub_graphs_have_each_step_once_and_the_order_among_them);
    RUN_TEST(too_many_dependencies_make_a_line);
    RUN_TEST(a_driver_without_such_nodes_is_told_apart);
    return UNITY_END();
}

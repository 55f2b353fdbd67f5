/* Graphs. */
#include "runtime/effort_internal.h"

CUresult tl_eff_graph_launch(CUgraphExec exec, struct tl_eff_stream *s)
{
    struct tl_eff_turn turn;
    tl_eff_turn_begin(&turn, s, true);
    CUresult r = tl_real.cuGraphLaunch(exec, s->handle);
    tl_eff_turn_end(&turn, r);
    return r;
}

static CUresult launch(CUgraphExec exec, CUstream stream, bool is_per_thread)
{
    struct tl_eff_stream *s;
    CUresult r = tl_eff_stream(stream, is_per_thread, &s);
    return r == CUDA_SUCCESS ? tl_eff_graph_launch(exec, s) : r;
}

static CUresult hook_cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    return launch(exec, stream, false);
}

static CUresult hook_cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    return launch(exec, stream, true);
}

const struct tl_hook tl_eff_graph_hooks[] = {
    {"cuGraphLaunch", (void *)hook_cuGraphLaunch},
    {"cuGraphLaunch_ptsz", (void *)hook_cuGraphLaunch_ptsz},
    {NULL, NULL},
};

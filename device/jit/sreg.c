/* Special registers: where a thread is in its block and grid, and what the hardware would tell.
 *
 * What is the same for a launch is in the frame; block sizes are known when compiling; lanes count
 * from their warp. */
#include "device/abi.h"
#include "device/jit/emit.h"
#include "device/jit/value.h"
#include "device/nest.h"

/* The linear number of each lane's thread in the block, or of the one lane that is asked for. */
static struct tl_val linear_thread(struct tl_emit *e)
{
    int64_t iota[TL_LANES];
    for (int i = 0; i < TL_LANES; i++)
        iota[i] = i;
    struct tl_val first = {
        LLVMBuildMul(e->b, e->f->warp, LLVMConstInt(e->i32, TL_LANES, false), ""), false};
    struct tl_val lanes = {tl_const_lanes(e, 32, iota), true};
    return tl_op(e, LLVMAdd, first, e->is_scalar ? tl_const(e, 32, e->lane) : lanes);
}

static struct tl_val thread_index(struct tl_emit *e, char axis)
{
    const uint32_t *block = e->options->block;
    struct tl_val n = linear_thread(e), x = tl_const(e, 32, block[0]),
                  xy = tl_const(e, 32, (uint64_t)block[0] * block[1]);
    if (axis == 'x')
        return block[1] * block[2] == 1 ? n : tl_op(e, LLVMURem, n, x);
    if (axis == 'y')
        return tl_op(e, LLVMUDiv, tl_op(e, LLVMURem, n, xy), x);
    return tl_op(e, LLVMUDiv, n, xy);
}

static struct tl_val lane_constants(struct tl_emit *e, uint32_t (*of)(uint32_t lane))
{
    int64_t values[TL_LANES];
    for (uint32_t i = 0; i < TL_LANES; i++)
        values[i] = of(i);
    return (struct tl_val){tl_const_lanes(e, 32, values), true};
}

static uint32_t lane_id(uint32_t i)
{
    return i;
}
static uint32_t lane_eq(uint32_t i)
{
    return 1u << i;
}
static uint32_t lane_lt(uint32_t i)
{
    return (1u << i) - 1;
}
static uint32_t lane_le(uint32_t i)
{
    return (uint32_t)((2ull << i) - 1);
}
static uint32_t lane_gt(uint32_t i)
{
    return ~lane_le(i);
}
static uint32_t lane_ge(uint32_t i)
{
    return ~lane_lt(i);
}

static struct tl_val frame_u32(struct tl_emit *e, uint32_t offset)
{
    return (struct tl_val){tl_field(e, offset, e->i32), false};
}

/* One word of 64 bits in its parts: the lower half, or the upper one. */
static struct tl_val half_of(struct tl_emit *e, struct tl_val v, bool is_upper)
{
    if (is_upper)
        v.v = LLVMBuildLShr(e->b, v.v, LLVMConstInt(e->i64, 32, false), "");
    return tl_cast_int(e, v, 32, false);
}

static struct tl_val unsupported(struct tl_emit *e)
{
    tl_emit_unsupported(e, "this special register");
    return tl_const(e, 32, 0);
}

/* Registers of the environment: 1 and 2 are how cooperative groups find their workspace. */
static struct tl_val environment(struct tl_emit *e, struct tl_str name)
{
    char number = name.p[name.n - 1];
    if (name.n != 8 || (number != '1' && number != '2'))
        return unsupported(e);
    e->uses_grid_sync = true;
    struct tl_val v = {tl_field(e, offsetof(struct tl_dev_frame, workspace), e->i64), false};
    return half_of(e, v, number == '1');
}

static struct tl_val cycles(struct tl_emit *e)
{
    unsigned id = LLVMLookupIntrinsicID("llvm.readcyclecounter", 21);
    LLVMTypeRef type = LLVMIntrinsicGetType(e->ctx, id, NULL, 0);
    LLVMValueRef f = LLVMGetIntrinsicDeclaration(e->mod, id, NULL, 0);
    return (struct tl_val){LLVMBuildCall2(e->b, type, f, NULL, 0, ""), false};
}

static struct tl_val nanoseconds(struct tl_emit *e)
{
    LLVMValueRef v = tl_call_frame(e, offsetof(struct tl_dev_calls, globaltimer), e->i64, NULL, 0);
    return (struct tl_val){v, false};
}

/* What the driver knows: each warp asks. */
static struct tl_val current_graph(struct tl_emit *e)
{
    LLVMTypeRef type = LLVMArrayType(e->i64, 7);
    LLVMValueRef none = tl_alloca(e, type, "arguments");
    LLVMBuildStore(e->b, LLVMConstNull(type), none);
    LLVMValueRef thread = LLVMBuildMul(e->b, e->f->warp, LLVMConstInt(e->i32, TL_LANES, false), "");
    LLVMValueRef args[4] = {e->f->frame, thread, LLVMConstInt(e->i32, TL_NEST_GRAPH_SELF, false),
                            none};
    return (struct tl_val){
        tl_call_frame(e, offsetof(struct tl_dev_calls, runtime), e->i64, args, 4), false};
}

/* A table of those that say what the kernel has and when it is: fields of the frame, clocks. */
static struct tl_val resource(struct tl_emit *e, const struct tl_ptx_sym *sym)
{
    switch (sym->sreg) {
    case TL_SREG_smid:
        return frame_u32(e, offsetof(struct tl_dev_frame, smid));
    case TL_SREG_nsmid:
        return frame_u32(e, offsetof(struct tl_dev_frame, nsmid));
    case TL_SREG_gridid:
        return (struct tl_val){tl_field(e, offsetof(struct tl_dev_frame, gridid), e->i64), false};
    case TL_SREG_envreg:
        return environment(e, sym->name);
    case TL_SREG_current_graph_exec:
        return current_graph(e);
    case TL_SREG_dynamic_smem_size:
        return frame_u32(e, offsetof(struct tl_dev_frame, dynamic_shared_bytes));
    case TL_SREG_total_smem_size:
    /* nothing is reserved here; hardware hands it out by 128 bytes */
    case TL_SREG_aggr_smem_size: {
        struct tl_val n = frame_u32(e, offsetof(struct tl_dev_frame, dynamic_shared_bytes));
        n = tl_op(e, LLVMAdd, n, tl_const(e, 32, e->shared_bytes + 127));
        return tl_op(e, LLVMAnd, n, tl_const(e, 32, ~(uint64_t)127));
    }
    case TL_SREG_reserved_smem_offset_begin:
    case TL_SREG_reserved_smem_offset_end:
    case TL_SREG_reserved_smem_offset_cap:
    case TL_SREG_reserved_smem_offset_0:
    case TL_SREG_reserved_smem_offset_1:
        return tl_const(e, 32, 0);
    case TL_SREG_clock:
    case TL_SREG_clock_hi:
        return half_of(e, cycles(e), sym->sreg == TL_SREG_clock_hi);
    case TL_SREG_clock64:
        return cycles(e);
    case TL_SREG_globaltimer:
        return nanoseconds(e);
    case TL_SREG_globaltimer_lo:
    case TL_SREG_globaltimer_hi:
        return half_of(e, nanoseconds(e), sym->sreg == TL_SREG_globaltimer_hi);
    default:
        return unsupported(e);
    }
}

/* A table of those that say where a thread is: constants of the compilation, fields of the frame,
 * or computed from lane and warp. */
struct tl_val tl_sreg(struct tl_emit *e, const struct tl_ptx_operand *o)
{
    uint32_t axis = o->component >= 'x' && o->component <= 'z' ? (uint32_t)(o->component - 'x') : 0;
    const uint32_t *block = e->options->block;
    if (o->component == 'w')
        return tl_const(e, 32, 0);
    switch (o->sym->sreg) {
    case TL_SREG_tid:
        return block[axis] == 1 ? tl_const(e, 32, 0) : thread_index(e, o->component);
    case TL_SREG_ntid:
        return tl_const(e, 32, block[axis]);
    case TL_SREG_ctaid:
    case TL_SREG_clusterid: /* clusters of one block each */
        return frame_u32(e, (uint32_t)offsetof(struct tl_dev_frame, ctaid) + 4 * axis);
    case TL_SREG_nctaid:
    case TL_SREG_nclusterid:
        return frame_u32(e, (uint32_t)offsetof(struct tl_dev_frame, grid) + 4 * axis);
    case TL_SREG_cluster_ctaid:
    case TL_SREG_cluster_ctarank:
    case TL_SREG_is_explicit_cluster:
        return tl_const(e, 32, 0);
    case TL_SREG_cluster_nctaid:
    case TL_SREG_cluster_nctarank:
        return tl_const(e, 32, 1);
    case TL_SREG_laneid:
        return lane_constants(e, lane_id);
    case TL_SREG_lanemask_eq:
        return lane_constants(e, lane_eq);
    case TL_SREG_lanemask_lt:
        return lane_constants(e, lane_lt);
    case TL_SREG_lanemask_le:
        return lane_constants(e, lane_le);
    case TL_SREG_lanemask_gt:
        return lane_constants(e, lane_gt);
    case TL_SREG_lanemask_ge:
        return lane_constants(e, lane_ge);
    case TL_SREG_warpid:
        return (struct tl_val){e->f->warp, false};
    case TL_SREG_nwarpid:
        return tl_const(e, 32, (block[0] * block[1] * block[2] + 31) / 32);
    default:
        return resource(e, o->sym);
    }
}

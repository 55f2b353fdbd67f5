/* The words of PTX: opcodes, modifiers, special registers, as lists from which enums, tables and
 * tests are made.
 *
 * A word that is not here still parses and prints; it is only unknown to whoever would have to
 * understand it. */
#ifndef TALLY_PTX_OPCODES_H
#define TALLY_PTX_OPCODES_H

/* clang-format off */

/* How an opcode uses its first operand:
 *   D  destination (a vector or a pair a|b counts whole)
 *   N  no destination
 *   C  call: the parenthesised first operand, if there are two lists or a list before the callee
 *   S  depends on the form: see tl_ptx_form_writes() */
#define TL_PTX_OPCODES(X)                                                                                             \
    X(abs, D) X(activemask, D) X(add, D) X(addc, D) X(alloca, D) X(and, D) X(applypriority, N) X(atom, D) X(bar, S)   \
    X(barrier, S) X(bfe, D) X(bfi, D) X(bfind, D) X(bmsk, D) X(bra, N) X(brev, D) X(brkpt, N) X(brx, N) X(call, C)    \
    X(clusterlaunchcontrol, S) X(clz, D) X(cnot, D) X(copysign, D) X(cos, D) X(cp, N) X(createpolicy, D) X(cvt, D)    \
    X(cvta, D) X(discard, N) X(div, D) X(dp2a, D) X(dp4a, D) X(elect, D) X(ex2, D) X(exit, N) X(fence, N) X(fma, D)   \
    X(fns, D) X(getctarank, D) X(griddepcontrol, N) X(isspacep, D) X(istypep, D) X(ld, D) X(ldmatrix, D) X(ldu, D)    \
    X(lg2, D) X(lop3, D) X(mad, D) X(mad24, D) X(madc, D) X(mapa, D) X(match, D) X(max, D) X(mbarrier, S)             \
    X(membar, N) X(min, D) X(mma, D) X(mov, D) X(movmatrix, D) X(mul, D) X(mul24, D) X(multimem, S) X(nanosleep, N)   \
    X(neg, D) X(not, D) X(or, D) X(pmevent, N) X(popc, D) X(prefetch, N) X(prefetchu, N) X(prmt, D) X(rcp, D)         \
    X(red, N) X(redux, D) X(rem, D) X(ret, N) X(rsqrt, D) X(sad, D) X(selp, D) X(set, D) X(setmaxnreg, N) X(setp, D)  \
    X(shf, D) X(shfl, D) X(shl, D) X(shr, D) X(sin, D) X(slct, D) X(sqrt, D) X(st, N) X(stackrestore, N)              \
    X(stacksave, D) X(stmatrix, N) X(sub, D) X(subc, D) X(suld, D) X(suq, D) X(sured, N) X(sust, N) X(szext, D)       \
    X(tanh, D) X(tcgen05, S) X(tensormap, N) X(testp, D) X(tex, D) X(tld4, D) X(trap, N) X(txq, D) X(vabsdiff, D)     \
    X(vabsdiff2, D) X(vabsdiff4, D) X(vadd, D) X(vadd2, D) X(vadd4, D) X(vavrg2, D) X(vavrg4, D) X(vmad, D)           \
    X(vmax, D) X(vmax2, D) X(vmax4, D) X(vmin, D) X(vmin2, D) X(vmin4, D) X(vote, D) X(vset, D) X(vset2, D)           \
    X(vset4, D) X(vshl, D) X(vshr, D) X(vsub, D) X(vsub2, D) X(vsub4, D) X(wgmma, S) X(wmma, S) X(xor, D)

/* Modifiers that some pass asks about.  Everything else (shapes, cache hints, ...) keeps its text only. */
#define TL_PTX_MODIFIERS(X)                                                                                           \
    X(acq_rel) X(acquire) X(add) X(aligned) X(all) X(alloc) X(and) X(any) X(approx) X(arrive) X(async) X(b128) X(b16) \
    X(b32) X(b64) X(b8) X(ballot) X(bf16) X(bf16x2) X(bfly) X(ca) X(cas) X(cc) X(cg) X(clamp) X(cluster) X(col)       \
    X(const) X(cs) X(cta) X(cv) X(dec) X(down) X(e4m3x2) X(e5m2x2) X(eq) X(equ) X(exch) X(f16) X(f16x2) X(f32)        \
    X(f32x2) X(f64) X(ftz) X(full) X(ge) X(generic) X(geu) X(global) X(gpu) X(gt) X(gtu) X(hi) X(hs) X(idx) X(inc)    \
    X(ld) X(ld_reduce) X(le) X(leu) X(lo) X(load) X(local) X(ls) X(lt) X(ltu) X(lu) X(max) X(min) X(mma) X(mmio)      \
    X(nan) X(NaN) X(nc) X(ne) X(neu) X(noftz) X(num) X(or) X(param) X(popc) X(pred) X(query_cancel) X(red)            \
    X(relaxed) X(release) X(rm) X(rmi) X(rn) X(rna) X(rni) X(row) X(rp) X(rpi) X(rs) X(rz) X(rzi) X(s16) X(s16x2)     \
    X(s32) X(s4) X(s64) X(s8) X(samplerref) X(sat) X(satfinite) X(sc) X(shared) X(shiftamt) X(st) X(store)            \
    X(surfref) X(sync) X(sys) X(test_wait) X(texref) X(tf32) X(to) X(trans) X(try_wait) X(u16) X(u16x2) X(u32)        \
    X(u4) X(u64) X(u8) X(uni) X(up) X(v2) X(v4) X(v8) X(volatile) X(wait) X(warp) X(wb) X(weak) X(wide) X(wrap)       \
    X(wt) X(xor) X(xorsign) X(zero)

/* Special registers, without the percent sign.  W: the value may differ between the threads of a warp; T: between the
 * warps of a block (or over time); U: the same for the whole block. */
#define TL_PTX_SREGS(X)                                                                                               \
    X(aggr_smem_size, U) X(clock, W) X(clock64, W) X(clock_hi, W) X(cluster_ctaid, U) X(cluster_ctarank, U)           \
    X(cluster_nctaid, U) X(cluster_nctarank, U) X(clusterid, U) X(ctaid, U) X(current_graph_exec, U)                  \
    X(dynamic_smem_size, U) X(globaltimer, W) X(globaltimer_hi, W) X(globaltimer_lo, W) X(gridid, U)                  \
    X(is_explicit_cluster, U) X(laneid, W) X(lanemask_eq, W) X(lanemask_ge, W) X(lanemask_gt, W) X(lanemask_le, W)    \
    X(lanemask_lt, W) X(nclusterid, U) X(nctaid, U) X(nsmid, U) X(ntid, U) X(nwarpid, U) X(reserved_smem_offset_0, U) \
    X(reserved_smem_offset_1, U) X(reserved_smem_offset_begin, U) X(reserved_smem_offset_cap, U)                      \
    X(reserved_smem_offset_end, U) X(smid, U) X(tid, W) X(total_smem_size, U) X(warpid, T)

/* clang-format on */

#endif

/* What `tally doctor` found out about a context's device: rungs that went wrong there, or that the
 * driver refused, are not used. */
#include "runtime/effort/qualified.h"

#include <errno.h>
#include <stdatomic.h>

#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"
#include "runtime/job/qualified.h"

/* Which GPU and driver this is, as `tally doctor` names them.  False if the driver does not
 * tell. */
TL_EFF_UNLOCKED static bool identify(CUdevice device, struct tl_qualified_of *of)
{
    CUuuid uuid;
    CUresult (*name)(char *, int, CUdevice) = (CUresult(*)(char *, int, CUdevice))tl_eff.shim->real(
        "cuDeviceGetName");
    CUresult (*get)(CUuuid *, CUdevice) = (CUresult(*)(CUuuid *, CUdevice))tl_eff.shim->real(
        "cuDeviceGetUuid_v2");
    if (get == NULL)
        get = (CUresult(*)(CUuuid *, CUdevice))tl_eff.shim->real("cuDeviceGetUuid");
    *of = (struct tl_qualified_of){.cuda_version = 0};
    if (name == NULL || get == NULL || name(of->name, sizeof of->name, device) != CUDA_SUCCESS ||
        get(&uuid, device) != CUDA_SUCCESS ||
        tl_eff_real.cuDriverGetVersion(&of->cuda_version) != CUDA_SUCCESS)
        return false;
    tl_qualified_uuid((const uint8_t *)uuid.bytes, of->uuid, sizeof of->uuid);
    tl_qualified_driver(of->driver, sizeof of->driver);
    return true;
}

static void forgo(struct tl_eff_context *c, enum tl_qualified_rung r)
{
    switch (r) {
    case TL_QUALIFIED_PERSISTENT:
        c->unqualified |= 1u << TL_RUNG_PERSISTENT;
        break;
    case TL_QUALIFIED_TICKET:
        c->unqualified |= 1u << TL_RUNG_TICKET;
        break;
    case TL_QUALIFIED_SLICE:
        c->unqualified |= 1u << TL_RUNG_SLICE;
        break;
    case TL_QUALIFIED_GATE:
        c->unqualified |= 1u << TL_RUNG_GATE;
        break;
    case TL_QUALIFIED_CAP:
        c->is_capless = true;
        break;
    case TL_QUALIFIED_RUNGS:
        break;
    }
}

static enum tl_eff_examined gate_in(const struct tl_qualification *q)
{
    return q->rungs[TL_QUALIFIED_GATE].verdict == TL_VERDICT_WORKS ? TL_EFF_FOUND_TO_WORK
                                                                   : TL_EFF_FOUND_UNFIT;
}

enum tl_eff_examined tl_eff_examined(CUdevice device)
{
    enum { DEVICES = 64 };
    static _Atomic int known[DEVICES]; /* the answer and one; 0: not asked yet */
    struct tl_qualified_of of;
    struct tl_qualification q;
    int answer = device >= 0 && device < DEVICES ? atomic_load(&known[device]) : 0;
    if (answer != 0)
        return (enum tl_eff_examined)(answer - 1);
    enum tl_eff_examined e = identify(device, &of) && tl_qualified_read(&q, &of, NULL) == 0
                                 ? gate_in(&q)
                                 : TL_EFF_NEVER_EXAMINED;
    if (device >= 0 && device < DEVICES)
        atomic_store(&known[device], (int)e + 1);
    return e;
}

/* Only what was found to work is used, unless somebody insists: then what was never examined is
 * taken as it is, as with other rungs. */
static void judge_gate(struct tl_eff_context *c, const struct tl_qualification *q)
{
    c->examined = q != NULL ? gate_in(q) : TL_EFF_NEVER_EXAMINED;
    if (q == NULL && tl_eff.settings->gate != TL_GATE_OFF && tl_eff.settings->force != TL_RUNG_GATE)
        tl_eff_note("machine code gets no gate on this device, and kernels without PTX run whole, "
                    "until `tally doctor` has found that it works there");
}

void tl_eff_qualify(struct tl_eff_context *c, CUdevice device)
{
    struct tl_qualified_of of;
    struct tl_qualification q;
    struct tl_error err = {0};
    if (!identify(device, &of)) {
        judge_gate(c, NULL);
        tl_eff_note(
            "the driver does not tell which GPU this is: what `tally doctor` found about it "
            "is not known");
        return;
    }
    int rc = tl_qualified_read(&q, &of, &err);
    judge_gate(c, rc == 0 ? &q : NULL);
    if (rc < 0) {
        /* A software device, which says that it is one, is nothing to be warned of. */
        bool is_quiet = rc == -ENOENT && (c->runs_block_by_block || !tl_qualified_is_news(&of));
        tl_eff_note("%s: %s (`tally doctor` examines it)", of.name, err.text);
        tl_eff_log(is_quiet ? 2 : 1, "%s: %s (`tally doctor` examines it)", of.name, err.text);
        return;
    }
    for (int r = 0; r < TL_QUALIFIED_RUNGS; r++) {
        if (q.rungs[r].verdict == TL_VERDICT_WORKS)
            continue;
        forgo(c, (enum tl_qualified_rung)r);
        tl_eff_note("%s is not used on %s: `tally doctor` found it %s: %s",
                    tl_qualified_rung_name((enum tl_qualified_rung)r), of.name,
                    tl_verdict_name(q.rungs[r].verdict), q.rungs[r].why);
        tl_eff_log(2, "%s is not used on %s: `tally doctor` found it %s: %s",
                   tl_qualified_rung_name((enum tl_qualified_rung)r), of.name,
                   tl_verdict_name(q.rungs[r].verdict), q.rungs[r].why);
    }
}

bool tl_eff_is_qualified(const struct tl_eff_context *c, enum tl_rung rung)
{
    return (c->unqualified & 1u << rung) == 0;
}

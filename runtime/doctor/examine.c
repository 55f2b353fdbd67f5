/* The examination as a whole, and what follows from it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/doctor/group.h"

static const struct tl_doc_group *const battery[] = {
    &tl_doc_memory_group, &tl_doc_slice_group,   &tl_doc_ticket_group, &tl_doc_persistent_group,
    &tl_doc_gate_group,   &tl_doc_streams_group, &tl_doc_cap_group,
};
enum { GROUPS = sizeof battery / sizeof battery[0] };

bool tl_doctor_has_group(const char *name)
{
    for (size_t i = 0; i < GROUPS; i++)
        if (strcmp(battery[i]->name, name) == 0)
            return true;
    return false;
}

int tl_doctor_examine(struct tl_doctor *d)
{
    tl_doc_host_facts(d);
    tl_doc_group_run(d, &tl_doc_facts_group, -1);
    const char *gpus = tl_doctor_fact(d, -1, "gpus");
    int n = gpus != NULL ? atoi(gpus) : 0;
    for (int gpu = 0; gpu < n; gpu++) {
        if (d->gpu >= 0 && d->gpu != gpu)
            continue;
        d->n_gpus++;
        for (size_t i = 0; i < GROUPS; i++)
            if (d->only == NULL || strcmp(d->only, battery[i]->name) == 0)
                tl_doc_group_run(d, battery[i], gpu);
    }
    return d->has_failed_memory ? -ENOMEM : 0;
}

void tl_doctor_finish(struct tl_doctor *d)
{
    free(d->findings);
    d->findings = NULL;
    d->n = d->cap = 0;
}

const char *tl_doctor_fact(const struct tl_doctor *d, int gpu, const char *name)
{
    for (uint32_t i = 0; i < d->n; i++) {
        const struct tl_doc_finding *f = &d->findings[i];
        if (f->kind == TL_DOC_FACT && f->gpu == gpu && strcmp(f->name, name) == 0)
            return f->text;
    }
    return NULL;
}

void tl_doctor_arch(const struct tl_doctor *d, int gpu, char *text, size_t size)
{
    const char *cc = tl_doctor_fact(d, gpu, "compute-capability");
    int major = 0, minor = 0;
    text[0] = 0;
    if (cc != NULL && sscanf(cc, "%d.%d", &major, &minor) == 2)
        snprintf(text, size, "sm_%d%d", major, minor);
}

/* --- verdicts --------------------------------------------------------------------------------- */

/* A rung is as good as the worst check of its group; if none of them worked it is refused, for what
 * is not known to work does not. */
enum tl_verdict tl_doctor_rung(const struct tl_doctor *d, int gpu, enum tl_qualified_rung r,
                               char *why, size_t size)
{
    enum tl_verdict worst = TL_VERDICT_WORKS;
    uint32_t n = 0;
    if (size > 0)
        why[0] = 0;
    const struct tl_doc_finding *refused = NULL;
    for (uint32_t i = 0; i < d->n; i++) {
        const struct tl_doc_finding *f = &d->findings[i];
        if (f->kind != TL_DOC_CHECK || f->gpu != gpu ||
            strcmp(f->group, tl_qualified_rung_name(r)) != 0)
            continue;
        n += f->verdict == TL_VERDICT_WORKS;
        if (f->verdict == TL_VERDICT_REFUSED && refused == NULL)
            refused = f;
        if (f->verdict <= (uint32_t)worst || (f->verdict == TL_VERDICT_REFUSED && !f->costs))
            continue;
        worst = (enum tl_verdict)f->verdict;
        snprintf(why, size, "%s: %s", f->name, f->text);
    }
    if (n == 0 && worst == TL_VERDICT_WORKS) {
        worst = TL_VERDICT_REFUSED;
        if (refused != NULL)
            snprintf(why, size, "%s: %s", refused->name, refused->text);
        else
            snprintf(why, size, "it was not examined");
    }
    return worst;
}

int tl_doctor_status(const struct tl_doctor *d)
{
    int status = d->n_gpus == 0 ? 3 : 0;
    for (uint32_t i = 0; i < d->n; i++) {
        const struct tl_doc_finding *f = &d->findings[i];
        if (f->kind != TL_DOC_CHECK)
            continue;
        if (f->verdict == TL_VERDICT_WRONG)
            return 1;
        if (f->verdict == TL_VERDICT_REFUSED && f->costs)
            status = 3;
    }
    return status;
}

int tl_doctor_keep(const struct tl_doctor *d, int gpu, char *path, size_t path_n,
                   struct tl_error *err)
{
    struct tl_qualified_of of = {.cuda_version = 0};
    struct tl_qualification q;
    const char *uuid = tl_doctor_fact(d, gpu, "uuid"), *name = tl_doctor_fact(d, gpu, "name"),
               *version = tl_doctor_fact(d, -1, "cuda-version");
    if (d->only != NULL)
        return tl_error_set(err, -ENODATA, "only a part of it was examined");
    if (uuid == NULL || name == NULL || version == NULL)
        return tl_error_set(err, -ENODATA, "the driver does not tell which GPU it is");
    snprintf(of.uuid, sizeof of.uuid, "%.47s", uuid);
    snprintf(of.name, sizeof of.name, "%.95s", name);
    of.cuda_version = atoi(version);
    tl_qualified_driver(of.driver, sizeof of.driver);
    for (int r = 0; r < TL_QUALIFIED_RUNGS; r++)
        q.rungs[r].verdict = tl_doctor_rung(d, gpu, (enum tl_qualified_rung)r, q.rungs[r].why,
                                            sizeof q.rungs[r].why);
    return tl_qualified_write(&q, &of, path, path_n, err);
}

/* Sums over containers and files, and what to do about kernels that are not preemptible. */
#include "runtime/tally/inspect.h"

#include <string.h>

/* --- architectures --- */

/* Keeps the list in order; what does not fit any more is left out. */
static void add_arch(struct inspect_archs *a, uint32_t code)
{
    uint32_t at = 0;
    while (at < a->n && a->codes[at] < code)
        at++;
    if ((at < a->n && a->codes[at] == code) || a->n == INSPECT_MAX_ARCHS)
        return;
    memmove(&a->codes[at + 1], &a->codes[at], (a->n - at) * sizeof a->codes[0]);
    a->codes[at] = code;
    a->n++;
}

static uint32_t arch_code(const struct tl_image *image)
{
    uint32_t suffix = image->is_arch_specific ? 1 : image->is_family_specific ? 2 : 0;
    return image->arch * 10 + suffix;
}

/* --- sums --- */

static void add_image(struct inspect_totals *t, const struct inspect_image *image)
{
    struct inspect_kind_totals *kind = &t->kinds[image->image.kind];
    kind->images++;
    kind->stored_bytes += image->image.stored_bytes;
    kind->full_bytes += image->image.full_bytes;
    kind->kernels += image->n_entries;
    kind->relocatable += image->is_relocatable;
    kind->not_for_gpu += !image->is_for_gpu;
    add_arch(&kind->archs, arch_code(&image->image));
    for (uint32_t i = 0; i < image->n_entries; i++)
        t->problems += image->entries[i].problem != NULL;
}

static void add_kernel(struct inspect_totals *t, const struct inspect_kernel *k)
{
    bool is_preemptible = false;
    bool is_gateable = k->has_sass && k->gate == TL_CUBIN_REASON_OK;
    t->kernels++;
    t->with_ptx += k->has_ptx;
    t->with_sass += k->has_sass;
    t->gateable += is_gateable;
    t->twins += is_gateable && k->wants_twin;
    if (k->has_sass)
        t->gate_reasons[k->gate]++;
    if (!k->is_judged) {
        t->stoppable += is_gateable;
        return;
    }
    t->judged++;
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        bool is_possible = k->reasons[v] == TL_PTX_REASON_OK;
        t->variants[v] += is_possible;
        t->reasons[v][k->reasons[v]]++;
        is_preemptible |= is_possible;
    }
    t->preemptible += is_preemptible;
    t->stoppable += is_preemptible || is_gateable;
    if (!is_preemptible)
        t->hopeless[k->reasons[TL_PTX_SLICE]]++;
}

void inspect_totals_add_container(struct inspect_totals *t, const struct inspect_container *c)
{
    t->containers++;
    t->scanned_containers += c->images[0].image.was_scanned;
    for (uint32_t i = 0; i < c->n_images; i++)
        add_image(t, &c->images[i]);
    uint32_t at = 0;
    for (const struct inspect_kernel *k; (k = tl_table_next(&c->kernels, &at)) != NULL;)
        add_kernel(t, k);
}

/* Field by field: sums are sums, but sets of architectures are united. */
void inspect_totals_add(struct inspect_totals *t, const struct inspect_totals *more)
{
    t->files += more->files;
    t->containers += more->containers;
    t->problems += more->problems;
    t->scanned_containers += more->scanned_containers;
    for (int k = 0; k < TL_IMAGE_KINDS; k++) {
        struct inspect_kind_totals *kind = &t->kinds[k];
        const struct inspect_kind_totals *other = &more->kinds[k];
        kind->images += other->images;
        kind->stored_bytes += other->stored_bytes;
        kind->full_bytes += other->full_bytes;
        kind->kernels += other->kernels;
        kind->relocatable += other->relocatable;
        kind->not_for_gpu += other->not_for_gpu;
        for (uint32_t i = 0; i < other->archs.n; i++)
            add_arch(&kind->archs, other->archs.codes[i]);
    }
    t->kernels += more->kernels;
    t->with_ptx += more->with_ptx;
    t->judged += more->judged;
    t->preemptible += more->preemptible;
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        t->variants[v] += more->variants[v];
        for (int r = 0; r < TL_PTX_REASON_COUNT; r++)
            t->reasons[v][r] += more->reasons[v][r];
    }
    for (int r = 0; r < TL_PTX_REASON_COUNT; r++)
        t->hopeless[r] += more->hopeless[r];
    t->with_sass += more->with_sass;
    t->gateable += more->gateable;
    t->twins += more->twins;
    t->stoppable += more->stoppable;
    for (int r = 0; r < TL_CUBIN_REASON_COUNT; r++)
        t->gate_reasons[r] += more->gate_reasons[r];
}

/* --- advice --- */

const char *inspect_advice(enum tl_ptx_reason r)
{
    switch (r) {
    case TL_PTX_REASON_UNLINKED:
        return "link the device code (nvcc -dlink) and inspect the result";
    case TL_PTX_REASON_UNKNOWN_INSTRUCTION:
    case TL_PTX_REASON_UNRESOLVED_NAME:
        return "report it, if ptxas takes this PTX: the rewriter should know it";
    case TL_PTX_REASON_ADDRESS_SIZE:
        return "build it as 64-bit code";
    case TL_PTX_REASON_TEXTURE_REFERENCE:
        return "use texture and surface objects, or a newer build of the library";
    case TL_PTX_REASON_HIDDEN_VARIABLE:
        return "declare the variable outside of functions";
    case TL_PTX_REASON_PARAM_SPACE:
        return "pass the parameters through memory";
    case TL_PTX_REASON_INDIRECT_CALL:
    case TL_PTX_REASON_INDIRECT_BRANCH:
        return "they run whole; if the code is yours, call functions directly";
    default:
        return "they run whole: keep them short, or keep their jobs off GPUs where others need "
               "quick answers";
    }
}

/* One .tally file, as it may be found: whole, being written, of a killed process, cut off, of
 * another version, damaged, or made to do harm.  Every offset is checked, every loop is bounded by
 * the size of the file, and text is freed of what a terminal would obey. */
#include "runtime/record/format.h"
#include "runtime/report/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    struct tl_arena *arena;
    const struct tl_record_file *file; /* a copy, at least as long as the fixed part */
    size_t n;                          /* of the copy */
    /* more than this cannot be in the file, unless some overlap */
    size_t groups_left, ops_left;
    const char *problem;
    bool is_out_of_memory;
};

/* The first thing that is wrong is what the user reads. */
static void complain(struct reader *in, const char *text)
{
    if (in->problem == NULL)
        in->problem = text;
}

static void *take(struct reader *in, size_t n, size_t size)
{
    void *p = tl_arena_zalloc(in->arena, (n > 0 ? n : 1) * size);
    in->is_out_of_memory |= p == NULL;
    return p;
}

static uint64_t load(const _Atomic uint64_t *value)
{
    return atomic_load_explicit((_Atomic uint64_t *)value, memory_order_relaxed);
}

static uint32_t load32(const _Atomic uint32_t *value)
{
    return atomic_load_explicit((_Atomic uint32_t *)value, memory_order_relaxed);
}

/* A terminated copy, without what a terminal would obey. */
static const char *clean_text(struct reader *in, const char *text, size_t n)
{
    char *copy = tl_arena_copy(in->arena, (struct tl_str){text, (uint32_t)strnlen(text, n)});
    if (copy == NULL) {
        in->is_out_of_memory = true;
        return "";
    }
    tl_text_clean(copy, strlen(copy), false);
    return copy;
}

/* --- histograms --- */

/* The steps at that offset, or NULL. */
static const struct tl_record_steps *steps_at(struct reader *in, uint32_t at)
{
    if (at == 0)
        return NULL;
    if (at < sizeof(struct tl_record_file) || at % 8 != 0 || at > in->n ||
        in->n - at < sizeof(struct tl_record_steps) || in->groups_left == 0) {
        complain(in, "histograms are damaged or cut off");
        return NULL;
    }
    in->groups_left--;
    return (const struct tl_record_steps *)((const char *)in->file + at);
}

static struct tl_report_histogram read_histogram(struct reader *in,
                                                 const struct tl_record_histogram *h)
{
    struct tl_report_histogram out = {
        .sum = load(&h->sum), .max = load(&h->max), .unplaced = load(&h->unplaced)};
    const struct tl_record_steps *groups[TL_HISTOGRAM_GROUPS];
    uint32_t n = 0;
    for (uint32_t g = 0; g < TL_HISTOGRAM_GROUPS; g++) {
        groups[g] = steps_at(in, load32(&h->groups[g]));
        for (uint32_t s = 0; groups[g] != NULL && s < TL_HISTOGRAM_STEPS; s++)
            n += load(&groups[g]->counts[s]) > 0;
    }
    out.count = out.unplaced;
    out.steps = n > 0 ? take(in, n, sizeof *out.steps) : NULL;
    if (out.steps == NULL)
        return out;
    for (uint32_t g = 0; g < TL_HISTOGRAM_GROUPS; g++) {
        for (uint32_t s = 0; groups[g] != NULL && s < TL_HISTOGRAM_STEPS; s++) {
            uint64_t count = load(&groups[g]->counts[s]);
            if (count == 0)
                continue;
            struct tl_report_step *step = &out.steps[out.n_steps++];
            step->low = tl_histogram_low(g, s, &step->width);
            step->count = count;
            out.count += count;
        }
    }
    return out;
}

/* --- the parts of the file --- */

/* A pool entry is checked before its row is used; NULL if the row has none. */
static const struct tl_record_kernel_part *part_at(struct reader *in, uint32_t at)
{
    if (at == 0)
        return NULL;
    const struct tl_record_kernel_part *part = (const void *)((const char *)in->file + at);
    if (at < sizeof(struct tl_record_file) || at % 8 != 0 || at > in->n ||
        in->n - at < sizeof *part || part->name_bytes > TL_RECORD_NAME_BYTES ||
        in->n - at - sizeof *part < part->name_bytes) {
        complain(in, "kernels are damaged or cut off");
        return NULL;
    }
    return part;
}

/* An entry of a list of operations, with its name; NULL behind the last. */
static const struct tl_record_op_part *op_at(struct reader *in, uint32_t at,
                                             const struct tl_record_op_name **name)
{
    if (at == 0)
        return NULL;
    const struct tl_record_op_part *o = (const void *)((const char *)in->file + at);
    bool is_there = at >= sizeof(struct tl_record_file) && at % 8 == 0 && at <= in->n &&
                    in->n - at >= sizeof *o && in->ops_left > 0;
    if (is_there) {
        uint32_t text = o->name;
        *name = (const void *)((const char *)in->file + text);
        is_there = text >= sizeof(struct tl_record_file) && text % 8 == 0 && text <= in->n &&
                   in->n - text >= sizeof **name && (*name)->bytes <= TL_RECORD_OP_BYTES &&
                   in->n - text - sizeof **name >= (*name)->bytes;
    }
    if (!is_there) {
        complain(in, "names of operations are damaged or cut off");
        return NULL;
    }
    in->ops_left--;
    return o;
}

static void read_ops(struct reader *in, struct tl_report_kernel *k, uint32_t first)
{
    const struct tl_record_op_name *name;
    const struct tl_record_op_part *o;
    uint32_t n = 0;
    size_t left = in->ops_left;
    for (uint32_t at = first; (o = op_at(in, at, &name)) != NULL; at = o->next)
        n++;
    if (n == 0)
        return;
    in->ops_left = left; /* the same once more */
    k->ops = take(in, n, sizeof *k->ops);
    for (uint32_t at = first; k->ops != NULL && k->n_ops < n && (o = op_at(in, at, &name)) != NULL;
         at = o->next)
        k->ops[k->n_ops++] = (struct tl_report_op){
            .name = clean_text(in, (const char *)(name + 1), name->bytes),
            .launches = load(&o->launches)};
}

/* rows[i] becomes the number of the kernel in row i. */
static void read_kernels(struct reader *in, struct tl_report_job *out,
                         uint32_t rows[TL_RECORD_KERNELS])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < TL_RECORD_KERNELS; i++)
        n += load32(&in->file->kernels[i]) != 0;
    out->kernels = take(in, n, sizeof *out->kernels);
    for (uint32_t i = 0; i < TL_RECORD_KERNELS; i++) {
        rows[i] = TL_REPORT_NO_KERNEL;
        const struct tl_record_kernel_part *part = part_at(in, load32(&in->file->kernels[i]));
        if (part == NULL || in->is_out_of_memory || out->n_kernels == n)
            continue;
        rows[i] = out->n_kernels;
        struct tl_report_kernel *k = &out->kernels[out->n_kernels++];
        k->name = clean_text(in, (const char *)(part + 1), part->name_bytes);
        for (int g = 0; g < TL_RUNGS; g++) {
            k->launches[g] = load(&part->launches[g]);
            k->blocks[g] = load(&part->blocks[g]);
            k->all_launches += k->launches[g];
            k->all_blocks += k->blocks[g];
        }
        k->uncontrolled = load(&part->uncontrolled);
        k->uncontrolled_ns = load(&part->uncontrolled_ns);
        k->rescues = load(&part->rescues);
        read_ops(in, k, load32(&part->ops));
        k->queued = read_histogram(in, &part->queued);
        k->ran = read_histogram(in, &part->ran);
        k->total = read_histogram(in, &part->total);
        k->preempted = read_histogram(in, &part->preempted);
        k->preempted_blocks = read_histogram(in, &part->preempted_blocks);
    }
}

static uint32_t kernel_of_row(const uint32_t rows[TL_RECORD_KERNELS], uint32_t row)
{
    return row < TL_RECORD_KERNELS ? rows[row] : TL_REPORT_NO_KERNEL;
}

static void read_slow(struct reader *in, struct tl_report_job *out,
                      const uint32_t rows[TL_RECORD_KERNELS])
{
    out->slow = take(in, TL_RECORD_SLOW, sizeof *out->slow);
    for (uint32_t i = 0; i < TL_RECORD_SLOW && out->slow != NULL; i++) {
        const struct tl_record_slow *s = &in->file->slow[i];
        uint64_t latency = load(&s->latency_ns);
        if (latency == 0 || latency == UINT64_MAX)
            continue;
        out->slow[out->n_slow++] = (struct tl_report_slow){
            .begin_ns = load(&s->begin_ns),
            .latency_ns = latency,
            .culprit_ns = load(&s->culprit_ns),
            .culprit_wait_ns = load(&s->culprit_wait),
            .kernels = load(&s->kernels),
            .busy_ns = load(&s->busy),
            .culprit = kernel_of_row(rows, load32(&s->culprit)),
            .is_marked = load32(&s->is_marked) != 0,
            .rival_kernel = TL_REPORT_NO_KERNEL,
        };
    }
}

static void read_notes(struct reader *in, struct tl_report_job *out)
{
    out->notes = take(in, TL_RECORD_NOTES, sizeof *out->notes);
    for (uint32_t i = 0; i < TL_RECORD_NOTES && out->notes != NULL; i++) {
        const struct tl_record_note *note = &in->file->notes[i];
        if ((load(&note->state) & 1) != 0)
            out->notes[out->n_notes++] = (struct tl_report_note){
                clean_text(in, note->text, sizeof note->text), load(&note->times)};
    }
}

static int by_number(const void *a, const void *b)
{
    const struct tl_report_slot *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

static void read_slots(struct reader *in, struct tl_report_job *out)
{
    out->slots = take(in, TL_RECORD_SLOTS, sizeof *out->slots);
    for (uint32_t i = 0; i < TL_RECORD_SLOTS && out->slots != NULL; i++) {
        const struct tl_record_slot *s = &in->file->slots[i];
        uint64_t number = load(&s->number);
        if (number == 0 || number % TL_RECORD_SLOTS != i)
            continue;
        out->slots[out->n_slots++] = (struct tl_report_slot){
            number, load(&s->run_ns), load(&s->wait_ns), load(&s->requests), load(&s->slowest_ns)};
    }
    if (out->n_slots > 0)
        qsort(out->slots, out->n_slots, sizeof *out->slots, by_number);
    /* What is older than the ring is left over from before. */
    uint32_t first = 0;
    while (first < out->n_slots &&
           out->slots[first].number + TL_RECORD_SLOTS <= out->slots[out->n_slots - 1].number)
        first++;
    out->slots += first;
    out->n_slots -= first;
}

static void read_spans(struct reader *in, struct tl_report_job *out,
                       const uint32_t rows[TL_RECORD_KERNELS])
{
    uint64_t total = load(&in->file->n_spans);
    out->forgotten_spans = total > TL_RECORD_SPANS ? total - TL_RECORD_SPANS : 0;
    out->spans = take(in, TL_RECORD_SPANS, sizeof *out->spans);
    for (uint32_t i = 0; i < TL_RECORD_SPANS && out->spans != NULL; i++) {
        const struct tl_record_place *p = &in->file->spans[i];
        uint64_t stamp = load(&p->stamp);
        struct tl_report_span s = {
            .kind = (enum tl_record_span)(stamp & 0xff),
            .kernel = kernel_of_row(rows, load32(&p->kernel)),
            .stream = load32(&p->stream),
            .pid = out->pid,
            .begin_ns = load(&p->begin_ns),
            .end_ns = load(&p->end_ns),
        };
        if (stamp != 0 && (unsigned)s.kind < TL_SPANS && s.begin_ns <= s.end_ns)
            out->spans[out->n_spans++] = s;
    }
}

static void read_head(struct reader *in, struct tl_report_job *out)
{
    const struct tl_record_head *h = &in->file->head;
    out->name = clean_text(in, h->name, sizeof h->name);
    out->command = clean_text(in, h->command, sizeof h->command);
    out->device = clean_text(in, h->device, sizeof h->device);
    out->policy = clean_text(in, h->policy, sizeof h->policy);
    out->host = clean_text(in, h->host, sizeof h->host);
    out->level = h->level < TL_LEVEL_MIN   ? TL_LEVEL_MIN
                 : h->level > TL_LEVEL_MAX ? TL_LEVEL_MAX
                                           : h->level;
    out->pid = h->pid;
    out->is_opaque = h->is_opaque != 0;
    out->is_full = load32(&h->is_full) != 0;
    memcpy(out->boot, h->boot, sizeof out->boot);
    out->begin_ns = h->begin_ns;
    out->begin_wall_ns = h->begin_wall_ns;
    uint64_t end = load(&h->end_ns), last = load(&h->last_ns), first = load(&h->first_ns);
    out->n_processes = 1;
    out->n_unended = end == 0;
    out->last_ns = end > last ? end : last;
    out->first_ns = first;
    if (out->last_ns < out->begin_ns || (first != 0 && first < out->begin_ns))
        complain(in, "times in it contradict each other");
    if (out->last_ns < out->begin_ns)
        out->last_ns = out->begin_ns;
    for (int c = 0; c < TL_COPIES; c++) {
        out->copies[c].count = load(&in->file->copies[c].count);
        out->copies[c].bytes = load(&in->file->copies[c].bytes);
    }
    for (int g = 0; g < TL_GRAPH_COUNTS; g++)
        out->graphs[g] = load(&in->file->graphs[g]);
}

static int check_head(const struct tl_record_head *h, size_t n, struct tl_error *err)
{
    if (n < sizeof *h || h->magic == 0)
        return tl_error_set(err, -EINVAL,
                            "is empty or was never finished: its job was stopped while making it, "
                            "or somebody cut it "
                            "off");
    if (h->magic == __builtin_bswap64(TL_RECORD_MAGIC))
        return tl_error_set(err, -ENOTSUP,
                            "was written on a machine of the other byte order; read it there");
    if (h->magic != TL_RECORD_MAGIC)
        return tl_error_set(err, -EINVAL, "is no record of a job");
    if (h->version != TL_RECORD_VERSION)
        return tl_error_set(
            err, -ENOTSUP,
            "has format version %u, and this tally reads version %u; use the tally that wrote it",
            h->version, TL_RECORD_VERSION);
    if (h->fixed_bytes != sizeof(struct tl_record_file) || h->rungs != TL_RUNGS ||
        h->spans != TL_SPANS || h->copies != TL_COPIES || h->graphs != TL_GRAPH_COUNTS)
        return tl_error_set(err, -EINVAL, "is damaged: its head contradicts its version");
    return 0;
}

int tl_report_read(struct tl_report_job *out, const char **problem, struct tl_arena *arena,
                   const void *bytes, size_t n, struct tl_error *err)
{
    *out = (struct tl_report_job){0};
    *problem = NULL;
    /* A copy of full length, zero behind the end of a short file; aligned, and nobody changes
     * it. */
    size_t size = n > sizeof(struct tl_record_file) ? n : sizeof(struct tl_record_file);
    struct tl_record_file *file = aligned_alloc(64, (size + 63) & ~(size_t)63);
    uint32_t *rows = calloc(TL_RECORD_KERNELS, sizeof *rows);
    int rc = -ENOMEM;
    if (file == NULL || rows == NULL) {
        tl_error_set(err, rc, "is too large for the memory at hand");
        goto out;
    }
    memset(file, 0, sizeof *file);
    memcpy(file, bytes, n);
    rc = check_head(&file->head, n, err);
    if (rc < 0)
        goto out;
    struct reader in = {.arena = arena,
                        .file = file,
                        .n = size,
                        .groups_left = (size - sizeof *file) / sizeof(struct tl_record_steps),
                        .ops_left = (size - sizeof *file) / sizeof(struct tl_record_op_part)};
    uint64_t whole = load(&file->head.pool_used);
    if (n < sizeof *file || n < whole) {
        char text[160];
        snprintf(text, sizeof text,
                 "it is cut off: %zu of its %llu bytes are there; kernels and values in the rest "
                 "are missing",
                 n, (unsigned long long)(whole > sizeof *file ? whole : sizeof *file));
        complain(&in, clean_text(&in, text, sizeof text));
    }
    read_head(&in, out);
    read_kernels(&in, out, rows);
    out->inferred = read_histogram(&in, &file->requests[0]);
    out->marked = read_histogram(&in, &file->requests[1]);
    read_slow(&in, out, rows);
    read_notes(&in, out);
    read_slots(&in, out);
    read_spans(&in, out, rows);
    *problem = in.problem;
    if (in.is_out_of_memory)
        rc = tl_error_set(err, -ENOMEM, "is too large for the memory at hand");
out:
    free(rows);
    free(file);
    return rc;
}

/* A rung over all kernels: whole, turned away, and stopped at random; each time every bit is
 * compared with what plain C computes, and every block must have run once. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/doctor/lines.h"
#include "runtime/doctor/machine.h"

enum { ROUNDS = 3, STOPS = 3, LEAST_BLOCKS = 512, MOST_BLOCKS = 4096, BLOCK_NS = 10000 };

/* The rung that is examined. */
struct rung {
    int variant;                    /* as of forms */
    struct tl_doc_machine *machine; /* of gates */
    bool is_twin;
    int lines; /* what kernels print, or -1 */
};

/* One kernel on one rung. */
struct trial {
    struct tl_doc_exam *e;
    struct tl_doc_bench *b;
    const struct rung *rung;
    const struct tl_doc_kernel *kernel;
    struct tl_doc_form original, form;
    struct tl_doc_shape shape;
    struct tl_doc_data expected, found;
    uint64_t whole_ns;             /* what the original takes */
    uint32_t n_stops, n_effective; /* told to stop; did, with blocks left */
    char wrong[200];               /* what went wrong first, or empty */
};

static void complain(struct trial *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void complain(struct trial *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (t->wrong[0] == 0)
        vsnprintf(t->wrong, sizeof t->wrong, format, args);
    va_end(args);
}

/* --- comparing -------------------------------------------------------------------------------- */

static CUresult copy_back(struct trial *t)
{
    struct tl_doc_data *d = &t->found;
    CUdeviceptr variable = 0;
    size_t bytes;
    CUresult r = tl_doc_driver.cuMemcpyDtoH_v2(d->out, t->b->out, (size_t)d->n_out * 4);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemcpyDtoH_v2(d->runs, t->b->runs, (size_t)t->shape.blocks * 4);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemcpyDtoH_v2(d->aux, t->b->aux, (size_t)d->n_aux * 4);
    if (t->kernel->variable == NULL || r != CUDA_SUCCESS)
        return r;
    r = tl_doc_driver.cuModuleGetGlobal_v2(&variable, &bytes, t->original.module,
                                           t->kernel->variable);
    return r == CUDA_SUCCESS ? tl_doc_driver.cuMemcpyDtoH_v2(&d->total, variable, 4) : r;
}

/* The first place where two arrays differ, or n. */
static uint32_t difference(const uint32_t *a, const uint32_t *b, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* `when` says what was done, for the message. */
static bool compare(struct trial *t, const char *when)
{
    const struct tl_doc_data *want = &t->expected, *have = &t->found;
    CUresult r = copy_back(t);
    if (r != CUDA_SUCCESS) {
        complain(t, "%s: cannot be copied back: %s", when, tl_doc_error(r));
        return false;
    }
    uint32_t block = difference(have->runs, want->runs, t->shape.blocks);
    uint32_t word = difference(have->out, want->out, want->n_out);
    uint32_t aux = difference(have->aux, want->aux, want->n_aux);
    if (block < t->shape.blocks && have->runs[block] == 0)
        complain(t, "%s: block %u of %u never ran", when, block, t->shape.blocks);
    else if (block < t->shape.blocks)
        complain(t, "%s: block %u of %u ran %u times", when, block, t->shape.blocks,
                 have->runs[block]);
    else if (word < want->n_out)
        complain(t, "%s: wrong bits: word %u is 0x%08x, not 0x%08x", when, word, have->out[word],
                 want->out[word]);
    else if (aux < want->n_aux)
        complain(t, "%s: wrong bits: sum %u is 0x%08x, not 0x%08x", when, aux, have->aux[aux],
                 want->aux[aux]);
    else if (have->total != want->total)
        complain(t, "%s: the module's variable is %u, not %u", when, have->total, want->total);
    else if (t->kernel->prints && (tl_doc_driver.cuCtxSynchronize() != CUDA_SUCCESS ||
                                   !tl_doc_lines_are_whole(t->rung->lines, t->shape.blocks)))
        complain(t, "%s: what its blocks print is not there, or not once", when);
    return t->wrong[0] == 0;
}

/* Exactly the blocks below `n` have run. */
static void compare_runs(struct trial *t, uint32_t n)
{
    uint32_t i = 0;
    CUresult r = tl_doc_driver.cuMemcpyDtoH_v2(t->found.runs, t->b->runs,
                                               (size_t)t->shape.blocks * 4);
    if (r != CUDA_SUCCESS)
        complain(t, "stopped at random: cannot be copied back: %s", tl_doc_error(r));
    while (r == CUDA_SUCCESS && i < t->shape.blocks && t->found.runs[i] == (i < n))
        i++;
    if (r == CUDA_SUCCESS && i < t->shape.blocks)
        complain(t, "stopped at random: the word says %u, and block %u ran %u times", n, i,
                 t->found.runs[i]);
}

static bool is_fine(struct trial *t, CUresult r, const char *when)
{
    if (r != CUDA_SUCCESS)
        complain(t, "%s: %s", when, tl_doc_error(r));
    return r == CUDA_SUCCESS;
}

/* --- running ---------------------------------------------------------------------------------- */

/* Zeroes what it writes, and forgets what it printed. */
static CUresult clear(struct trial *t)
{
    CUresult r = tl_doc_bench_clear(t->b, &t->original, &t->expected);
    if (t->kernel->prints)
        tl_doc_lines_clear(t->rung->lines);
    return r;
}

static void run_original(struct trial *t)
{
    float ms = 0;
    CUresult r = clear(t);
    if (r == CUDA_SUCCESS)
        r = tl_doc_launch(t->b, &t->original, &t->shape, NULL);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuEventSynchronize(t->b->end);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuEventElapsedTime(&ms, t->b->begin, t->b->end);
    t->whole_ns = ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
    if (is_fine(t, r, "the original"))
        compare(t, "the original");
}

/* Ranges of random sizes, some launched one behind the other. */
static void run_slices(struct trial *t)
{
    CUresult r = clear(t);
    for (uint32_t done = 0, n; r == CUDA_SUCCESS && done < t->shape.blocks; done += n) {
        uint32_t left = t->shape.blocks - done;
        n = 1 + tl_doc_random(&t->e->random) % (t->shape.blocks / 4);
        n = n < left ? n : left;
        r = tl_doc_launch(t->b, &t->form, &t->shape,
                          &(struct tl_doc_piece){.first = done, .grid = n, .batch = 1});
        if (r == CUDA_SUCCESS && tl_doc_random(&t->e->random) % 2 == 0)
            r = tl_doc_driver.cuEventSynchronize(t->b->end);
    }
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuStreamSynchronize(t->b->stream);
    if (is_fine(t, r, "in slices"))
        compare(t, "in slices");
}

/* How many blocks or workers are launched for what is left. */
static uint32_t grid_for(const struct trial *t, uint32_t left, uint32_t batch)
{
    uint32_t workers = t->b->sms * t->form.occupancy, batches = (left + batch - 1) / batch;
    return t->form.variant != TL_PTX_PERSISTENT || batches < workers ? batches : workers;
}

/* Launches what is left from the counter on; `stops`: tells it to leave at a random moment.  The
 * counter afterwards. */
static bool run_piece(struct trial *t, uint32_t *counter, uint32_t batch, bool stops)
{
    uint32_t before = *counter, left = t->shape.blocks - before;
    const struct tl_doc_piece rest = {
        .first = before, .last = t->shape.blocks, .grid = grid_for(t, left, batch), .batch = batch};
    tl_doc_stop(t->b, false);
    CUresult r = tl_doc_counter_set(t->b, before);
    if (r == CUDA_SUCCESS)
        r = tl_doc_launch(t->b, &t->form, &t->shape, &rest);
    if (r == CUDA_SUCCESS && stops) {
        uint64_t range = t->whole_ns + 20000;
        tl_doc_sleep(tl_doc_random(&t->e->random) % (range < TL_DOC_PAGE ? TL_DOC_PAGE : range));
        tl_doc_stop(t->b, true);
    }
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuEventSynchronize(t->b->end);
    if (r == CUDA_SUCCESS)
        r = tl_doc_counter_get(t->b, counter);
    if (!is_fine(t, r, "stopped at random"))
        return false;
    if (t->form.variant == TL_DOC_GATED) {
        *counter &= ~TL_CUBIN_CLOSED;
        compare_runs(t, *counter);
    }
    if (*counter < before)
        complain(t, "stopped at random: the counter went back from %u to %u", before, *counter);
    else if (!stops && *counter < t->shape.blocks)
        complain(t, "left at block %u of %u, and nobody had told it to", *counter, t->shape.blocks);
    t->n_stops += stops;
    t->n_effective += stops && *counter < t->shape.blocks;
    return t->wrong[0] == 0;
}

/* From the beginning to the end, with so many stops at most. */
static void run_counted(struct trial *t, uint32_t stops, uint32_t batch)
{
    uint32_t counter = 0;
    const char *when = stops > 0 ? "stopped at random" : "in one go";
    CUresult r = clear(t);
    if (!is_fine(t, r, when))
        return;
    while (counter < t->shape.blocks) {
        if (!run_piece(t, &counter, batch, stops > 0))
            return;
        stops -= stops > 0;
    }
    compare(t, when);
}

/* What finds the word busy before its first block works on none. */
static void turn_away(struct trial *t)
{
    uint32_t counter = 0;
    const struct tl_doc_piece all = {
        .grid = grid_for(t, t->shape.blocks, 1), .last = t->shape.blocks, .batch = 1};
    CUresult r = clear(t);
    tl_doc_stop(t->b, true);
    if (r == CUDA_SUCCESS)
        r = tl_doc_counter_set(t->b, 0);
    if (r == CUDA_SUCCESS)
        r = tl_doc_launch(t->b, &t->form, &t->shape, &all);
    if (r == CUDA_SUCCESS)
        r = tl_doc_counter_get(t->b, &counter);
    if (r == CUDA_SUCCESS)
        r = copy_back(t);
    tl_doc_stop(t->b, false);
    if (!is_fine(t, r, "turned away"))
        return;
    uint32_t ran = 0;
    if (t->form.variant == TL_DOC_GATED)
        counter &= ~TL_CUBIN_CLOSED;
    for (uint32_t i = 0; i < t->shape.blocks; i++)
        ran += t->found.runs[i];
    if (counter != 0 || ran != 0)
        complain(t, "told to stop before it began, it ran %u blocks (the counter says %u)", ran,
                 counter);
}

/* Ranges of random sizes, each a launch of the whole grid; parameters in one piece. */
static void run_ranges(struct trial *t)
{
    uint32_t counter = 0;
    CUresult r = clear(t);
    tl_doc_stop(t->b, false);
    for (uint32_t done = 0, n; r == CUDA_SUCCESS && done < t->shape.blocks; done += n) {
        uint32_t left = t->shape.blocks - done;
        n = 1 + tl_doc_random(&t->e->random) % (t->shape.blocks / 4);
        n = n < left ? n : left;
        r = tl_doc_counter_set(t->b, done);
        if (r == CUDA_SUCCESS)
            r = tl_doc_launch(
                t->b, &t->form, &t->shape,
                &(struct tl_doc_piece){.first = done, .last = done + n, .by_buffer = true});
        if (r == CUDA_SUCCESS)
            r = tl_doc_counter_get(t->b, &counter);
        if (r == CUDA_SUCCESS && counter != done + n)
            complain(t, "in ranges: the word says %u behind %u", counter, done + n);
    }
    if (is_fine(t, r, "in ranges"))
        compare(t, "in ranges");
}

/* Where the driver thinks that the gate's parameters are. */
static void check_params(struct trial *t)
{
    size_t offset = 0, size = 0, last = t->kernel->has_big ? 6 : 5;
    if (tl_doc_driver.cuFuncGetParamInfo == NULL)
        return;
    CUresult r = tl_doc_driver.cuFuncGetParamInfo(t->form.function, last, &offset, &size);
    if (is_fine(t, r, "its last parameter") &&
        (offset != t->form.gate_offset || size != sizeof(struct tl_cubin_args)))
        complain(t, "the driver has its last parameter at %zu, %zu bytes", offset, size);
}

static void run_rung(struct trial *t)
{
    if (t->form.variant == TL_DOC_GATED) {
        check_params(t);
        if (t->wrong[0] == 0)
            run_ranges(t);
    }
    for (uint32_t i = 0; i < ROUNDS && t->wrong[0] == 0; i++) {
        if (t->form.variant == TL_PTX_SLICE) {
            run_slices(t);
            continue;
        }
        if (i == 0) {
            turn_away(t);
            run_counted(t, 0, 1);
        }
        bool takes_batches = t->form.variant == TL_PTX_PERSISTENT &&
                             (t->form.r.conditions & TL_PTX_IF_TAKEN_SINGLY) == 0;
        run_counted(t, STOPS, takes_batches ? 1u << tl_doc_random(&t->e->random) % 3 : 1);
    }
}

/* --- a kernel, a group ------------------------------------------------------------------------ */

static int make_forms(struct trial *t, struct tl_error *err)
{
    const struct rung *g = t->rung;
    if (g->variant == TL_DOC_GATED)
        return tl_doc_machine_forms(g->machine, t->kernel, g->is_twin, &t->original, &t->form, err);
    int rc = tl_doc_form_make(&t->original, t->kernel, TL_DOC_ORIGINAL, NULL, err);
    return rc == 0 ? tl_doc_form_make(&t->form, t->kernel, g->variant, &t->original, err) : rc;
}

static int prepare(struct trial *t, uint32_t spin, struct tl_error *err)
{
    int rc = make_forms(t, err);
    if (rc < 0)
        return rc;
    uint32_t blocks = 2 * t->b->sms * t->original.occupancy;
    blocks = blocks < LEAST_BLOCKS ? LEAST_BLOCKS : blocks > MOST_BLOCKS ? MOST_BLOCKS : blocks;
    t->shape = tl_doc_shape_of(t->kernel, blocks, spin);
    uint64_t seed = tl_doc_random(&t->e->random);
    rc = tl_doc_data_init(&t->expected, &t->shape, seed);
    if (rc == 0)
        rc = tl_doc_data_init(&t->found, &t->shape, seed);
    if (rc == 0)
        rc = tl_doc_reference(t->kernel, &t->shape, &t->expected);
    return rc < 0 ? tl_error_set(err, rc, "no memory for %u blocks", blocks) : 0;
}

static void tell(struct trial *t, const char *name, int rc, const struct tl_error *err)
{
    struct tl_doc_exam *e = t->e;
    tl_doc_number(e, "blocks", t->shape.blocks);
    tl_doc_number(e, "stops", t->n_stops);
    tl_doc_number(e, "stops_with_blocks_left", t->n_effective);
    if (rc < 0)
        tl_doc_refused(e, name, true, "%s", err->text);
    else if (t->wrong[0] != 0)
        tl_doc_wrong(e, name, "%s", t->wrong);
    else
        tl_doc_works(e, name, "%s", t->kernel->what);
}

static void try_kernel(struct tl_doc_exam *e, struct tl_doc_bench *b, const struct tl_doc_kernel *k,
                       const struct rung *g, uint32_t spin)
{
    struct trial t = {.e = e, .b = b, .kernel = k, .rung = g};
    struct tl_error err = {0};
    char name[32];
    snprintf(name, sizeof name, "%s%s", g->is_twin ? "twin of " : "", k->name);
    tl_doc_begin(e, name);
    int rc = prepare(&t, spin, &err);
    if (rc == 0) {
        run_original(&t);
        if (t.wrong[0] == 0)
            run_rung(&t);
    }
    if (rc != -ENODATA) /* only its twin is used */
        tell(&t, name, rc, &err);
    tl_doc_data_finish(&t.expected);
    tl_doc_data_finish(&t.found);
    tl_doc_form_free(&t.form);
    tl_doc_form_free(&t.original);
}

/* The memory, and how many steps a block shall take; false if that is not to be had, which is
 * told. */
static bool begin(struct tl_doc_exam *e, struct tl_doc_bench *b, bool needs_word, uint32_t *spin)
{
    struct tl_doc_form map = {0};
    struct tl_doc_data data;
    struct tl_error err = {0};
    const struct tl_doc_shape one = {.grid = {1, 1, 1}, .blocks = 1};
    if (!tl_doc_open(e) || !tl_doc_bench_make(e, b, MOST_BLOCKS + 64, needs_word, "memory"))
        return false;
    if (tl_doc_form_make(&map, &tl_doc_kernels[0], TL_DOC_ORIGINAL, NULL, &err) < 0 ||
        tl_doc_data_init(&data, &one, 1) < 0) {
        tl_doc_refused(e, "memory", true, "%s", err.text);
        return false;
    }
    b->data = &data;
    *spin = tl_doc_spin_for(b, &map, BLOCK_NS);
    tl_doc_data_finish(&data);
    tl_doc_form_free(&map);
    return true;
}

static void run(struct tl_doc_exam *e, enum tl_ptx_variant variant)
{
    struct tl_doc_bench b;
    struct rung g = {.variant = (int)variant, .lines = -1};
    struct trial t = {.e = e, .b = &b, .rung = &g, .kernel = &tl_doc_kernels[0]};
    struct tl_error err = {0};
    uint32_t spin;
    if (!begin(e, &b, variant != TL_PTX_SLICE, &spin))
        return;
    for (uint32_t i = 0; i < tl_doc_n_kernels; i++)
        try_kernel(e, &b, &tl_doc_kernels[i], &g, spin);
    if (make_forms(&t, &err) < 0)
        tl_doc_refused(e, "latency", true, "%s", err.text);
    else
        tl_doc_latency(e, &t.original, &t.form);
    tl_doc_form_free(&t.form);
    tl_doc_form_free(&t.original);
}

/* Kernels as machine code, with a gate in front: in a module of their own, and as twins. */
static void run_gate(struct tl_doc_exam *e)
{
    struct tl_doc_bench b;
    struct tl_doc_machine m = {0};
    struct rung g = {.variant = TL_DOC_GATED, .machine = &m, .lines = tl_doc_lines_open()};
    struct trial t = {.e = e, .b = &b, .rung = &g, .kernel = &tl_doc_kernels[0]};
    struct tl_error err = {0};
    uint32_t spin;
    if (!begin(e, &b, true, &spin))
        return;
    tl_doc_begin(e, "machine-code");
    int rc = tl_doc_machine_make(&m, &err);
    if (rc < 0) {
        tl_doc_refused(e, "machine-code", rc != -ENOTSUP, "%s", err.text);
        return;
    }
    for (uint32_t i = 0; i < tl_doc_n_kernels + tl_doc_n_gate_kernels; i++) {
        const struct tl_doc_kernel *k = i < tl_doc_n_kernels
                                            ? &tl_doc_kernels[i]
                                            : &tl_doc_gate_kernels[i - tl_doc_n_kernels];
        for (int is_twin = 0; is_twin < 2 && k->least_arch <= m.arch; is_twin++) {
            g.is_twin = is_twin;
            try_kernel(e, &b, k, &g, spin);
        }
    }
    g.is_twin = false;
    if (make_forms(&t, &err) < 0)
        tl_doc_refused(e, "latency", true, "%s", err.text);
    else
        tl_doc_latency(e, &t.original, &t.form);
    tl_doc_form_free(&t.form);
    tl_doc_form_free(&t.original);
    tl_doc_machine_free(&m);
}

static void run_slice(struct tl_doc_exam *e)
{
    run(e, TL_PTX_SLICE);
}

static void run_ticket(struct tl_doc_exam *e)
{
    run(e, TL_PTX_TICKET);
}

static void run_persistent(struct tl_doc_exam *e)
{
    run(e, TL_PTX_PERSISTENT);
}

const struct tl_doc_group tl_doc_slice_group = {"slice", run_slice},
                          tl_doc_ticket_group = {"ticket", run_ticket},
                          tl_doc_persistent_group = {"persistent", run_persistent},
                          tl_doc_gate_group = {"gate", run_gate};

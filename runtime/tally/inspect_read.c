/* Reads one file: finds its images, unpacks them, lists and judges their kernels, container by
 * container. */
#include "runtime/tally/inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct reader {
    struct inspect *in;
    const char *path, *name;
    uint64_t file_bytes;
    bool has_begun;                   /* the report knows of this file */
    struct inspect_container current; /* empty before the first */
    struct inspect_totals totals;     /* of this file */
    struct tl_error *err;             /* what stopped the walk */
};

/* The report about a file begins with the first thing found in it. */
static const struct inspect_report_ops *report(struct reader *r)
{
    const struct inspect_report_ops *ops = r->in->report->ops;
    cli_progress_clear(&r->in->progress);
    if (!r->has_begun)
        ops->begin_file(r->in->report, r->path, r->file_bytes);
    r->has_begun = true;
    return ops;
}

static void report_problem(struct reader *r, const char *text)
{
    r->totals.problems++;
    report(r)->problem(r->in->report, text);
}

/* The file's broken containers. */
static void note_complaint(void *data, const struct tl_error *what, size_t offset)
{
    char text[sizeof what->text + 32];
    snprintf(text, sizeof text, "at 0x%zx: %s", offset, what->text);
    report_problem(data, text);
}

/* Reports a container that has been read to its end, and forgets it. */
static void finish_container(struct reader *r)
{
    struct inspect_container *c = &r->current;
    if (c->n_images > 0) {
        report(r)->container(r->in->report, c);
        inspect_totals_add_container(&r->totals, c);
        inspect_report_flush(r->in->report);
    }
    tl_table_finish(&c->kernels);
    tl_arena_finish(&c->arena);
    *c = (struct inspect_container){0};
    tl_arena_init(&c->arena, 0);
}

/* The kernel of that name in the container, new if need be. */
static struct inspect_kernel *kernel_named(struct inspect_container *c, struct tl_str name)
{
    struct inspect_kernel *k = tl_table_get(&c->kernels, name);
    if (k == NULL) {
        k = cli_must(tl_arena_zalloc(&c->arena, sizeof *k));
        k->name = (struct tl_str){cli_must(tl_arena_copy(&c->arena, name)), name.n};
        *(void **)cli_must(tl_table_place(&c->kernels, k->name)) = k;
    }
    return k;
}

/* --- growing arrays --- */

/* Room for one more of `size` bytes in an array of the arena. */
static void *one_more(struct tl_arena *a, void *array, uint32_t n, uint32_t *max, size_t size)
{
    if (n < *max)
        return array;
    *max = *max == 0 ? 8 : *max * 2;
    void *larger = cli_must(tl_arena_zalloc(a, *max * size));
    if (n > 0)
        memcpy(larger, array, n * size);
    return larger;
}

static struct inspect_image *add_image(struct inspect_container *c, const struct tl_image *image)
{
    c->images = one_more(&c->arena, c->images, c->n_images, &c->max_images, sizeof c->images[0]);
    struct inspect_image *added = &c->images[c->n_images++];
    added->image = *image;
    return added;
}

static struct inspect_entry *add_entry(struct inspect_container *c, struct inspect_image *image,
                                       struct tl_str name)
{
    image->entries = one_more(&c->arena, image->entries, image->n_entries, &image->max_entries,
                              sizeof image->entries[0]);
    struct inspect_entry *added = &image->entries[image->n_entries++];
    added->kernel = kernel_named(c, name);
    return added;
}

/* --- PTX --- */

/* Takes an image's verdicts into what is known of the kernel. */
static void merge_verdicts(struct inspect_kernel *k, const struct tl_ptx_verdict *verdicts)
{
    for (int v = 0; v < TL_PTX_VARIANTS; v++)
        if (!k->is_judged || k->reasons[v] == TL_PTX_REASON_OK)
            k->reasons[v] = verdicts[v].reason;
    k->is_judged = true;
}

static void judge(struct inspect_container *c, struct inspect_entry *e,
                  const struct tl_ptx_index *index)
{
    struct tl_error err;
    struct tl_ptx_verdict *verdicts = cli_must(
        tl_arena_zalloc(&c->arena, TL_PTX_VARIANTS * sizeof *verdicts));
    e->kernel->has_ptx = true;
    if (tl_ptx_judge(index, e->kernel->name, verdicts, &err) < 0) {
        e->problem = cli_must(tl_arena_printf(&c->arena, "%s", err.text));
        return;
    }
    e->verdicts = verdicts;
    merge_verdicts(e->kernel, verdicts);
}

static void read_ptx(struct reader *r, struct inspect_image *image, const char *text, size_t n)
{
    struct inspect_container *c = &r->current;
    struct tl_ptx_index *index;
    struct tl_error err;
    char name[512];
    snprintf(name, sizeof name, "%s:%u.%u", r->name, image->image.container_index,
             image->image.index);
    if (tl_ptx_index_create(&index, text, n, name, &err) < 0) {
        image->problem = cli_must(tl_arena_printf(&c->arena, "%s", err.text));
        return;
    }
    for (uint32_t i = 0; i < tl_ptx_index_count(index); i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(index, i);
        if (item->kind != TL_PTX_ITEM_ENTRY || item->body == 0)
            continue;
        judge(c, add_entry(c, image, item->name), index);
        cli_progress_show(&r->in->progress, "%s: %s, judging kernel %u of PTX image %u.%u", r->path,
                          tl_text_share(image->image.offset, r->file_bytes).s, image->n_entries,
                          image->image.container_index, image->image.index);
    }
    tl_ptx_index_destroy(index);
}

/* --- cubins --- */

struct cubin_target {
    struct inspect_container *container;
    struct inspect_image *image;
};

static int see_cubin_kernel(void *data, const struct tl_cubin_kernel *kernel)
{
    struct cubin_target *to = data;
    struct inspect_entry *e = add_entry(to->container, to->image, kernel->name);
    e->sass = *kernel;
    e->kernel->has_sass = true;
    return 0;
}

/* Takes an image's word on the gate into what is known of the kernel. */
static void merge_gate(struct inspect_entry *e)
{
    struct inspect_kernel *k = e->kernel;
    if (k->gate == TL_CUBIN_REASON_OK)
        k->gate = e->gate;
    k->wants_twin |= e->wants_twin;
}

/* Which of the image's kernels can be gated.  Both readers list kernels in the order of symbols. */
static void judge_gates(struct inspect_container *c, struct inspect_image *image, const void *bytes,
                        size_t n)
{
    struct tl_cubin *cubin;
    struct tl_error err;
    if (tl_cubin_open(&cubin, bytes, n, &err) < 0)
        cubin = NULL;
    for (uint32_t i = 0; i < image->n_entries; i++) {
        struct inspect_entry *e = &image->entries[i];
        const struct tl_cubin_entry *found = NULL;
        if (cubin != NULL && i < tl_cubin_count(cubin))
            found = tl_cubin_entry(cubin, i);
        if (found != NULL && tl_str_eq(found->name, e->kernel->name)) {
            e->gate = found->reason;
            e->wants_twin = found->wants_twin;
            e->gate_note = cli_must(tl_arena_printf(&c->arena, "%s", found->note));
        } else {
            e->gate = TL_CUBIN_REASON_BROKEN;
            e->gate_note = cubin == NULL ? cli_must(tl_arena_printf(&c->arena, "%s", err.text))
                                         : "";
        }
        merge_gate(e);
    }
    tl_cubin_close(cubin);
}

static void read_cubin(struct reader *r, struct inspect_image *image, const void *bytes, size_t n)
{
    struct inspect_container *c = &r->current;
    struct tl_error err;
    image->is_relocatable = tl_cubin_is_relocatable(bytes, n);
    if (tl_cubin_walk(bytes, n, see_cubin_kernel, &(struct cubin_target){c, image}, &err) < 0)
        image->problem = cli_must(tl_arena_printf(&c->arena, "%s", err.text));
    else
        judge_gates(c, image, bytes, n);
}

/* --- images --- */

/* What nobody can unpack is listed, and that is all; so is what the GPU cannot load, unless it is
 * to be extracted. */
static bool is_worth_unpacking(const struct inspect_image *image,
                               const struct inspect_options *options)
{
    return image->image.packing != TL_IMAGE_PACKED_UNKNOWN &&
           (image->is_for_gpu || options->extract != NULL);
}

static int see_image(void *data, const struct tl_image *found)
{
    struct reader *r = data;
    const struct inspect_options *options = r->in->options;
    struct tl_error err;
    void *bytes;
    size_t n;
    int rc = 0;
    if (r->current.n_images > 0 &&
        r->current.images[0].image.container_index != found->container_index)
        finish_container(r);
    struct inspect_image *image = add_image(&r->current, found);
    image->is_for_gpu = inspect_is_for_gpu(found, options->gpu);
    cli_progress_show(&r->in->progress, "%s: %s", r->path,
                      tl_text_share(found->offset, r->file_bytes).s);
    if (!is_worth_unpacking(image, options))
        return 0;
    if (tl_image_unpack(found, &bytes, &n, &err) < 0) {
        image->problem = cli_must(tl_arena_printf(&r->current.arena, "%s", err.text));
    } else {
        if (image->is_for_gpu && found->kind == TL_IMAGE_PTX)
            read_ptx(r, image, bytes, n);
        else if (image->is_for_gpu && found->kind == TL_IMAGE_CUBIN)
            read_cubin(r, image, bytes, n);
        if (options->extract != NULL)
            rc = inspect_extract(options->extract, r->name, found, bytes, n, r->err);
        free(bytes);
    }
    r->totals.problems += image->problem != NULL;
    return rc;
}

/* --- files --- */

/* People hand over wheels as they are downloaded. */
static bool is_zip(const void *bytes, size_t n)
{
    return n >= 4 && memcmp(bytes, "PK\3\4", 4) == 0;
}

static int walk(struct reader *r, const void *bytes, size_t n, bool is_named)
{
    tl_arena_init(&r->current.arena, 0);
    int rc = tl_image_walk(bytes, n, see_image, note_complaint, r);
    finish_container(r);
    if (is_named && r->totals.containers == 0 && is_zip(bytes, n))
        report_problem(r, "this is a zip archive or wheel; unpack it and inspect the folder");
    if (is_named)
        (void)report(r);
    if (r->has_begun) {
        r->totals.files = 1;
        report(r)->end_file(r->in->report, &r->totals);
        inspect_report_flush(r->in->report);
        inspect_totals_add(&r->in->totals, &r->totals);
    }
    return rc;
}

/* What is being read, for the handler below. */
static const char *read_now;

/* A file that becomes shorter while it is mapped is a signal at the next touch.  This process is
 * ours alone, so it can end with a message. */
static void on_lost_page(int number)
{
    static const char text[] = " became shorter while it was read; try again\n";
    (void)number;
    if (write(STDERR_FILENO, "tally inspect: ", 15) > 0 &&
        write(STDERR_FILENO, read_now, strlen(read_now)) > 0 &&
        write(STDERR_FILENO, text, sizeof text - 1) > 0)
        _exit(1);
    _exit(1); /* unheard */
}

int inspect_file(struct inspect *in, const char *path, const char *name, bool is_named,
                 struct tl_error *err)
{
    struct reader r = {.in = in, .path = path, .name = name, .err = err};
    struct stat st;
    int rc;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return tl_error_errno(err, "cannot open %s", path);
    if (fstat(fd, &st) < 0) {
        rc = tl_error_errno(err, "cannot look at %s", path);
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = tl_error_set(err, -EINVAL, "%s is neither a file nor a folder", path);
        goto out;
    }
    r.file_bytes = (uint64_t)st.st_size;
    if (st.st_size == 0) {
        rc = walk(&r, "", 0, is_named);
        goto out;
    }
    void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED) {
        rc = tl_error_errno(err, "cannot map %s", path);
        goto out;
    }
    (void)madvise(bytes, (size_t)st.st_size, MADV_SEQUENTIAL);
    read_now = path;
    signal(SIGBUS, on_lost_page);
    rc = walk(&r, bytes, (size_t)st.st_size, is_named);
    signal(SIGBUS, SIG_DFL);
    munmap(bytes, (size_t)st.st_size);
out:
    close(fd);
    return rc;
}

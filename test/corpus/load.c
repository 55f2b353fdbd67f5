/* Finds all images in files and folders, and keeps the unpacked text of those that are PTX. */
#include "test/corpus/corpus.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct loader {
    struct corpus *c;
    const char *file; /* its name, without folders */
};

static void note_complaint(void *data, const struct tl_error *what, size_t offset)
{
    struct loader *l = data;
    l->c->found.problems++;
    corpus_say(l->c, "BROKEN %s at 0x%zx: %s", l->file, offset, what->text);
}

static void keep_text(struct loader *l, const struct tl_image *found)
{
    struct corpus *c = l->c;
    struct tl_error err;
    void *text;
    size_t n;
    if (tl_image_unpack(found, &text, &n, &err) < 0) {
        note_complaint(l, &err, found->offset);
        return;
    }
    c->images = corpus_one_more(c->images, c->n_images, &c->max_images, sizeof c->images[0]);
    c->images[c->n_images++] = (struct corpus_image){
        .origin = corpus_must(
            tl_arena_printf(&c->arena, "%s:%u.%u", l->file, found->container_index, found->index)),
        .text = text,
        .n = n,
        .options = corpus_must(tl_arena_copy(&c->arena, found->options)),
    };
    c->found.text_bytes += n;
}

static int see_image(void *data, const struct tl_image *image)
{
    struct loader *l = data;
    struct corpus_found *f = &l->c->found;
    switch (image->kind) {
    case TL_IMAGE_PTX:
        f->ptx++;
        f->listed_ptx += !image->was_scanned;
        keep_text(l, image);
        break;
    case TL_IMAGE_CUBIN:
        f->cubins++;
        f->listed_cubins += !image->was_scanned;
        break;
    default:
        f->others++;
    }
    return 0;
}

static int load_file(struct corpus *c, const char *path, size_t n, struct tl_error *err)
{
    const char *slash = strrchr(path, '/');
    struct loader l = {c, slash != NULL ? slash + 1 : path};
    if (n == 0)
        return 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return tl_error_errno(err, "cannot open %s", path);
    void *bytes = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED)
        return tl_error_errno(err, "cannot map %s", path);
    int rc = tl_image_walk(bytes, n, see_image, note_complaint, &l);
    munmap(bytes, n);
    return rc;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

int corpus_load(struct corpus *c, char *const *paths, struct tl_error *err)
{
    int rc = 0;
    /* Links are followed only where the caller names them: libraries have several that lead to
     * themselves. */
    FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, by_name);
    if (tree == NULL)
        return tl_error_errno(err, "cannot read %s", paths[0]);
    for (FTSENT *e = fts_read(tree); e != NULL && rc == 0; e = fts_read(tree)) {
        if (e->fts_info == FTS_DNR || e->fts_info == FTS_ERR || e->fts_info == FTS_NS)
            rc = tl_error_set(err, -e->fts_errno, "cannot read %s: %s", e->fts_path,
                              strerror(e->fts_errno));
        else if (e->fts_info == FTS_F && S_ISREG(e->fts_statp->st_mode))
            rc = load_file(c, e->fts_path, (size_t)e->fts_statp->st_size, err);
    }
    fts_close(tree);
    corpus_say(c, "%u PTX images (%u in sections for fatbins), %.1f MB of text; %u cubins",
               c->found.ptx, c->found.listed_ptx, (double)c->found.text_bytes / 1e6,
               c->found.cubins);
    return rc;
}

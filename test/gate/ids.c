/* gate-tool ids: which attributes the kernels of some files have, by number and form, and for which
 * architectures.  Only tables are read. */
#include "cubin/internal.h"
#include "tally/image.h"
#include "test/gate/tool.h"

#include <stdio.h>
#include <stdlib.h>

enum { ARCHS = 256 };

/* How many kernels have it, and for which architectures. */
struct seen {
    uint64_t kernels;
    bool archs[ARCHS];
};

static struct seen all[256][8];

static void see_list(const struct tl__cb_section *s, uint32_t arch)
{
    bool is_counted[256] = {false};
    const uint8_t *p = s->bytes;
    size_t n = s->h.sh_size;
    for (struct tl__cb_attr a; tl__cb_next_attr(&p, &n, &a);) {
        struct seen *seen = &all[a.id][a.format & 7];
        seen->kernels += !is_counted[a.id];
        is_counted[a.id] = true;
        seen->archs[arch % ARCHS] = true;
    }
}

static int see_image(void *data, const struct tl_image *image)
{
    struct tl_error *err = data;
    struct tl_cubin *c;
    void *bytes;
    size_t n;
    if (image->kind != TL_IMAGE_CUBIN)
        return 0;
    if (tl_image_unpack(image, &bytes, &n, err) < 0)
        gate_tool_die(err->text);
    if (tl_cubin_open(&c, bytes, n, err) < 0)
        gate_tool_die(err->text);
    for (uint32_t i = 0; i < c->n_sections; i++)
        if (tl_str_starts(c->sections[i].name, ".nv.info.") && c->sections[i].bytes != NULL)
            see_list(&c->sections[i], c->arch);
    tl_cubin_close(c);
    free(bytes);
    return 0;
}

void gate_tool_ids(char *const *paths, int n_paths)
{
    for (int i = 0; i < n_paths; i++) {
        size_t n;
        struct tl_error err = {0};
        char *bytes = gate_tool_read(paths[i], &n);
        if (tl_image_walk(bytes, n, see_image, NULL, &err) < 0)
            gate_tool_die(err.text);
        free(bytes);
    }
    for (uint32_t id = 0; id < 256; id++)
        for (uint32_t format = 0; format < 8; format++) {
            const struct seen *seen = &all[id][format];
            if (seen->kernels == 0)
                continue;
            const struct tl__cb_attr_kind *kind = tl__cb_attr_kind((uint8_t)id);
            printf("%02x %u %-28s %8llu ", id, format,
                   kind->format == format ? kind->name : "NOT KNOWN",
                   (unsigned long long)seen->kernels);
            for (uint32_t arch = 0; arch < ARCHS; arch++)
                if (seen->archs[arch])
                    printf(" %u", arch);
            printf("\n");
        }
}

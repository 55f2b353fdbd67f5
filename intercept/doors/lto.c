/* Links of intermediate code (LTO IR), as Numba makes them: no text goes in, so nvJitLink is asked
 * a second time, for the text of that code.  The library makes no text of anything else; what other
 * inputs there are is linked with it afterwards (intercept/doors/link.c). */
#include "intercept/capture/map.h"
#include "intercept/doors/doors.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_INPUTS = 64, MAX_OPTIONS = 64 };

struct link {
    char *options[MAX_OPTIONS + 1]; /* one more place, for -ptx */
    struct {
        char *bytes;
        size_t n;
    } inputs[MAX_INPUTS];
    uint32_t n_options, n_inputs;
    bool is_whole; /* all inputs of intermediate code are here */
};

static struct tl_map links = TL_MAP_EMPTY;

static void let_go(struct link *l)
{
    for (uint32_t i = 0; i < l->n_options; i++)
        free(l->options[i]);
    for (uint32_t i = 0; i < l->n_inputs; i++)
        free(l->inputs[i].bytes);
    free(l);
}

void tl_doors_lto_created(void *state, uint32_t n, const char *const *options)
{
    struct link *l = n <= MAX_OPTIONS ? calloc(1, sizeof *l) : NULL;
    if (l == NULL)
        return;
    l->is_whole = true;
    for (uint32_t i = 0; i < n && l->is_whole; i++) {
        l->options[i] = strdup(options[i]);
        l->is_whole = l->options[i] != NULL;
        l->n_options += l->is_whole;
    }
    if (!l->is_whole || tl_map_put(&links, (uintptr_t)state, l) < 0)
        let_go(l);
}

void tl_doors_lto_added(void *state, bool is_intermediate, const void *data, size_t n)
{
    struct link *l = tl_map_find(&links, (uintptr_t)state);
    if (l == NULL || !is_intermediate)
        return;
    char *copy = data != NULL && l->is_whole && l->n_inputs < MAX_INPUTS ? malloc(n) : NULL;
    l->is_whole = copy != NULL;
    if (copy == NULL)
        return;
    memcpy(copy, data, n);
    l->inputs[l->n_inputs].bytes = copy;
    l->inputs[l->n_inputs++].n = n;
}

char *tl_doors_lto_text(void *state, const struct tl_doors_linker *linker, size_t *n)
{
    struct link *l = tl_map_find(&links, (uintptr_t)state);
    char ptx[] = "-ptx", *text = NULL;
    void *again = NULL;
    if (l == NULL || !l->is_whole || l->n_inputs == 0 || linker->create == NULL ||
        linker->add == NULL || linker->complete == NULL || linker->text_size == NULL ||
        linker->text == NULL || linker->destroy == NULL)
        return NULL;
    l->options[l->n_options] = ptx;
    int r = linker->create(&again, l->n_options + 1, (const char **)l->options);
    l->options[l->n_options] = NULL;
    if (r != 0)
        return NULL;
    for (uint32_t i = 0; i < l->n_inputs && r == 0; i++)
        r = linker->add(again, TL_DOORS_LTO_IR, l->inputs[i].bytes, l->inputs[i].n, "input");
    if (r == 0 && linker->complete(again) == 0 && linker->text_size(again, n) == 0 && *n > 1)
        text = malloc(*n);
    if (text != NULL && linker->text(again, text) != 0) {
        free(text);
        text = NULL;
    }
    linker->destroy(&again);
    return text;
}

void tl_doors_lto_gone(void *state)
{
    struct link *l = tl_map_find(&links, (uintptr_t)state);
    if (l != NULL) {
        tl_map_put(&links, (uintptr_t)state, NULL);
        let_go(l);
    }
}

void tl_doors_lto_forked(void)
{
    tl_map_forked(&links);
}

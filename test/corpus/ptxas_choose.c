/* Which ptxas takes a text, and under which version and architecture: cuDNN's PTX is newer than the
 * toolkit's ptxas, and cuSPARSE's is partly for sm_70, which CUDA 13 has dropped. */
#include "test/corpus/ptxas.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int try_header(struct corpus *c, const char *ptxas, const char *arch, const char *version,
                      const char *target, bool *works, struct tl_error *err)
{
    char text[256];
    const char *path = tl_arena_printf(&c->arena, "%s/work/%s-probe.ptx", c->options->folder,
                                       c->options->library);
    struct ptxas_run run = {.ptxas = ptxas, .arch = arch, .input = corpus_must((void *)path)};
    int n = snprintf(text, sizeof text,
                     ".version %s\n.target %s\n.address_size 64\n.visible .entry k() { ret; }\n",
                     version, target);
    int rc = corpus_write(path, text, (size_t)n, err);
    if (rc == 0)
        rc = ptxas_run_all(&run, 1, 1, err);
    *works = run.was_accepted;
    return rc;
}

/* The version before: 9.1 -> 9.0 -> 8.9 ... -> 6.0.  (Some never existed; ptxas then says so.) */
static const char *version_before(struct corpus *c, const char *version)
{
    char *dot;
    unsigned long major = strtoul(version, &dot, 10);
    unsigned long minor = *dot == '.' ? strtoul(dot + 1, NULL, 10) : 0;
    if (major <= 6 && minor == 0)
        return NULL;
    return corpus_must(tl_arena_printf(&c->arena, "%lu.%lu", minor > 0 ? major : major - 1,
                                       minor > 0 ? minor - 1 : 9));
}

/* Tries both programs with the target's own architecture and then with newer ones. */
static int try_version(struct corpus *c, struct ptxas_choice *choice, const char *version,
                       struct tl_error *err)
{
    static const char *const newer[] = {"sm_75", "sm_80", "sm_90", "sm_100", "sm_120", NULL};
    const char *const programs[] = {c->options->ptxas, c->options->new_ptxas};
    const char *arch = choice->target;
    for (size_t next = 0; arch != NULL; arch = newer[next++]) {
        for (int p = 0; p < 2; p++) {
            bool works = false;
            int rc = programs[p] != NULL
                         ? try_header(c, programs[p], arch, version, choice->target, &works, err)
                         : 0;
            if (rc < 0)
                return rc;
            if (works) {
                choice->ptxas = programs[p];
                choice->arch = arch;
                return 0;
            }
        }
    }
    return 0;
}

int ptxas_choose(struct corpus *c, const struct tl_ptx_index *index,
                 const struct ptxas_choice **out, struct tl_error *err)
{
    struct tl_str version = tl_ptx_index_version(index), target = tl_ptx_index_target(index);
    for (*out = c->choices; *out != NULL; *out = (*out)->next)
        if (tl_str_is(version, (*out)->version) && tl_str_is(target, (*out)->target))
            return 0;
    struct ptxas_choice *choice = corpus_must(tl_arena_zalloc(&c->arena, sizeof *choice));
    choice->version = corpus_must(tl_arena_copy(&c->arena, version));
    choice->target = corpus_must(tl_arena_copy(&c->arena, target));
    choice->next = c->choices;
    for (const char *v = choice->version; v != NULL && choice->ptxas == NULL;
         v = version_before(c, v)) {
        int rc = try_version(c, choice, v, err);
        if (rc < 0)
            return rc;
        if (v != choice->version)
            choice->as_version = v;
    }
    corpus_say(c, "PTX %s for %s: %s as %s for %s", choice->version, choice->target,
               choice->ptxas != NULL ? choice->ptxas : "no ptxas takes it",
               choice->as_version != NULL ? choice->as_version : "it is",
               choice->arch != NULL ? choice->arch : "any");
    c->choices = choice;
    *out = choice;
    return 0;
}

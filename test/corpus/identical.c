/* The printer seen by an independent judge: ptxas makes the same machine code of a text and of what
 * we print of it. */
#include "test/corpus/ptxas.h"

#include <errno.h>
#include <fcntl.h>
#include <libelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WHOLE_MODULE_BYTES = 300000 }; /* of larger modules one kernel is taken, for ptxas is slow */

/* --- cubins --- */

struct cubin {
    int fd;
    Elf *elf;
};

static bool cubin_open(struct cubin *cubin, const char *path)
{
    (void)elf_version(EV_CURRENT);
    cubin->fd = open(path, O_RDONLY | O_CLOEXEC);
    cubin->elf = cubin->fd >= 0 ? elf_begin(cubin->fd, ELF_C_READ, NULL) : NULL;
    return cubin->elf != NULL;
}

static void cubin_close(struct cubin *cubin)
{
    elf_end(cubin->elf);
    if (cubin->fd >= 0)
        close(cubin->fd);
}

/* Code, and what the driver must know about it. */
static bool matters(const char *section)
{
    return strncmp(section, ".text.", 6) == 0 || strncmp(section, ".nv.info", 8) == 0 ||
           strncmp(section, ".nv.constant", 12) == 0;
}

static const char *section_name(Elf *elf, Elf_Scn *section)
{
    size_t names;
    Elf64_Shdr *header = elf64_getshdr(section);
    if (header == NULL || elf_getshdrstrndx(elf, &names) < 0)
        return "";
    const char *name = elf_strptr(elf, names, header->sh_name);
    return name != NULL ? name : "";
}

static bool have_same_bytes(Elf_Scn *a, Elf_Scn *b)
{
    Elf_Data *da = elf_rawdata(a, NULL), *db = elf_rawdata(b, NULL);
    if (da == NULL || db == NULL || da->d_size != db->d_size)
        return false;
    return da->d_size == 0 || (da->d_buf != NULL && db->d_buf != NULL &&
                               memcmp(da->d_buf, db->d_buf, da->d_size) == 0);
}

static Elf_Scn *next_that_matters(Elf *elf, Elf_Scn *section)
{
    do
        section = elf_nextscn(elf, section);
    while (section != NULL && !matters(section_name(elf, section)));
    return section;
}

/* Both lists of sections in the same order, with the same names and bytes; at least one. */
static bool have_same_code(const char *path_a, const char *path_b)
{
    struct cubin a, b;
    bool opened_a = cubin_open(&a, path_a), opened_b = cubin_open(&b, path_b),
         same = opened_a && opened_b;
    Elf_Scn *in_a = same ? next_that_matters(a.elf, NULL) : NULL,
            *in_b = same ? next_that_matters(b.elf, NULL) : NULL;
    same = in_a != NULL;
    while (same && (in_a != NULL || in_b != NULL)) {
        same = in_a != NULL && in_b != NULL &&
               strcmp(section_name(a.elf, in_a), section_name(b.elf, in_b)) == 0 &&
               have_same_bytes(in_a, in_b);
        if (same) {
            in_a = next_that_matters(a.elf, in_a);
            in_b = next_that_matters(b.elf, in_b);
        }
    }
    cubin_close(&a);
    cubin_close(&b);
    return same;
}

/* --- one text --- */

struct pair {
    char paths[2][1024], cubins[2][1024];
    struct ptxas_run runs[2];
};

static int write_pair(struct corpus *c, struct pair *p, const struct corpus_kernel *k,
                      const char *text, size_t n, const struct ptxas_choice *choice,
                      struct tl_error *err)
{
    static const char *const names[] = {"as-found", "as-printed"};
    struct tl_ptx_index *index;
    char *printed = NULL;
    size_t printed_n = 0;
    int rc = tl_ptx_index_create(&index, text, n, "text to print", err);
    if (rc < 0)
        return rc;
    rc = tl_ptx_format(index, &printed, &printed_n, err);
    tl_ptx_index_destroy(index);
    for (int i = 0; rc == 0 && i < 2; i++) {
        snprintf(p->paths[i], sizeof p->paths[i], "%s/work/%s-%u.%s.ptx", c->options->folder,
                 c->options->library, c->identity.tried, names[i]);
        snprintf(p->cubins[i], sizeof p->cubins[i], "%s/work/%s-%u.%s.cubin", c->options->folder,
                 c->options->library, c->identity.tried, names[i]);
        p->runs[i] = (struct ptxas_run){
            .ptxas = choice->ptxas,
            .arch = choice->arch,
            .options = k->image->options,
            .input = p->paths[i],
            .output = p->cubins[i],
        };
        rc = ptxas_write(p->paths[i], i == 0 ? text : printed, i == 0 ? n : printed_n, choice, err);
    }
    free(printed);
    return rc;
}

static void remove_pair(struct corpus *c, const struct pair *p, bool keeps_texts)
{
    char path[2048];
    for (int i = 0; i < 2; i++) {
        if (keeps_texts) {
            snprintf(path, sizeof path, "%s/failed/%s", c->options->folder,
                     strrchr(p->paths[i], '/') + 1);
            (void)rename(p->paths[i], path);
        }
        (void)unlink(p->paths[i]);
        (void)unlink(p->cubins[i]);
        snprintf(path, sizeof path, "%s.log", p->paths[i]);
        (void)unlink(path);
    }
}

static int compare(struct corpus *c, const struct corpus_kernel *k, const char *text, size_t n,
                   struct tl_error *err)
{
    const struct ptxas_choice *choice;
    struct pair p = {0};
    int rc = ptxas_choose(c, k->image->index, &choice, err);
    if (rc < 0 || choice->ptxas == NULL)
        return rc;
    c->identity.tried++;
    rc = write_pair(c, &p, k, text, n, choice, err);
    if (rc == 0)
        rc = ptxas_run_all(p.runs, 2, c->options->jobs, err);
    if (rc < 0)
        return rc;
    /* What ptxas refuses in both forms is no difference; relocatable modules are such. */
    bool is_same = p.runs[0].was_accepted == p.runs[1].was_accepted &&
                   (!p.runs[0].was_accepted || have_same_code(p.cubins[0], p.cubins[1]));
    c->identity.tried -= is_same && !p.runs[0].was_accepted;
    c->identity.identical += is_same && p.runs[0].was_accepted;
    if (!is_same)
        corpus_say(c, "PRINTED DIFFERENTLY %s: ptxas makes other code of what we print: %s%s",
                   k->image->origin, strrchr(p.paths[0], '/') + 1, p.runs[1].message);
    remove_pair(c, &p, !is_same);
    return 0;
}

/* --- the sample --- */

static int compare_image_of(struct corpus *c, const struct corpus_kernel *k, struct tl_error *err)
{
    struct tl_buf alone = {0};
    if (k->image->n <= WHOLE_MODULE_BYTES)
        return compare(c, k, k->image->text, k->image->n, err);
    ptxas_original(&alone, k);
    corpus_must(alone.failed ? NULL : alone.p);
    int rc = compare(c, k, alone.p, alone.n, err);
    tl_buf_finish(&alone);
    return rc;
}

int corpus_compare_code(struct corpus *c, struct tl_error *err)
{
    const struct corpus_kernel **sample = corpus_sample(c, c->options->identical);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && sample[i] != NULL && i < c->options->identical; i++)
        rc = compare_image_of(c, sample[i], err);
    free(sample);
    corpus_say(c, "printed form: same machine code for %u of %u modules", c->identity.identical,
               c->identity.tried);
    return rc;
}

/* What several steps need: messages, memory, time, files, and the choice of kernels. */
#include "tally/clock.h"
#include "test/corpus/corpus.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

void corpus_say(const struct corpus *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("%s: ", c->options->library);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

void *corpus_must(void *memory)
{
    if (memory == NULL) {
        fputs("corpus-tool: out of memory\n", stderr);
        exit(1);
    }
    return memory;
}

void *corpus_one_more(void *array, uint32_t n, uint32_t *max, size_t size)
{
    if (n < *max)
        return array;
    *max = *max == 0 ? 64 : *max * 2;
    return corpus_must(realloc(array, *max * size));
}

double corpus_cpu_seconds(void)
{
    return (double)tl_clock_of(CLOCK_PROCESS_CPUTIME_ID) / 1e9;
}

int corpus_write(const char *path, const char *bytes, size_t n, struct tl_error *err)
{
    FILE *f = fopen(path, "we");
    if (f == NULL)
        return tl_error_errno(err, "cannot write %s", path);
    size_t written = fwrite(bytes, 1, n, f);
    if (fclose(f) != 0 || written < n)
        return tl_error_errno(err, "cannot write %s", path);
    return 0;
}

uint32_t corpus_dims(const struct corpus_kernel *k, enum tl_ptx_variant v)
{
    if (k->conditions[v] & TL_PTX_IF_GRID_IS_LINE)
        return 1;
    return (k->order + v) % 2 == 0 ? 1 : 3;
}

static int by_order(const void *a, const void *b)
{
    const struct corpus_kernel *ka = *(const struct corpus_kernel *const *)a;
    const struct corpus_kernel *kb = *(const struct corpus_kernel *const *)b;
    if (ka->order != kb->order)
        return ka->order < kb->order ? -1 : 1;
    return ka < kb ? -1 : ka > kb;
}

static bool has_a_variant(const struct corpus_kernel *k)
{
    for (int v = 0; k->was_judged && v < TL_PTX_VARIANTS; v++)
        if (k->reasons[v] == TL_PTX_REASON_OK)
            return true;
    return false;
}

const struct corpus_kernel **corpus_sample(const struct corpus *c, uint32_t n)
{
    const struct corpus_kernel **sample = corpus_must(
        calloc((size_t)c->n_kernels + 1, sizeof *sample));
    uint32_t found = 0;
    for (uint32_t i = 0; i < c->n_kernels; i++)
        if (has_a_variant(&c->kernels[i]))
            sample[found++] = &c->kernels[i];
    qsort(sample, found, sizeof *sample, by_order);
    if (n != 0 && n < found)
        sample[n] = NULL;
    return sample;
}

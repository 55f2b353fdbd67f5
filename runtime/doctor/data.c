/* What kernels of the examination work on, and the texts that ask single questions of the
 * device. */
#include "runtime/doctor/kernels.h"

#include <errno.h>
#include <stdlib.h>

#define MODULE ".version 7.0\n.target sm_70\n.address_size 64\n"

/* One thread repeats the word at `word` to the one at `echo` until it is all ones; after `patience`
 * ns without that, it ends, so that a device which never sees the host's stores is found out and
 * not waited for. */
const char tl_doc_poll_text[] = MODULE
    ".visible .entry poll(.param .u64 word, .param .u64 echo, .param .u64 patience)\n{\n"
    "\t.reg .pred %p<4>;\n\t.reg .b32 %r<4>;\n\t.reg .b64 %d<10>;\n"
    "\tld.param.u64 %d1, [word];\n\tcvta.to.global.u64 %d1, %d1;\n"
    "\tld.param.u64 %d2, [echo];\n\tcvta.to.global.u64 %d2, %d2;\n"
    "\tld.param.u64 %d3, [patience];\n\tmov.u64 %d4, %globaltimer;\n\tadd.s64 %d4, %d4, %d3;\n"
    "$look:\n\tld.volatile.global.u32 %r1, [%d1];\n\tst.volatile.global.u32 [%d2], %r1;\n"
    "\tsetp.eq.u32 %p1, %r1, -1;\n\t@%p1 bra $done;\n"
    "\tmov.u64 %d5, %globaltimer;\n\tsetp.lt.u64 %p2, %d5, %d4;\n\t@%p2 bra $look;\n"
    "$done:\n\tret;\n}\n";

/* One thread: for each round, writes the round's number all over `data` (so many words), and behind
 * a fence of the whole system to `flag`; waits until the host has said at `word` that it has
 * looked. */
const char tl_doc_publish_text[] = MODULE
    ".visible .entry publish(.param .u64 data, .param .u64 flag, .param .u64 word,\n"
    "\t.param .u64 patience, .param .u32 words, .param .u32 rounds)\n{\n"
    "\t.reg .pred %p<6>;\n\t.reg .b32 %r<10>;\n\t.reg .b64 %d<12>;\n"
    "\tld.param.u64 %d1, [data];\n\tcvta.to.global.u64 %d1, %d1;\n"
    "\tld.param.u64 %d2, [flag];\n\tcvta.to.global.u64 %d2, %d2;\n"
    "\tld.param.u64 %d3, [word];\n\tcvta.to.global.u64 %d3, %d3;\n"
    "\tld.param.u64 %d4, [patience];\n\tmov.u64 %d5, %globaltimer;\n\tadd.s64 %d5, %d5, %d4;\n"
    "\tld.param.u32 %r1, [words];\n\tld.param.u32 %r2, [rounds];\n\tmov.u32 %r3, 1;\n"
    "$round:\n\tmov.u32 %r4, 0;\n"
    "$write:\n\tmul.wide.u32 %d6, %r4, 4;\n\tadd.s64 %d6, %d1, %d6;\n"
    "\tst.volatile.global.u32 [%d6], %r3;\n\tadd.u32 %r4, %r4, 1;\n"
    "\tsetp.lt.u32 %p1, %r4, %r1;\n\t@%p1 bra $write;\n"
    "\tmembar.sys;\n\tst.volatile.global.u32 [%d2], %r3;\n"
    "$wait:\n\tld.volatile.global.u32 %r5, [%d3];\n\tsetp.eq.u32 %p2, %r5, %r3;\n"
    "\t@%p2 bra $seen;\n\tmov.u64 %d7, %globaltimer;\n\tsetp.lt.u64 %p3, %d7, %d5;\n"
    "\t@%p3 bra $wait;\n\tbra $done;\n"
    "$seen:\n\tadd.u32 %r3, %r3, 1;\n\tsetp.le.u32 %p4, %r3, %r2;\n\t@%p4 bra $round;\n"
    "$done:\n\tret;\n}\n";

const char tl_doc_count_text[] = MODULE
    ".visible .entry count(.param .u64 word)\n{\n"
    "\t.reg .b64 %d<4>;\n\tld.param.u64 %d1, [word];\n\tcvta.to.global.u64 %d1, %d1;\n"
    "\tred.global.add.u32 [%d1], 1;\n\tret;\n}\n";

/* Thread 0 of each block counts itself and waits until all `blocks` have, or `patience` ns; the
 * second word counts those that have met all others. */
const char tl_doc_meet_text[] = MODULE
    ".visible .entry meet(.param .u64 words, .param .u64 patience, .param .u32 blocks)\n{\n"
    "\t.reg .pred %p<4>;\n\t.reg .b32 %r<6>;\n\t.reg .b64 %d<8>;\n"
    "\tmov.u32 %r1, %tid.x;\n\tsetp.ne.u32 %p1, %r1, 0;\n\t@%p1 bra $done;\n"
    "\tld.param.u64 %d1, [words];\n\tcvta.to.global.u64 %d1, %d1;\n"
    "\tld.param.u64 %d2, [patience];\n\tmov.u64 %d3, %globaltimer;\n\tadd.s64 %d3, %d3, %d2;\n"
    "\tld.param.u32 %r2, [blocks];\n\tatom.global.add.u32 %r3, [%d1], 1;\n"
    "$wait:\n\tld.volatile.global.u32 %r4, [%d1];\n\tsetp.ge.u32 %p2, %r4, %r2;\n"
    "\t@%p2 bra $met;\n\tmov.u64 %d4, %globaltimer;\n\tsetp.lt.u64 %p3, %d4, %d3;\n"
    "\t@%p3 bra $wait;\n\tbra $done;\n"
    "$met:\n\tred.global.add.u32 [%d1+4], 1;\n$done:\n\tret;\n}\n";

uint32_t tl_doc_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = *state ^ *state >> 33;
    return (uint32_t)(x * 0xff51afd7ed558ccdu >> 32);
}

struct tl_doc_shape tl_doc_shape_of(const struct tl_doc_kernel *k, uint32_t blocks, uint32_t spin)
{
    struct tl_doc_shape s = {.grid = {blocks, 1, 1}, .blocks = blocks, .spin = spin};
    if (k->is_3d) {
        s.grid[0] = 7;
        s.grid[1] = 5;
        s.grid[2] = (blocks + 34) / 35;
        s.blocks = s.grid[0] * s.grid[1] * s.grid[2];
    }
    return s;
}

int tl_doc_data_init(struct tl_doc_data *d, const struct tl_doc_shape *s, uint64_t seed)
{
    uint32_t n_aux = 2 * s->blocks > TL_DOC_BINS ? 2 * s->blocks : TL_DOC_BINS;
    *d = (struct tl_doc_data){.n_out = s->blocks * TL_DOC_THREADS, .n_aux = n_aux};
    d->in = calloc(d->n_out, sizeof *d->in);
    d->out = calloc(d->n_out, sizeof *d->out);
    d->runs = calloc(s->blocks, sizeof *d->runs);
    d->aux = calloc(d->n_aux, sizeof *d->aux);
    if (d->in == NULL || d->out == NULL || d->runs == NULL || d->aux == NULL) {
        tl_doc_data_finish(d);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < d->n_out; i++)
        d->in[i] = tl_doc_random(&seed);
    for (uint32_t i = 0; i < TL_DOC_BIG_WORDS; i++)
        d->big[i] = tl_doc_random(&seed);
    return 0;
}

void tl_doc_data_finish(struct tl_doc_data *d)
{
    free(d->in);
    free(d->out);
    free(d->runs);
    free(d->aux);
    *d = (struct tl_doc_data){0};
}

int tl_doc_reference(const struct tl_doc_kernel *k, const struct tl_doc_shape *s,
                     struct tl_doc_data *d)
{
    uint32_t *spun = calloc(s->blocks, sizeof *spun);
    if (spun == NULL)
        return -ENOMEM;
    for (uint32_t b = 0; b < s->blocks; b++) {
        spun[b] = b;
        for (uint32_t i = 0; i < s->spin; i++)
            spun[b] = spun[b] * 1664525 + 1013904223;
        d->runs[b] = 1;
    }
    k->reference(s, spun, d);
    free(spun);
    return 0;
}

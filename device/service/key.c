/* What a compiled kernel is called on disk; see the header. */
#include "device/service/key.h"

#include <cpuid.h>
#include <pthread.h>
#include <string.h>

/* Grows with what the key is made from. */
#define KEY_VERSION 1u

static uint32_t cpu_words[64];
static uint32_t n_cpu_words;
static pthread_once_t cpu_once = PTHREAD_ONCE_INIT;

static void add_cpu_leaf(uint32_t leaf, uint32_t sub, uint32_t mask_b)
{
    uint32_t a = 0, b = 0, c = 0, d = 0;
    (void)__get_cpuid_count(leaf, sub, &a, &b, &c, &d);
    cpu_words[n_cpu_words++] = a;
    cpu_words[n_cpu_words++] = b & mask_b;
    cpu_words[n_cpu_words++] = c;
    cpu_words[n_cpu_words++] = d;
}

/* Asked once, since under a hypervisor each CPUID costs microseconds.  Words that differ from core
 * to core are masked. */
static void read_cpu(void)
{
    static const struct {
        uint32_t leaf, sub, mask_b;
    } leaves[] = {
        {0, 0, ~0u},          /* vendor */
        {1, 0, 0},            /* family, model, features; b has the core's number */
        {7, 0, ~0u},          /* features */
        {7, 1, ~0u},          /* features */
        {0xd, 1, 0},          /* forms of xsave; b depends on what is switched on now */
        {0x19, 0, ~0u},       /* key locker */
        {0x24, 0, ~0u},       /* AVX10 */
        {0x80000001, 0, ~0u}, /* features */
        {0x80000008, 0, ~0u}, /* features in b */
    };
    for (size_t i = 0; i < sizeof leaves / sizeof leaves[0]; i++)
        add_cpu_leaf(leaves[i].leaf, leaves[i].sub, leaves[i].mask_b);
    uint32_t a = 0, b = 0, c = 0, d = 0, low = 0, high = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_OSXSAVE) != 0)
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    cpu_words[n_cpu_words++] = low; /* which registers the kernel saves */
    cpu_words[n_cpu_words++] = high;
}

static void add_text(struct tl_digest *d, const char *text)
{
    tl_digest_part(d, text != NULL ? text : "", text != NULL ? strlen(text) : 0);
}

struct tl_store_key tl_jit_key_of(const struct tl_jit_source *s)
{
    struct tl_digest d;
    struct tl_store_key key;
    uint32_t version = KEY_VERSION;
    pthread_once(&cpu_once, read_cpu);
    tl_digest_init(&d);
    tl_digest_part(&d, &version, sizeof version);
    add_text(&d, s->compiler);
    add_text(&d, s->cpu);
    add_text(&d, s->features);
    if (s->cpu == NULL || s->features == NULL)
        tl_digest_part(&d, cpu_words, n_cpu_words * sizeof cpu_words[0]);
    tl_digest_part(&d, s->block, sizeof s->block);
    add_text(&d, s->kernel);
    tl_digest_part(&d, s->ptx, s->ptx_n);
    if (s->is_quick)
        add_text(&d, "quick");
    tl_digest_end(&d, key.bytes);
    return key;
}

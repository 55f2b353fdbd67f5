/* An interoperability fact, and nothing else: what CUDA's runtime library (every program that
 * contains cudart) wants to hear from a driver before it works with it.  Published by the ZLUDA
 * project (dark_api); see docs/device.md.
 *
 * The answer is an HMAC (RFC 2104) with MD2 (RFC 1319, block of 16 bytes) and a fixed key over
 * things that both sides know: versions, process, thread, addresses of the tables handed out, the
 * time, the devices. */
#include "device/driver/integrity.h"
#include "device/driver/profile.h"
#include "device/driver/state.h"

#include <string.h>
#include <unistd.h>

enum { MD2_BLOCK = 16 };

static const uint8_t key[MD2_BLOCK] = {0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52,
                                       0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f};

struct md2 {
    uint8_t state[MD2_BLOCK], checksum[MD2_BLOCK], block[MD2_BLOCK];
    uint8_t last; /* of the checksum so far */
    size_t n;     /* in block */
    uint8_t s[256];
};

/* The substitution is a shuffle of 0..255 by the digits of pi, as RFC 1319 says: Fisher and
 * Yates's, with digits read off in as many decimals as the bound needs, so it is computed in place
 * of being copied. */
static const char pi_digits[] =
    "3141592653589793238462643383279502884197169399375105820974944592307816406286208998628034825"
    "342117067982148086513282306647093844609550582231725359408128481117450284102701938521105559"
    "644622948954930381964428810975665933446128475648233786783165271201909145648566923460348610"
    "454326648213393607260249141273724587006606315588174881520920962829254091715364367892590360"
    "011330530548820466521384146951941511609433057270365759591953092186117381932611793105118548"
    "074462379962749567351885752724891227938183011949129833673362440656643086021394946395224737"
    "190702179860943702770539217176293176752384674818467669405132000568127145263560827785771342"
    "757789609173637178721468440901224953430146549585371050792279689258923542019956112129021960"
    "864034418159813629774771309960518707211349999998372978049951059731732816096318595024459455";

static uint32_t next_digit(uint32_t bound, size_t *at)
{
    for (;;) {
        uint32_t value = 0, range = 1;
        do {
            value = value * 10 + (uint32_t)(pi_digits[(*at)++] - '0');
            range *= 10;
        } while (range < bound);
        uint32_t limit = range / bound * bound;
        if (value < limit)
            return value % bound;
    }
}

static void md2_init(struct md2 *m)
{
    size_t at = 0;
    memset(m, 0, sizeof *m);
    for (uint32_t i = 0; i < 256; i++)
        m->s[i] = (uint8_t)i;
    for (uint32_t i = 2; i <= 256; i++) {
        uint32_t j = next_digit(i, &at);
        uint8_t t = m->s[i - 1];
        m->s[i - 1] = m->s[j];
        m->s[j] = t;
    }
}

static void md2_mix(struct md2 *m, const uint8_t block[MD2_BLOCK])
{
    uint8_t x[3 * MD2_BLOCK], t = 0;
    for (int i = 0; i < MD2_BLOCK; i++) {
        x[i] = m->state[i];
        x[MD2_BLOCK + i] = block[i];
        x[2 * MD2_BLOCK + i] = (uint8_t)(m->state[i] ^ block[i]);
    }
    for (int round = 0; round < 18; round++) {
        for (int i = 0; i < 3 * MD2_BLOCK; i++)
            t = x[i] ^= m->s[t];
        t = (uint8_t)(t + round);
    }
    memcpy(m->state, x, MD2_BLOCK);
}

static void md2_block(struct md2 *m)
{
    md2_mix(m, m->block);
    for (int i = 0; i < MD2_BLOCK; i++)
        m->last = m->checksum[i] ^= m->s[m->block[i] ^ m->last];
    m->n = 0;
}

static void md2_add(struct md2 *m, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    while (n-- > 0) {
        m->block[m->n++] = *p++;
        if (m->n == MD2_BLOCK)
            md2_block(m);
    }
}

static void md2_end(struct md2 *m, uint8_t out[MD2_BLOCK])
{
    memset(m->block + m->n, (int)(MD2_BLOCK - m->n), MD2_BLOCK - m->n);
    md2_block(m);
    md2_mix(m, m->checksum);
    memcpy(out, m->state, MD2_BLOCK);
}

static void add_key(struct md2 *m, uint8_t with)
{
    uint8_t padded[MD2_BLOCK];
    for (int i = 0; i < MD2_BLOCK; i++)
        padded[i] = (uint8_t)(key[i] ^ with);
    md2_add(m, padded, sizeof padded);
}

/* See integrity.h: a keyed digest of who asks, when, and of the devices. */
void tl_drv_integrity(uint32_t version, uint64_t seconds, const void *cudart_table,
                      const void *table, const void *function, uint8_t out[16])
{
    /* The first two of the three questions have constant answers. */
    static const uint64_t constant[2][2] = {{0x3341181C03CB675C, 0x8ED383AA1F4CD1E8},
                                            {0x1841181C03CB675C, 0x8ED383AA1F4CD1E8}};
    if (version % 10 < 2) {
        memcpy(out, constant[version % 10], 16);
        return;
    }
    struct {
        uint32_t driver, version, pid, thread;
        const void *cudart_table, *table, *function;
        uint64_t seconds;
    } head = {(uint32_t)tl_drv_driver_version(),
              version,
              (uint32_t)getpid(),
              (uint32_t)pthread_self(),
              cudart_table,
              table,
              function,
              seconds};
    struct md2 m;
    uint8_t inner[MD2_BLOCK];
    md2_init(&m);
    add_key(&m, 0x36);
    md2_add(&m, &head, sizeof head);
    for (int i = 0; i < tl_drv.n_devices; i++) {
        int32_t pci[3] = {0, tl_drv.devices[i].pci_bus, 0};
        md2_add(&m, tl_drv.devices[i].uuid.bytes, 16);
        md2_add(&m, pci, sizeof pci);
    }
    md2_end(&m, inner);
    md2_init(&m);
    add_key(&m, 0x5c);
    md2_add(&m, inner, sizeof inner);
    md2_end(&m, out);
}

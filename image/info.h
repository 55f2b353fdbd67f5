/* `.nv.info` and `.nv.info.<kernel>` of cubins: a list of attributes.  NVIDIA does not document
 * them; the numbers are those that cuobjdump -elf names. */
#ifndef TALLY_IMAGE_INFO_H
#define TALLY_IMAGE_INFO_H

#include "image/internal.h"

/* a value of that many bytes follows; else the number itself is all */
enum { TL__INFO_SIZED = 4 };

enum tl__info_id {
    TL__INFO_CTAIDZ_USED = 0x04,
    TL__INFO_MAX_THREADS = 0x05, /* three u32 */
    TL__INFO_PARAM_CBANK = 0x0a, /* u32 symbol, u16 offset, u16 size */
    /* one per parameter: u16 number and offset behind 4 bytes, size from bit 18 on */
    TL__INFO_KPARAM_INFO = 0x17,
    TL__INFO_CBANK_PARAM_SIZE = 0x19, /* the number */
    TL__INFO_REGCOUNT = 0x2f,         /* u32 symbol, u32 registers */
    TL__INFO_KPARAM_INFO_V2 = 0x45,   /* one per parameter, where they are large */
    TL__INFO_NUM_BARRIERS = 0x4c,     /* the number */
};

struct tl__info {
    uint8_t format, id;
    uint16_t number;
    const uint8_t *value; /* `number` bytes if the format is TL__INFO_SIZED */
};

/* Takes the next attribute; false at the end (`*n` is then less than one has) or if the rest is
 * broken. */
static inline bool tl__info_next(const uint8_t **p, size_t *n, struct tl__info *a)
{
    if (*n < 4)
        return false;
    *a = (struct tl__info){(*p)[0], (*p)[1], tl__u16(*p + 2), *p + 4};
    size_t taken = 4 + (a->format == TL__INFO_SIZED ? a->number : 0u);
    if (taken > *n)
        return false;
    *p += taken;
    *n -= taken;
    return true;
}

static inline bool tl__info_is_sized(const struct tl__info *a, uint16_t least)
{
    return a->format == TL__INFO_SIZED && a->number >= least;
}

#endif

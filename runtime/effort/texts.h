/* The PTX texts that an image carries. */
#ifndef TALLY_EFFORT_TEXTS_H
#define TALLY_EFFORT_TEXTS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/effort/lock.h"
#include "tally/base.h"
#include "tally/ptx.h"

struct tl_captured_image;

/* A text with what was found in it; both live as long as the image. */
struct tl_eff_text {
    const struct tl_ptx_index *index;
    const uint8_t *digest;
};

/* The text that the kernel's code was made of: 0, -ENOENT (no text has it), -ENOMEM, or why none is
 * taken for its twin (runtime/effort/twin.h).  A context of the image's device is current. */
int tl_eff_text(struct tl_captured_image *image, const char *kernel, int ptx_version,
                struct tl_eff_text *out, struct tl_error *err) TL_EFF_UNLOCKED;
/* Calls `visit` with the name of each kernel in its texts, which is not ended by a NUL, until that
 * returns false.  A context of the image's device is current. */
void tl_eff_text_names(struct tl_captured_image *image,
                       bool (*visit)(void *data, struct tl_str name), void *data) TL_EFF_UNLOCKED;
/* Frees what was unpacked of an image; none of its kernels is known any more.  See struct
 * tl_effort. */
void tl_eff_texts_forget(struct tl_captured_image *image);
/* In the child of a fork. */
void tl_eff_texts_forked(void);

#endif

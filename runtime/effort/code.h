/* The machine code that an image carries. */
#ifndef TALLY_EFFORT_CODE_H
#define TALLY_EFFORT_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tally/base.h"
#include "tally/cubin.h"

struct tl_captured_image;

/* A cubin of an image, unpacked and read. */
struct tl_eff_code {
    void *bytes;
    size_t n;
    struct tl_cubin *cubin;
    const struct tl_cubin_entry *entry; /* the kernel that was asked for, if one was */
};

/* The cubin with the code of a kernel that the driver runs and says to be of that architecture
 * (CU_FUNC_ATTRIBUTE_BINARY_VERSION: 90).  0; -ENOENT (none has it); -EMLINK (several differ and
 * might be it); or what reading it fails with. */
int tl_eff_code_of(const struct tl_captured_image *image, const char *kernel, int binary_version,
                   struct tl_eff_code *out, struct tl_error *err);
/* The cubin that a device of that capability (86) would load of the image: the best that it can
 * run. 0; -ENOENT (none); -EMLINK (several might be it); or as above. */
int tl_eff_code_for(const struct tl_captured_image *image, uint32_t capability,
                    struct tl_eff_code *out, struct tl_error *err);
void tl_eff_code_finish(struct tl_eff_code *c); /* what is zero is fine */

/* Whether the image has PTX for that virtual architecture, so that its kernels can be rewritten,
 * which is better. */
bool tl_eff_code_has_text(const struct tl_captured_image *image, uint32_t virtual_arch);

#endif

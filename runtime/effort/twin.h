/* Which PTX of an image is the twin of the code that the driver runs. */
#ifndef TALLY_RUNTIME_EFFORT_TWIN_H
#define TALLY_RUNTIME_EFFORT_TWIN_H

#include "tally/base.h"

/* A PTX text that has the kernel. */
struct tl_eff_twin {
    struct tl_str target;  /* of its .target: "sm_90a" */
    const uint8_t *digest; /* of the whole text */
};

/* The place in the list of the text that the code was made of, which the driver gives as the number
 * `ptx_version` (CU_FUNC_ATTRIBUTE_PTX_VERSION: 90 for compute_90, compute_90a and compute_90f).
 *
 * Another architecture's text may compute something else, or the same in another order: libraries
 * carry tuned code for one and plain code for the next.  So a variant is made of no other, and not
 * of one of two that the driver's number does not tell apart.
 *
 * -ENOENT (none is of that architecture; the code counts as machine code), -EMLINK (several differ
 * and might be it), -ENODATA (the driver does not say). */
int tl_eff_twin_of(const struct tl_eff_twin *list, uint32_t n, int ptx_version,
                   struct tl_error *err);

#endif

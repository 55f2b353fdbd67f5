/* The PTX of separately compiled programs (runtime/effort/linked.c). */
#ifndef TALLY_RUNTIME_EFFORT_LINKED_H
#define TALLY_RUNTIME_EFFORT_LINKED_H

#include "tally/base.h"

struct tl_captured_image;

/* One text of all the parts' PTX for `arch`, the caller's to free, if that is what the driver runs
 * on a device of that capability (90 for 9.0): each part has PTX for this architecture, one only,
 * and if it has machine code that fits, that is of the same.  0; -ENOENT, -EMLINK or -EEXIST with
 * what is missing or in doubt; -EINVAL (broken), -ENOMEM. */
int tl_eff_linked_text(const struct tl_captured_image *image, uint32_t arch, uint32_t capability,
                       char **text, size_t *n, struct tl_error *err);

/* Whether all parts have PTX for that architecture. */
bool tl_eff_linked_has(const struct tl_captured_image *image, uint32_t arch);

#endif

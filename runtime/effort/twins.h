/* Modules with variables: what the driver gets in their place when they are loaded. */
#ifndef TALLY_EFFORT_TWINS_H
#define TALLY_EFFORT_TWINS_H

#include <stdbool.h>

#include "runtime/effort/lock.h"

struct tl_captured_image;

/* See struct tl_effort.  On the thread that loads. */
const void *tl_eff_twin(struct tl_captured_image *image) TL_EFF_UNLOCKED;
void tl_eff_twinned(struct tl_captured_image *image, bool was_taken, bool is_preserved);
/* Frees what the driver may still read of an image that goes. */
void tl_eff_twins_forget(struct tl_captured_image *image);

#endif

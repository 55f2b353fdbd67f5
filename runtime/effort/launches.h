/* Kernels that launch graphs themselves (runtime/effort/launches.c). */
#ifndef TALLY_RUNTIME_EFFORT_LAUNCHES_H
#define TALLY_RUNTIME_EFFORT_LAUNCHES_H

#include <stdbool.h>

struct tl_captured_image;

/* Whether kernels of the image may launch graphs; also if it cannot be read.  They can only while
 * they are in a graph themselves, so such a graph is never launched node by node. */
bool tl_eff_launches_graphs(const struct tl_captured_image *image);

#endif

/* `tally` whose library leaves out one edit of gating: TALLY_LEAVE_OUT is its number in
 * cubin/internal.h.  For the question what `tally doctor` makes of it. */
#include "cubin/work.h"

#include <stdlib.h>

/* Linked with --wrap: whoever calls tl_cubin_gate comes here. */
int __wrap_tl_cubin_gate(const struct tl_cubin *c, const struct tl_cubin_options *options,
                         struct tl_cubin_gates *gates, struct tl_cubin_gated *out,
                         struct tl_error *err);

int __wrap_tl_cubin_gate(const struct tl_cubin *c, const struct tl_cubin_options *options,
                         struct tl_cubin_gates *gates, struct tl_cubin_gated *out,
                         struct tl_error *err)
{
    const char *number = getenv("TALLY_LEAVE_OUT");
    uint32_t left_out = number != NULL ? 1u << atoi(number) : 0;
    return tl__cb_gate(c, options, gates, left_out, out, err);
}

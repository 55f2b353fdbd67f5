/* Matrix fragments: ldmatrix, mma, wmma. */
#include "device/jit/emit.h"

bool tl_emit_matrix(struct tl_emit *e)
{
    (void)e;
    return false;
}

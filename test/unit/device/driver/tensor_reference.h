/* What copies by tensor maps do, written element by element from the CUDA programming guide
 * ("Tensor Memory Access", with its tables of swizzle patterns) and the PTX ISA ("Tensors"), and
 * sharing nothing with the device. */
#ifndef TALLY_TEST_TENSOR_REFERENCE_H
#define TALLY_TEST_TENSOR_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

struct tensor_case {
    const char *type;  /* as PTX calls it */
    uint32_t bytes;    /* of an element */
    int driver_type;   /* CUtensorMapDataType */
    uint32_t ptx_type; /* as tensormap.replace numbers them */
    uint32_t rank;
    uint64_t dim[5], stride[5]; /* stride[i] of axis i in bytes, stride[0] is an element */
    uint32_t box[5], step[5];
    int32_t at[5];
    uint32_t swizzle; /* 0, 1: 32 bytes, 2: 64, 3: 128 */
    bool fills_nan;
    uint32_t shared_at; /* where the box begins in the block's shared memory */
};

/* Elements of the box, and bytes. */
uint32_t tensor_elements(const struct tensor_case *c);

/* Does the copy between the tensor, which begins at `global`, and the block's shared memory.
 * `what`: "load", "store", or a reduction by its name. */
void tensor_reference(const struct tensor_case *c, const char *what, uint8_t *global,
                      uint8_t *shared);

/* A case at random whose box has no more than `room` bytes and whose tensor no more than
 * `global_room`; without swizzling, or with it. */
struct tensor_case tensor_random(uint64_t *seed, uint32_t room, uint64_t global_room,
                                 bool is_swizzled);
uint64_t tensor_next(uint64_t *seed); /* a number at random */

#endif

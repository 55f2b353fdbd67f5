/* Which of the images in a fatbin is the one to load (device/driver/choose.c). */
#ifndef TALLY_DEVICE_DRIVER_CHOOSE_H
#define TALLY_DEVICE_DRIVER_CHOOSE_H

#include "tally/image.h"

/* Images lead into the bytes that they were chosen from. */
struct tl_drv_choice {
    struct tl_image best, cubin;
    bool has_one, has_cubin; /* PTX to run; machine code, whether it fits or not */
    uint32_t n_seen;
    /* of a strict profile: the machine code that a GPU's driver would take */
    struct tl_image code;
    bool has_code;
    void *code_bytes; /* unpacked, whoever chose frees it; NULL if that failed */
    size_t n_code;
    uint32_t arch; /* whose machine code counts: 90 for sm_90 */
    /* the PTX that it was made of, if the same container has it */
    uint32_t virtual_arch;
    struct tl_image twin;
    bool has_twin;
};

/* Chooses as a GPU's driver would.  `arch` is that of the machine code that is taken where it is
 * there, 0: the device's.  0 (`has_one` tells whether there is one), or -EINVAL with a message. */
int tl_drv_choose(struct tl_drv_choice *c, const void *bytes, uint32_t arch, struct tl_error *err);

#endif

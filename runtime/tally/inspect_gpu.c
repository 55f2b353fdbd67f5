/* Which images a GPU can load, by the rules of the CUDA C++ Programming Guide, "Compute Capability"
 * and "PTX Compatibility": PTX compiles for its own architecture and all later ones; machine code
 * runs on later architectures of the same major number; `a` ties either to one architecture, `f` to
 * those of the same major number. */
#include "runtime/tally/inspect.h"

#include <stdlib.h>

uint32_t inspect_gpu_of(const char *text)
{
    char *end;
    if (tl_str_starts(tl_str_of(text), "sm_"))
        text += 3;
    unsigned long n = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;
    return n >= 10 && n < 10000 && (end[0] == 0 || (end[0] == 'a' && end[1] == 0)) ? (uint32_t)n
                                                                                   : 0;
}

bool inspect_is_for_gpu(const struct tl_image *image, uint32_t gpu)
{
    bool is_same_major = image->arch / 10 == gpu / 10;
    if (gpu == 0)
        return true;
    if (image->is_arch_specific)
        return image->arch == gpu;
    if (image->is_family_specific || image->kind == TL_IMAGE_CUBIN)
        return is_same_major && image->arch <= gpu;
    return image->arch <= gpu;
}

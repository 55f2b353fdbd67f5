/* Joining texts, with the driver's errors: for cuLink and for separately compiled programs. */
#include "device/driver/link.h"
#include "device/driver/log.h"

#include <errno.h>
#include <stdlib.h>

CUresult tl_drv_join(struct tl_ptx_part *parts, uint32_t n, uint32_t max_registers, char **text,
                     size_t *n_text)
{
    struct tl_error err = {0};
    int rc = tl_ptx_join(parts, n, max_registers, text, n_text, &err);
    if (rc < 0)
        tl_drv_warn("%s", err.text);
    return rc == 0         ? CUDA_SUCCESS
           : rc == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY
                           : CUDA_ERROR_INVALID_PTX;
}

CUresult tl_drv_link_join(const struct CUlinkState_st *s, char **text, size_t *n)
{
    struct tl_ptx_part *parts = calloc(s->n + 1, sizeof *parts);
    if (parts == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < s->n; i++)
        parts[i] = (struct tl_ptx_part){.index = s->inputs[i].image->index,
                                        .is_library = s->inputs[i].is_library};
    CUresult r = tl_drv_join(parts, (uint32_t)s->n, s->max_registers, text, n);
    free(parts);
    return r;
}

/* In the place of the best-effort part: tells on standard output what it is given, and launches
 * everything as it is. */
#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <stdio.h>
#include <string.h>

#include "tally/effort.h"

static const struct tl_shim *shim;

static CUresult hook_cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                                    unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                    CUstream stream, void **params, void **extra)
{
    const struct tl_captured_kernel *k = shim->kernel(f);
    __typeof__(cuLaunchKernel) *real = (__typeof__(cuLaunchKernel) *)shim->real("cuLaunchKernel");
    if (k == NULL)
        printf("launch of an unknown kernel\n");
    else if (k->image == NULL)
        printf("launch %s, no image\n", k->name);
    else
        printf("launch %s, %s of %zu bytes%s%.*s%s%s\n", k->name,
               k->image->is_copy ? "copy" : "reference", k->image->n,
               k->image->bytes != NULL ? ", begins " : "", 8,
               k->image->bytes != NULL ? (const char *)k->image->bytes : "",
               k->image->ptx != NULL ? ", from " : "",
               k->image->ptx != NULL ? (const char *)k->image->ptx : "");
    return real(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}

static int unloading(const void *module, const void *library)
{
    printf("unloading a %s\n", module != NULL && library == NULL ? "module" : "library");
    return 0;
}

/* Only of an image that has a user, which nobody here gives it. */
static void forget(struct tl_captured_image *image)
{
    printf("an image from %s goes\n", image->source);
}

static void stop(void)
{
    printf("stop\n");
    fflush(stdout);
}

static const struct tl_hook hooks[] = {{"cuLaunchKernel", (void *)hook_cuLaunchKernel},
                                       {NULL, NULL}};

static const struct tl_hook *start(const struct tl_shim *s)
{
    shim = s;
    printf("start%s\n", s->real("cuNobodyHasThis") == NULL ? "" : ", too much");
    return hooks;
}

__attribute__((visibility("default"))) const struct tl_effort tl_effort_table = {
    .build = tl_build_id,
    .start = start,
    .unloading = unloading,
    .forget = forget,
    .stop = stop,
};

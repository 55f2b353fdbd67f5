/* Kernels that wait for kernels of other processes: those of libraries for communication.  One that
 * is held back keeps all the others on their GPUs, where they wait; so they run whole, and need no
 * permit. By name, for frameworks have such libraries inside of their own, and by the library that
 * they are from. */
#include "runtime/effort/gang.h"

#include <stdint.h>
#include <string.h>

static bool begins_with_one(const char *text, const char *const *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (strncmp(text, list[i], strlen(list[i])) == 0)
            return true;
    return false;
}

#define BEGINS(text, list) begins_with_one(text, list, sizeof list / sizeof *list)

bool tl_eff_is_gang(const char *kernel, const char *source)
{
    /* NCCL up to 2.18, from 2.19 on, and its kernels on symmetric memory; NVSHMEM's own */
    static const char *const names[] = {"ncclKernel_", "ncclDevKernel_", "ncclSymDevKernel_",
                                        "ncclSymkDevKernel_", "nvshmemi_"},
                             *const files[] = {"libnccl", "libnvshmem"};
    const char *slash = strrchr(source, '/');
    /* C++ puts the length in front of a name */
    const char *plain = kernel;
    if (strncmp(plain, "_Z", 2) == 0)
        plain += 2 + strspn(plain + 2, "N0123456789");
    return BEGINS(plain, names) || BEGINS(slash != NULL ? slash + 1 : source, files);
}

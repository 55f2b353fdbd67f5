/* Whose machine code it is, and whether it may get a gate; see the header.  Pure. */
#include "runtime/effort/whose.h"

#include <string.h>
#include <strings.h>

/* How the files of NVIDIA's libraries begin, in the toolkit and beside it: those that carry kernels
 * or make them.  Wheels put a digest behind the name (libcublas-3b81d1c0.so.12), so what follows is
 * not looked at; a library of somebody else's that is called so is left alone, which costs nothing
 * but control. */
static const char *const of_nvidia[] = {
    "libcublas",       "libcudnn",      "libcufft",         "libcusparse",     "libcusolver",
    "libcurand",       "libnccl",       "libnpp",           "libnvjpeg",       "libnvrtc",
    "libnvjitlink",    "libnvinfer",    "libnvonnxparser",  "libnvparsers",    "libcutensor",
    "libcudss",        "libcuquantum",  "libcustatevec",    "libcudensitymat", "libcupauliprop",
    "libcustabilizer", "libnvshmem",    "libnvblas",        "libnvgraph",      "libnvcomp",
    "libnvtiff",       "libnvimgcodec", "libnvjpeg2k",      "libcufile",       "libcudadevrt",
    "libcal.",         "libcublasmp",   "libcusolvermp",    "libcufftmp",      "libcuvslam",
    "libnvvm",         "libnvfatbin",   "libnvptxcompiler", "libnvidia-",      "libcupti",
    "libnvperf",       "libnvpl",
};

/* Those that load code for whoever calls them. */
static const char *const for_everybody[] = {"libcudart", "libcuda."};

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static bool begins_with_any(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strncasecmp(name, list[i], strlen(list[i])) == 0)
            return true;
    return false;
}

/* By its name, or because it lies in a folder of the wheels that NVIDIA makes. */
static bool is_of_nvidia(const char *path)
{
    return begins_with_any(name_of(path), of_nvidia, sizeof of_nvidia / sizeof *of_nvidia) ||
           (strstr(path, "-packages/nvidia/") != NULL &&
            !begins_with_any(name_of(path), for_everybody,
                             sizeof for_everybody / sizeof *for_everybody));
}

enum tl_eff_whose tl_eff_whose(const char *source, const char *loader)
{
    if (is_of_nvidia(source) || is_of_nvidia(loader))
        return TL_EFF_OF_NVIDIA;
    if (strchr(source, '/') != NULL)
        return TL_EFF_OF_THE_JOB;
    bool is_known = strchr(loader, '/') != NULL &&
                    !begins_with_any(name_of(loader), for_everybody,
                                     sizeof for_everybody / sizeof *for_everybody);
    return is_known ? TL_EFF_OF_THE_JOB : TL_EFF_OF_SOMEBODY;
}

const char *tl_eff_gate_objection(const struct tl_eff_gate_facts *f)
{
    if (f->mode == TL_GATE_OFF)
        return "TALLY_GATE is off";
    if (f->mode != TL_GATE_ALL && f->whose == TL_EFF_OF_NVIDIA)
        return "it is a library's of NVIDIA's, and TALLY_GATE is not all";
    if (f->mode != TL_GATE_ALL && f->whose == TL_EFF_OF_SOMEBODY)
        return "it may be a library's of NVIDIA's, and TALLY_GATE is not all";
    if (f->examined == TL_EFF_FOUND_UNFIT)
        return "`tally doctor` did not find that the gate works on this device";
    if (f->examined == TL_EFF_NEVER_EXAMINED && !f->is_forced)
        return "`tally doctor` has never examined this device";
    return NULL;
}

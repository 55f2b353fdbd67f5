/* Profiles: which GPU and which driver the device answers as, one row each.
 *
 * `soft` is the device as it is: it claims what no x86 driver has, so that everything can be tried.
 * The others answer, refuse and wait as a GPU of that kind with a driver of that branch does, as
 * far as it is documented.  What is computed, and how fast, is the same in all of them.
 *
 * Where the numbers are from:
 *
 *   compute capability, threads, blocks and shared memory of an SM and of a block
 *       CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": 8.0 has 164
 *       KB per SM and 163 KB per block, 8.9 has 100 and 99 KB, 1,536 threads and 24 blocks, 9.0 and
 *       10.0 have 228 and 227 KB; 64 K registers per SM and per block, 1 KB of shared memory is the
 *       driver's in each block from 8.0 on.
 *   SMs, L2, width of the memory
 *       A100 40 MB and 5,120 bits (NVIDIA A100 Tensor Core GPU Architecture), RTX 4090 72 MB and 384
 *       bits (NVIDIA Ada GPU Architecture, appendix A), H100 SXM 50 MB and 5,120 bits (NVIDIA H100
 *       Tensor Core GPU Architecture).  B200: 148 SMs, 126 MB as public listings of its properties
 *       say; no white paper has them.
 *   clocks, copy engines
 *       As public listings of deviceQuery say for A100-SXM4-80GB, RTX 4090 and H100-SXM5-80GB; they
 *       differ with boards.  Of B200 no listing with copy engines was found: as many as H100.
 *   single to double
 *       The guide, "Arithmetic Instructions": 64 to 32 results per clock on 8.0, 128 to 2 on 8.9,
 *       128 to 64 on 9.0 and 10.0.
 *   domains of memory synchronisation
 *       The guide, "Memory Synchronization Domains": four from 9.0 on, one before.
 *   driver version
 *       Release notes of the CUDA toolkit, table of driver versions: R535 came with CUDA 12.2, R550
 *       with 12.4, R580 with 13.0.
 *   last attribute
 *       cuda.h of these toolkits: up to CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID in 12.2 and 12.4;
 *       cuDeviceGetAttribute returns CUDA_ERROR_INVALID_VALUE for what it does not know.
 *   atomics on the host's memory (86), managed memory from the host (101)
 *       The guide, "Unified Memory": of systems with a coherent interconnect (Power 9, Grace); not
 *       over PCIe.
 *   way to the host's memory and back
 *       About 1.4 us from an SM of an H100 with an x86 host, two hops of PCIe away, by the chase of
 *       pointers of nvbandwidth (its test host_device_latency_sm) on AWS's p5, as Hugging Face's
 *       Smol Training Playbook tells in its chapter on infrastructure.  Of the others no such
 *       figure was found, so they have the same; it says nothing of systems with NVLink-C2C.  (A
 *       network card needs about 550 ns on a Xeon E5: Neugebauer and others, Understanding PCIe
 *       performance for end host networking, SIGCOMM 2018.)  TALLY_DEVICE_PCIE says another.
 *   registration of memory that is only readable (113)
 *       0 is what a public report has of a B300 with an x86 host, with what then is refused and how
 *       (vllm-project/vllm-omni, pull request 6240).  Nothing was found that says 1 on x86. */
#include "device/driver/profile.h"
#include "device/driver/handle.h"
#include "device/driver/log.h"
#include "tally/device.h"
#include "tally/tell.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KIB = 1 << 10, MIB = 1 << 20 };

static const struct tl_drv_profile profiles[] = {
    {.name = "soft",
     .cc_major = 13,
     .driver_version = 13000,
     .sm_threads = 2048,
     .sm_blocks = 32,
     .sm_shared = 228 * KIB,
     .block_shared = 227 * KIB,
     .clock_khz = 1500000,
     .memory_khz = 1600000,
     .bus_bits = 128,
     .l2_bytes = 32 * MIB,
     .copy_engines = 2,
     .float_to_double = 2,
     .sync_domains = 1,
     .reach_ns = 1000,
     .host_atomics = 1,
     .read_only_registration = 1,
     .managed_from_host = 1},
    {.name = "a100-r535",
     .cc_major = 8,
     .driver_version = 12020,
     .sms = 108,
     .sm_threads = 2048,
     .sm_blocks = 32,
     .sm_shared = 164 * KIB,
     .block_shared = 163 * KIB,
     .clock_khz = 1410000,
     .memory_khz = 1593000,
     .bus_bits = 5120,
     .l2_bytes = 40 * MIB,
     .copy_engines = 3,
     .float_to_double = 2,
     .sync_domains = 1,
     .has_ecc = 1,
     .has_preemption = 1,
     .reach_ns = 1400,
     .is_strict = true},
    {.name = "rtx4090-r550",
     .cc_major = 8,
     .cc_minor = 9,
     .driver_version = 12040,
     .sms = 128,
     .sm_threads = 1536,
     .sm_blocks = 24,
     .sm_shared = 100 * KIB,
     .block_shared = 99 * KIB,
     .clock_khz = 2520000,
     .memory_khz = 10501000,
     .bus_bits = 384,
     .l2_bytes = 72 * MIB,
     .copy_engines = 2,
     .float_to_double = 64,
     .sync_domains = 1,
     .has_preemption = 1,
     .reach_ns = 1400,
     .is_strict = true},
    {.name = "h100-r550",
     .cc_major = 9,
     .driver_version = 12040,
     .sms = 132,
     .sm_threads = 2048,
     .sm_blocks = 32,
     .sm_shared = 228 * KIB,
     .block_shared = 227 * KIB,
     .clock_khz = 1980000,
     .memory_khz = 2619000,
     .bus_bits = 5120,
     .l2_bytes = 50 * MIB,
     .copy_engines = 3,
     .float_to_double = 2,
     .sync_domains = 4,
     .has_ecc = 1,
     .has_preemption = 1,
     .reach_ns = 1400,
     .is_strict = true},
    {.name = "h100-r580",
     .cc_major = 9,
     .driver_version = 13000,
     .sms = 132,
     .sm_threads = 2048,
     .sm_blocks = 32,
     .sm_shared = 228 * KIB,
     .block_shared = 227 * KIB,
     .clock_khz = 1980000,
     .memory_khz = 2619000,
     .bus_bits = 5120,
     .l2_bytes = 50 * MIB,
     .copy_engines = 3,
     .float_to_double = 2,
     .sync_domains = 4,
     .has_ecc = 1,
     .has_preemption = 1,
     .reach_ns = 1400,
     .is_strict = true},
    {.name = "b200-r580",
     .cc_major = 10,
     .driver_version = 13000,
     .sms = 148,
     .sm_threads = 2048,
     .sm_blocks = 32,
     .sm_shared = 228 * KIB,
     .block_shared = 227 * KIB,
     .clock_khz = 1965000,
     .memory_khz = 3996000,
     .bus_bits = 7680,
     .l2_bytes = 126 * MIB,
     .copy_engines = 3,
     .float_to_double = 2,
     .sync_domains = 4,
     .has_ecc = 1,
     .has_preemption = 1,
     .reach_ns = 1400,
     .is_strict = true},
};
enum { N_PROFILES = sizeof profiles / sizeof profiles[0] };

/* tally-run knows the same ones. */
static const char *const told[] = {
#define PROFILE_NAME(name) name,
    TL_DEVICE_PROFILES(PROFILE_NAME)
#undef PROFILE_NAME
};
_Static_assert(sizeof told / sizeof told[0] == N_PROFILES, "every profile has its row");

/* The row of a name; soft's if none is said; NULL if it is unknown. */
static const struct tl_drv_profile *row_of(const char *name)
{
    if (name == NULL || *name == 0)
        return &profiles[0];
    for (size_t i = 0; i < N_PROFILES; i++)
        if (strcmp(profiles[i].name, name) == 0)
            return &profiles[i];
    return NULL;
}

/* The dynamic linker may ask before libc has the environment; what it is told then is not kept. */
const struct tl_drv_profile *tl_drv_profile(void)
{
    static const struct tl_drv_profile *_Atomic known; /* every thread finds the same */
    const struct tl_drv_profile *p = atomic_load_explicit(&known, memory_order_relaxed);
    if (p != NULL)
        return p;
    p = row_of(secure_getenv("TALLY_DEVICE_PROFILE"));
    if (p == NULL)
        p = &profiles[0];
    if (environ != NULL)
        atomic_store_explicit(&known, p, memory_order_relaxed);
    return p;
}

bool tl_drv_profile_is_known(void)
{
    const char *name = secure_getenv("TALLY_DEVICE_PROFILE");
    char line[512];
    if (row_of(name) != NULL)
        return true;
    int n = snprintf(line, sizeof line,
                     "tally: TALLY_DEVICE_PROFILE=%.100s is not known; it may be", name);
    for (size_t i = 0; i < N_PROFILES; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, "%s %s", i > 0 ? "," : "", told[i]);
    n += snprintf(line + n, sizeof line - (size_t)n, "\n");
    tl_tell(line, (size_t)n);
    return false;
}

int tl_drv_driver_version(void)
{
    const char *text = secure_getenv("TALLY_DEVICE_DRIVER_VERSION");
    char *end;
    long v = text != NULL ? strtol(text, &end, 10) : 0;
    return v >= 1000 && v < 100000 && *end == 0 ? (int)v : tl_drv_profile()->driver_version;
}

int tl_drv_last_attribute(void)
{
    enum { ANY = 4096 };
    if (!tl_drv_profile()->is_strict)
        return ANY;
    return tl_drv_driver_version() < 13000 ? CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID
                                           : CU_DEVICE_ATTRIBUTE_MAX - 1;
}

void *tl_drv_export(void *function, int version)
{
    return version <= tl_drv_profile()->driver_version ? function : NULL;
}

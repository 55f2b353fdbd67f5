/* Which driver a job gets: NVIDIA's where there is a GPU, else the software CUDA device. */
#include "tally/device.h"
#include "runtime/job/find.h"
#include "runtime/job/mps.h"
#include "runtime/tally-run/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/platform/x86.h>
#include <unistd.h>

#include "tally/sched.h"

/* --- looking for NVIDIA's --------------------------------------------------------------------- */

/* What NVIDIA documents for CUDA_MPS_CLIENT_PRIORITY; 0 is normal. */
#define BELOW_NORMAL "1"

/* Kernels of two processes run at the same time on a GPU only under NVIDIA's multi-process service,
 * and one that serves somebody else is of no use. */
static void look_for_mps(const struct run *r)
{
    struct tl_mps m;
    tl_mps_look(&m);
    if (m.state == TL_MPS_NONE) {
        if (!r->is_quiet)
            run_say("NVIDIA's MPS is not running: jobs take turns on the GPU instead of sharing it "
                    "(`tally mps start` begins it)");
    } else if (!tl_mps_serves(&m, getuid())) {
        run_say(
            "NVIDIA's MPS (%s) was started by user %u and serves no other: this job takes turns "
            "on the GPU with its clients",
            m.control, (unsigned)m.owner);
    } else if (m.state == TL_MPS_UNSEEN) {
        run_tell(r,
                 "the socket of NVIDIA's MPS is there (%s), and nobody listens in this network "
                 "namespace: it is left over, or runs outside of this container",
                 m.control);
    } else {
        run_tell(r, "NVIDIA's MPS is running (%s)%s%s%s%s", m.control,
                 m.thread_percentage != NULL ? ", percent of the threads: " : "",
                 m.thread_percentage != NULL ? m.thread_percentage : "",
                 m.memory_limit != NULL ? ", memory: " : "",
                 m.memory_limit != NULL ? m.memory_limit : "");
    }
}

int run_set_rank(const struct run *r, int level)
{
    const char *driver = secure_getenv("TALLY_DRIVER");
    size_t n = strlen(r->lib);
    struct tl_mps m;
    tl_mps_look(&m);
    if (level >= TL_LEVEL_HIGH || !tl_mps_serves(&m, getuid()) ||
        secure_getenv("CUDA_MPS_CLIENT_PRIORITY") != NULL ||
        (driver != NULL && strncmp(driver, r->lib, n) == 0 && driver[n] == '/'))
        return 0;
    run_tell(r, "to NVIDIA's MPS the job is a client of low priority");
    return run_set(r, "CUDA_MPS_CLIENT_PRIORITY", BELOW_NORMAL);
}

/* --- choosing --------------------------------------------------------------------------------- */

/* 31.6 us, scaled by how much longer blocks last here. */
#define SOFT_TURNAROUND "500us"

static bool is_our_folder(const char *entry)
{
    size_t n = strlen(entry);
    return (n >= 10 && strcmp(entry + n - 10, "/lib/tally") == 0) ||
           (n >= 17 && strcmp(entry + n - 17, "/lib/tally/device") == 0);
}

static int use_nvidia(const struct run *r, const char *path)
{
    look_for_mps(r);
    int rc = run_set(r, "TALLY_DRIVER", path);
    /* Ours comes first for programs that ask for libcuda.so without a number. */
    return rc == 0 ? run_put_first(r, "LD_LIBRARY_PATH", r->lib, ':', is_our_folder) : rc;
}

/* What this CPU lacks of what kernels are compiled to, as libc sees it; NULL if nothing.
 * (GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2 hides it.) */
static const char *missing_extension(void)
{
    return !CPU_FEATURE_ACTIVE(AVX2)   ? "AVX2"
           : !CPU_FEATURE_ACTIVE(FMA)  ? "FMA"
           : !CPU_FEATURE_ACTIVE(F16C) ? "F16C"
                                       : NULL;
}

/* The profile that is asked for, "soft" if none is; -EINVAL with those that there are. */
static int read_profile(const char **out, struct tl_error *err)
{
    static const char *const known[] = {
#define PROFILE_NAME(name) name,
        TL_DEVICE_PROFILES(PROFILE_NAME)
#undef PROFILE_NAME
    };
    const char *asked = secure_getenv("TALLY_DEVICE_PROFILE");
    char all[256] = "";
    size_t n = 0;
    *out = known[0];
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (asked == NULL || *asked == 0 || strcmp(asked, known[i]) == 0) {
            *out = known[i];
            return 0;
        }
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i > 0 ? ", " : "", known[i]);
    }
    return tl_error_set(err, -EINVAL, "--profile=%s: the software device has %s", asked, all);
}

/* The software device: what the job's libraries have to believe, and where they find it. */
static int use_soft(const struct run *r, const char *path, struct tl_error *err)
{
    const char *profile;
    int rc = read_profile(&profile, err);
    if (rc < 0)
        return rc;
    const char *missing = missing_extension();
    if (missing != NULL && !r->is_quiet)
        run_say(
            "this CPU has no %s: on the software device kernels that multiply and add fractions "
            "cannot run, others take several times as long; a virtual machine may hide what "
            "the CPU has (qemu: -cpu host)",
            missing);
    char folder[RUN_PATH + 16];
    snprintf(folder, sizeof folder, "%s/device", r->lib); /* has libnvidia-ml.so.1, too */
    rc = run_set(r, "TALLY_DRIVER", path);
    /* NVIDIA's libraries want a capability that they do not know; Triton, Numba and NVRTC want one
     * that they know, and those who use them ask through libcudart.so and the modules of
     * cuda-python, one of which has a runtime inside; a program that has loaded NVRTC asks by
     * itself.  A GPU has the one that it has. */
    if (rc == 0 && secure_getenv("TALLY_DEVICE_CC") == NULL && strcmp(profile, "soft") == 0)
        rc = run_set(r, "TALLY_DEVICE_CC",
                     "13.0,@program=compiler,libcudart.so=compiler,cydriver.=compiler,"
                     "libffi.=compiler,_ctypes.=compiler,runtime.cpython=compiler,"
                     "runtime_ptds.=compiler,cyruntime.=compiler,cyruntime_ptds.=compiler");
    if (rc == 0 && r->is_verbose) /* what it tells is known only when the job has loaded it */
        rc = run_set(r, "TALLY_DEVICE_TELL", "yes");
    /* JAX wants to know the version of CUPTI, which works with NVIDIA's driver only. */
    if (rc == 0 && secure_getenv("JAX_SKIP_CUDA_CONSTRAINTS_CHECK") == NULL)
        rc = run_set(r, "JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1");
    /* NCCL's kernels have this protocol inside, and call functions through a table for the others:
     * 100 MB of PTX, which the device's compiler leaves out. */
    if (rc == 0 && secure_getenv("NCCL_PROTO") == NULL)
        rc = run_set(r, "NCCL_PROTO", "LL");
    /* The default is made for GPUs; this device runs the same kernels on a few cores. */
    if (rc == 0 && secure_getenv("TALLY_TURNAROUND") == NULL)
        rc = run_set(r, "TALLY_TURNAROUND", SOFT_TURNAROUND);
    if (rc == 0)
        rc = run_put_first(r, "LD_LIBRARY_PATH", folder, ':', is_our_folder);
    return rc == 0 ? run_put_first(r, "LD_LIBRARY_PATH", r->lib, ':', NULL) : rc;
}

int run_choose_device(const struct run *r, enum run_device wanted, bool was_asked,
                      struct tl_error *err)
{
    const char *given = secure_getenv("TALLY_DRIVER");
    char nvidia[RUN_PATH], soft[RUN_PATH + 32];
    /* by the user, or by a tally-run further out */
    if (!was_asked && given != NULL && given[0] != 0) {
        run_tell(r, "the driver is %s, as TALLY_DRIVER says", given);
        return 0;
    }
    snprintf(soft, sizeof soft, "%s/device/libcuda.so.1", r->lib);
    const char *gpu = tl_find_gpu_file();
    bool has_nvidia = wanted != RUN_SOFT && (wanted == RUN_GPU || gpu != NULL) &&
                      tl_find_gpu_driver(r->lib, nvidia, sizeof nvidia);
    if (wanted == RUN_GPU && !has_nvidia)
        return tl_error_set(err, -ENODEV,
                            "--device=gpu: no NVIDIA driver (libcuda.so.1) is installed here; "
                            "TALLY_DRIVER names one in "
                            "another place, --device=soft uses the software device");
    if (wanted == RUN_AUTO && gpu != NULL && !has_nvidia)
        return tl_error_set(
            err, -ENODEV,
            "there is a GPU (%s) and no driver for it (libcuda.so.1; in a container "
            "it comes with --gpus or the like); TALLY_DRIVER names one in another "
            "place, --device=soft runs the job on the CPU",
            gpu);
    if (has_nvidia) {
        if (wanted == RUN_AUTO && !r->is_quiet)
            run_say("device: NVIDIA GPU, driver %s", nvidia);
        return use_nvidia(r, nvidia);
    }
    if (access(soft, R_OK) < 0)
        return tl_error_errno(err, "the software CUDA device %s", soft);
    if (wanted == RUN_AUTO && !r->is_quiet)
        run_say("device: the software CUDA device, as there is no NVIDIA GPU here");
    return use_soft(r, soft, err);
}

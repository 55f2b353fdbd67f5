/* One GPU and the jobs on it, kernel by kernel, under a policy of sched/.
 *
 *     job model ──requests, iterations──► client ──kernels──► device: shares of the SMs, waves of blocks, bandwidth
 *                                           ▲                       │
 *                                           └──grants── policy ◄────┘ usage, backlog, latencies
 *
 * The device is a fluid of SM shares with one thing that is not fluid: a running kernel gives up
 * its share only where a wave of its blocks ends.  So a kernel that arrives waits for the end of a
 * block, as on hardware, and a kernel that is told to leave goes when its blocks end.  Freed shares
 * are taken at once by whoever has blocks left.  Times are nanoseconds of the virtual clock. */
#ifndef TALLY_SIM_GPU_H
#define TALLY_SIM_GPU_H

#include "sim/random.h"
#include "sim/samples.h"
#include "tally/sched.h"

struct sim_device {
    const char *name;
    uint32_t n_sms;
    uint64_t memory_bytes;
    double bandwidth, pcie; /* bytes per second */
    double l2_bytes;
    double launch_ns; /* between two kernels of a stream that waits for nothing */
    double signal_ns; /* until running blocks see that they shall leave */
    double switch_ns; /* between contexts that take turns */
    double transform; /* speed of kernels that can leave, as a part of the original's */
    double gap_ns;    /* between two kernels of a job that asks the arbiter for each */
    double page_bytes,
        /* of memory that can leave the device: moved at once; time of a fault beyond the bus's */
        fault_ns;
    /* kernels that compete get the SMs in the order of their arrival, not in equal parts */
    bool is_in_order;
};

/* A100, V100, P100, 2080ti, software; NULL if there is none of that name. */
const struct sim_device *sim_device(const char *name);
extern const struct sim_device sim_devices[]; /* ended by a NULL name */

struct sim_kernel {
    double block_ns;  /* of a wave of its blocks */
    double waves;     /* at full width */
    double width;     /* part of the SMs that it can fill */
    double bandwidth; /* part of the memory bandwidth that it takes at full width */
    uint64_t blocks;
    /* that the host works before it, where it is the first of a round; beyond the job's own */
    double host_ns;
    bool is_whole; /* cannot be made to leave */
};

enum sim_arrivals {
    SIM_ALWAYS,  /* the next round begins when the last has ended */
    SIM_POISSON, /* random arrivals */
    SIM_REGULAR, /* a period, a tenth more or less */
    SIM_BURSTS,  /* eight at once on average */
    SIM_LISTED,  /* at given times */
};

/* What a job does over and over: an iteration of training or a request. */
struct sim_job {
    const char *name;
    const struct sim_kernel *kernels; /* a cycle of which each round takes the next n_round */
    uint32_t n_kernels, n_round;
    double host_before_ns, host_after_ns; /* of each round, not on the GPU */
    /* kernels after which the host works for pause_ns; 0: never */
    uint32_t pause_every;
    double pause_ns;
    double jitter; /* relative standard deviation of a round's kernels */
    /* its kernels take so many times as long, because its calls are intercepted; 0: 1 */
    double slower;
    enum sim_arrivals arrivals;
    double period_ns;       /* between arrivals, on average */
    const double *times_ns; /* of listed arrivals, ascending */
    uint32_t n_times;
    uint64_t rounds; /* it ends after so many; 0: never */
    double start_ns;
    uint64_t warm_rounds; /* before its first arrival, back to back; no result has them */
    double gap_ns;        /* between two of its kernels, if not the device's */
    uint64_t persistent_bytes, ephemeral_bytes;
    double touched_bytes; /* of its memory, by each kernel, one part after another */
    double cold_bytes;    /* that it reads again if somebody else ran in between */
};

enum { SIM_CLIENTS = 64 };

struct sim_result {
    uint64_t rounds;             /* finished after the warm-up */
    struct sim_samples latency;  /* ns from the start of a round to its end */
    struct sim_samples sojourn;  /* ns from its arrival to its end */
    double busy_ns;              /* share of the device times time */
    double finished_ns;          /* when its last round ended */
    uint64_t kernels, preempted; /* kernels since the last warm-up of anybody ended */
    bool is_out_of_memory;       /* it found no room and did not run */
};

struct sim_gpu_options {
    const struct sim_device *device;
    const char *policy, *parameters;
    double duration_ns, warmup_ns;
    uint64_t seed;
    uint64_t quantum_ns, turnaround_ns, hysteresis_ns;
    /* how the device orders kernels, "mps" or "mps-priority"; NULL: as the policy wants it */
    const char *dispatch;
    /* ablation: best effort does not yield, only its launches are controlled */
    bool runs_beside;
    /* a job whose memory cannot leave the device fails if there is no room for it */
    bool has_limited_memory;
};

struct sim_run {
    struct sim_result results[SIM_CLIENTS];
    uint64_t kernel_events;
    double utilization; /* of the SMs, over the measured time */
    double warm_ns;     /* when the last warm-up ended */
    double ended_ns;    /* that is when the last job with an end has ended, or the time was over */
};

/* 0, -EINVAL or -ENOMEM.  Higher levels stand first.  Clients are told to the policy with ids
 * 0..n-1. */
int sim_gpu_run(struct sim_run *run, const struct sim_gpu_options *o, const struct sim_job *jobs,
                const struct tl_sched_client *clients, uint32_t n, struct tl_error *err);
void sim_run_finish(struct sim_run *run);

#endif

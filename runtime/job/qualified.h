/* What `tally doctor` found out about a GPU, kept for the jobs that run there: which rungs worked,
 * which were refused, which went wrong.
 *
 * One file per GPU, driver and Tally, in TALLY_CACHE/doctor: lines of a key and a value, and a
 * digest of them as the last.  It is written under another name and renamed; a file that is not of
 * this user, that others may write to, or that is not whole counts as none. */
#ifndef TALLY_RUNTIME_JOB_QUALIFIED_H
#define TALLY_RUNTIME_JOB_QUALIFIED_H

#include "tally/base.h"

enum tl_verdict {
    TL_VERDICT_WORKS,
    TL_VERDICT_REFUSED, /* the driver or the device does not offer what it needs */
    TL_VERDICT_WRONG,   /* it was offered, and did something else than it should */
    TL_VERDICTS,
};
const char *tl_verdict_name(enum tl_verdict v); /* "works", "refused", "wrong" */

/* The rungs that a device may be unfit for, finest first. */
enum tl_qualified_rung {
    TL_QUALIFIED_PERSISTENT,
    TL_QUALIFIED_TICKET,
    TL_QUALIFIED_SLICE,
    TL_QUALIFIED_GATE,
    TL_QUALIFIED_CAP,
    TL_QUALIFIED_RUNGS,
};
const char *tl_qualified_rung_name(enum tl_qualified_rung r);

/* What a qualification is of. */
struct tl_qualified_of {
    char uuid[48];    /* as tl_qualified_uuid writes it */
    char name[96];    /* of the device: profiles of the software device share a UUID */
    int cuda_version; /* what cuDriverGetVersion says: 12040 */
    char driver[64];  /* the kernel module's version, as tl_qualified_driver tells it */
};

struct tl_qualification {
    struct {
        enum tl_verdict verdict;
        char why[200];
    } rungs[TL_QUALIFIED_RUNGS];
};

/* "GPU-8dcd2d3d-...", as nvidia-smi and CUDA_VISIBLE_DEVICES have it. */
void tl_qualified_uuid(const uint8_t bytes[16], char *text, size_t size);
/* "550.54.14", or empty if no kernel module of NVIDIA's is loaded. */
void tl_qualified_driver(char *text, size_t size);

/* 0, -ENOENT (never qualified, or for another driver or another Tally), -EPERM (it is not of this
 * user, or others may write to it), -EBADMSG (it is not what was written), another negative errno
 * value; with a message. */
int tl_qualified_read(struct tl_qualification *q, const struct tl_qualified_of *of,
                      struct tl_error *err);
/* Whether nobody has been told yet that it has never been examined: true once for each device,
 * driver and Tally of a user, and never where that cannot be kept. */
bool tl_qualified_is_news(const struct tl_qualified_of *of);
/* Writes it and tells its path, which may be NULL.  0, or a negative errno value with a message. */
int tl_qualified_write(const struct tl_qualification *q, const struct tl_qualified_of *of,
                       char *path, size_t path_n, struct tl_error *err);

#endif

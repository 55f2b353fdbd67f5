/* Processes that an engine (Slurm, say) vouches for: what they may ask for, and under which name
 * their use of the device is summed up.
 *
 * The engine's own process, root's, leaves a file beside tallyd's socket, named after a process.
 * That one and all its descendants are admitted as the file says, instead of by the rules of
 * tallyd.  Files outlive tallyd, so jobs that come to the next one keep what they had; one of a
 * process that has ended is worth nothing, whoever has its number now. */
#ifndef TALLY_RUNTIME_JOB_ADMIT_H
#define TALLY_RUNTIME_JOB_ADMIT_H

#include <sys/types.h>

#include "tally/base.h"

enum { TL_ADMIT_NAME = 64, TL_ADMIT_LINE = 256, TL_ADMIT_PATH = 160 };

struct tl_admission {
    char account[TL_ADMIT_NAME]; /* "slurm:123": a word of printable characters */
    char rights[TL_ADMIT_LINE];  /* LEVEL [LIMIT ...], as in the rules of tallyd */
};

/* The folder of admissions for the tallyd that listens on `socket`. */
void tl_admit_folder(const char *socket, char path[TL_ADMIT_PATH]);

/* Lets `pid` and its descendants in, from when this returns.  0, or a negative errno value with a
 * message. */
int tl_admit_write(const char *socket, pid_t pid, const struct tl_admission *a,
                   struct tl_error *err);
/* Ends that. */
void tl_admit_remove(const char *socket, pid_t pid);

/* Finds the admission of a process, its own or that of the nearest process above it.  Files and
 * folder count only if they belong to root or to the caller and nobody else may write to them.
 * 0, or -ENOENT if it has none. */
int tl_admit_find(const char *socket, pid_t pid, struct tl_admission *a);

#endif

/* tally-run: what its files share.
 *
 *     runtime/tally-run/main.c    options; what they become; the program in our place
 *     runtime/tally-run/device.c  which driver the job gets
 *     runtime/tally-run/env.c     editing of variables that belong to others as well
 *     runtime/tally-run/libc.c    programs into which our library cannot be loaded
 *     runtime/tally-run/python.c  what packages of Python forget */
#ifndef TALLY_RUNTIME_TALLY_RUN_RUN_H
#define TALLY_RUNTIME_TALLY_RUN_RUN_H

#include "tally/base.h"

enum { RUN_PATH = 4096 };

enum run_device { RUN_AUTO, RUN_GPU, RUN_SOFT };

struct run {
    bool is_verbose, is_quiet;
    char lib[RUN_PATH]; /* our lib/tally */
};

/* "tally-run: MESSAGE" on standard error; the second only with --verbose. */
void run_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void run_tell(const struct run *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Chooses the driver and sets TALLY_DRIVER and what goes with it.  0, or a negative errno value
 * with a message. */
int run_choose_device(const struct run *r, enum run_device wanted, bool was_asked,
                      struct tl_error *err);

/* To MPS, where it runs and serves this user, a job below the highest level is a client of low
 * priority; unless it was said what it is, or it runs on the software device. */
int run_set_rank(const struct run *r, int level);

/* Sets a variable, or says that it cannot and returns -errno. */
int run_set(const struct run *r, const char *name, const char *value);
/* Puts an entry first into a list with that separator, if it is not in it yet; entries that
 * `is_ours` are taken out. */
int run_put_first(const struct run *r, const char *name, const char *entry, char separator,
                  bool (*is_ours)(const char *entry));
/* Puts an entry last, if it is not in the list yet. */
int run_put_last(const struct run *r, const char *name, const char *entry, char separator);
/* The path that execvp would take; false if there is none.  Links are not followed, because a
 * virtual environment's python is one. */
bool run_find_program(const char *name, char path[RUN_PATH]);
/* 0; or -ENOEXEC with a message if the program (of a script, its interpreter) is one of another
 * libc than glibc, which a preloaded library of ours would keep from starting, or if this is no
 * kernel that jobs can share a device on. */
int run_check_program(const char *program, struct tl_error *err);
/* Lets packages beside the program (a virtual environment's, mostly) find the libraries of NVIDIA
 * that came with them. */
int run_set_packages(const struct run *r, const char *program);
/* Points the compilers that frameworks call at our stand-in for ptxas, which keeps the PTX. */
int run_set_compilers(const struct run *r);
/* What is started from here shares limits of memory: gives it a name, unless an outer tally-run did
 * and this one has no limits of its own. */
int run_set_tree(const struct run *r, bool has_limits, struct tl_error *err);
/* Gives frameworks that keep machine code from run to run a folder beside the PTX that it was made
 * of: one is no use without the other. */
int run_set_caches(const struct run *r);

#endif

/* For tests of the interception library: opens the one that was built, in front of a driver, as the
 * highest level and without tallyd. */
#ifndef TALLY_TEST_SHIM_HELP_H
#define TALLY_TEST_SHIM_HELP_H

#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "test/unit/scratch.h"
#include "unity.h"

static void *shim, *driver;

static inline void *open_library(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        printf("%s\n", dlerror());
        exit(1);
    }
    return library;
}

/* `which` is the driver's path below the build folder. */
static inline void open_shim(const char *which)
{
    char path[PATH_MAX], text[PATH_MAX];
    const char *build = getenv("TALLY_BUILD");
    build = build != NULL ? build : "build";
    snprintf(path, sizeof path, "%s/%s", build, which);
    setenv("TALLY_DRIVER", path, 1);
    setenv("TALLY_PRIORITY", "high", 1);
    setenv("TALLY_DAEMON", "no", 1);
    setenv("TALLY_LOG", "error", 1);
    setenv("TALLY_SOCKET", scratch_path(text, sizeof text, "nobody"), 1);
    driver = open_library(path);
    snprintf(path, sizeof path, "%s/lib/tally/libcuda.so.1", build);
    shim = open_library(path);
}

static inline void *symbol_of(void *library, const char *name)
{
    void *p = dlsym(library, name);
    if (p == NULL) {
        printf("no %s\n", name);
        exit(1);
    }
    return p;
}

/* CALL(cuInit)(0) goes through the interception library. */
#define CALL(name) ((__typeof__(name) *)symbol_of(shim, #name))
#define OK(call) TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, (call))

static inline uint32_t in_flight(void)
{
    return ((uint32_t(*)(void))symbol_of(shim, "tally_in_flight"))();
}

/* Whether everything is known to be done before long; the watcher may have to find out. */
static inline bool becomes_idle(void)
{
    for (int i = 0; i < 10000 && in_flight() != 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return in_flight() == 0;
}

#endif

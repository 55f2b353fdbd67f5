/* For tests of the software driver: opens the library that was built, as a program would, on a
 * device of its own. */
#ifndef TALLY_TEST_DRIVER_HELP_H
#define TALLY_TEST_DRIVER_HELP_H

#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unity.h"

static void *driver;

static inline void remove_device(void)
{
    char path[PATH_MAX];
    const char *name = getenv("TALLY_DEVICE_NAME");
    if (name != NULL) {
        snprintf(path, sizeof path, "/dev/shm/%s.2", name);
        unlink(path);
        /* of a second device, where a test has one */
        snprintf(path, sizeof path, "/dev/shm/%s-1.2", name);
        unlink(path);
    }
}

static inline void open_driver(void)
{
    char path[PATH_MAX], name[64];
    const char *build = getenv("TALLY_BUILD");
    snprintf(path, sizeof path, "%s/lib/tally/device/libcuda.so.1",
             build != NULL ? build : "build");
    snprintf(name, sizeof name, "tally-test-driver-%d", (int)getpid());
    setenv("TALLY_DEVICE_NAME", name, 1);
    setenv("TALLY_DEVICE_MEM", "512M", 1);
    atexit(remove_device);
    driver = dlopen(path, RTLD_NOW);
    if (driver == NULL) {
        printf("%s\n", dlerror());
        exit(1);
    }
}

static inline void *driver_symbol(const char *name)
{
    void *p = dlsym(driver, name);
    if (p == NULL) {
        printf("libcuda.so.1 has no %s\n", name);
        exit(1);
    }
    return p;
}

/* CALL(cuInit)(0) */
#define CALL(name) ((__typeof__(name) *)driver_symbol(#name))
#define OK(call) TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, (call))

/* What the PTX of most tests begins with. */
#define HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"

/* A context on device 0, current. */
static inline CUcontext use_device(void)
{
    CUcontext ctx;
    OK(CALL(cuInit)(0));
    OK(CALL(cuDevicePrimaryCtxRetain)(&ctx, 0));
    OK(CALL(cuCtxSetCurrent)(ctx));
    return ctx;
}

#endif

#!/usr/bin/env bash
# However a program gets at the driver, it gets at the interception library: by dlopen of its names or its path, with RTLD_DEEPBIND,
# through a library with a DT_RPATH of its own, by a name that this build does not know.  The driver is one whose answers are known
# (test/standin/driver.c); "ours" is told by what the entry does, not by where it is.
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
shim=$build/lib/tally/libcuda.so.1 driver=$build/test/standin/libcuda.so.1
need_built "$shim" "$driver"
need_plain "$shim"
need_cc

# A wheel's library: it is linked with libcuda.so.1 and knows where that is.
cat >"$TMPDIR/wheel.c" <<'END'
int cuInit(unsigned);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int wheel_launch(void) { return cuInit(0) != 0 ? 1 : cuLaunchKernel((void *)0x10, 1, 1, 1, 1, 1, 1, 0, (void *)0x1000, 0, 0); }
END
cc -shared -fPIC -o "$TMPDIR/libwheel.so" "$TMPDIR/wheel.c" -Wl,--disable-new-dtags -Wl,-rpath,"$(dirname "$driver")" \
    -L"$(dirname "$driver")" -l:libcuda.so.1

cat >"$TMPDIR/program.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int launch_fn(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static launch_fn *late; /* called when everybody else has gone, if set */

static void last(void)
{
    if (late != NULL && late((void *)0x10, 1, 1, 1, 1, 1, 1, 0, (void *)0x1000, NULL, NULL) == 0)
        printf("late\n");
}

__attribute__((destructor)) static void very_last(void)
{
    last();
    fflush(stdout);
}

/* program WAY PATH: launches once, and prints how many pieces of work Tally saw. */
int main(int argc, char **argv)
{
    const char *way = argv[1], *path = argv[2];
    int flags = RTLD_NOW | (strcmp(way, "deepbind") == 0 ? RTLD_DEEPBIND : 0);
    (void)argc;
    void *library = strcmp(way, "default") == 0 ? RTLD_DEFAULT : dlopen(path, flags);
    if (library == NULL && strcmp(way, "default") != 0) {
        printf("%s\n", dlerror());
        return 1;
    }
    if (strcmp(way, "wheel") == 0 || strcmp(way, "deepbind") == 0) {
        int (*launch)(void) = (int (*)(void))dlsym(library, "wheel_launch");
        if (launch == NULL || launch() != 0)
            return 1;
    } else if (strcmp(way, "newer") == 0) {
        int (*newer)(void) = (int (*)(void))dlsym(library, "cuNewerThanThat");
        const char *error = dlerror();
        printf("%d %s\n", newer != NULL ? newer() : -1, error != NULL ? error : "");
        return dlsym(library, "cuNobodyHasThis") != NULL || dlerror() == NULL;
    } else {
        atexit(last);
        int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
        launch_fn *launch = (launch_fn *)dlsym(library, "cuLaunchKernel");
        if (init == NULL || launch == NULL || init(0) != 0 ||
            launch((void *)0x10, 1, 1, 1, 1, 1, 1, 0, (void *)0x1000, NULL, NULL) != 0)
            return 1;
        late = strcmp(way, "exit") == 0 ? launch : NULL;
    }
    uint32_t (*in_flight)(void) = (uint32_t (*)(void))dlsym(RTLD_DEFAULT, "tally_in_flight");
    /* RTLD_NEXT begins behind the one who asks: for the program that is the library, for the library libc. */
    if (in_flight != NULL && dlsym(RTLD_NEXT, "tally_in_flight") != (void *)in_flight)
        return 1;
    printf("%u\n", in_flight != NULL ? in_flight() : 0);
    return 0;
}
END
cc -o "$TMPDIR/program" "$TMPDIR/program.c" -ldl

export TALLY_DRIVER=$driver TALLY_PRIORITY=high TALLY_DAEMON=no XDG_RUNTIME_DIR=$TMPDIR TALLY_LOG=error
cp "$driver" "$TMPDIR/libcuda.so" # a name that is not the library's own
failed=0
expect() { # expect WAY PATH WHAT
    local got
    got=$(LD_PRELOAD=$shim LD_LIBRARY_PATH=$TMPDIR "$TMPDIR/program" "$1" "$2" 2>&1) || got="exit status $?: $got"
    if [ "$got" = "$3" ]; then
        echo "ok    $1 $(basename "$2")"
    else
        echo "FAIL  $1 $2: '$got', not '$3'"
        failed=1
    fi
}
expect name libcuda.so.1 1
expect name libcuda.so 1
expect path "$driver" 1
expect default - 1
expect wheel "$TMPDIR/libwheel.so" 1
expect deepbind "$TMPDIR/libwheel.so" 1
expect newer libcuda.so.1 "208 "
# Exit handlers that run behind the library's own still launch.
expect exit libcuda.so.1 "1
late
late"

# Without the library's own name anywhere, and switched off: forwarded, not counted.
TALLY_OFF=1 expect name libcuda.so.1 0
# A driver that does not exist, and the library itself in its place: the stub library's error, no crash, no endless turn.
for wrong in /nowhere/libcuda.so.1 "$shim"; do
    if out=$(TALLY_DRIVER=$wrong LD_PRELOAD=$shim "$TMPDIR/program" name libcuda.so.1 2>&1) || ! grep -q TALLY_DRIVER <<<"$out"; then
        echo "FAIL  TALLY_DRIVER=$wrong: '$out'"
        failed=1
    fi
done
exit $failed

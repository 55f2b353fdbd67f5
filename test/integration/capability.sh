#!/usr/bin/env bash
# What compute capability the software device tells a job, by the versions of CUDA's runtime and NVRTC that the job loads.
#
# Stand-ins for these libraries ask the driver as the real ones do; they lie in folders as toolkits, Debian and PyPI lay them out.
set -euo pipefail
# shellcheck source=test/integration/needs.inc
. test/integration/needs.inc
build=$(realpath "${TALLY_BUILD:-build}")
device=$build/lib/tally/device
need_built "$device/libcuda.so.1" "$build/bin/tally-run"
need_plain "$build/lib/tally/libcuda.so.1"
need_cc
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export TALLY_SOCKET=$scratch/tallyd.sock TALLY_CACHE=$scratch/cache
unset TALLY_DEVICE_CC TALLY_DEVICE_PROFILE TALLY_DEVICE_TELL
failures=0
expect() { # WHAT ACTUAL WANTED
    [ "$2" = "$3" ] || {
        echo "FAIL $1: '$2', not '$3'"
        failures=$((failures + 1))
    }
}

cat >"$scratch/library.c" <<'END'
int cuInit(unsigned flags);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int ask(void);
int ask(void)
{
    int major = 0, minor = 0;
    if (cuInit(0) != 0 || cuDeviceGetAttribute(&major, 75, 0) != 0 || cuDeviceGetAttribute(&minor, 76, 0) != 0)
        return -1;
    return major * 10 + minor;
}
END
cat >"$scratch/program.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>
int main(int n, char **libraries)
{
    int (*ask)(void) = NULL;
    for (int i = 1; i < n; i++) {
        void *library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            puts(dlerror());
            return 1;
        }
        *(void **)&ask = dlsym(library, "ask");
    }
    printf("%d\n", ask()); /* the last one asks */
    return 0;
}
END
cc -shared -fPIC -o "$scratch/library.so" "$scratch/library.c" -L"$device" -l:libcuda.so.1
cc -o "$scratch/program" "$scratch/program.c" -ldl

# lay FILE...: libraries there, and the files by which the version of NVRTC is known.
lay() {
    local file
    for file; do
        mkdir -p "$scratch/$(dirname "$file")"
        case $file in
        *builtins*) : >"$scratch/$file" ;;
        *) cp "$scratch/library.so" "$scratch/$file" ;;
        esac
    done
}
# told LIBRARY...: what the last of them is told, when all are loaded.
told() { (cd "$scratch" && "$build/bin/tally-run" -q --device=soft ./program "${@/#/./}"); }

lay kit124/libcudart.so.12 kit124/libnvrtc.so.12 kit124/libnvrtc-builtins.so.12.4 kit124/libcublas.so.12
expect "a toolkit 12.4" "$(told kit124/libcudart.so.12)" 90
expect "its libraries, which take PTX where they know nothing better" "$(told kit124/libcudart.so.12 kit124/libcublas.so.12)" 130
lay kit128/libcudart.so.12 kit128/libnvrtc-builtins.so.12.8
expect "a toolkit 12.8" "$(told kit128/libcudart.so.12)" 120
lay kit114/libcudart.so.11.0 kit114/libnvrtc-builtins.so.11.4
expect "a toolkit 11.4, whose runtime is called 11.0" "$(told kit114/libcudart.so.11.0)" 86
lay kit130/libcudart.so.13 kit130/libnvrtc-builtins.so.13.0
expect "a toolkit 13.0" "$(told kit130/libcudart.so.13)" 120
lay site/nvidia/cuda_runtime/lib/libcudart.so.12 site/nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.9
expect "packages of PyPI" "$(told site/nvidia/cuda_runtime/lib/libcudart.so.12)" 120
lay full/libcudart.so.12.8.90 full/libcudart.so.12.4.127
ln -s libcudart.so.12.8.90 "$scratch/full/libcudart.so.12"
expect "the full name of a runtime without an NVRTC" "$(told full/libcudart.so.12)" 120
ln -sf libcudart.so.12.4.127 "$scratch/full/libcudart.so.12"
expect "the full name of an older one" "$(told full/libcudart.so.12)" 90
lay alone/libcudart.so.12 alone/libcudart.so.13 alone/libcudart.so.11.0
expect "of 12, what all of them know" "$(told alone/libcudart.so.12)" 90
expect "of 13" "$(told alone/libcudart.so.13)" 120
expect "of 11" "$(told alone/libcudart.so.11.0)" 80
expect "an NVRTC that is loaded counts more" "$(told kit124/libnvrtc.so.12 kit130/libcudart.so.13)" 90
expect "without any of them" "$(cp "$scratch/library.so" "$scratch/cydriver.so"; told cydriver.so)" 120
for module in runtime runtime_ptds cyruntime cyruntime_ptds; do
    module=$module.cpython-311-x86_64-linux-gnu.so
    cp "$scratch/library.so" "$scratch/$module"
    expect "cuda-python's own runtime, $module" "$(told "$module")" 120
done
# A program that asks by itself, as the samples of NVRTC do.
cc -o "$scratch/own" -x c - "$scratch/library.c" -L"$device" -l:libcuda.so.1 -ldl <<'END'
#include <dlfcn.h>
#include <stdio.h>
int ask(void);
int main(int n, char **libraries)
{
    int before = ask();
    for (int i = 1; i < n; i++)
        if (dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL) == NULL)
            return 1;
    printf("%d %d\n", before, ask());
    return 0;
}
END
own() { (cd "$scratch" && "$build/bin/tally-run" -q --device=soft ./own "${@/#/./}"); }
expect "a program that compiles by NVRTC" "$(own kit124/libnvrtc.so.12)" "130 90"
expect "a program that does not" "$(own kit130/libcudart.so.13 kit124/libcublas.so.12)" "130 130"

expect "a user's own word" "$(TALLY_DEVICE_CC=13.0,libcudart.so=7.5 told kit124/libcudart.so.12)" 75
expect "a GPU is what it is" "$(TALLY_DEVICE_PROFILE=a100-r535 told kit130/libcudart.so.13)" 80
expect "--verbose tells it" \
    "$(cd "$scratch" && "$build/bin/tally-run" -v --device=soft ./program ./kit124/libcudart.so.12 2>&1 | grep '^tally: ')" \
    "tally: the device tells libcudart.so.12 that it is 9.0, the newest that libcudart.so.12 knows"
expect "others are not told" "$(cd "$scratch" && "$build/bin/tally-run" -q --device=soft ./program ./kit124/libcudart.so.12 2>&1)" 90
exit $((failures > 0))

#!/usr/bin/env bash
# Kernels whose names a program never says: those of a table of the driver's, as cuFFT takes its own, and those that enumerating a
# module or a library gives.  They are cut like all others, also by a driver that does not tell names, and compute the same.
set -euo pipefail
. test/integration/effort_jobs.inc
need_cc
need_built "$build/bin/tally"
export TALLY_DEVICE_SMS=1 TALLY_DEVICE_BLOCKS_PER_SM=1

cat >"$scratch/nameless.c" <<'END'
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuCtxSynchronize(void);
int cuModuleLoadData(void **, const void *), cuGetExportTable(const void **, const void *);
int cuModuleEnumerateFunctions(void **, unsigned, void *), cuLibraryEnumerateKernels(void **, unsigned, void *);
int cuLibraryLoadData(void **, const void *, void *, void *, unsigned, void *, void *, unsigned);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuMemAlloc_v2(uint64_t *, size_t), cuMemcpyDtoH_v2(void *, uint64_t, size_t), cuMemcpyHtoD_v2(uint64_t, const void *, size_t);

enum { KERNELS = 3, BLOCKS = 64 };
static void *found[KERNELS];
static unsigned n;

static void check(int r, const char *what)
{
    if (r != 0) {
        printf("%s: error %d\n", what, r);
        exit(1);
    }
}

static void take(void *data, void *function, uint64_t module)
{
    (void)data, (void)module;
    if (n < KERNELS)
        found[n++] = function;
}

static void from_table(void *ctx, void *module)
{
    static const uint8_t id[16] = {0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99, 0x1e};
    const void *table;
    check(cuGetExportTable(&table, id), "cuGetExportTable");
    ((uint64_t(*)(void *, void *, void (*)(void *, void *, uint64_t), void *))((void *const *)table)[7])(ctx, module, take, NULL);
}

/* Each kernel adds its own number to a place per block, so the sum tells which one ran and how often. */
int main(int argc, char **argv)
{
    char text[4096] = ".version 8.0\n.target sm_80\n.address_size 64\n";
    void *ctx, *module = NULL, *library = NULL;
    uint64_t at;
    static uint32_t values[BLOCKS];
    const char *way = argc > 1 ? argv[1] : "table";
    for (int i = 0; i < KERNELS; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 ".visible .entry kernel_%c(.param .u64 p)\n{\n.reg .b32 %%r<3>;\n.reg .b64 %%d<4>;\nld.param.u64 %%d1, [p];\n"
                 "mov.u32 %%r1, %%ctaid.x;\nmul.wide.u32 %%d2, %%r1, 4;\nadd.s64 %%d3, %%d1, %%d2;\n"
                 "atom.global.add.u32 %%r2, [%%d3], %d;\nret;\n}\n",
                 'a' + i, 1 << 8 * i);
    check(cuInit(0), "cuInit");
    check(cuDevicePrimaryCtxRetain(&ctx, 0), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(ctx), "cuCtxSetCurrent");
    if (strcmp(way, "kernels") == 0)
        check(cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0), "cuLibraryLoadData");
    else
        check(cuModuleLoadData(&module, text), "cuModuleLoadData");
    if (library != NULL) {
        check(cuLibraryEnumerateKernels(found, n = KERNELS, library), "cuLibraryEnumerateKernels");
    } else if (strcmp(way, "functions") == 0) {
        check(cuModuleEnumerateFunctions(found, n = KERNELS, module), "cuModuleEnumerateFunctions");
    } else {
        from_table(ctx, module);
    }
    check(cuMemAlloc_v2(&at, sizeof values), "cuMemAlloc");
    check(cuMemcpyHtoD_v2(at, values, sizeof values), "cuMemcpyHtoD");
    void *params[] = {&at};
    for (int turn = 0; turn < 8; turn++)
        for (unsigned i = 0; i < n; i++)
            check(cuLaunchKernel(found[i], BLOCKS, 1, 1, 1, 1, 1, 0, NULL, params, NULL), "cuLaunchKernel");
    check(cuMemcpyDtoH_v2(values, at, sizeof values), "cuMemcpyDtoH");
    for (int i = 1; i < BLOCKS; i++)
        check(values[i] != values[0], "a block");
    printf("%u kernels, %08x\n", n, values[0]);
    return 0;
}
END
cc -o "$scratch/nameless" "$scratch/nameless.c" -L"$device" -l:libcuda.so.1

# found PROFILE WAY: with each rung that cuts, and what the record calls the kernels.
found() {
    local rung said names
    for rung in slice persistent; do
        rm -rf "$scratch/record"
        said=$(TALLY_DEVICE_PROFILE=$1 LD_PRELOAD=$shim LD_LIBRARY_PATH=$build/lib/tally TALLY_PRIORITY=low TALLY_FORCE=$rung \
            TALLY_REPORT=$scratch/record timeout -k 2 60 "$scratch/nameless" "$2" 2>"$scratch/errors") || said="$said, exit status $?"
        names=$("$build/bin/tally" report --json "$scratch/record" | python3 -c '
import json, sys
kernels = [k for j in json.load(sys.stdin)["runs"][0]["jobs"] for k in j["kernels"]]
print(*sorted(k["name"] for k in kernels if k["launches_by_rung"].get(sys.argv[1], 0) >= 7))' "$rung" || :)
        if [ "$said" = "3 kernels, 00080808" ] && [ "$names" = "kernel_a kernel_b kernel_c" ]; then
            echo "ok    $1, $2, $rung"
            passed=$((passed + 1))
        else
            echo "FAIL  $1, $2, $rung: $said; cut: $names"
            "$build/bin/tally" report "$scratch/record" | sed 's/^/      | /'
            failed=$((failed + 1))
        fi
    done
}
start_preempter
for profile in soft a100-r535 h100-r580; do
    found $profile table
    if [ $profile != a100-r535 ]; then # whose driver enumerates nothing
        found $profile functions
        found $profile kernels
    fi
done
finish

#!/usr/bin/env bash
# Images and the PTX behind machine code reach the best-effort part: copied if the program may take them away, referred to
# otherwise; with the text that went through cuLink, NVRTC or a ptxas program.  The driver and the best-effort part are stand-ins that
# tell what they are given (test/standin).
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
shim=$build/lib/tally/libcuda.so.1 driver=$build/test/standin/libcuda.so.1 effort=$build/test/standin/effort.so
ptxas=$build/lib/tally/cuda/bin/ptxas
need_built "$shim" "$driver" "$effort" "$ptxas"
need_plain "$shim"
need_cc
export TALLY_CACHE=$TMPDIR/cache XDG_RUNTIME_DIR=$TMPDIR TALLY_LOG=error
failed=0
complain() {
    echo "FAIL  $*"
    failed=1
}

# --- the stand-in for ptxas ---

printf '// a text\n.version 7.0\n' >"$TMPDIR/in.ptx"
cat >"$TMPDIR/ptxas" <<'END'
#!/bin/sh
# Machine code that no other run makes: the output is the last argument.
[ "$1" = --fails ] && exit 3
for output; do :; done
printf '\177ELF\002\001\001\000\000\000\000\000\000\000\000\000\002\000\276\000\001\000\000\000' >"$output"
head -c 32 /dev/zero >>"$output"
printf '\100\000\000\000\000\000\000\000' >>"$output"
END
chmod +x "$TMPDIR/ptxas"
TALLY_PTXAS=$TMPDIR/ptxas "$ptxas" -arch=sm_90 "$TMPDIR/in.ptx" -o "$TMPDIR/out.cubin" || complain "the stand-in fails"
[ "$(head -c 4 "$TMPDIR/out.cubin" | tail -c 3)" = ELF ] || complain "the output is not the real ptxas's"
cmp -s "$TMPDIR/in.ptx" "$TALLY_CACHE"/ptx/*.ptx || complain "the PTX is not kept"
status=0
TALLY_PTXAS=$TMPDIR/ptxas "$ptxas" --fails "$TMPDIR/in.ptx" -o "$TMPDIR/other" || status=$?
[ $status -eq 3 ] || complain "the real ptxas's exit status becomes $status"
soft=$build/lib/tally/device/libcuda.so.1
if [ -e "$soft" ]; then
    TALLY_DRIVER=$soft "$ptxas" -v "$TMPDIR/in.ptx" --gpu-name=sm_130a -o "$TMPDIR/handed"
    { cat "$TMPDIR/in.ptx" && printf '\0'; } | cmp -s - "$TMPDIR/handed" || complain "the PTX is not handed over"
    TALLY_DRIVER=$soft "$ptxas" --version | grep -q 'release [0-9]*\.[0-9]*, V' || complain "no version is told"
fi

# --- images ---

cat >"$TMPDIR/program.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned), cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
int cuModuleUnload(void *), cuLinkCreate_v2(unsigned, void *, void *, void **), cuLinkComplete(void *, void **, size_t *);
int cuLinkAddData_v2(void *, int, void *, size_t, const char *, unsigned, void *, void *), cuLinkDestroy(void *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static void *load(const void *image, const char *name)
{
    void *module, *function;
    if (cuModuleLoadData(&module, image) != 0 || cuModuleGetFunction(&function, module, name) != 0)
        exit(1);
    fflush(stdout);
    cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    return module;
}

static void link_texts(const char *name, char *a, char *b)
{
    void *link, *cubin;
    size_t n;
    cuLinkCreate_v2(0, NULL, NULL, &link);
    cuLinkAddData_v2(link, 1, a, strlen(a) + 1, "a", 0, NULL, NULL);
    if (b != NULL)
        cuLinkAddData_v2(link, 1, b, strlen(b) + 1, "b", 0, NULL, NULL);
    cuLinkComplete(link, &cubin, &n);
    char *copy = malloc(n); /* what programs do before they destroy the link */
    memcpy(copy, cubin, n);
    cuLinkDestroy(link);
    load(copy, name);
}

int main(int argc, char **argv)
{
    static const char in_program[] = "// here\n.version 7.0\n";
    (void)argc;
    if (cuInit(0) != 0)
        return 1;
    void *first = load(in_program, "by_reference");
    char *heap = strdup("// heap\n.version 7.0\n");
    load(heap, "by_copy");
    memset(heap, 'x', strlen(heap));
    free(heap);
    link_texts("linked", "// one", NULL);
    link_texts("linked_of_two", "// one", "// two");
    FILE *f = fopen(argv[1], "rb");
    char *cubin = calloc(1, 4096);
    if (f == NULL || fread(cubin, 1, 4096, f) == 0)
        return 1;
    load(cubin, "by_ptxas");
    cuLaunchKernel((void *)0x77770, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    cuModuleUnload(first);
    return 0;
}
END
cc -o "$TMPDIR/program" "$TMPDIR/program.c" -L"$(dirname "$driver")" -l:libcuda.so.1
cat >"$TMPDIR/wanted" <<'END'
start
launch by_reference, reference of 0 bytes, begins // here

launch by_copy, copy of 21 bytes, begins // heap

launch linked, copy of 64 bytes, begins ELF, from // one
launch linked_of_two, copy of 64 bytes, begins ELF
launch by_ptxas, copy of 64 bytes, begins ELF, from // a text
.version 7.0

launch of an unknown kernel
unloading a module
stop
END
run() { LD_PRELOAD=$shim TALLY_DRIVER=$driver TALLY_EFFORT=$effort TALLY_PRIORITY=low TALLY_DAEMON=no "$@"; }
run "$TMPDIR/program" "$TMPDIR/out.cubin" | tr -d '\000-\010\013-\037\177' >"$TMPDIR/told" || complain "the program fails"
diff "$TMPDIR/wanted" "$TMPDIR/told" || complain "that is not what the best-effort part should be told"

# Where the driver has no use for machine code and its PTX is not known, the program gets the driver's error, and the user the reason.
if STANDIN_TEXT_ONLY=1 TALLY_LOG=warn run "$TMPDIR/program" "$TMPDIR/out.cubin" >"$TMPDIR/told" 2>"$TMPDIR/said"; then
    complain "machine code without PTX is loaded"
fi
[ "$(grep -c 'the PTX that it was made of is not known.*CUPY_CACHE_DIR' "$TMPDIR/said")" -eq 1 ] ||
    complain "nobody says why: $(cat "$TMPDIR/said")"

# --- NVRTC ---

if nvcc=$(scripts/tool nvcc) && toolkit=$(cd "$(dirname "$(realpath "$nvcc")")/.." && pwd) && [ -e "$toolkit/lib/libnvrtc.so" ] &&
    [ -e "$toolkit/include/nvrtc.h" ]; then
    cat >"$TMPDIR/rtc.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <nvrtc.h>
#include <stdio.h>
#include <stdlib.h>

int cuInit(unsigned), cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

int main(int argc, char **argv)
{
    const char *options[] = {"-arch=sm_90"};
    nvrtcProgram program;
    size_t n;
    void *module, *function;
    (void)argv;
    nvrtcResult (*get)(nvrtcProgram, char *) = nvrtcGetCUBIN;
    if (argc > 1) /* as those do that open it */
        get = (nvrtcResult (*)(nvrtcProgram, char *))dlsym(dlopen("libnvrtc.so.13", RTLD_NOW), "nvrtcGetCUBIN");
    if (cuInit(0) != 0 || get == NULL ||
        nvrtcCreateProgram(&program, "extern \"C\" __global__ void k(int *p) { *p = 1; }", "k.cu", 0, NULL, NULL) != 0 ||
        nvrtcCompileProgram(program, 1, options) != 0 || nvrtcGetCUBINSize(program, &n) != 0)
        return 1;
    char *cubin = malloc(n);
    if (get(program, cubin) != 0 || cuModuleLoadData(&module, cubin) != 0 || cuModuleGetFunction(&function, module, "k") != 0)
        return 1;
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}
END
    cc -o "$TMPDIR/rtc" "$TMPDIR/rtc.c" -I"$toolkit/include" -L"$toolkit/lib" -lnvrtc -L"$(dirname "$driver")" -l:libcuda.so.1 -ldl
    for way in "" opened; do
        LD_LIBRARY_PATH=$toolkit/lib run "$TMPDIR/rtc" $way >"$TMPDIR/told" || complain "NVRTC fails"
        grep -aq '\.visible \.entry k(' "$TMPDIR/told" || complain "the PTX of NVRTC ($way) is not kept"
    done
    STANDIN_TEXT_ONLY=1 LD_LIBRARY_PATH=$toolkit/lib run "$TMPDIR/rtc" >"$TMPDIR/told" ||
        complain "machine code of NVRTC is not loaded as its PTX where the driver refuses it"
else
    echo "without NVRTC, which is not here"
fi

# --- nvJitLink ---

if [ -n "${toolkit:-}" ] && [ -e "$toolkit/lib/libnvJitLink.so" ] && [ -e "$toolkit/include/nvJitLink.h" ]; then
    cat >"$TMPDIR/jitlink.c" <<'END'
#include <nvJitLink.h>
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned), cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

int main(void)
{
    static char text[] = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n    ret;\n}\n";
    const char *options[] = {"-arch=sm_90"};
    nvJitLinkHandle link;
    size_t n;
    void *module, *function;
    if (cuInit(0) != 0 || nvJitLinkCreate(&link, 1, options) != 0 ||
        nvJitLinkAddData(link, NVJITLINK_INPUT_PTX, text, sizeof text, "k") != 0 || nvJitLinkComplete(link) != 0 ||
        nvJitLinkGetLinkedCubinSize(link, &n) != 0)
        return 1;
    char *cubin = malloc(n);
    if (nvJitLinkGetLinkedCubin(link, cubin) != 0 || nvJitLinkDestroy(&link) != 0)
        return 1;
    if (cuModuleLoadData(&module, cubin) != 0 || cuModuleGetFunction(&function, module, "k") != 0)
        return 1;
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}
END
    cc -o "$TMPDIR/jitlink" "$TMPDIR/jitlink.c" -I"$toolkit/include" -L"$toolkit/lib" -lnvJitLink -L"$(dirname "$driver")" -l:libcuda.so.1
    LD_LIBRARY_PATH=$toolkit/lib run "$TMPDIR/jitlink" >"$TMPDIR/told" || complain "nvJitLink fails"
    grep -aq '\.visible \.entry k()' "$TMPDIR/told" || complain "the PTX of nvJitLink is not kept"

    # Intermediate code, which NVRTC makes here.
    if [ -x "$TMPDIR/rtc" ]; then
        sed -e 's/static char text.*/static char text[100000]; nvrtcProgram program;/' \
            -e 's/options\[\] = .*/options[] = {"-arch=sm_90", "-lto"}, *dlto[] = {"-arch=compute_90", "-dlto"};/' \
            -e 's/nvJitLinkCreate(&link, 1/nvJitLinkCreate(\&link, 2/' -e 's/INPUT_PTX, text, sizeof text/INPUT_LTOIR, text, n/' \
            -e 's/if (cuInit(0) != 0 ||/if (cuInit(0) != 0 || nvrtcCreateProgram(\&program, "extern \\"C\\" __global__ void k() {}", \
                "k.cu", 0, NULL, NULL) != 0 || nvrtcCompileProgram(program, 2, dlto) != 0 || nvrtcGetLTOIRSize(program, \&n) != 0 || \
                n > sizeof text || nvrtcGetLTOIR(program, text) != 0 ||/' \
            -e '1i #include <nvrtc.h>' "$TMPDIR/jitlink.c" >"$TMPDIR/lto.c"
        cc -o "$TMPDIR/lto" "$TMPDIR/lto.c" -I"$toolkit/include" -L"$toolkit/lib" -lnvrtc -lnvJitLink \
            -L"$(dirname "$driver")" -l:libcuda.so.1
        STANDIN_TEXT_ONLY=1 LD_LIBRARY_PATH=$toolkit/lib run "$TMPDIR/lto" >"$TMPDIR/told" ||
            complain "machine code of intermediate code is not loaded as its PTX where the driver refuses it"
        grep -aq '\.visible \.entry k()' "$TMPDIR/told" || complain "the PTX of intermediate code is not kept"
    fi
else
    echo "without nvJitLink, which is not here"
fi
exit $failed

#!/usr/bin/env bash
# Two software devices: a client of a high level on one of them stops a trainer on the same one and never a trainer on the other,
# whichever number the program sees it under; and a process that uses both is known on both.
set -euo pipefail
. test/integration/effort_jobs.inc
train=$build/workloads/jobs/train
need_built "$train" "$build/bin/tally"
need_cc
export TALLY_DEVICES=2

# stops DIR: how often kernels of that record were stopped.
stops() {
    "$build/bin/tally" report --json "$1" | python3 -c '
import json, sys
print(sum(k["preemptions"] for j in json.load(sys.stdin)["runs"][0]["jobs"] for k in j["kernels"]))'
}

verdict() { # NAME CONDITION...
    local name=$1
    shift
    if "$@"; then
        echo "ok    $name"
        passed=$((passed + 1))
    else
        echo "FAIL  $name"
        failed=$((failed + 1))
    fi
}

# train_on GPU: a best-effort trainer there, with persistent workers; leaves how often it was stopped in `stopped`.
train_on() {
    rm -rf "$scratch/record"
    CUDA_VISIBLE_DEVICES=$1 LD_PRELOAD=$shim LD_LIBRARY_PATH=$build/lib/tally TALLY_PRIORITY=low TALLY_FORCE=persistent \
        TALLY_REPORT=$scratch/record "$train" --kind=long --steps=6 >"$scratch/output" 2>&1
    stopped=$(stops "$scratch/record")
}

# The client of the high level is on GPU 1 only.
mkfifo "$scratch/hold1" "$scratch/said1"
"$build/test/preempter" 3600 "$RANDOM" 200 400 1 <"$scratch/hold1" >"$scratch/said1" 2>"$scratch/errors" &
preempter=$!
exec 9>"$scratch/hold1" 8<"$scratch/said1"
line=
if ! read -r -t 60 line <&8 || [ "$line" != ready ]; then
    cat "$scratch/errors"
    exit 1
fi
for _ in 1 2 3; do
    train_on 0
    verdict "a trainer on the other GPU is never stopped ($stopped)" [ "$stopped" -eq 0 ]
done
for _ in 1 2 3 4 5; do
    train_on 1
    [ "$stopped" -eq 0 ] || break
done
verdict "a trainer on the same GPU is stopped ($stopped)" [ "$stopped" -gt 0 ]

cat >"$scratch/both.c" <<'END'
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuCtxSynchronize(void);
int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static void check(int r, const char *what)
{
    if (r != 0) {
        printf("%s: error %d\n", what, r);
        exit(1);
    }
}

/* Contexts on both, work on as many as it is told; with another argument, then on the second until standard input ends. */
int main(int argc, char **argv)
{
    static const char text[] = ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n";
    int n = argc > 1 ? atoi(argv[1]) : 1;
    void *contexts[2], *module, *kernel;
    char line[16];
    struct pollfd in = {.fd = 0, .events = POLLIN};
    check(cuInit(0), "cuInit");
    for (int i = 0; i < 2; i++)
        check(cuDevicePrimaryCtxRetain(&contexts[i], i), "cuDevicePrimaryCtxRetain");
    for (int i = 0; i < n; i++) {
        check(cuCtxSetCurrent(contexts[i]), "cuCtxSetCurrent");
        check(cuModuleLoadData(&module, text), "cuModuleLoadData");
        check(cuModuleGetFunction(&kernel, module, "k"), "cuModuleGetFunction");
        check(cuLaunchKernel(kernel, 8, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
        check(cuCtxSynchronize(), "cuCtxSynchronize");
    }
    puts("launched");
    fflush(stdout);
    while (argc > 2 && poll(&in, 1, 3) == 0) {
        check(cuLaunchKernel(kernel, 8, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
        check(cuCtxSynchronize(), "cuCtxSynchronize");
    }
    return fgets(line, sizeof line, stdin) == NULL;
}
END
cc -o "$scratch/both" "$scratch/both.c" -L"$device" -l:libcuda.so.1

# places JOB: the last digits of the GPUs of that job, as `tally ps` tells them.
places() {
    "$build/bin/tally" ps --json | python3 -c '
import json, sys
print(*sorted(g[-2:] for c in json.load(sys.stdin)["clients"] if c["job"] == sys.argv[1] for g in c["gpus"]))' "$1"
}

kill "$preempter"
wait "$preempter" 2>/dev/null || :
preempter=
mkfifo "$scratch/to-server" "$scratch/from-server"
LD_PRELOAD=$shim LD_LIBRARY_PATH=$build/lib/tally TALLY_PRIORITY=high timeout -k 2 120 "$scratch/both" 2 keep \
    <"$scratch/to-server" >"$scratch/from-server" &
preempter=$!
exec 7>"$scratch/to-server" 6<"$scratch/from-server"
read -r -t 60 line <&6 || :
for _ in 1 2 3; do
    train_on 0
    verdict "a server on both that works on one never stops a trainer on the other ($line, $stopped)" [ "$stopped" -eq 0 ]
done
for _ in 1 2 3 4 5; do
    train_on 1
    [ "$stopped" -eq 0 ] || break
done
verdict "and one where it works it stops ($stopped)" [ "$stopped" -gt 0 ]
kill "$preempter"
wait "$preempter" 2>/dev/null || :
preempter=
for priority in high low; do
    for n in 1 2; do
        name=$priority-$n
        mkfifo "$scratch/to-$name" "$scratch/from-$name"
        LD_PRELOAD=$shim LD_LIBRARY_PATH=$build/lib/tally TALLY_PRIORITY=$priority TALLY_JOB=$name timeout -k 2 60 "$scratch/both" $n \
            <"$scratch/to-$name" >"$scratch/from-$name" &
        job=$!
        exec 7>"$scratch/to-$name" 6<"$scratch/from-$name"
        line=
        read -r -t 60 line <&6 || :
        found=$(places "$name")
        verdict "a $priority job with contexts on both and work on $n is on $n ($line, $found)" \
            [ "$line,$found" = "launched,$([ $n -eq 1 ] && echo 00 || echo "00 01")" ]
        echo go >&7
        wait $job || :
    done
done

# A best-effort process with work on both gives way to whoever comes on either: kernels of that GPU are stopped, and all is computed.
cat >"$scratch/worker.c" <<'END'
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuStreamCreate(void **, unsigned);
int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *), cuStreamSynchronize(void *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuMemAlloc_v2(uint64_t *, size_t), cuMemcpyDtoH_v2(void *, uint64_t, size_t), cuMemcpyHtoD_v2(uint64_t, const void *, size_t);

enum { GPUS = 2, ROUNDS = 40, BLOCKS = 256 };

static void check(int r, const char *what)
{
    if (r != 0) {
        printf("%s: error %d\n", what, r);
        exit(1);
    }
}

int main(void)
{
    char text[2048], name[16];
    void *contexts[GPUS], *module, *kernels[GPUS], *streams[GPUS];
    uint64_t sums[GPUS];
    uint32_t sum = 0;
    check(cuInit(0), "cuInit");
    for (int i = 0; i < GPUS; i++) {
        snprintf(name, sizeof name, "work_%d", i);
        snprintf(text, sizeof text,
                 ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry %s(.param .u64 sum)\n{\n.reg .pred %%p;\n.reg .b32 %%r<4>;\n"
                 ".reg .b64 %%d<2>;\nld.param.u64 %%d1, [sum];\nmov.u32 %%r1, 0;\nmore:\nadd.u32 %%r1, %%r1, 1;\n"
                 "setp.lt.u32 %%p, %%r1, 20000;\n@%%p bra more;\natom.global.add.u32 %%r2, [%%d1], 1;\nret;\n}\n",
                 name);
        check(cuDevicePrimaryCtxRetain(&contexts[i], i), "cuDevicePrimaryCtxRetain");
        check(cuCtxSetCurrent(contexts[i]), "cuCtxSetCurrent");
        check(cuModuleLoadData(&module, text), "cuModuleLoadData");
        check(cuModuleGetFunction(&kernels[i], module, name), "cuModuleGetFunction");
        check(cuStreamCreate(&streams[i], 1), "cuStreamCreate");
        check(cuMemAlloc_v2(&sums[i], 4), "cuMemAlloc");
        check(cuMemcpyHtoD_v2(sums[i], &sum, 4), "cuMemcpyHtoD");
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < GPUS; i++) {
            void *params[] = {&sums[i]};
            check(cuCtxSetCurrent(contexts[i]), "cuCtxSetCurrent");
            check(cuLaunchKernel(kernels[i], BLOCKS, 1, 1, 1, 1, 1, 0, streams[i], params, NULL), "cuLaunchKernel");
        }
    for (int i = 0; i < GPUS; i++) {
        check(cuCtxSetCurrent(contexts[i]), "cuCtxSetCurrent");
        check(cuStreamSynchronize(streams[i]), "cuStreamSynchronize");
        check(cuMemcpyDtoH_v2(&sum, sums[i], 4), "cuMemcpyDtoH");
        check(sum != ROUNDS * BLOCKS, "sum");
    }
    puts("all");
    return 0;
}
END
cc -o "$scratch/worker" "$scratch/worker.c" -L"$device" -l:libcuda.so.1

# stops_of DIR KERNEL
stops_of() {
    "$build/bin/tally" report --json "$1" | python3 -c '
import json, sys
print(sum(k["preemptions"] for j in json.load(sys.stdin)["runs"][0]["jobs"] for k in j["kernels"] if k["name"] == sys.argv[1]))' "$2"
}

for profile in soft a100-r535 h100-r580; do
    for gpu in 0 1; do
        rm -f "$scratch/hold-$gpu" "$scratch/said-$gpu"
        mkfifo "$scratch/hold-$gpu" "$scratch/said-$gpu"
        "$build/test/preempter" 3600 "$RANDOM" 200 400 $gpu <"$scratch/hold-$gpu" >"$scratch/said-$gpu" 2>"$scratch/errors" &
        preempter=$!
        exec 9>"$scratch/hold-$gpu" 8<"$scratch/said-$gpu"
        read -r -t 60 line <&8 || :
        said='' stopped=0
        for _ in 1 2 3 4 5; do
            rm -rf "$scratch/record"
            said=$(TALLY_DEVICE_PROFILE=$profile TALLY_DEVICE_NAME=$TALLY_DEVICE_NAME-$profile LD_PRELOAD=$shim LD_LIBRARY_PATH=$build/lib/tally \
                TALLY_PRIORITY=low TALLY_FORCE=persistent TALLY_REPORT=$scratch/record timeout -k 2 120 "$scratch/worker" 2>"$scratch/output") || said="exit status $?"
            stopped=$(stops_of "$scratch/record" "work_$gpu")
            if [ "$stopped" -ne 0 ] || [ "$said" != all ]; then
                break
            fi
        done
        verdict "$profile: a process on both gives way to a job on GPU $gpu ($said, $stopped)" [ "$said,$((stopped > 0))" = all,1 ]
        exec 9>&- 8<&-
        wait "$preempter" 2>/dev/null || :
        preempter=
    done
done

# Metrics tell of each GPU what a process did there: one kernel of 8 blocks on the first, and at least as many on the second.
TALLY_SOCKET=$scratch/metrics-tallyd.sock
"$build/bin/tallyd" --idle=0 --log=info --metrics="unix:$scratch/metrics.sock" 2>"$scratch/log" &
preempter=$!
until grep -q 'listens on' "$scratch/log" || ! kill -0 "$preempter" 2>/dev/null; do sleep 0.05; done
for priority in low high; do
    mkfifo "$scratch/to-metrics-$priority" "$scratch/from-metrics-$priority"
    LD_PRELOAD=$shim LD_LIBRARY_PATH=$build/lib/tally TALLY_PRIORITY=$priority timeout -k 2 60 "$scratch/both" 2 keep \
        <"$scratch/to-metrics-$priority" >"$scratch/from-metrics-$priority" &
    job=$!
    exec 7>"$scratch/to-metrics-$priority" 6<"$scratch/from-metrics-$priority"
    read -r -t 60 line <&6 || :
    said=$(python3 - "$scratch/metrics.sock" <<'END' 2>&1
import re, socket, sys, time
for _ in range(200):  # until what was launched stands in the page
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    text = b"".join(iter(lambda: s.recv(65536), b"")).decode()
    seen = {n: re.findall(n + r'_total\{(?:UUID="[^"]*(..)")?[^}]*\} (\d+)', text) for n in ("tally_job_launches", "tally_job_blocks")}
    gpus = [dict(v) for v in seen.values()]
    if all(sorted(g) == ["00", "01"] and len(v) == 2 for g, v in zip(gpus, seen.values())):
        launches, blocks = ({k: int(v) for k, v in g.items()} for g in gpus)
        if launches["00"] == 1 and blocks["00"] == 8 and launches["01"] >= 1:
            sys.exit(print("each"))
    time.sleep(0.05)
print(seen)
END
    ) || :
    verdict "metrics of a $priority process on both tell of each ($said)" [ "$said" = each ]
    echo go >&7
    wait "$job" || :
done
kill "$preempter"
wait "$preempter" 2>/dev/null || :
preempter=
finish

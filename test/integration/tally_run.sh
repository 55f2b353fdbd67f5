#!/usr/bin/env bash
# tally-run as a user meets it: it becomes the program, sets what it says, and sees that tallyd runs.
# shellcheck disable=SC2016 # variables in single quotes are the program's
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
run=$build/bin/tally-run
tally=$build/bin/tally
shim=$build/lib/tally/libcuda.so.1
need_built "$shim" "$build/lib/tally/device/libcuda.so.1"
need_plain "$shim"

# Short, because the paths of sockets are; the daemon ends by itself soon after the last client.
scratch=$(mktemp -d /tmp/tally-run.XXXXXX)
for name in PRIORITY SLO TURNAROUND POLICY REPORT DRIVER SOCKET JOB FAIL OFF FORCE LOG WEIGHT MIN_SHARE DEVICE DAEMON RULES; do
    unset "TALLY_$name"
done
export XDG_RUNTIME_DIR=$scratch TALLY_DAEMON_IDLE=2 TALLY_DEVICE_NAME=tally-run-test-$$ TALLY_CACHE=$scratch/cache
unset CUPY_CACHE_DIR LD_PRELOAD LD_LIBRARY_PATH XLA_FLAGS TRITON_PTXAS_PATH TRITON_PTXAS_BLACKWELL_PATH TALLY_PTXAS
socket=$scratch/tally/tallyd.sock
finish() {
    "$build/bin/tally-jit" stop >/dev/null 2>&1 || :
    for _ in $(seq 500); do
        [ -e "$socket" ] || break
        sleep 0.02
    done
    rm -rf "$scratch" "/dev/shm/$TALLY_DEVICE_NAME".*
}
trap finish EXIT
fail() {
    echo "FAIL: $*"
    exit 1
}
. test/integration/commands.inc

# --- the program's own: exit status, signals, arguments, standard streams
expect "exit status" "$(status_of "$run" sh -c 'exit 41')" 41
expect "a signal" "$(status_of "$run" sh -c 'kill -TERM $$')" 143
expect "not found" "$(status_of "$run" ./no-such-program)" 127
expect "not a program" "$(status_of "$run" /etc)" 126
expect "arguments" "$("$run" -q -p low printf '%s|' --priority=high -- --help -v 'a b' '')" "--priority=high|--|--help|-v|a b||"
expect "arguments behind --" "$("$run" -q -- printf '%s|' --version)" "--version|"
expect "input" "$(echo through | "$run" -q cat)" through
expect "process" "$(sh -c 'echo $$; exec "$@"' sh "$run" -q sh -c 'echo $$' | uniq | wc -l)" 1
"$run" -q sleep 60 &
job=$!
until [ "$(readlink "/proc/$job/exe")" != "$build/bin/tally-run" ]; do sleep 0.02; done
kill -INT $job 2>/dev/null || :
kill -KILL $job
wait $job 2>/dev/null && fail "a killed program has no good status"

# --- options become variables, options win over variables, and wrong ones are refused
expect "options" "$("$run" -q --priority=-7 --slo=p99.9:20ms --turnaround=1ms --policy=kernel --weight=50 --min-share=5% \
    --job=name --fail=open --force=slice --gate=off sh -c \
    'echo $TALLY_PRIORITY $TALLY_SLO $TALLY_TURNAROUND $TALLY_POLICY $TALLY_WEIGHT $TALLY_MIN_SHARE $TALLY_JOB $TALLY_FAIL $TALLY_FORCE $TALLY_GATE')" \
    "-7 p99.9:20ms 1ms kernel 50 5% name open slice off"
expect "an option wins" "$(TALLY_PRIORITY=low "$run" -q -p high sh -c 'echo $TALLY_PRIORITY')" high
expect "a variable stays" "$(TALLY_PRIORITY=low "$run" -q sh -c 'echo $TALLY_PRIORITY')" low
for bad in --priority=urgent --slo=8ms --turnaround=soon --weight=0 --min-share=5 --fail=maybe --force=x --gate=some --device=tpu --nonsense; do
    expect "$bad" "$(status_of "$run" $bad true)" 125
    expect "$bad is explained" "$(test -s "$scratch/err" && echo yes)" yes
done
expect "no program" "$(status_of "$run")" 125
expect "help" "$(status_of "$run" --help)" 0
has "help" "$(cat "$scratch/out")" "--priority"
mkdir "$scratch/here"
expect "reports go where the user stands" \
    "$(cd "$scratch/here" && "$run" -q --report=r sh -c 'echo $TALLY_REPORT')" "$scratch/here/r"

# --- the library is preloaded once, whatever was there, and in nested use
expect "preload" "$("$run" -q sh -c 'echo $LD_PRELOAD')" "$shim"
expect "nested preload" "$("$run" -q -p low "$run" -q -p high sh -c 'echo $LD_PRELOAD $TALLY_PRIORITY')" "$shim high"
expect "another preload stays" "$(LD_PRELOAD=libm.so.6 "$run" -q sh -c 'echo $LD_PRELOAD')" "$shim libm.so.6"
expect "library path" "$(LD_LIBRARY_PATH=/a:/b "$run" -q --device=soft "$run" -q sh -c 'echo $LD_LIBRARY_PATH')" \
    "$build/lib/tally:$build/lib/tally/device:/a:/b"
expect "mapped" "$("$run" -q cat /proc/self/maps | grep -c "^[^ ]* r-xp .*$shim\$")" 1

# --- the device
has "auto says which" "$("$run" true 2>&1)" "device:"
expect "soft" "$("$run" --device=soft sh -c 'echo $TALLY_DRIVER')" "$build/lib/tally/device/libcuda.so.1"
expect "profile" "$("$run" --device=soft --profile=h100-r580 sh -c 'echo $TALLY_DEVICE_PROFILE/$TALLY_DEVICE_CC')" "h100-r580/"
expect "NCCL's protocol" "$("$run" --device=soft sh -c 'echo $NCCL_PROTO')" LL
expect "NCCL's protocol as the user has it" "$(NCCL_PROTO=Simple "$run" --device=soft sh -c 'echo $NCCL_PROTO')" Simple
expect "unknown profile" "$(status_of "$run" --device=soft --profile=h200 true)" 125
has "known profiles" "$("$run" --device=soft --profile=h200 true 2>&1)" \
    "soft, a100-r535, rtx4090-r550, h100-r550, h100-r580, b200-r580"
expect "a driver that was named stays" "$(TALLY_DRIVER=/x/libcuda.so.1 "$run" sh -c 'echo $TALLY_DRIVER')" /x/libcuda.so.1
if [ ! -e /dev/nvidiactl ] && ! ldconfig -p | grep -q 'libcuda\.so\.1'; then
    expect "no GPU" "$(status_of "$run" --device=gpu true)" 125
    has "no GPU" "$(cat "$scratch/err")" "no NVIDIA driver"
fi
has "verbose" "$("$run" -v true 2>&1)" "LD_PRELOAD=$shim"
has "quiet" "$("$run" -q env 2>&1)" "TALLY_PROGRESS=no"

# --- compilers of frameworks; a user's own is handed on
if [ -x "$build/lib/tally/cuda/bin/ptxas" ]; then
    expect "Triton" "$("$run" -q sh -c 'echo $TRITON_PTXAS_PATH $TRITON_PTXAS_BLACKWELL_PATH')" \
        "$build/lib/tally/cuda/bin/ptxas $build/lib/tally/cuda/bin/ptxas"
    expect "XLA" "$(XLA_FLAGS=--a=b "$run" -q sh -c 'echo $XLA_FLAGS')" \
        "--a=b --xla_gpu_cuda_data_dir=$build/lib/tally/cuda"
    expect "XLA nested" "$("$run" -q "$run" -q sh -c 'echo $XLA_FLAGS' | grep -o xla_gpu_cuda_data_dir | wc -l)" 1
    expect "own ptxas" "$(TRITON_PTXAS_PATH=/my/ptxas "$run" -q "$run" -q sh -c 'echo $TALLY_PTXAS')" /my/ptxas
fi

expect "CuPy keeps code where its PTX is" "$(TALLY_CACHE=/my/cache "$run" -q sh -c 'echo $CUPY_CACHE_DIR')" /my/cache/cupy
expect "CuPy's own folder" "$(CUPY_CACHE_DIR=/my/cupy "$run" -q sh -c 'echo $CUPY_CACHE_DIR')" /my/cupy

# --- an installed layout finds its own libraries
mkdir -p "$scratch/usr/bin" "$scratch/usr/lib/tally/device"
cp "$run" "$build/bin/tallyd" "$scratch/usr/bin"
cp "$shim" "$scratch/usr/lib/tally"
cp "$build/lib/tally/device/libcuda.so.1" "$scratch/usr/lib/tally/device"
ln -s usr/bin/tally-run "$scratch/link"
expect "installed" "$("$scratch/link" -q --device=soft sh -c 'echo $LD_PRELOAD $TALLY_DRIVER')" \
    "$scratch/usr/lib/tally/libcuda.so.1 $scratch/usr/lib/tally/device/libcuda.so.1"

# --- tallyd: started once, joined by every process of the job that uses the driver, gone from the job's children
cat >"$scratch/job.py" <<'PYTHON'
import ctypes, os, subprocess, sys
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
print(subprocess.run([sys.argv[1], "ps", "--json"], capture_output=True, text=True, check=True).stdout)
try:
    os.wait()
    print("it has a child that it did not start")
except ChildProcessError:
    pass
PYTHON
"$run" -q -p low --job=trainer python3 "$scratch/job.py" "$tally" >"$scratch/ps.json"
expect "ps" "$(python3 -c 'import json, sys; c = json.load(open(sys.argv[1]))["clients"]
print(len(c), c[0]["job"], c[0]["level"], c[0]["uid"])' "$scratch/ps.json")" "1 trainer -100 $(id -u)"
# Two processes of one shell script.
"$run" -q -p high sh -c 'python3 "$1" "$2" >/dev/null; python3 "$1" "$2"' sh "$scratch/job.py" "$tally" >"$scratch/ps.json"
expect "a shell's children" "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["clients"][0]["level"])' \
    "$scratch/ps.json")" 100
expect "a log" "$(test -f "$scratch/tally/tallyd.log" && echo there)" there

# --- without tallyd: open goes on and says so, closed stops
expect "open" "$(status_of env XDG_RUNTIME_DIR=/proc/none "$run" -q sh -c 'exit 5')" 5
has "open" "$(cat "$scratch/err")" "unmanaged"
expect "closed" "$(status_of env XDG_RUNTIME_DIR=/proc/none "$run" -q --fail=closed sh -c 'exit 5')" 125
has "closed" "$(cat "$scratch/err")" "/proc/none"
expect "off needs none" "$(status_of env XDG_RUNTIME_DIR=/proc/none TALLY_OFF=1 "$run" -q sh -c 'exit 5')" 5
expect "off" "$(cat "$scratch/err")" ""

echo "$checks checks passed"

#!/usr/bin/env bash
# Limits of device memory between processes: a tree of processes shares one, the dead hold nothing, limits change while jobs run, the
# rules force one, what is requested is kept free from others, pages beyond a soft limit leave, memory of another process counts once,
# and NVML tells the same as the driver.  On the kind device and on two strict profiles.
set -euo pipefail
. test/integration/needs.inc
build=${TALLY_BUILD:-build}
need_built "$build/bin/tally-run" "$build/lib/tally/libcuda.so.1" "$build/lib/tally/device/libcuda.so.1"
need_plain "$build/lib/tally/libcuda.so.1"
command -v python3 >/dev/null || skip "no python3"
scratch=$(mktemp -d)
export TALLY_SOCKET=$scratch/tallyd.sock TALLY_DEVICE_NAME=tally-limits-$$ TALLY_CACHE=$scratch/cache TALLY_DEVICE_MEM=1G
export TALLY_DEVICE=soft TALLY_LOG=error
# shellcheck disable=SC2317  # called by the trap
cleanup() {
    rm -f "/dev/shm/$TALLY_DEVICE_NAME".*
    rm -rf "$scratch"
}
trap cleanup EXIT

# A job that does as it is told, a line at a time.
cat >"$scratch/job.py" <<'JOB'
import ctypes, os, sys

cuda = ctypes.CDLL("libcuda.so.1")
u64, ptr = ctypes.c_uint64, ctypes.c_void_p
MB = 1 << 20


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


class Nvml(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def begin():
    context = ptr()
    for r in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context)):
        assert r == 0, r


def info():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return f"{free.value // MB} {total.value // MB}"


def nvml():
    library, device, m = ctypes.CDLL("libnvidia-ml.so.1"), ptr(), Nvml()
    assert library.nvmlInit_v2() == 0 and library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
    assert library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(m)) == 0
    return f"{m.free // MB} {m.total // MB} {m.used // MB}"


def main():
    held = []
    begin()
    print("ready", flush=True)
    for line in sys.stdin:
        what, *rest = line.split()
        if what == "alloc":
            at = u64()
            r = cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(int(rest[0]) * MB))
            if r == 0:
                held.append(at)
            print({0: "ok", 2: "oom"}.get(r, r), flush=True)
        elif what == "free":
            print("ok" if cuda.cuMemFree_v2(held.pop()) == 0 else "error", flush=True)
        elif what == "fill":  # every page of the last one
            n = int(rest[0]) * MB
            print("ok" if cuda.cuMemsetD8_v2(held[-1], 7, ctypes.c_size_t(n)) == 0 else "error", flush=True)
        elif what == "export":
            handle = Handle()
            r = cuda.cuIpcGetMemHandle(ctypes.byref(handle), held[-1])
            print(bytes(handle).hex() if r == 0 else r, flush=True)
        elif what == "import":
            at, handle = u64(), Handle.from_buffer_copy(bytes.fromhex(rest[0]))
            r = cuda.cuIpcOpenMemHandle_v2(ctypes.byref(at), handle, 1)
            print("ok" if r == 0 else r, flush=True)
        elif what == "module":  # with a variable of that size
            text = f".version 7.0\n.target sm_75\n.address_size 64\n.visible .global .align 4 .b8 big[{int(rest[0]) * MB}];\n"
            module, at, n = ptr(), u64(), ctypes.c_size_t()
            r = cuda.cuModuleLoadData(ctypes.byref(module), text.encode() + b"\0")
            r = r or cuda.cuModuleGetGlobal_v2(ctypes.byref(at), ctypes.byref(n), module, b"big")
            print("ok" if r == 0 and n.value == int(rest[0]) * MB else r, flush=True)
        elif what == "info":
            print(info(), flush=True)
        elif what == "nvml":
            print(nvml(), flush=True)
        elif what == "pid":
            print(os.getpid(), flush=True)


main()
JOB

cat >"$scratch/test.py" <<'TEST'
import json, os, subprocess, sys, time

build, scratch = sys.argv[1:3]
failures = 0


class Job:
    """A job under tally-run; with `inside`, several in one tree, which is a shell's."""

    def __init__(self, *options, inside=None):
        command = ["python3", f"{scratch}/job.py"]
        if inside is None:
            command = [f"{build}/bin/tally-run", "--quiet", *options, *command]
        environment = inside if inside is not None else os.environ
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.p.stdout.readline() == "ready\n"

    def ask(self, text):
        self.p.stdin.write(text + "\n")
        self.p.stdin.flush()
        return self.p.stdout.readline().strip()

    def end(self, kill=False):
        if kill:
            self.p.kill()
        self.p.stdin.close()
        self.p.wait()


def check(name, got, wanted):
    global failures
    is_good = got == wanted
    failures += not is_good
    print(f"{'ok   ' if is_good else 'FAIL '} {name}" + ("" if is_good else f": {got!r}, not {wanted!r}"), flush=True)


def becomes(name, ask, wanted):
    """What another process is told by tallyd takes a moment."""
    end = time.monotonic() + 30
    got = ask()
    while got != wanted and time.monotonic() < end:
        time.sleep(0.01)
        got = ask()
    check(name, got, wanted)


def tally(*arguments):
    return subprocess.run([f"{build}/bin/tally", *arguments], capture_output=True, text=True)


def tree(*options):
    """The environment of what is started inside one tally-run."""
    out = subprocess.run([f"{build}/bin/tally-run", "--quiet", *options, "env", "-0"], capture_output=True, text=True, check=True)
    return dict(line.split("=", 1) for line in out.stdout.split("\0") if line)


def one_job(level):
    j = Job(f"--priority={level}", "--memory=100M")
    check(f"{level}: the device is as large as the limit", j.ask("info"), "100 100")
    check(f"{level}: more is refused", j.ask("alloc 101"), "oom")
    check(f"{level}: less is given", j.ask("alloc 60"), "ok")
    check(f"{level}: what is free is told", j.ask("info"), "40 100")
    check(f"{level}: NVML tells the same", j.ask("nvml"), "40 100 60")
    check(f"{level}: the rest is refused", j.ask("alloc 41"), "oom")
    pid = j.ask("pid")
    check(f"{level}: the limit changes", tally("set", pid, "memory=200M").returncode, 0)
    check(f"{level}: then there is room", j.ask("alloc 41"), "ok")
    check(f"{level}: all of it", j.ask("info"), "99 200")
    check(f"{level}: it shrinks below what is held", tally("set", pid, "memory=64M").returncode, 0)
    check(f"{level}: nothing is free", j.ask("info"), "0 64")
    check(f"{level}: it is no limit", tally("set", pid, "memory=none").returncode, 0)
    check(f"{level}: much is given", j.ask("alloc 500"), "ok")
    rows = json.loads(tally("ps", "--json").stdout)["clients"]
    check(f"{level}: tally ps knows", [r["memory_bytes"] >> 20 for r in rows if r["pid"] == int(pid)], [601])
    j.end()


def beyond_what_was_asked(level):
    """What the driver takes for the process itself, as far as NVML tells it: here a module's variables."""
    j = Job(f"--priority={level}", "--memory=100M")
    check(f"{level}: a module with a large variable", j.ask("module 32"), "ok")
    check(f"{level}: what the driver took counts", j.ask("info"), "68 100")
    check(f"{level}: what is left is given", j.ask("alloc 68"), "ok")
    check(f"{level}: and no more", j.ask("alloc 1"), "oom")
    j.end()


def one_tree():
    inside = tree("--priority=low", "--memory=100M")
    a, b = Job(inside=inside), Job(inside=inside)
    check("tree: the first", a.ask("alloc 60"), "ok")
    check("tree: the second sees it", b.ask("info"), "40 100")
    check("tree: and is held to the rest", b.ask("alloc 60"), "oom")
    check("tree: which it gets", b.ask("alloc 40"), "ok")
    check("tree: memory of another process is taken over", b.ask("import " + a.ask("export")), "ok")
    check("tree: which counts once", b.ask("info"), "0 100")
    check("tree: a limit for one is for all", tally("set", b.ask("pid"), "memory=110M").returncode, 0)
    becomes("tree: the other one has it, too", lambda: a.ask("info"), "10 110")
    a.end(kill=True)
    becomes("tree: the dead hold nothing", lambda: b.ask("info"), "70 110")
    c = Job("--priority=low", "--memory=50M")
    check("tree: others have their own", c.ask("info"), "50 50")
    b.end()
    c.end()


def requests():
    other = Job("--priority=low")
    kept = Job("--priority=low", "--memory-request=600M")
    kept.ask("alloc 100")
    becomes("request: 500 of 600 MiB are kept from others", lambda: other.ask("info").split()[0], "424")
    check("request: they do not get them", other.ask("alloc 430"), "oom")
    check("request: they get the rest", other.ask("alloc 400"), "ok")
    check("request: who has requested it has it", kept.ask("alloc 500"), "ok")
    kept.end()
    becomes("request: the dead keep nothing", lambda: other.ask("alloc 430"), "ok")
    other.end()


def soft():
    """A soft job fills the device; a plain one still gets its memory, and nobody fails."""
    greedy = Job("--priority=low", "--memory-soft=64M")
    check("soft: it may have more", greedy.ask("alloc 900"), "ok")
    check("soft: and use it", greedy.ask("fill 900"), "ok")
    plain = Job("--priority=low")
    check("soft: others get room", plain.ask("alloc 700"), "ok")
    check("soft: which they can use", plain.ask("fill 700"), "ok")
    check("soft: its own is still there", greedy.ask("fill 900"), "ok")
    greedy.end()
    plain.end()


def rules():
    with open(f"{scratch}/rules", "w") as f:
        f.write("everybody high memory=80M\n")
    os.environ["TALLY_RULES"] = f"{scratch}/rules"
    os.environ["TALLY_SOCKET"] = f"{scratch}/rules.sock"
    j = Job("--priority=high")
    check("rules: who asks for none has theirs", j.ask("info"), "80 80")
    check("rules: which cannot be raised", tally("set", j.ask("pid"), "memory=none").returncode, 0)
    check("rules: it stays", j.ask("info"), "80 80")
    j.end()
    j = Job("--priority=high", "--memory=40M")
    check("rules: less may be asked for", j.ask("info"), "40 40")
    j.end()


one_job("high")
one_job("low")
beyond_what_was_asked("high")
beyond_what_was_asked("low")
one_tree()
requests()
soft()
if os.environ.get("TALLY_DEVICE_PROFILE") is None:
    rules()
sys.exit(failures != 0)
TEST

status=0
python3 "$scratch/test.py" "$build" "$scratch" || status=1
for profile in a100-r535 h100-r580; do
    rm -f "/dev/shm/$TALLY_DEVICE_NAME".*
    echo "--- $profile"
    TALLY_DEVICE_PROFILE=$profile TALLY_SOCKET=$scratch/$profile.sock python3 "$scratch/test.py" "$build" "$scratch" || status=1
done
exit $status

#!/usr/bin/env bash
# `tally top` in a terminal of 80 by 24: it shows devices with what they did lately, and jobs, keeps to the size, asks before it changes
# anything, changes it, and leaves the terminal as it was; once, as CSV and as JSON it needs none.
set -euo pipefail
. test/integration/needs.inc
build=${TALLY_BUILD:-build}
need_built "$build/bin/tally" "$build/bin/tallyd" "$build/test/preempter" "$build/bin/tally-run" "$build/lib/tally/device/libcuda.so.1" \
    "$build/workloads/jobs/train"
need_plain "$build/lib/tally/libcuda.so.1"
command -v python3 >/dev/null || skip "no python3"
scratch=$(mktemp -d)
export TALLY_SOCKET=$scratch/tallyd.sock TALLY_DEVICE_NAME=tally-top-$$ TALLY_CACHE=$scratch/cache TERM=xterm TALLY_LOG=error
trap 'rm -f "/dev/shm/$TALLY_DEVICE_NAME".*; rm -rf "$scratch"' EXIT
cat >"$scratch/test.py" <<'TEST'
import csv, fcntl, io, json, os, pty, re, select, struct, subprocess, sys, termios, time

build = sys.argv[1]
failures = 0


def check(name, is_good, got=""):
    global failures
    failures += not is_good
    print(f"{'ok   ' if is_good else 'FAIL '} {name}" + ("" if is_good else f": {got!r}"), flush=True)


def tally(*arguments):
    return subprocess.run([f"{build}/bin/tally", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)


class Terminal:
    """tally top in a terminal; `frame` is what stands there."""

    def __init__(self, *options, rows=24, columns=80):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(f"{build}/bin/tally", ["tally", "top", "--interval=200ms", *options])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.bytes = b""

    def read(self):
        if not select.select([self.fd], [], [], 30)[0]:
            sys.exit(f"nothing comes any more behind {self.bytes[-500:]!r}")
        try:
            self.bytes += os.read(self.fd, 65536)
        except OSError:
            return False
        return True

    def frames(self):
        return self.bytes.decode(errors="replace").split("\033[H\033[2J")[1:]

    def until(self, name, is_there):
        """Waits for a frame that was begun from now on."""
        n, end = len(self.frames()), time.monotonic() + 60
        while time.monotonic() < end:
            if any(is_there(f) for f in self.frames()[n:]):
                return check(name, True)
            if not self.read():
                break
        check(name, False, self.frames()[-1:])

    def press(self, keys):
        os.write(self.fd, keys.encode())

    def end(self):
        while self.read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def plain(text):
    return re.sub(r"\033\[[0-9;?]*[a-zA-Z]", "", text)


def client(pid):
    return [c for c in json.loads(tally("ps", "--json").stdout)["clients"] if c["pid"] == pid][0]


job = subprocess.Popen([f"{build}/test/preempter", "3600", "1", "200", "400"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                       env={**os.environ, "TALLY_PRIORITY": "20"})
assert job.stdout.readline() == "ready\n"
pid = str(job.pid)

once = tally("top", "--once").stdout
check("once: the job is there", pid in once and "preempter" in once, once)
check("once: without control sequences", "\033" not in once, once)
rows = list(csv.DictReader(io.StringIO(tally("top", "--csv").stdout)))
check("csv: the job is there", [r["pid"] for r in rows] == [pid] and "preempter" in rows[0]["command"], rows)
check("csv: a filter leaves it out", len(tally("top", "--csv", "--filter=nothing-like-it").stdout.splitlines()) == 1)
check("json: the job is there", json.loads(tally("top", "--json").stdout)["clients"][0]["pid"] == job.pid)
check("without a terminal it says so", tally("top").returncode == 1)
check("a wrong option is refused", tally("top", "--sort=beauty").returncode == 2)

t = Terminal()
t.until("live: the job is there", lambda f: pid in plain(f) and "COMMAND" in f)
t.press("j")
t.until("live: it is chosen", lambda f: f"\033[7m" in f.split("COMMAND")[-1])
t.press("\t")
t.until("live: other columns", lambda f: "P99" in f and "PREEMPT" in f)
t.press("p")
t.until("live: it asks", lambda f: "(y/n)" in f)
check("live: and has not done it yet", not client(job.pid)["paused"])
t.press("n")
t.until("live: no is no", lambda f: "(y/n)" not in f)
check("live: it is as it was", not client(job.pid)["paused"])
t.press("p")
t.until("live: it asks again", lambda f: "(y/n)" in f)
t.press("y")
t.until("live: done", lambda f: "done" in f)
check("live: the job is paused", client(job.pid)["paused"])
level = client(job.pid)["level"]
t.press("-")
t.until("live: it asks for a priority", lambda f: "priority" in f and "(y/n)" in f)
t.press("y")
t.until("live: done as well", lambda f: "done" in f)
check("live: the priority is lower", client(job.pid)["level"] == level - 10, client(job.pid)["level"])
t.press("P")
t.until("live: a policy is typed", lambda f: "policy:" in f)
t.press("timeslice\n")
t.until("live: it asks for the policy", lambda f: "timeslice for all jobs" in f)
t.press("y")
t.until("live: the policy is another", lambda f: "policy timeslice" in plain(f))
t.press("/nothing\n")
t.until("live: a filter", lambda f: "only nothing" in plain(f) and pid not in plain(f))
check("live: which leaves no device out", "no device is used" in plain(t.frames()[-2]), t.frames()[-2])
t.press("q")
check("live: it ends", t.end() == 0)
check("live: and leaves the terminal as it was", t.bytes.rstrip().endswith(b"\033[?25h\033[?1049l"), t.bytes[-40:])
lines = [line for f in t.frames()[1:-1] for line in plain(f).replace("\r", "").split("\n")]
check("live: no line is too long", max(map(len, lines)) <= 80, max(lines, key=len))
check("live: no frame is too high", max(f.count("\n") for f in t.frames()[:-1]) < 24)

t = Terminal("--no-color", rows=24, columns=140)
t.until("wide: all columns", lambda f: "LIMIT" in f and "OUTSIDE" in f)
check("wide: without colours", "\033[7m" not in t.frames()[-1], t.frames()[-1])
os.kill(t.pid, 15)
check("wide: it ends when told to", t.end() == 0)
job.stdin.close()
job.kill()
job.wait()

# --- devices: a job on two of them, one on the first alone; what they hold and do is told for each

JOB = """
import ctypes, sys
cuda, held = ctypes.CDLL("libcuda.so.1"), []
assert cuda.cuInit(0) == 0
for device in map(int, sys.argv[1:]):
    context, memory = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0 and cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(100 << 20)) == 0
    assert cuda.cuMemsetD8_v2(memory, 1, ctypes.c_size_t(1 << 20)) == 0 and cuda.cuCtxSynchronize() == 0
print("ready", flush=True)
sys.stdin.read()
"""
soft = {**os.environ, "TALLY_DEVICES": "2", "TALLY_DEVICE_MEM": "1G", "TALLY_DEVICE_PROFILE": "h100-r580"}


def start(name, *devices):
    p = subprocess.Popen([f"{build}/bin/tally-run", "--quiet", "--priority=low", "--device=soft", f"--job={name}", sys.executable, "-c", JOB,
                          *map(str, devices)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=soft)
    assert p.stdout.readline() == "ready\n"
    return p


one, both = start("only one", 0), start("two", 0, 1)
devices = json.loads(tally("top", "--json", "--filter=nothing-like-it").stdout)["devices"]
check("devices: both, whatever the filter", len(devices) == 2 and {d["clients"] for d in devices} == {1, 2}, devices)
first, = [d for d in devices if d["clients"] == 2]
check("devices: what is held of each", (first["held_bytes"] >> 20, sum(d["held_bytes"] for d in devices) >> 20) == (200, 300), devices)
check("devices: size, model and profile", first["memory_bytes"] == 1 << 30 and "h100-r580" in first["name"], first)
rows = {r["pid"]: r for r in csv.DictReader(io.StringIO(tally("top", "--csv").stdout))}
check("csv: the GPUs", [rows[str(p.pid)]["gpus"] for p in (one, both)] == [first["uuid"], " ".join(sorted(d["uuid"] for d in devices))], rows)

t = Terminal(columns=110)
at = devices.index(first)
t.until("devices: a line for each", lambda f: all(f"GPU {i}  busy [" in plain(f) for i in (0, 1)) and "h100-r580" in f)
t.until("devices: memory with its bar", lambda f: re.search(r"mem \[####\.{16}\]  1[89] % 210 MB of 1.07 GB \|[-:.=]+", plain(f)))
t.until("devices: idle, now and lately", lambda f: re.search(f"GPU {at}  busy " + r"\[\.{20}\]   0 % [^|]*\|   +\|", plain(f)))
t.press("\t")
t.until("devices: of each job", lambda f: re.search(rf"{one.pid} +-100 {at} ", plain(f)) and re.search(rf"{both.pid} +-100 0,1 ", plain(f)))
busy = subprocess.Popen([f"{build}/bin/tally-run", "--quiet", "--priority=low", "--device=soft", f"{build}/workloads/jobs/train", "--kind=coarse",
                         "--seconds=600"], stdout=subprocess.DEVNULL, env=soft)
t.until("devices: busy, now and lately", lambda f: re.search(r"busy \[#+\.*\] +[1-9]\d* % [^|]*\| *[.:=+*#%@-]+", plain(f)))
t.press("q")
t.end()
t = Terminal(rows=8)
t.until("devices: flat where there is little room", lambda f: re.search(r"GPU 0  busy \[.{10}\] .*\|.{10}\| mem \[", plain(f)))
t.press("q")
t.end()
check("devices: that is not too high", t.frames()[-1].split("\033[?25h")[0].count("\n") < 8, t.frames()[-1])
for p in (one, both, busy):
    p.kill()
    p.wait()

# --- more jobs than fit, and names that would be commands

many = []
for _ in range(30):  # one after the other: a busy machine has no answer for all at once
    many.append(subprocess.Popen([f"{build}/test/preempter", "3600", "1", "200", "400"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                 env={**os.environ, "TALLY_JOB": "a \033[2J\u009b2J"}))
    assert many[-1].stdout.readline() == "ready\n"
pids = [str(pid) for pid in sorted(p.pid for p in many)]
t = Terminal("--sort=pid")
t.until("many: the first are there, the last is not", lambda f: pids[0] in plain(f) and pids[-1] not in plain(f))
t.press("k")
t.until("many: the chosen one is always there", lambda f: f"{pids[-1]}" in plain(f) and pids[0] not in plain(f))
t.press("\033[B")
t.until("many: an arrow goes on to the first", lambda f: pids[0] in plain(f))
t.press("r")
t.until("many: the other way round", lambda f: re.search(f"by pid upwards.*{pids[1]} .*{pids[0]} ", plain(f), re.S))
t.press("r")
t.press("s")
t.until("many: by another column", lambda f: "by level" in plain(f))
t.press("p")
t.until("many: it asks for the chosen one", lambda f: f"pause process {pids[0]} (a ?[2J" in plain(f))
t.press("nq")
check("many: it ends", t.end() == 0)
lines = [line for f in t.frames()[1:-1] for line in plain(f).replace("\r", "").split("\n")]
check("many: no line is too long", max(map(len, lines)) <= 80, max(lines, key=len))
check("many: no frame is too high", max(f.count("\n") for f in t.frames()[:-1]) < 24)
check("many: nothing but ours clears the screen", t.bytes.count(b"\033[2J") == t.bytes.count(b"\033[H\033[2J") and b"\xc2\x9b" not in t.bytes)
for p in many:
    p.stdin.close()
    p.kill()
    p.wait()
sys.exit(failures != 0)
TEST
python3 "$scratch/test.py" "$build"

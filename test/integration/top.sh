#!/usr/bin/env bash
# `tally top` in a terminal of 80 by 24: it shows jobs, keeps to the size, asks before it changes anything, changes it, and leaves
# the terminal as it was; once, as CSV and as JSON it needs none.
set -euo pipefail
. test/integration/needs.inc
build=${TALLY_BUILD:-build}
need_built "$build/bin/tally" "$build/bin/tallyd" "$build/test/preempter"
command -v python3 >/dev/null || skip "no python3"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export TALLY_SOCKET=$scratch/tallyd.sock TERM=xterm
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
sys.exit(failures != 0)
TEST
python3 "$scratch/test.py" "$build"

#!/usr/bin/env bash
# tallyd --metrics: the text read by a parser of the specification's rules, numbers against `tally ps` and against what a job did; odd
# names; who may listen and read where; hostile and slow clients; sums that go on when tallyd begins anew.
set -euo pipefail
# shellcheck source=test/integration/needs.inc
. test/integration/needs.inc
build=$(realpath "${TALLY_BUILD:-build}")
need_built "$build/bin/tallyd" "$build/bin/tally-run" "$build/lib/tally/libcuda.so.1" "$build/lib/tally/device/libcuda.so.1"
need_plain "$build/lib/tally/libcuda.so.1"
scratch=$(mktemp -d)
export TALLY_SOCKET=$scratch/tallyd.sock TALLY_DEVICE_NAME=tally-metrics-$$ TALLY_CACHE=$scratch/cache TALLY_DEVICE=soft TALLY_DAEMON=no
export TALLY_LOG=error
daemon=''
# shellcheck disable=SC2317 # called by the trap
finish() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || :
    rm -f "/dev/shm/$TALLY_DEVICE_NAME".*
    rm -rf "$scratch"
}
trap finish EXIT
fail() {
    echo "FAIL: $*"
    exit 1
}
refused() { # TEXT OPTION...: tallyd does not start, and says that
    local text=$1
    shift
    ! timeout 20 "$build/bin/tallyd" --log=error "$@" 2>"$scratch/said" || fail "tallyd $* starts"
    grep -qF -- "$text" "$scratch/said" || fail "tallyd $*: $(cat "$scratch/said")"
}
refused "it may be unix:PATH" --metrics=localhost:80
refused "it may be unix:PATH" --metrics=127.0.0.1
refused "it may be unix:PATH" --metrics=127.0.0.1:70000
refused "other machines reach that address" --metrics=0.0.0.0:0
refused "other machines reach that address" "--metrics=[::]:0"
refused "a path from /" --metrics=unix:metrics
echo mine >"$scratch/file"
refused "no socket of this user" --metrics="unix:$scratch/file"
[ "$(cat "$scratch/file")" = mine ] || fail "a file was touched"

start() { # OPTION...
    : >"$scratch/log"
    "$build/bin/tallyd" --idle=0 --log=info "$@" 2>>"$scratch/log" &
    daemon=$!
    for ((i = 0; i < 600; i++)); do
        ! grep -q 'listens on' "$scratch/log" || return 0
        sleep 0.05
    done
    fail "tallyd does not start: $(cat "$scratch/log")"
}

# --- a UNIX socket, which is this user's alone and goes with tallyd

start --metrics="unix:$scratch/metrics.sock"
[ "$(stat -c %a "$scratch/metrics.sock")" = 600 ] || fail "mode $(stat -c %a "$scratch/metrics.sock")"
kill "$daemon"
wait "$daemon" || :
[ ! -e "$scratch/metrics.sock" ] || fail "the socket is left"

# --- the rest over a port of this machine

start --metrics=127.0.0.1:0
python3 - "$build" "$scratch/log" "$scratch" "$daemon" <<'PY' || fail "see above"
import json, os, re, signal, socket, subprocess, sys, time

sys.path.insert(0, "test/integration")
import openmetrics

build, log, scratch, daemon = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
port = int(re.findall(r"metrics are told at 127\.0\.0\.1:(\d+)", open(log, errors="replace").read())[-1])


def ask(question, wait=20):
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as s:
        s.sendall(question)
        answer = b""
        while more := s.recv(65536):
            answer += more
    return answer


def scrape(head=b""):
    answer = ask(b"GET /metrics HTTP/1.1\r\nHost: here\r\n" + head + b"\r\n")
    head, body = answer.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n"), head
    assert int(re.search(rb"Content-Length: (\d+)", head)[1]) == len(body)
    return head, body.decode()


def read():
    head, body = scrape()
    assert b"application/openmetrics-text; version=1.0.0; charset=utf-8" in head
    return openmetrics.parse(body)


def families():
    """A text that was made since this was called: for a moment the same one is told again, and each has another count of answers."""
    before = read()["tally_scrapes"]
    while (told := read())["tally_scrapes"] == before:
        time.sleep(0.01)
    return told


def value(told, name, pid):
    family = next(f for f in sorted(told, key=len, reverse=True) if name.startswith(f))
    (found,) = [v for (n, l), v in told[family][1].items() if n == name and dict(l).get("pid") == str(pid)]
    return found


# Before anybody has joined.
assert families()["tally_clients"][1] == {("tally_clients", frozenset()): 0}

# A job that does as it is told.  Its name and pod are what nobody would choose.
JOB = """
import ctypes, sys, time
sys.path.insert(0, "runtime/python")
import tally_mark
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(64 << 20)) == 0
assert cuda.cuMemsetD8_v2(memory, 1, ctypes.c_size_t(1 << 20)) == 0 and cuda.cuCtxSynchronize() == 0
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        begin = tally_mark.begin()
        time.sleep(0.003)
        tally_mark.end(begin)
    print("done", flush=True)
"""
# pyenv and the like put a script before the interpreter.
environment = dict(os.environ, TALLY_JOB='a "job"\\ of \udce9 mine', TALLY_POD="pod-é", TALLY_NAMESPACE="names", TALLY_CONTAINER_NAME="c\n1")
job = subprocess.Popen([f"{build}/bin/tally-run", "--quiet", "--priority=high", "--memory=1G", "--slo=p99:8ms", sys.executable, "-c", JOB],
                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
assert job.stdout.readline() == "ready\n"


def requests(n):
    job.stdin.write(f"{n}\n")
    job.stdin.flush()
    assert job.stdout.readline() == "done\n"


def awaited(name, wanted):
    """Until the number is that."""
    until = time.monotonic() + 60
    while (found := value(families(), name, job.pid)) != wanted:
        assert found < wanted and time.monotonic() < until, (name, found, wanted)
        time.sleep(0.02)


requests(1)
first = value(families(), "tally_job_requests_total", job.pid)  # what it did before its marks is inferred
requests(70)  # more than the ring of a page holds
awaited("tally_job_requests_total", first + 70)
told = families()
(_, label_set), = [k for k in told["tally_job_level"][1]]
labels = dict(label_set)
ps = json.loads(subprocess.check_output([f"{build}/bin/tally", "ps", "--json"]))["clients"][0]
assert labels["tally_job"] == 'a "job"\\ of ? mine', labels  # what is no UTF-8 is not sent
assert (labels["pod"], labels["namespace"], labels["container"]) == ("pod-é", "names", "c\n1"), labels
assert labels["pid"] == str(job.pid) == str(ps["pid"]) and labels["uid"] == str(os.getuid())
assert labels["Hostname"] == socket.gethostname() and re.fullmatch(r"GPU-[0-9a-f-]{36}", labels["UUID"]), labels
assert labels["modelName"].startswith("Tally Software Device"), labels
assert value(told, "tally_job_level", job.pid) == 100 and abs(value(told, "tally_job_slo_seconds", job.pid) - 0.008) < 1e-12
assert value(told, "tally_job_memory_limit_bytes", job.pid) == 1 << 30
assert value(told, "tally_job_memory_bytes", job.pid) == ps["memory_bytes"] >= 64 << 20
assert value(told, "tally_job_request_seconds_count", job.pid) == first + 70
buckets = {float(dict(l)["le"]): v for (n, l), v in told["tally_job_request_seconds"][1].items() if n.endswith("_bucket")}
assert buckets[0.002048] <= first and buckets[float("inf")] == first + 70, buckets  # none can be faster than it slept
assert value(told, "tally_job_request_seconds_sum", job.pid) >= 70 * 0.003

# The older text, for those who ask for it.
head, body = scrape(b"Accept: text/plain;version=0.0.4\r\n")
assert b"text/plain; version=0.0.4" in head and "# EOF" not in body and "# TYPE tally_job_requests_total counter" in body
assert b"openmetrics" in scrape(b"Accept: application/openmetrics-text,text/plain\r\n")[0]

# Nothing else is answered.
for question, status in (
    (b"GET / HTTP/1.1\r\n\r\n", b"404"), (b"GET /metricsx HTTP/1.1\r\n\r\n", b"404"), (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
    (b"GET /metrics\r\n\r\n", b"400"), (b"\r\n\r\n", b"400"), (b"GET /metrics HTTP/2.0\r\n\r\n", b"400"),
    (b"GET /metrics\0 HTTP/1.1\r\n\r\n", b"400"), (b"x" * 4095, b"431"),
):
    assert ask(question).startswith(b"HTTP/1.1 " + status), (question[:40], ask(question))

# Those who connect and say nothing take no place from who asks, and are sent away.
silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
assert value(families(), "tally_job_level", job.pid) == 100
for s in silent:
    s.settimeout(30)
    try:
        assert s.recv(1) == b""
    except ConnectionResetError:
        pass
# Those who do not read the answer neither; tallyd itself answers all the while.
greedy = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
for s in greedy:
    s.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
subprocess.check_output([f"{build}/bin/tally", "ps"], timeout=20)
assert value(families(), "tally_job_level", job.pid) == 100
assert [v for _, v in families()["tally_scrapes_refused"][1].items()][0] >= 40
for s in greedy:
    s.close()

# Another tallyd: the sums go on where they were.
before = value(families(), "tally_job_requests_total", job.pid)
os.kill(daemon, signal.SIGKILL)
fresh = subprocess.Popen([f"{build}/bin/tallyd", "--idle=0", "--log=info", "--metrics=127.0.0.1:0"], stderr=open(f"{scratch}/log2", "w"))
try:
    until = time.monotonic() + 60
    while True:
        found = re.findall(r"metrics are told at 127\.0\.0\.1:(\d+)", open(f"{scratch}/log2", errors="replace").read())
        if found:
            port = int(found[-1])
            told = families()
            if told["tally_clients"][1][("tally_clients", frozenset())] == 1:
                break
        assert time.monotonic() < until, f"the job does not join the next tallyd: {open(f'{scratch}/log2', errors='replace').read()}"
        time.sleep(0.05)
    requests(1)
    awaited("tally_job_requests_total", before + 1)
    # Who has gone is not told of any more.
    job.stdin.close()
    assert job.wait() == 0
    while families()["tally_clients"][1][("tally_clients", frozenset())] != 0:
        assert time.monotonic() < until
        time.sleep(0.05)
finally:
    fresh.terminate()
    fresh.wait()
PY

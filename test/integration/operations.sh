#!/usr/bin/env bash
# The commands of docs/operations.md, and those of the pages on vLLM and Triton that start with Tally, run as they stand there on the
# software device, with a small CUDA job in place of train.py, serve.py, vllm and tritonserver.  What belongs to an engine is run by
# that engine's test; a line of any page that nobody runs is an error.
set -euo pipefail
. test/integration/needs.inc
build=$(realpath "${TALLY_BUILD:-build}")
need_built "$build/bin/tally-run" "$build/lib/tally/libcuda.so.1" "$build/lib/tally/device/libcuda.so.1"
need_plain "$build/lib/tally/libcuda.so.1"
command -v python3 >/dev/null || skip "no python3"
scratch=$(mktemp -d)
export TALLY_SOCKET=$scratch/tallyd.sock TALLY_DEVICE_NAME=tally-operations-$$ TALLY_CACHE=$scratch/cache TALLY_DEVICE_MEM=64G
export TALLY_DEVICE=soft TALLY_LOG=error TERM=xterm
# shellcheck disable=SC2317  # called by the trap
finish() {
    rm -f "/dev/shm/$TALLY_DEVICE_NAME".*
    rm -rf "$scratch"
}
trap finish EXIT
mkdir "$scratch/bin"

# A job that has a context, tells the size of its GPU for each line that it reads, and ends when there is none.
cat >"$scratch/train.py" <<'JOB'
import ctypes, sys
cuda, context, memory = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(64 << 20)) == 0
assert cuda.cuMemsetD8_v2(memory, 1, ctypes.c_size_t(1 << 20)) == 0 and cuda.cuCtxSynchronize() == 0
for _ in sys.stdin:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    print(total.value >> 30, flush=True)
JOB
cp "$scratch/train.py" "$scratch/serve.py"
printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v python3)" >"$scratch/bin/python"
for server in vllm tritonserver; do
    printf '#!/bin/sh\nexec %s %s\n' "$(command -v python3)" "$scratch/serve.py" >"$scratch/bin/$server"
done
chmod +x "$scratch"/bin/*
export PATH=$scratch/bin:$build/bin:$PATH

cat >"$scratch/test.py" <<'TEST'
import json, os, pathlib, pty, re, select, shutil, socket, subprocess, sys, time, urllib.request

tree, scratch = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
# Whose test runs a line, and what of it stands there; None: nobody can, and the page says so.
ELSEWHERE = [
    (r"podman run --device tally\.dev/gpu=(high|low)", "test/engines/containers.sh", '--device "tally.dev/gpu=$device"'),
    (r"tallyd --idle=0 &|tally cdi generate", "test/engines/containers.sh", "cdi generate"),
    (r"rule_files:|scrape_configs:|- job_name: tally|static_configs:", "test/engines/prometheus.sh", "rule_files:"),
    (r"podman run --device nvidia\.com|rate\(tally_job_busy_seconds_total", None, "nobody has"),
    (r"podman run --rm -p8000|--device nvidia\.com/gpu=0|nvcr\.io", None, "not run here"),
]
# Pages of one engine: what reads them, or the same for each line; the last is for what stands there by hand.
ENGINES = {
    "docs/operations/ray.md": [
        (r"tally ps", "test/engines/ray_actors.py", '"ps", "--json"'),
        (r"export PYTHONPATH=", "test/engines/ray.sh", "PYTHONPATH=$PWD/runtime/python"),
        (r"export RAY_RUNTIME_ENV_PLUGINS=", "test/engines/ray.sh", 'export RAY_RUNTIME_ENV_PLUGINS=\'[{"class": "tally_ray.Plugin"}]\''),
        (r"export RAY_RUNTIME_ENV_HOOK=", "test/engines/ray_actors.py", '"RAY_RUNTIME_ENV_HOOK"] = "tally_ray.hook"'),
        (r"import ray|@ray\.remote|class |server = |Trainer\.|ray\.init", "test/engines/ray_actors.py", "docs/operations/ray.md"),
    ],
    "docs/operations/slurm.md": [
        (r"sacctmgr", "test/engines/slurm_qos.sh", "sacctmgr -i add qos"),
        (r"srun|sbatch", "test/engines/slurm.sh", "docs/operations/slurm.md"),
        (r"tallyd --shared", "runtime/slurm/node.c", '"--shared"'),  # which the prolog runs
        (r"tally ps", "test/engines/slurm.sh", "tally ps --json --socket=$socket"),
        (r"tally account", "test/engines/slurm.sh", "tally account"),
        (r"scontrol show job", "test/engines/slurm.sh", "scontrol show job"),
        (r"# /etc/|optional tally|Name=|[A-Z]\w+=|partition |qos |everybody ", "test/engines/slurm.inc", "docs/operations/slurm.md"),
    ],
    "docs/operations/kserve.md": [(r"", "test/engines/kube.sh", "docs/operations/kserve.md")],
    "docs/operations/kubernetes.md": [(r"", None, "by hand")],
}
ran, problems, jobs, daemon = [], [], [], None


def fail(text):
    problems.append(text)
    print(f"FAIL: {text}", flush=True)


def ask(job):
    job.stdin.write("\n")
    job.stdin.flush()
    return job.stdout.readline().strip()


def end(job):
    job.stdin.close()
    if job.wait() != 0:
        fail(f"{job.args[2]}: status {job.returncode}")


def start(command):
    job = subprocess.Popen(["bash", "-c", "exec " + command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=scratch)
    total = ask(job)
    limit = re.search(r"--memory=(\d+)G", command)
    if total != (limit[1] if limit else "64"):
        fail(f"{command}: sees a GPU of {total} GiB")
    return job


def client(job):
    clients = json.loads(subprocess.check_output(["tally", "ps", "--json"]))["clients"]
    return [c for c in clients if c["pid"] == job.pid][0]


def run_set(command):
    """On a job that is there."""
    job = start("tally-run --priority=low --memory=8G python train.py")
    subprocess.run(command.replace("PID", str(job.pid)), shell=True, check=True)
    after = client(job)
    if "share=50%" in command and (after["min_share_permille"], after["max_share_permille"]) != (500, 500):
        fail(f"{command}: {after}")
    if "memory=12G" in command and (ask(job) != "12" or after["memory_limit_bytes"] != 12 << 30):
        fail(f"{command}: {after}")
    end(job)


def run_job(command):
    folder = re.search(r"--report=(\S+)", command)
    job = start(command)
    level = client(job)["level"]
    if level != (100 if "--priority=high" in command else -100):
        fail(f"{command}: level {level}")
    end(job)
    if folder:
        text = subprocess.check_output(["tally", "report", scratch / folder[1]], text=True)
        if "--share=30%" in command and "asked 30.0 % at least and 30.0 % at most, got" not in text:
            fail(f"{command}: the report does not say what became of its share: {text}")


def run_top():
    """In a terminal, until it has drawn something; q ends it."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvp("tally", ["tally", "top"])
    seen, end = b"", time.monotonic() + 60
    while b"tally" not in seen and time.monotonic() < end and select.select([fd], [], [], 10)[0]:
        seen += os.read(fd, 65536)
    os.write(fd, b"q")
    try:
        while os.read(fd, 65536):
            pass
    except OSError:
        pass
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
        fail(f"tally top: {seen!r}")


def run_metrics(command):
    """tallyd, at a port that is free; then the question to it."""
    global daemon
    subprocess.run(["tally", "ps"], stdout=subprocess.DEVNULL, check=False)  # an older one may still be ending
    os.environ["TALLY_SOCKET"] = str(scratch / "metrics.sock")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    daemon = subprocess.Popen(["bash", "-c", "exec " + command.rstrip("& ").replace("9400", str(port))], stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while subprocess.run(["tally", "ps"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        if time.monotonic() > end or daemon.poll() is not None:
            sys.exit(f"{command}: it does not come about")
        time.sleep(0.05)
    return port


def run(page, command, port):
    if command.startswith("tallyd --idle=0 --metrics="):
        return run_metrics(command)
    if command.startswith("curl "):
        url = command.split()[1].replace("9400", str(port))
        text = subprocess.check_output(["curl", "-fs", url], text=True) if shutil.which("curl") else urllib.request.urlopen(url).read().decode()
        if "tally_clients 0" not in text:
            fail(f"{command}: {text}")
    elif command == "tally top":
        run_top()
    elif command.startswith("tally set "):
        run_set(command)
    elif command.startswith("tally-run "):
        run_job(command)
    elif command.startswith("tally "):
        subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL, cwd=scratch)
    else:
        fail(f"{page}: nobody runs '{command}'")
    return port


port = None
PAGES = {"docs/operations.md", "docs/operations/vllm.md", "docs/operations/triton.md"}
for page in sorted(PAGES):
    text = (tree / page).read_text()
    for line in re.findall(r"^    (\S.*|    \S.*)$", text, re.M):
        command = re.split(r"\s+#", line)[0].strip()
        home = [(file, part) for pattern, file, part in ELSEWHERE if re.match(pattern, command)]
        if home:
            file, part = home[0]
            if part.lower() not in (tree / (file or page)).read_text().lower():
                fail(f"{page}: '{command}' is not in {file or page}")
            continue
        # Jobs of a level below would wait for each other's memory; one at a time.
        port = run(page, command, port)
        ran.append(command)
for page, homes in ENGINES.items():
    lines = re.findall(r"^    (\S.*|    \S.*)$", (tree / page).read_text(), re.M)
    for line in map(str.strip, lines):
        home = [(file, part) for pattern, file, part in homes if re.match(pattern, line)]
        if not home or home[0][1] not in (tree / (home[0][0] or page)).read_text():
            fail(f"{page}: nobody runs '{line}'")
    if not lines or {str(p.relative_to(tree)) for p in (tree / "docs/operations").iterdir()} - set(ENGINES) - PAGES:
        fail(f"{page}: it has no line, or there is a page beside it that is in no list")
if daemon is not None:
    daemon.terminate()
    daemon.wait()
print(f"{len(ran)} commands ran, {len(problems)} problems")
sys.exit(1 if problems or len(ran) < 14 else 0)
TEST
python3 "$scratch/test.py" "$PWD" "$scratch"

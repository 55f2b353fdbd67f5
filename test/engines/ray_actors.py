"""Tests tally_ray with the real Ray: a serving and a training actor on one software device (test/engines/ray.sh calls it).

usage: ray_actors.py BUILD FOLDER
"""
import ctypes
import json
import os
import re
import subprocess
import sys
import textwrap
import time

import ray

import tally_ray

build, folder = (os.path.abspath(path) for path in sys.argv[1:3])
GIB = 1 << 30
PATIENCE = 180
checks = 0

# A kernel of as many blocks as are wanted, each of which counts for a while and then adds one to its word.
PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry work(.param .u64 words, .param .u32 turns)
{
    .reg .pred %p<3>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [words];
    ld.param.u32 %r1, [turns];
    mov.u32 %r2, 0;
    mov.u32 %r5, 1;
again:
    mad.lo.u32 %r5, %r5, 1664525, 1013904223;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, %r1;
    @%p1 bra again;
    and.b32 %r6, %r5, 1;
    shr.u32 %r6, %r6, 1;
    mov.u32 %r3, %ctaid.x;
    mul.wide.u32 %rd2, %r3, 4;
    add.u64 %rd3, %rd1, %rd2;
    mov.u32 %r7, %tid.x;
    setp.ne.u32 %p2, %r7, 0;
    @%p2 bra done;
    ld.global.u32 %r4, [%rd3];
    add.u32 %r4, %r4, 1;
    add.u32 %r4, %r4, %r6;
    st.global.u32 [%rd3], %r4;
done:
    ret;
}
"""


class Worker:
    """A process on the GPU, by the driver's own interface."""

    def __init__(self, blocks, turns):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.context, module = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.call("cuCtxSetCurrent", self.context)
        self.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.kernel = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(self.kernel), module, b"work")
        self.blocks, self.turns, self.launches = blocks, ctypes.c_uint32(turns), 0
        self.words = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(self.words), ctypes.c_size_t(4 * blocks))
        self.call("cuMemsetD32_v2", self.words, 0, ctypes.c_size_t(blocks))

    def call(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name}: {code}")

    def run(self, times):
        """Launches the kernel so often; whether every block has counted all launches so far."""
        self.call("cuCtxSetCurrent", self.context)
        pointers = (ctypes.c_void_p * 2)(ctypes.addressof(self.words), ctypes.addressof(self.turns))
        for _ in range(times):
            self.call("cuLaunchKernel", self.kernel, self.blocks, 1, 1, 32, 1, 1, 0, None, pointers, None)
            self.call("cuCtxSynchronize")
        self.launches += times
        counts = (ctypes.c_uint32 * self.blocks)()
        self.call("cuMemcpyDtoH_v2", counts, self.words, ctypes.c_size_t(4 * self.blocks))
        return set(counts) == {self.launches}

    def total(self):
        """Memory of the GPU as it sees it."""
        self.call("cuCtxSetCurrent", self.context)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return total.value

    def allocate(self, n):
        """The driver's answer, 0 or 2 (out of memory)."""
        self.call("cuCtxSetCurrent", self.context)
        pointer = ctypes.c_uint64()
        code = self.cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(n))
        if code == 0:
            self.call("cuMemFree_v2", pointer)
        return code

    def pid(self):
        return os.getpid()


def expect(what, got, wanted):
    global checks
    checks += 1
    if got != wanted:
        sys.exit(f"FAIL {what}: got {got!r}, wanted {wanted!r}")


def client(pid):
    answer = subprocess.run([f"{build}/bin/tally", "ps", "--json"], check=True, capture_output=True)
    found = [c for c in json.loads(answer.stdout)["clients"] if c["pid"] == pid]
    return found[0] if found else None


def failure(task):
    """The text of what Ray makes of a task that cannot be started."""
    try:
        ray.get(task, timeout=PATIENCE)
    except ray.exceptions.RayError as error:
        return str(error)
    return "it was started"


def test_actors(actor):
    """Level, share and limit of both are Tally's, and the limits hold."""
    server = actor.options(**tally_ray.gpu(0.25, priority="high", job="server")).remote(4, 1000)
    trainer = actor.options(**tally_ray.gpu(0.3, priority="low", job="trainer")).remote(1024, 20000)
    pids = ray.get([server.pid.remote(), trainer.pid.remote()], timeout=PATIENCE)
    expect("answers of the server", ray.get(server.run.remote(10), timeout=PATIENCE), True)
    expect("answers of the trainer", ray.get(trainer.run.remote(2), timeout=PATIENCE), True)
    seen = [client(pid) for pid in pids]
    wanted = [("server", 100, 0, 0, 8 * GIB // 4), ("trainer", -100, 300, 300, int(8 * GIB * 0.3))]
    for one, (job, level, least, most, limit) in zip(seen, wanted):
        expect(f"{job}: name, level, share", (one["job"], one["level"], one["min_share_permille"], one["max_share_permille"]),
               (job, level, least, most))
        expect(f"{job}: limit", one["memory_limit_bytes"], limit)
    expect("both on one GPU", seen[0]["gpus"], seen[1]["gpus"])
    expect("what the server sees", ray.get(server.total.remote()), 2 * GIB)
    expect("what the trainer sees", ray.get(trainer.total.remote()), int(8 * GIB * 0.3))
    expect("within the limit", ray.get(trainer.allocate.remote(2 * GIB)), 0)
    expect("beyond it", ray.get(trainer.allocate.remote(3 * GIB)), 2)
    expect("beyond the server's", ray.get(server.allocate.remote(2 * GIB + 1)), 2)
    # While the trainer trains, the server serves; sooner or later it meets a kernel of the other's.
    training = trainer.run.remote(20)
    until = time.monotonic() + PATIENCE
    while client(pids[1])["preemptions"] == 0 and time.monotonic() < until:
        expect("the server beside the trainer", ray.get(server.run.remote(20), timeout=PATIENCE), True)
        if ray.wait([training], timeout=0)[0]:
            expect("the trainer beside the server", ray.get(training), True)
            training = trainer.run.remote(20)
    expect("the trainer has given way", client(pids[1])["preemptions"] > 0, True)
    expect("the trainer beside the server", ray.get(training, timeout=PATIENCE), True)
    for one in (server, trainer):
        ray.kill(one)
    while any(client(pid) for pid in pids):
        time.sleep(0.05)


def test_plain(actor):
    """Without the plugin, by a command; and tasks without anything of Tally."""
    plain = actor.options(num_gpus=0.5, runtime_env={"py_executable": f"tally-run -q --priority=low --memory=1G {sys.executable}"}).remote(8, 10)
    pid = ray.get(plain.pid.remote(), timeout=PATIENCE)
    expect("answers", ray.get(plain.run.remote(3)), True)
    seen = client(pid)
    expect("level and limit", (seen["level"], seen["memory_limit_bytes"]), (-100, GIB))
    ray.kill(plain)

    @ray.remote
    def preload():
        return os.environ.get("LD_PRELOAD", "")

    expect("others are left alone", "tally" in ray.get(preload.remote(), timeout=PATIENCE), False)
    behind = preload.options(**tally_ray.gpu(1, runtime_env={"env_vars": {"LD_PRELOAD": ""}})).remote()
    expect("a whole GPU", "tally/libcuda.so.1" in ray.get(behind, timeout=PATIENCE), True)


def test_refusals():
    @ray.remote
    def nothing():
        return None

    for settings, part in (({"priority": "urgent"}, "TALLY_PRIORITY"), ({"prio": "high"}, "it may have priority"),
                           ({"memory": "lots"}, "TALLY_MEMORY"), ({"tally_run": "/nonexistent"}, "this node has no /nonexistent"),
                           ({"memory_fraction": 2}, "at most 1")):
        text = failure(nothing.options(runtime_env={"tally": settings}).remote())
        expect(f"{settings}: '{part}' in {text}", part in text, True)


def wait_for_end(*pids):
    while any(client(pid) for pid in pids):
        time.sleep(0.05)


def test_unchanged():
    """Under RAY_RUNTIME_ENV_HOOK num_gpus alone is a share and a limit, in tasks, actors and what they start."""

    def told():
        one = Worker(4, 1000)
        one.run(1)
        seen = client(one.pid())
        return (seen["level"], seen["min_share_permille"], seen["max_share_permille"], seen["memory_limit_bytes"])

    @ray.remote(num_cpus=0)
    def outer():
        return ray.get(ray.remote(num_gpus=0.5)(told).remote(), timeout=PATIENCE), os.environ.get("TALLY_SHARE", "")

    trainer = ray.remote(num_gpus=0.3)(Worker).remote(4, 1000)
    pid = ray.get(trainer.pid.remote(), timeout=PATIENCE)
    expect("an actor's answers", ray.get(trainer.run.remote(2), timeout=PATIENCE), True)
    seen = client(pid)
    expect("num_gpus=0.3 of an actor", (seen["level"], seen["min_share_permille"], seen["max_share_permille"], seen["memory_limit_bytes"]),
           (-100, 300, 300, int(8 * GIB * 0.3)))
    expect("which holds", ray.get(trainer.allocate.remote(3 * GIB)), 2)
    ray.kill(trainer)
    wait_for_end(pid)
    task = ray.remote(num_gpus=0.25)(told)
    expect("num_gpus=0.25 of a task", ray.get(task.remote(), timeout=PATIENCE), (-100, 250, 250, 2 * GIB))
    expect("options(num_gpus=0.5)", ray.get(task.options(num_gpus=0.5).remote(), timeout=PATIENCE), (-100, 500, 500, 4 * GIB))
    expect("a whole GPU has the job's level", ray.get(task.options(num_gpus=1).remote(), timeout=PATIENCE), (-100, 0, 0, 0))
    own = task.options(runtime_env={"py_executable": f"tally-run -q --priority=low --memory=1G {sys.executable}"})
    expect("who has a command of his own", ray.get(own.remote(), timeout=PATIENCE), (-100, 0, 0, GIB))
    expect("gpu() goes first", ray.get(task.options(**tally_ray.gpu(0.5, priority="high")).remote(), timeout=PATIENCE), (100, 0, 0, 4 * GIB))
    expect("a task that a task starts", ray.get(outer.remote(), timeout=PATIENCE), ((-100, 500, 500, 4 * GIB), ""))


def test_page():
    """Each block of the page that is Python runs as it stands there."""
    page = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/operations/ray.md"), encoding="utf-8").read()
    blocks = [textwrap.dedent(block) for block in re.findall(r"(?:^    .*\n)+", page, re.M)]
    names = {"Server": ray.remote(Empty), "Empty": Empty}
    ran = 0
    for block in blocks:
        if not re.search(r"import ray|ray\.|\.remote\(|\.options\(", block) or block.startswith("export"):
            continue
        block = block.replace("=24G python", f"=24G {sys.executable}").replace("class Trainer: ...", "class Trainer(Empty): ...")
        exec(compile(block, "ray.md", "exec"), names)  # pylint: disable=exec-used
        ran += 1
    expect("blocks of the page", ran >= 3, True)
    actor = names["Trainer"].remote()
    expect("an actor of the page", ray.get(actor.environment.remote(), timeout=PATIENCE)["TALLY_SHARE"], "30%")


class Empty:
    """What stands for the page's classes."""

    def environment(self):
        return dict(os.environ)


def start(**more):
    """Ray gives its own daemons 30 s, which a busy machine may not keep."""
    for attempt in range(4):
        try:
            return ray.init(num_cpus=4, num_gpus=1, include_dashboard=False, _temp_dir=folder, log_to_driver=False, **more)
        except Exception as error:
            if "timed out during startup" not in str(error) or attempt == 3:
                raise
            ray.shutdown()


start()
try:
    test_actors(ray.remote(Worker))
    test_plain(ray.remote(Worker))
    test_refusals()
finally:
    ray.shutdown()
os.environ["RAY_RUNTIME_ENV_HOOK"] = "tally_ray.hook"
start(runtime_env={"tally": {"priority": "low"}})
try:
    test_unchanged()
    test_page()
finally:
    ray.shutdown()
print(f"{checks} checks of tally_ray with Ray {ray.__version__}")

"""Pairs of an inference server and a trainer, run alone and together under each way of sharing; for bench-isolation and bench-sweep.

  alone          the server by itself; the trainer by itself gives the 1.0 of its throughput
  mps            both share the device, grids in order of arrival
  mps-priority   the same, blocks of the server's grids first
  timeslice      the two contexts take turns
  kernel         Tally with whole kernels only
  tgs, slo       Tally with these policies; the objective is a P99 of 1.1 times that of the server's requests alone
  tally          Tally
  code-whole     Tally, the trainer being machine code only, whole kernels
  code-cap       the same, each kernel on half of the SMs (which must be two at least)
  gate           the same, with the gate, as `tally doctor` has qualified it

Where one of the last three is asked for, all run on a device that answers as an H100 with R580 does: others run no machine code.
"""
import glob
import importlib.machinery
import importlib.util
import itertools
import json
import os
import queue
import resource
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

import bench_share
from bench_share import WAITS_MAGIC

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, os.environ.get("TALLY_BUILD", "build"))
# The last one has the shape of published pairs: requests of hundreds of kernels of 10 to 20 us, blocks of 0.1 to 1 ms beside them.
PAIRS = ["mlp+short", "mlp+long", "transformer+mixed", "transformer+memory", "convnet+long", "convnet+mixed", "decoder+coarse"]
MODES = ["mps", "mps-priority", "timeslice", "kernel", "tgs", "slo", "tally"]
CODE = {"code-whole": ["--gate=off", "--force=whole"], "code-cap": ["--gate=off", "--force=cap"], "gate": ["--gate=auto"]}  # and what they run with
CODE_PROFILE = "h100-r580"
# modes under tally-run, and their policy
MANAGED = {"kernel": "kernel", "tgs": "tgs", "slo": "slo", "tally": "tally", **{m: "tally" for m in CODE}}
DEVICE_MODES = ("mps-priority", "timeslice")  # modes of the device; all others run on mps


class Failed(Exception):
    """A job ended with an error: what it said."""


class Job:
    """A process of the pair, its standard error watched for the line that tells that it is under way."""

    def __init__(self, command, env):
        self.command = command
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said, self.is_ready, self.counted = [], threading.Event(), queue.Queue()
        self.watcher = threading.Thread(target=self._watch, daemon=True)
        self.watcher.start()

    def _watch(self):
        for line in self.process.stderr:
            self.said.append(line)
            if line.startswith(("serve:", "train:")):
                self.is_ready.set()
            if line.startswith("train:") and line.endswith(" steps\n"):
                self.counted.put(int(line.split()[1]))
        self.is_ready.set()

    def steps(self):
        """How many steps a trainer has done, said when it has just done the last of them."""
        self.process.send_signal(signal.SIGUSR1)
        try:
            return self.counted.get(timeout=60)
        except queue.Empty:
            raise Failed(f"{' '.join(self.command)}: does not say how many steps it has done\n{''.join(self.said[-20:])}") from None

    def ready(self, seconds):
        if not self.is_ready.wait(seconds) or self.process.poll() not in (None, 0):
            self.end()
            raise Failed(f"{' '.join(self.command)}: did not get under way\n{''.join(self.said[-20:])}")

    def result(self, seconds):
        try:
            out, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.end()
            raise Failed(f"{' '.join(self.command)}: still running after {seconds} s") from None
        self.watcher.join()
        if self.process.returncode != 0:
            raise Failed(f"{' '.join(self.command)}: exit status {self.process.returncode}\n{out}{''.join(self.said[-20:])}")
        return json.loads(out.strip().splitlines()[-1])

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def lost_spans(path):
    """When a process had blocks to run and no SM because others ran on them, as the device wrote it down (device/exec/waits.h)."""
    with open(path, "rb") as f:
        magic, n, dropped, _ = struct.unpack("<4Q", f.read(32))
        if magic != WAITS_MAGIC or dropped:
            raise Failed(f"{path}: {f'{dropped} waits did not fit' if dropped else 'not a file of waits'}")
        values = struct.unpack(f"<{2 * n}Q", f.read(16 * n))
    return list(zip(values[::2], values[1::2]))


def attributed(requests, spans):
    """What requests lost to others on the device, and the P99 that they would have had without: (arrival, begin, end) of each in ns, served
    one after the other.  A request that ends sooner lets the next one begin sooner, if that has arrived."""
    with_ms, without_ms, lost_ns, free, i = [], [], [], 0, 0
    spans = sorted(spans)
    for arrival, begin, end in requests:
        while i < len(spans) and spans[i][1] <= begin:
            i += 1
        lost = sum(min(e, end) - max(b, begin) for b, e in itertools.takewhile(lambda span: span[0] < end, spans[i:]))
        free = max(arrival, free) + end - begin - lost
        with_ms.append((end - arrival) / 1e6)
        without_ms.append((free - arrival) / 1e6)
        lost_ns.append(lost)
    p99, without = percentile(with_ms, 99), percentile(without_ms, 99)
    return {"p99_ms": p99, "p99_without_ms": without, "overhead": p99 / without - 1, "lost_ms": sum(lost_ns) / 1e6 / max(1, len(lost_ns))}


class Bench:
    patience = 120  # seconds until a job is under way

    def __init__(self, options):
        self.o = options
        self.folder = tempfile.mkdtemp(prefix="tally-bench-")
        self.counter = 0
        self.report = options.reports
        self.scales = {}
        self.profile = CODE_PROFILE if set(getattr(options, "modes", "").split(",")) & set(CODE) else ""
        if self.profile:
            self.qualify()

    def qualify(self):
        """The device learns what the trainer's code is, and `tally doctor` whether gates work there."""
        program = os.path.join(BUILD, "workloads/code/train")
        if not os.path.exists(program):
            raise Failed(f"{program} is missing: make code-workloads")
        env = self.environment("mps")
        subprocess.run([os.path.join(BUILD, "test/gate-tool"), "learn", program + ".known"], env=env, check=True, stdout=subprocess.DEVNULL)
        env["LD_LIBRARY_PATH"] = os.path.join(BUILD, "lib/tally/device")
        out = subprocess.run([os.path.join(BUILD, "bin/tally"), "doctor", "--json"], env=env, capture_output=True, text=True).stdout
        verdict = json.loads(out)["gpus"][0]["rungs"]["gate"]
        if verdict["verdict"] != "works":
            raise Failed(f"tally doctor: the gate is {verdict['verdict']} on {self.profile}: {verdict['why']}")

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in glob.glob(f"/dev/shm/tally-bench-{os.getpid()}-*"):  # the devices' own, which outlive their last process
            os.unlink(name)

    def environment(self, mode):
        """A device and a daemon of its own for each run, so that nothing is left over from the one before."""
        self.counter += 1
        env = dict(os.environ)
        for name in [n for n in env if n.startswith("TALLY_") and n not in ("TALLY_CACHE", "TALLY_BUILD")]:
            del env[name]
        env.update(TALLY_DEVICE_NAME=f"tally-bench-{os.getpid()}-{self.counter}", TALLY_DEVICE_SMS=str(self.o.sms),
                   TALLY_DEVICE_MODE=mode if mode in DEVICE_MODES else "mps",
                   TALLY_SOCKET=os.path.join(self.folder, f"{self.counter}.sock"), TALLY_DAEMON_IDLE="2s", TALLY_DEVICE_WAITS=self.folder,
                   TALLY_JIT_QUICK="0")  # kernels that get faster in the middle of a run compare with nothing
        if getattr(self.o, "blocks_per_sm", 0):
            env["TALLY_DEVICE_BLOCKS_PER_SM"] = str(self.o.blocks_per_sm)
        if self.profile:
            env["TALLY_DEVICE_PROFILE"] = self.profile
        if not self.is_managed(mode):
            path = os.path.join(BUILD, "lib/tally/device")
            env["LD_LIBRARY_PATH"] = ":".join(filter(None, [path, env.get("LD_LIBRARY_PATH")]))
        return env

    def is_managed(self, mode):
        """With reports, the other modes also run under tally-run, which then only watches."""
        return mode in MANAGED or bool(self.report)

    def server(self, model):
        """The command of a server, without what a run decides."""
        return [os.path.join(BUILD, "workloads/jobs/serve"), f"--model={model}", f"--scale={self.scales.get(model, 1):.4g}"]

    def trainer(self, kind, mode):
        folder = "code" if mode in CODE else "jobs"
        return [os.path.join(BUILD, "workloads", folder, "train"), f"--kind={kind}"]

    def start(self, command, mode, level, env, label, more=()):
        if mode == "mps-priority" and level == "low":
            env = dict(env, CUDA_MPS_CLIENT_PRIORITY="1")
        if self.is_managed(mode):
            prefix = [os.path.join(BUILD, "bin/tally-run"), f"--priority={level}", f"--policy={MANAGED.get(mode, 'none')}",
                      f"--device={self.o.device}"]
            if self.report or (mode in MANAGED and level == "low"):
                prefix.append(f"--report={os.path.join(self.report or self.folder, label)}")
            command = [*prefix, *more, "--", *command]
        return Job(command, env)

    def serve(self, model, rate, seed, mode, env, label, seconds=None, slo_ms=None):
        self.requests = os.path.join(self.folder, "requests")
        arguments = [f"--seconds={seconds or self.o.seconds}", f"--seed={seed}", f"--requests={self.requests}",
                     f"--rate={rate}" if rate else "--load=0.2"]
        more = [f"--slo=p99:{slo_ms:.3f}ms"] if mode == "slo" and slo_ms else []
        return self.start([*self.server(model), *arguments], mode, "high", env, label, more)

    def served(self, job, seconds):
        """What the server says, every latency, and what the device says that its requests lost to others."""
        result = job.result(seconds)
        with open(self.requests, encoding="ascii") as f:
            requests = [tuple(map(int, line.split())) for line in f]
        result["requests_ns"], result["lost_ns"] = requests, []
        result["latencies_ms"] = [(end - arrival) / 1e6 for arrival, _, end in requests]
        paths = glob.glob(os.path.join(self.folder, f"*.{job.process.pid}.waits"))
        if paths and requests:
            result["lost_ns"] = [span for path in paths for span in lost_spans(path)]
            result["attributed"] = attributed(requests, result["lost_ns"])
        return result

    def train(self, kind, mode, env, label, seconds=3600, turnaround=None):
        more = ([f"--turnaround={turnaround}"] if turnaround else []) + CODE.get(mode, [])
        return self.start([*self.trainer(kind, mode), f"--seconds={seconds}"], mode, "low", env, label, more)

    def alone(self, model, rate, seed, label):
        job = self.serve(model, rate, seed, "mps", self.environment("mps"), os.path.join(label, "alone"))
        return self.served(job, self.o.seconds * 4 + self.patience)

    def train_alone(self, kind, label):
        job = self.train(kind, "mps", self.environment("mps"), os.path.join(label, "alone"), seconds=self.o.seconds)
        job.ready(self.patience)
        interval = self.watch(job)
        result = job.result(self.o.seconds * 4 + self.patience)
        if interval is not None:
            result["had"] = bench_share.had(interval, [], [], self.o.sms)
        return result

    def watch(self, trainer):
        """What a trainer has of the device for most of a run; before it ends."""
        held = bench_share.Held(self.folder, trainer.process.pid)
        time.sleep(0.9 * self.o.seconds)
        return held.end()

    def together(self, model, kind, rate, seed, mode, slo_ms=None, turnaround=None):
        """What the server and the trainer say; the latter with how preemptions went, where there were any."""
        env = self.environment(mode)
        label = os.path.join(f"{model}+{kind}", mode)
        best_effort = self.train(kind, mode, env, label, turnaround=turnaround)
        try:
            best_effort.ready(self.patience)
            critical = self.serve(model, rate, seed, mode, env, label, slo_ms=slo_ms)
            try:
                critical.ready(self.patience)
                best_effort.process.send_signal(signal.SIGUSR1)
                interval = self.watch(best_effort)
                served = self.served(critical, self.o.seconds * 10 + self.patience)
            finally:
                critical.end()
            best_effort.process.send_signal(signal.SIGTERM)
            trained = best_effort.result(120)
            if interval is not None:
                trained["had"] = bench_share.had(interval, served["requests_ns"], served["lost_ns"], self.o.sms)
            if mode in MANAGED:
                trained["preemption"] = self.preemptions(os.path.join(self.report or self.folder, label), best_effort.process.pid)
            return served, trained
        finally:
            best_effort.end()

    def rewriting(self, model, kind, mode):
        """What kernels of the trainer compute longer under a mode while the server is there and idle (scripts/bench_share.py); 1 if the mode
        leaves them alone."""
        if mode not in MANAGED:
            return 1.0
        env = self.environment(mode)
        label = os.path.join("rewriting", mode)
        jobs = [self.train(kind, "mps", self.environment("mps"), label)]
        idle = None
        try:
            jobs.append(self.train(kind, mode, env, label))
            idle = self.serve(model, 0.001, 1, mode, env, label, seconds=3600)
            for job in (*jobs, idle):
                job.ready(self.patience)
            time.sleep(1)  # variants are made while it runs
            return bench_share.rewriting(*jobs, self.o.seconds / 2)
        finally:
            for job in (*jobs, idle):
                if job is not None:
                    job.end()

    def preemptions(self, folder, pid):
        """How long the best-effort job took to leave the device, in blocks of the kernel that had to most often; None if none had to."""
        alone = os.path.join(self.folder, "last")  # a folder that is kept has the jobs of earlier runs, and a report adds up those of one name
        os.mkdir(alone)
        for path in glob.glob(os.path.join(folder, f"*.{pid}.tally")):
            shutil.copy(path, alone)
        out = subprocess.run([os.path.join(BUILD, "bin/tally"), "report", "--json", alone], check=True, capture_output=True, text=True).stdout
        shutil.rmtree(alone)
        if not self.report:
            shutil.rmtree(folder)
        kernels = [k for run in json.loads(out)["runs"] for j in run["jobs"] for k in j["kernels"] if k["preemption_over_block"]["count"] > 0]
        if not kernels:
            return None
        k = max(kernels, key=lambda k: k["preemption_over_block"]["count"])
        block_us = k["preemption_latency"]["p50_ns"] / 1e3 / max(1e-3, k["preemption_over_block"]["p50"])  # the usual one: those of a kernel differ
        return {**k["preemption_over_block"], "kernel": k["demangled"], "latency_p99_us": k["preemption_latency"]["p99_ns"] / 1e3, "block_us": block_us}

    def service_ms(self, model):
        job = self.serve(model, 0, 1, "mps", self.environment("mps"), "warm-up", seconds=1)
        return job.result(60 + self.patience)["service_p50_ms"]

    def calibrated_rate(self, model, load):
        """Requests per second that keep the server busy for the wanted part of the time.  Machines differ, so the work of a request is first
        scaled to the time that it is to take: a tail needs many requests, and a request many blocks."""
        if model not in self.scales:
            self.scales[model] = self.o.scale or max(0.25, self.o.request_ms / self.service_ms(model))
        return load / (self.service_ms(model) / 1e3)


class Neighbours:
    """What else ran on the machine meanwhile, in cores: a measurement on a busy one says little."""

    def __init__(self):
        self.begin, self.own, self.total = time.time(), self._own(), self._total()

    @staticmethod
    def _own():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    @staticmethod
    def _total():
        with open("/proc/stat", encoding="ascii") as f:
            user, nice, system, _, _, irq, softirq, steal = map(int, f.readline().split()[1:9])
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")

    def cores(self):
        elapsed = time.time() - self.begin
        return max(0.0, (self._total() - self.total - (self._own() - self.own)) / elapsed) if elapsed > 0 else 0.0


def script(name):
    """Another script of this folder as a module."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), os.path.join(ROOT, "scripts", name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def add_arguments(parser):
    """Of all that runs pairs."""
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8, help="of load per run")
    parser.add_argument("--sms", type=int, default=max(1, (os.cpu_count() or 2) - 1),
                        help="SMs of the device; one core is left to the jobs' own threads")
    parser.add_argument("--blocks-per-sm", type=int, default=0, help="for how many blocks the device says that an SM has room (0: as many as it says by itself)")
    parser.add_argument("--request-ms", type=float, default=8, help="what a request is to take alone; its work is scaled to that")
    parser.add_argument("--scale", type=float, default=0, help="of the work of a request, in place of that")
    parser.add_argument("--device", default="soft", choices=["soft", "gpu", "auto"])
    parser.add_argument("--reports", default="", help="folder for the jobs' own reports; all modes then run under tally-run")


def percentile(values, percent):
    """Between neighbours, as the server's own."""
    ordered = sorted(values)
    at = percent / 100 * (len(ordered) - 1)
    low = int(at)
    return ordered[low] + (at - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def median(values):
    return statistics.median(values) if values else None


def spread(values):
    return [min(values), max(values)] if values else None


def summary(values):
    return {"median": median(values), "spread": spread(values)}


def say(text):
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K" + text)
    else:
        sys.stderr.write(text + "\n")
    sys.stderr.flush()

"""CUDA programs of a checkout that the caller provides, as suites of scripts/suites: each folder with .cu files is a case.  It is
compiled by nvcc, to PTX only, and run as its own documentation has it; its exit status is its verdict."""
import os
import pathlib
import re
import shlex
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("TALLY_BUILD", ROOT / "build")).resolve()


def environment(more, scratch):
    """What a case's process gets: a device of its own, so that nobody else's work is met, and no words of make's."""
    env = {**os.environ, "TMPDIR": scratch, "PYTHONDONTWRITEBYTECODE": "1", "TALLY_DEVICE_NAME": f"tally-suite-{os.getpid()}",
           "TALLY_SOCKET": os.environ.get("TALLY_SOCKET", os.path.join(scratch, "tallyd.socket")), **more}
    for word in ("CC", "CXX", "MAKEFLAGS", "MAKELEVEL"):
        env.pop(word, None)
    return env


def stop(process):
    """Ends a process that leads a session, with its children."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


PATIENCE = 6  # so many times its limit may pass by the clock, on cores that others use too


def cpu_seconds(session):
    """What the processes of a session have computed, with those of their children that have ended."""
    ticks = 0
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has ended
        if int(fields[3]) == session:
            ticks += sum(int(f) for f in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


class Limit:
    """Seconds that a session may take for a case: of computing, or PATIENCE times as many by the clock."""

    def __init__(self, process, seconds):
        self.session, self.seconds = process.pid, seconds
        self.begin()

    def begin(self):
        self.since, self.cpu = time.monotonic(), cpu_seconds(self.session)

    def is_over(self, more=0):
        seconds = self.seconds + more
        clock = time.monotonic() - self.since
        return clock > PATIENCE * seconds or (clock > seconds and cpu_seconds(self.session) - self.cpu > seconds)


class Programs:
    """Programs below `folder`, in folders that fit `pattern`.  With `makefile`, the arguments are those of that target of the folder's
    own Makefile, which is read and not run."""

    batch = 1
    not_collected = ()
    paths = ()

    def __init__(self, name, checkout, folder, pattern="**", include=(), makefile=None):
        self.name, self.checkout, self.folder, self.pattern = name, checkout, folder, pattern
        self.include, self.makefile = list(include), makefile

    def missing(self):
        place = os.environ.get(self.checkout)
        if not place:
            return f"{self.checkout} does not say where its checkout is"
        if not any((pathlib.Path(place) / f).is_dir() for f in (self.folder, "cpp")):
            return f"there is no {self.folder} in {place}"
        return None

    def prepare(self):
        self.top = pathlib.Path(os.environ[self.checkout]).resolve()
        self.place = self.top / self.folder if (self.top / self.folder).is_dir() else self.top / "cpp"
        tool = subprocess.run([ROOT / "scripts/tool", "nvcc"], stdout=subprocess.PIPE, text=True, check=False)
        self.nvcc = tool.stdout.strip()
        return None if tool.returncode == 0 else "there is no nvcc"

    def version(self):
        return self.name

    def collect(self, scratch, options):
        folders = {f.parent for f in self.place.glob(f"{self.pattern}/*.cu")}
        names = sorted(str(f.relative_to(self.place)) for f in folders)
        return [n for n in names if not self.paths or n in self.paths]

    def arguments(self, folder):
        """What the Makefile's target runs the program with; nothing if that is not to be seen."""
        for name in ("Makefile", "GNUmakefile"):
            if self.makefile is not None and (folder / name).exists():
                text = (folder / name).read_text(encoding="utf-8", errors="replace")
                found = re.search(rf"^{self.makefile}:.*\n\t+(?:\$\(LAUNCHER\)\s*)?\./\S+[ \t]*(.*)$", text, re.M)
                return shlex.split(found.group(1)) if found and "$" not in found.group(1) else []
        return []

    def compile(self, folder, program):
        """Why it cannot be compiled, or None."""
        sources = [str(f) for ext in ("*.cu", "*.cpp", "*.cc") for f in sorted(folder.glob(ext))]
        include = [f"-I{self.top / d}" for d in self.include if (self.top / d).is_dir()]
        command = [self.nvcc, "-gencode", "arch=compute_80,code=compute_80", "-O2", "-std=c++17", "-w", *include, f"-I{folder}",
                   "-Xcompiler", "-fopenmp", *sources, "-o", program, "-lcuda"]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False)
        except subprocess.TimeoutExpired:
            return "nvcc takes longer than 600 s"
        return None if done.returncode == 0 else done.stdout[-2000:]

    def run(self, cases, scratch, options, seconds):
        case, program = cases[0], os.path.join(scratch, "program")
        folder = self.place / case
        why = self.compile(folder, program)
        if why is not None:
            return [{"case": case, "result": "skipped", "why": why}]
        begin, result = time.monotonic(), None
        command = [str(BUILD / "bin/tally-run"), "-q", "--device=soft", "-p", "high", *options, program, *self.arguments(folder)]
        with open(os.path.join(scratch, "output"), "w+", encoding="utf-8", errors="replace") as log:
            with subprocess.Popen(command, cwd=folder, env=environment({}, scratch), stdin=subprocess.DEVNULL, stdout=log,
                                  stderr=subprocess.STDOUT, start_new_session=True) as process:
                limit = Limit(process, seconds)
                while process.poll() is None and result is None:
                    try:
                        process.wait(timeout=1)
                    except subprocess.TimeoutExpired:
                        if limit.is_over():
                            stop(process)
                            result = "timed out"
            log.seek(0)
            output = log.read()
        status = process.returncode
        if result is None:
            wrong = status == 0 and re.search(r"\bFAIL(ED)?\b|\bmismatch\b", output)
            result = "crashed" if status < 0 or status in (132, 134, 135, 136, 139) else "failed" if status or wrong else "passed"
        return [{"case": case, "result": result, "why": output[-3000:], "seconds": round(time.monotonic() - begin, 1)}]

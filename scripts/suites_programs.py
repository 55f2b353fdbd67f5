"""CUDA programs of a checkout that the caller provides, as suites of scripts/suites: each folder with .cu files is a case.  It is
compiled by nvcc, to PTX only, and run as its own documentation has it; its exit status is its verdict."""
import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
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


@contextlib.contextmanager
def started(*what, **more):
    """A process in a session of its own, which ends with us if we are ended."""
    process = subprocess.Popen(*what, start_new_session=True, **more)
    try:
        yield process
    finally:
        if process.poll() is None:
            stop(process)


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


def own_seconds(process):
    """What the process's first thread has computed, which is no thread of the device's."""
    try:
        text = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0.0  # it has ended
    return sum(int(f) for f in text.rsplit(")", 1)[1].split()[11:13]) / os.sysconf("SC_CLK_TCK")


class Limit:
    """Seconds that a session may take for a case: of computing, or PATIENCE times as many by the clock."""

    def __init__(self, process, seconds):
        self.session, self.seconds = process.pid, seconds
        self.begin()

    def begin(self):
        self.since, self.cpu = time.monotonic(), cpu_seconds(self.session)

    def computed(self):
        return cpu_seconds(self.session) - self.cpu

    def is_over(self, more=0):
        seconds = self.seconds + more
        clock = time.monotonic() - self.since
        return clock > PATIENCE * seconds or (clock > seconds and self.computed() > seconds)


LIBRARIES = ["cublas", "cublasLt", "cufft", "curand", "cusolver", "cusparse", "nvrtc", "pthread", "rt", "m"]
SOURCES = (".cu", ".cpp", ".cc", ".c")
CRASHES = (132, 134, 135, 136, 139)
CHECKED = r"(?i)\bpass(ed)?\b|\bsuccess(ful(ly)?)?\b|\bcorrect\b|\berror rate\b|\bverif"
UNREAD = re.compile(r"No such file|(?i:(can(no|')t|could not|unable to|fail(ed)? to|error) (open|find|read|load))|(?i:cannot be opened)")
REPEATS = r"(number of )?(repeat|iteration|timestep|time step|passes|runs)"


def active_lines(text):
    """Lines of a Makefile that its `ifeq ($(NAME),word)` leave in; other conditions are taken for false."""
    values = dict(re.findall(r"^(\w+)\s*[:?]?=[ \t]*(\S*)[ \t]*$", text, re.M))
    lines, open_ones = [], []
    for line in text.splitlines():
        word = (line.split() or [""])[0]
        found = re.match(r"\s*(ifn?eq)\s*\(\s*\$[({](\w+)[)}]\s*,\s*(\w*)\s*\)", line)
        if word in ("ifeq", "ifneq", "ifdef", "ifndef"):
            open_ones.append(found is not None and (values.get(found.group(2), "") == found.group(3)) == (found.group(1) == "ifeq"))
        elif word == "else" and open_ones:
            open_ones[-1] = not open_ones[-1]
        elif word == "endif" and open_ones:
            open_ones.pop()
        elif all(open_ones):
            lines.append(line)
    return lines


class Programs:
    """Programs below `folder`, in folders that fit `pattern`.  With `makefile`, the sources, folders of headers and arguments are those that the
    folder's own Makefile has, the latter for that target; it is read and not run.  With `told`, a file of the checkout says for each
    program with which arguments it is run, once or several times, how many GPUs it wants, and whether it can be run without a
    screen.  `waived` is what programs end with that do not want to run on what they find."""

    batch = 1
    not_collected = ()
    paths = ()
    smaller = 0  # what numbers among the arguments of a program that timed out are divided by, and then by its square, for another try; 0: there is none
    repeats = 0  # at most so many repetitions where a program says which of its arguments is their number; 0: its own number

    def __init__(self, name, checkout, folder, pattern="**", include=(), makefile=None, told=None, waived=None):
        self.name, self.checkout, self.folder, self.pattern = name, checkout, folder, pattern
        self.include, self.makefile, self.told, self.waived = list(include), makefile, told, waived

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
        self.says = {}
        if self.told is not None and (self.top / self.told).exists():
            self.says = json.loads((self.top / self.told).read_text(encoding="utf-8"))
        tool = subprocess.run([ROOT / "scripts/tool", "nvcc"], stdout=subprocess.PIPE, text=True, check=False)
        self.nvcc = tool.stdout.strip()
        lib = pathlib.Path(self.nvcc).resolve().parent.parent / "lib64"
        self.libraries = [f"-l{n}" for n in LIBRARIES if n[:2] not in ("cu", "nv") or (lib / f"lib{n}.so").exists()]
        self.libraries += ["-Xlinker", str(BUILD / "lib/tally/device/libcuda.so.1")]  # toolkits from PyPI have no stub of the driver's library
        return None if tool.returncode == 0 else "there is no nvcc"

    def version(self):
        return self.name

    def collect(self, scratch, options):
        folders = {f.parent for f in self.place.glob(f"{self.pattern}/*.cu")}
        names = sorted(str(f.relative_to(self.place)) for f in folders)
        return [n for n in names if not self.paths or n in self.paths]

    def text(self, folder):
        """Its Makefile, lines that go on joined and variables of one word filled in; empty if that is not to be asked."""
        for name in ("Makefile", "GNUmakefile"):
            if self.makefile is not None and (folder / name).exists():
                text = re.sub(r"\\\n", " ", (folder / name).read_text(encoding="utf-8", errors="replace"))
                values = dict(re.findall(r"^(\w+)[ \t]*[:?]?=[ \t]*([^\s$#]+)[ \t]*$", text, re.M))
                return re.sub(r"\$[({](\w+)[)}]", lambda v: values.get(v[1], v[0]), text)
        return ""

    def flags(self, folder):
        """What its Makefile defines, as far as no variable is in it, what it allows beyond the language, and whether it wants OpenMP: some
        programs compile only without."""
        if self.makefile is None:
            return ["-Xcompiler", "-fopenmp"]
        text = "\n".join(active_lines(self.text(folder)))
        return (["-Xcompiler", "-fopenmp"] if "-fopenmp" in text else []) + re.findall(
            r"\s(-D\w+(?:=[^\s$]+)?|--expt-[a-z-]+|--extended-lambda|--?use_fast_math)(?=\s|$)", text)

    def arguments(self, folder):
        """A list for each run of the program."""
        says = self.says.get(folder.name, {})
        if "runs" in says:
            return [run.get("args", []) for run in says["runs"]]
        if "args" in says:
            return [says["args"]]
        found = re.search(rf"^{self.makefile}:.*\n(?:[ \t].*\n)*?\t+(?:\$\(LAUNCHER\)\s*)?\./\S+[ \t]*(.*)$", self.text(folder), re.M)
        return [shlex.split(found.group(1)) if found and "$" not in found.group(1) else []]

    def fewer(self, folder, arguments):
        """The arguments with no more repetitions than wanted, if the program's own message about its usage names that argument."""
        for source in self.sources(folder) if self.repeats else ():
            text = pathlib.Path(source).read_text(encoding="utf-8", errors="replace")
            for usage in re.findall(r"[Uu]sage[^;]*", text):
                names = re.findall(r"<([^<>\"]+)>", usage)
                for at, name in enumerate(names):
                    if len(names) == len(arguments) and re.match(REPEATS, name) and arguments[at].isdigit():
                        return [*arguments[:at], str(min(self.repeats, int(arguments[at]))), *arguments[at + 1:]]
        for at, name in enumerate(arguments[:-1]) if self.repeats else ():
            if re.match("--?" + REPEATS, name) and arguments[at + 1].isdigit():
                return [*arguments[:at + 1], str(min(self.repeats, int(arguments[at + 1]))), *arguments[at + 2:]]
        return arguments

    @staticmethod
    def divided(arguments, by):
        """The arguments with numbers that are likely sizes made smaller."""
        return [re.sub(r"(?<![\w.])\d{2,}$", lambda n: str(max(int(n[0]) // by, min(int(n[0]), 16))), a) for a in arguments]

    def sources(self, folder):
        """Those that the Makefile's `source` names if all of them are there; if it has none, what it names as a source or by its object and
        is there; else all of the folder."""
        text = self.text(folder)
        found = re.search(r"^source\s*[:+]?=[ \t]*(.+)$", text, re.M)
        named = [folder / f for f in found.group(1).split()] if found else []
        if named and all(f.suffix in SOURCES and f.exists() for f in named):
            return [str(f) for f in named]
        words = [] if found else re.findall(r"[\w+./-]+\.(?:cu|cpp|cc|c|o)\b", text)
        named = {(folder / w).resolve(): None for word in words for w in ([word] if word[-2:] != ".o" else [word[:-2] + s for s in SOURCES])}
        if any(f.suffix == ".cu" and f.is_file() for f in named):
            return [str(f) for f in named if f.is_file() and f.is_relative_to(self.place)]
        return [str(f) for ext in ("*.cu", "*.cpp", "*.cc") for f in sorted(folder.glob(ext))]

    def compile(self, folder, program):
        """Why it cannot be compiled, or None."""
        include = [f"-I{self.top / d}" for d in self.include if (self.top / d).is_dir()]
        include += [f"-I{folder / d}" for d in re.findall(r"-I\s*([\w./-]+)", self.text(folder)) if (folder / d).is_dir()]
        command = [self.nvcc, "-gencode", "arch=compute_80,code=compute_80", "-O2", "-std=c++17", "-w", *include, f"-I{folder}",
                   *self.flags(folder), *self.sources(folder), "-o", program, "-Xlinker", "--as-needed", *self.libraries]
        why, whole, apart = "", [], ["-rdc=true", "-lcudadevrt"]
        says_so = re.search(r"\s(-rdc=true|--?relocatable-device-code=true|-dc)\b", self.text(folder))
        for more in [apart] if says_so else [whole, apart]:  # most do without; those that kernels launch from, or that have several files, do not
            try:
                done = subprocess.run(command + more, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False)
            except subprocess.TimeoutExpired:
                return "nvcc takes longer than 600 s"
            if done.returncode == 0:
                return None
            why = why or done.stdout[-2000:]
            if not re.search(r"separate compilation|rdc|Unresolved extern", done.stdout):
                break
        return why

    @staticmethod
    def uses_device(scratch, options):
        """A program of CUDA has no other way."""
        return None

    def lacks(self, folder):
        """Why a program is not to be run here, by the checkout's own word, or None."""
        says = self.says.get(folder.name, {})
        if says.get("skip"):
            return f"{self.told} says that it is not to be run"
        return f"wants {says['min_gpus']} GPUs" if says.get("min_gpus", 1) > 1 else None

    def place_of(self, folder, scratch):
        """A copy of the folder to run in, because programs write beside themselves; its neighbours, whose data some read, are links.  With what its
        CMakeLists.txt puts beside the program: a fatbin or PTX that it loads, and headers of the toolkit that it gives to NVRTC."""
        around = pathlib.Path(scratch) / "run"
        shutil.rmtree(around, ignore_errors=True)
        around.mkdir()
        for other in folder.parent.iterdir():
            if other != folder:
                (around / other.name).symlink_to(other)
        copy = around / folder.name
        shutil.copytree(folder, copy, symlinks=True)
        for name in re.findall(r"^\t+mkdir (?:-p )?(\w+)$", self.text(folder), re.M):
            (copy / name).mkdir(exist_ok=True)
        listing = folder / "CMakeLists.txt"
        text = listing.read_text(encoding="utf-8", errors="replace") if self.told is not None and listing.exists() else ""
        headers = re.findall(r"\$\{CUDA_INCLUDE_DIR\}/([\w./]+)", text)
        module, source = (re.search(rf"set\({name} \"[^\"]*/([\w.]+)\"\)", text) for name in ("CUDA_(?:FATBIN|PTX)_FILE", "CUDA_KERNEL_SOURCE"))
        for header in headers:
            (copy / pathlib.Path(header).name).symlink_to(pathlib.Path(self.nvcc).resolve().parent.parent / "include" / header)
        if module and source:
            include = [f"-I{self.top / d}" for d in self.include if (self.top / d).is_dir()]
            subprocess.run([self.nvcc, "-gencode", "arch=compute_80,code=compute_80", *include, "-w", "-" + module.group(1).rsplit(".", 1)[1],
                            "-o", copy / module.group(1), copy / source.group(1)], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=False)
        return copy

    def run(self, cases, scratch, options, seconds):
        case, program = cases[0], os.path.join(scratch, "program")
        folder = self.place / case
        why = self.lacks(folder) or self.compile(folder, program)
        if why is not None:
            return [{"case": case, "result": "skipped", "why": why}]
        begin = time.monotonic()
        command = [str(BUILD / "bin/tally-run"), "-q", "--device=soft", "-p", "high", *options, program]
        where = self.place_of(folder, scratch)
        row, is_smaller = {"case": case}, False
        for arguments in self.arguments(folder):
            fewer = self.fewer(folder, arguments)
            row.update(self.run_once(command + fewer, where, scratch, seconds, self.waived), arguments=fewer)
            if fewer != arguments:
                row["own_arguments"] = arguments
                if row["result"] in ("failed", "crashed"):  # is it for want of repetitions?
                    row.update(self.run_once(command + arguments, where, scratch, seconds, self.waived), arguments=arguments)
            tried = fewer
            for by in (self.smaller, self.smaller ** 2) if self.smaller else ():
                less = self.divided(fewer, by)
                if row["result"] == "timed out" and less != tried:
                    again = self.run_once(command + less, where, scratch, seconds, self.waived)
                    if again["result"] == "passed":  # what fails so may only not be made for it
                        row.update(again, arguments=less, own_arguments=arguments)
                        is_smaller = True
                tried = less
            if row["result"] != "passed":
                break
        lost = self.lost(where, row)
        if lost and row["result"] in ("passed", "failed", "crashed"):
            row.update(result="skipped", why=f"the checkout has no {lost}\n{row['why']}")
        elif is_smaller and row["result"] == "passed":
            row["result"] = "smaller"
        return [{**row, "seconds": round(time.monotonic() - begin, 1)}]

    @staticmethod
    def lost(where, row):
        """A file that the program was to read and the checkout has not: then its verdict says nothing.  What it writes is there by now."""
        said = [line for line in row["why"].splitlines() if UNREAD.search(line)]
        words = [w for w in row["arguments"] if "/" in w or re.search(r"\.[a-z]{2,6}$", w) or any(w in re.findall(r"[^\s.,:]+", line) for line in said)]
        for word in words + [w for line in said for w in re.findall(r"[\w.+-]+/[\w./+-]*\w|[\w-]+\.[a-z]{2,6}\b", line)]:
            if " " not in word and not word.startswith("/") and not (where / word).exists() and (row["result"] != "passed" or said):
                return word
        if row["result"] in ("failed", "crashed"):  # what it opens by a name of its own, and does not tell
            for kept in [*where.glob("*.dvc"), *where.parent.glob(where.name.rsplit("-", 1)[0] + "-*/*.dvc")]:
                if not kept.with_suffix("").exists():
                    return kept.with_suffix("").name
        return None

    @staticmethod
    def run_once(command, folder, scratch, seconds, waived):
        """How a program ended, and what it said."""
        result = None
        with open(os.path.join(scratch, "output"), "w+", encoding="utf-8", errors="replace") as log:
            with started(command, cwd=folder, env=environment({}, scratch), stdin=subprocess.DEVNULL, stdout=log,
                         stderr=subprocess.STDOUT) as process:
                limit, cpu, own = Limit(process, seconds), 0.0, 0.0
                while process.poll() is None and result is None:
                    try:
                        process.wait(timeout=1)
                    except subprocess.TimeoutExpired:
                        cpu, own = limit.computed(), own_seconds(process)
                        if limit.is_over():
                            stop(process)
                            result = "timed out"
            log.seek(0)
            output = log.read()
        status = process.returncode
        if result is None:
            wrong = status == 0 and re.search(r"\bFAIL(ED)?\b|\bmismatch\b", output)
            result = "crashed" if status < 0 or status in CRASHES else "failed" if status or wrong else "passed"
            if status == waived:
                result = "skipped"
        return {"result": result, "status": status, "cpu": round(cpu, 1), "own": round(own, 1), "checked": bool(re.search(CHECKED, output)), "why": output[-3000:]}

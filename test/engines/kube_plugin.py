"""Tests tally-device-plugin against a stand-in kubelet (test/engines/kube.sh calls it).

usage: kube_plugin.py BUILD FOLDER NVML     NVML is the library of nvml_standin.c
"""
import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time

import grpc

import kubelet as stand_in

build, folder, nvml = (os.path.abspath(path) for path in sys.argv[1:4])
here = os.path.dirname(os.path.abspath(__file__))
messages, services = stand_in.generate(os.path.join(here, "../../runtime/tally-device-plugin/device_plugin.proto"), folder)
GIB = 1 << 30
checks = 0
tallyd_socket = os.path.join(folder, "run", "tallyd.sock")
environment = {**os.environ, "TALLY_SOCKET": tallyd_socket, "TALLY_DEVICE_NAME": f"tally-kube-{os.getpid()}",
               "TALLY_DEVICE_MEM": "6G", "TALLY_DEVICES": "2", "NVML_STANDIN": os.path.join(folder, "nvml"),
               "XDG_CACHE_HOME": os.path.join(folder, "cache")}


def expect(what, got, wanted):
    global checks
    checks += 1
    if got != wanted:
        sys.exit(f"FAIL {what}: got {got!r}, wanted {wanted!r}")


def refused(what, status, part, call, *arguments):
    """The call fails in that way, with that part in its text."""
    try:
        call(*arguments)
    except grpc.RpcError as error:
        expect(f"{what}: status", error.code(), status)
        expect(f"{what}: '{part}' in '{error.details()}'", part in error.details(), True)
        return
    sys.exit(f"FAIL {what}: it was not refused")


def wait_for(what, condition):
    until = time.monotonic() + stand_in.PATIENCE
    while not condition():
        if time.monotonic() > until:
            sys.exit(f"FAIL {what} did not happen")
        time.sleep(0.02)


class Process:
    """A program of ours, with what it says in a file."""

    def __init__(self, name, *arguments, **more):
        self.log = os.path.join(folder, f"{name}.log")
        self.process = subprocess.Popen([os.path.join(build, "bin", name), *arguments], env={**environment, **more},
                                        stderr=open(self.log, "ab"), stdout=subprocess.DEVNULL)

    def said(self, part):
        with open(self.log, encoding="utf-8") as file:
            return part in file.read()

    def end(self):
        self.process.terminate()
        return self.process.wait(stand_in.PATIENCE)

    def kill(self):
        self.process.kill()
        self.process.wait()


def start_tallyd():
    tallyd = Process("tallyd", "--idle=0")
    wait_for("tallyd", lambda: os.path.exists(tallyd_socket))
    return tallyd


@contextlib.contextmanager
def plugin(kubelet, *arguments):
    """A plugin that is registered, and ends as it should."""
    process = Process("tally-device-plugin", f"--kubelet-dir={kubelet.folder}", "--check=50ms", *arguments)
    process.resources = kubelet.registrations(0 if "--high=0" in arguments else 3)
    try:
        yield process
    finally:
        expect("the plugin ends in order", process.end(), 0)
    expect("it leaves no socket", [n for n in os.listdir(kubelet.folder) if n.startswith("tally-")], [])


def jobs():
    answer = subprocess.run([f"{build}/bin/tally", "ps", "--json", f"--socket={tallyd_socket}"], check=True, capture_output=True)
    return json.loads(answer.stdout)["clients"]


def mounts_of(answer):
    return {m.container_path: (m.host_path, m.read_only) for m in answer.mounts}


# --- the tests ------------------------------------------------------------------------------------


def test_devices(resources):
    """What kubelet is told of the software devices: two of 6 GiB."""
    expect("resources", sorted(resources), ["tally.dev/high", "tally.dev/low", "tally.dev/memory"])
    for name, per_gpu in (("tally.dev/high", 1), ("tally.dev/low", 8), ("tally.dev/memory", 6)):
        one = resources[name]
        expect("version", one.request.version, "v1beta1")
        expect("endpoint", one.request.endpoint, name.replace("tally.dev/", "tally-") + ".sock")
        options = one.stub.GetDevicePluginOptions(messages.Empty(), timeout=60)
        expect("options", options, one.request.options)
        expect("options say", (options.pre_start_required, options.get_preferred_allocation_available), (True, True))
        devices = one.watch().next()
        expect("devices of " + name, len(devices), 2 * per_gpu)
        expect("GPUs of " + name, len({device.split("::")[0] for device in devices}), 2)
        expect("health of " + name, set(devices.values()), {"Healthy"})
        expect("the socket is ours alone", os.stat(one.socket).st_mode & 0o777, 0o600)


def in_container(answers, command):
    """Starts a program as a container runtime would: with these variables, and these mounts in a namespace of its own, apart from others'
    System V memory too."""
    lines = ["set -e", "mount --make-rprivate /"]
    mounts = {to: of for answer in answers for to, of in mounts_of(answer).items()}
    for number, (source, _) in enumerate(mounts.values()):  # before anything is covered
        stage = os.path.join(folder, f"stage{number}")
        lines += [f"if [ -d {source} ]; then mkdir -p {stage}; else touch {stage}; fi", f"mount --bind {source} {stage}"]
    over = os.path.join(folder, "over")
    lines += [f"mkdir -p {over}", f"mount -t tmpfs none {over}", f"mkdir {over}/up {over}/work",
              f"mount -t overlay -o lowerdir=/etc,upperdir={over}/up,workdir={over}/work none /etc",
              "mount -t tmpfs none /opt", "mount -t tmpfs none /run"]
    for number, (to, (source, is_read_only)) in enumerate(mounts.items()):
        stage = os.path.join(folder, f"stage{number}")
        lines += [f"if [ -d {stage} ]; then mkdir -p {to}; else touch {to}; fi", f"mount --bind {stage} {to}"]
        if is_read_only:
            lines.append(f"mount -o remount,bind,ro {to}")
    lines.append('exec env -i "$@"')
    bare = {n: v for n, v in environment.items() if n in ("PATH", "TALLY_DEVICE_NAME", "TALLY_DEVICE_MEM", "TALLY_DEVICES", "XDG_CACHE_HOME")}
    given = [f"{n}={v}" for answer in answers for n, v in answer.envs.items()]
    unshare = ["unshare", "-mi"] if os.getuid() == 0 else ["unshare", "-rmi"]
    return subprocess.Popen([*unshare, "bash", "-c", "\n".join(lines), "bash", *[f"{n}={v}" for n, v in bare.items()], *given, *command],
                            stdout=subprocess.DEVNULL)


def test_a_container(resources):
    """What Allocate gives is enough: a program that knows nothing of Tally has that level, that limit and that device."""
    high, memory = resources["tally.dev/high"], resources["tally.dev/memory"]
    slot = high.allocate(high.devices()[1])
    units = memory.allocate(*memory.devices()[6:9])
    expect("level", slot.envs["TALLY_PRIORITY"], "high")
    expect("memory", int(units.envs["TALLY_MEMORY"]), 3 * GIB)
    expect("device", slot.envs["CUDA_VISIBLE_DEVICES"], "1")
    expect("mounts", mounts_of(slot), {"/opt/tally": (build, True), "/etc/ld.so.preload": (f"{build}/lib/tally/ld.so.preload", True),
                                       "/run/tally": (os.path.dirname(tallyd_socket), True), "/dev/shm": ("/dev/shm", False)})
    expect("the same mounts for memory", mounts_of(units), mounts_of(slot))
    both = {name for name in slot.envs if name in units.envs}
    expect("no contradiction", {n: slot.envs[n] for n in both}, {n: units.envs[n] for n in both})
    expect("no CDI unless asked for", (len(slot.cdi_devices), len(slot.annotations)), (0, 0))
    started = []

    def start(answers):
        job = in_container(answers, [f"{build}/workloads/jobs/train", "--kind=mixed", "--seconds=600"])
        started.append(job)
        wait_for("the job on its GPU", lambda: any(j["pid"] == job.pid and j["memory_bytes"] > 0 for j in jobs()))
        (seen,) = [j for j in jobs() if j["pid"] == job.pid]
        return seen

    try:
        seen = start([slot, units])
        expect("level of the job", seen["level"], 100)
        expect("limit of the job", seen["memory_limit_bytes"], 3 * GIB)
        expect("GPU of the job", [f"GPU-{uuid}" if not uuid.startswith("GPU-") else uuid for uuid in seen["gpus"]],
               [high.devices()[1].split("::")[0]])
        low = resources["tally.dev/low"]  # another container finds that very device
        beside = start([low.allocate([d for d in low.devices() if d.split("::")[0] == high.devices()[1].split("::")[0]][0])])
        expect("level and GPU beside it", (beside["level"], beside["gpus"]), (-100, seen["gpus"]))
    finally:
        for job in started:
            job.kill()
            job.wait()


def test_refusals(resources):
    low, memory = resources["tally.dev/low"], resources["tally.dev/memory"]
    bad = grpc.StatusCode.INVALID_ARGUMENT
    first = low.devices()[0]
    gpu = first.split("::")[0]
    for device in ("", "nonsense", gpu, f"{gpu}::", f"{gpu}::8", f"{gpu}::01", f"{gpu}::-1", f"{gpu}::99999999999999999999", f"{gpu}::1x"):
        refused(f"device '{device}'", bad, "has no device", low.allocate, device)
        refused(f"start with '{device}'", bad, "has no device", low.before_start, device)
    refused("no device", bad, "0 devices", low.allocate)
    refused("more than there are", bad, "17 devices", low.allocate, *[first] * 17)
    refused("prefer more than there are", bad, "3 devices are asked for, of 2", low.prefer, low.devices()[:2], 3)
    refused("prefer fewer than none", bad, "-1 devices", low.prefer, low.devices(), -1)
    refused("prefer with what is not there", bad, "is not available", low.prefer, low.devices()[:2], 1, low.devices()[3:4])
    expect("prefer of the same twice", len(low.prefer([first] * 4, 3)), 3)
    raw = low.channel.unary_unary("/v1beta1.DevicePlugin/Allocate")
    refused("not protobuf", bad, "not an AllocateRequest", raw, b"\xff" * 40)
    refused("a large message", grpc.StatusCode.RESOURCE_EXHAUSTED, "524288 bytes", raw, b"\0" * 600000)
    refused("another method", grpc.StatusCode.UNIMPLEMENTED, "/v1beta1.DevicePlugin/Else",
            low.channel.unary_unary("/v1beta1.DevicePlugin/Else"), b"")
    refused("compressed", grpc.StatusCode.UNIMPLEMENTED, "compressed",
            lambda: raw(b"\x0a\x02\x0a\x00" * 99, compression=grpc.Compression.Gzip))
    empty = low.stub.Allocate(messages.AllocateRequest(), timeout=60)
    expect("no container, no answer", len(empty.container_responses), 0)
    expect("memory knows no slot", memory.devices()[5] in low.devices(), True)


def test_preferences(resources):
    """Slots are spread over GPUs, memory is kept on one."""
    low, memory = resources["tally.dev/low"], resources["tally.dev/memory"]
    slots, units = low.devices(), memory.devices()
    first, second = slots[0].split("::")[0], slots[-1].split("::")[0]

    def gpus(devices):
        return [device.split("::")[0] for device in devices]

    expect("two slots", sorted(gpus(low.prefer(slots, 2))), [first, second])
    expect("one where most are free", gpus(low.prefer(slots[3:], 1)), [second])
    expect("with what must be there", sorted(gpus(low.prefer(slots, 2, slots[:1]))), [first, second])
    expect("all of them", sorted(low.prefer(slots, 16)), sorted(slots))
    expect("memory of the fuller GPU", set(gpus(memory.prefer(units[2:], 4))), {first})
    expect("or of the other, if it must", set(gpus(memory.prefer(units[3:], 4))), {second})
    expect("or of both", len(memory.prefer(units[3:], 8)), 8)


def test_health(resources, tallyd):
    """A tallyd that is gone is told to who watches, and holds containers up; both end when it is back."""
    watches = [one.watch() for one in resources.values()]
    slot = resources["tally.dev/low"].devices()[0]
    resources["tally.dev/low"].before_start(slot)
    tallyd.kill()
    for watch in watches:
        watch.until("Unhealthy")
    refused("a start without tallyd", grpc.StatusCode.FAILED_PRECONDITION, "no tallyd on this node",
            resources["tally.dev/low"].before_start, slot)
    tallyd = start_tallyd()
    for watch in watches:
        watch.until("Healthy")
    resources["tally.dev/low"].before_start(slot)
    return tallyd


def test_another_kubelet(kubelet, process):
    """kubelet restarts, in all ways: it is told again, on sockets that are there again."""
    for how in ("restart", "socket", "folder", "sockets"):
        if how == "sockets":  # ours alone
            for name in ("tally-high.sock", "tally-low.sock", "tally-memory.sock"):
                os.unlink(os.path.join(kubelet.folder, name))
        else:
            kubelet.stop()
            if how == "folder":
                os.rename(kubelet.folder, kubelet.folder + ".old")
                shutil.rmtree(kubelet.folder + ".old")
            elif how == "socket":
                os.rename(kubelet.folder + "/tally-high.sock", kubelet.folder + "/../kept")
            kubelet.refusals = 2 if how == "restart" else 0
            kubelet.start()
        names = set()
        while len(names) < 3:
            (one,) = kubelet.registrations(1).values()
            with contextlib.suppress(grpc.RpcError):  # it may have been told before the socket went
                if set(one.watch().next().values()) == {"Healthy"}:
                    names.add(one.resource)
        if how == "restart":
            expect("what a refusal says", process.said("kubelet says 13, not now: 100 % busy"), True)
        expect(how, names, {"tally.dev/high", "tally.dev/low", "tally.dev/memory"})
    while not kubelet.asked.empty():
        kubelet.asked.get()


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"


def frame(kind, flags, stream, body):
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


def hostile_bytes(chance):
    """What somebody may send who means no good."""
    noise = chance.randbytes(chance.randrange(1, 3000))
    yield noise
    yield b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    yield PREFACE[:chance.randrange(1, len(PREFACE))]
    yield PREFACE + noise
    yield PREFACE + SETTINGS + b"".join(
        frame(chance.randrange(12), chance.randrange(256), chance.randrange(6), chance.randbytes(chance.randrange(60))) for _ in range(40))
    yield PREFACE + SETTINGS * 3000
    yield PREFACE + SETTINGS + frame(6, 0, 0, bytes(8)) * 3000  # pings
    # Calls that begin and never end, more than are allowed.
    head = bytes([0x83, 0x86]) + b"\x44\x05/none" + b"\x41\x01x"
    yield PREFACE + SETTINGS + b"".join(frame(1, 4, stream, head) for stream in range(1, 401, 2))
    # The same, each taken back at once.
    yield PREFACE + SETTINGS + b"".join(frame(1, 4, s, head) + frame(3, 0, s, b"\0\0\0\x08") for s in range(1, 4001, 2))
    yield PREFACE + SETTINGS + frame(1, 5, 1, b"\xff" * 200)  # headers that cannot be unpacked
    yield PREFACE + SETTINGS + b"\xff\xff\xff\0\0\0\0\0\x01" + noise  # a frame of 16 MB


def rss_kb(process):
    with open(f"/proc/{process.process.pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def test_hostile(process, resources):
    """Nothing that is sent stops the plugin, costs much, or keeps kubelet, who watches, from being told."""
    chance = random.Random(7)
    low = resources["tally.dev/low"]
    watch = low.watch()
    watch.until("Healthy")
    before = None
    for round_ in range(30):
        kept = []
        for sent in hostile_bytes(chance):
            peer = socket.socket(socket.AF_UNIX)
            peer.settimeout(5)
            peer.connect(low.socket)
            with contextlib.suppress(OSError):
                peer.sendall(sent)
                if chance.random() < 0.5:
                    peer.shutdown(socket.SHUT_WR)
                    while peer.recv(65536):
                        pass
            kept.append(peer)
        expect("somebody new is served", len(low.devices()), 16)
        for peer in kept:
            peer.close()
        if round_ == 9:
            before = rss_kb(process)
    # The system's allocator may keep some; 20 rounds of what is sent are 4 MB.  A sanitizer's keeps all for a while.
    with open(f"/proc/{process.process.pid}/maps", encoding="utf-8") as file:
        is_sanitized = "libasan" in file.read()
    expect("memory does not grow", is_sanitized or rss_kb(process) < before + 2048, True)
    expect("it runs", process.process.poll(), None)
    expect("kubelet's own watch was not given up", watch.call.is_active(), True)


def test_many_at_once(resources):
    """Eight threads that call all methods get right answers."""
    low = resources["tally.dev/low"]
    slots = low.devices()
    failures = []

    def work(seed):
        chance = random.Random(seed)
        for _ in range(100):
            some = chance.sample(slots, chance.randrange(1, 6))
            answer = low.allocate(*some)
            gpus = {str(0 if s.split("::")[0] == slots[0].split("::")[0] else 1) for s in some}
            if set(answer.envs["CUDA_VISIBLE_DEVICES"].split(",")) != gpus or len(low.prefer(some, len(some))) != len(some):
                failures.append(some)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect("answers", failures, [])


def test_cdi_and_gpus(kubelet):
    """On (stand-ins for) GPUs: what is lost is unhealthy, what is partitioned is not offered; names of CDI devices."""
    def state(text):
        with open(environment["NVML_STANDIN"], "w", encoding="utf-8") as file:
            file.write(text)

    state("")
    options = ("--device=gpu", f"--nvml={nvml}", "--inject=cdi", "--gpu-cdi=nvidia.com/gpu", "--high=2", "--memory-keep=1G",
               "--memory-unit=512M", "--tally=/opt/tally")
    with plugin(kubelet, *options) as process:
        high, memory = process.resources["tally.dev/high"], process.resources["tally.dev/memory"]
        expect("slots", len(high.devices()), 4)
        expect("memory", len(memory.devices()), 14 + 6)
        uuids = sorted({device.split("::")[0] for device in high.devices()})
        one = high.allocate(high.devices()[3])
        names = ["nvidia.com/gpu=" + uuids[1], "tally.dev/gpu=high"]
        expect("as fields", sorted(device.name for device in one.cdi_devices), names)
        expect("as annotations", dict(one.annotations), {"cdi.k8s.io/tally-gpu-1": names[0], "cdi.k8s.io/tally": names[1]})
        expect("variables", dict(one.envs), {"TALLY_PRIORITY": "high", "NVIDIA_VISIBLE_DEVICES": uuids[1]})
        expect("mounts", len(one.mounts), 0)
        expect("memory", dict(memory.allocate(*memory.devices()[:3]).envs), {"TALLY_MEMORY": str(3 << 29)})
        watch = high.watch()
        watch.until("Healthy")
        state("lost 1")
        seen = watch.until("Healthy Unhealthy")
        expect("the one that is lost", {d for d, health in seen.items() if health == "Unhealthy"},
               {device for device in high.devices() if device.startswith(uuids[1])})
        refused("a start there", grpc.StatusCode.FAILED_PRECONDITION, "does not answer", high.before_start, high.devices()[3])
        high.before_start(high.devices()[0])
        state("")
        watch.until("Healthy")
    state("mig 0")
    with plugin(kubelet, "--device=gpu", f"--nvml={nvml}", "--mps=/run/mps") as process:
        expect("what is partitioned is not offered", len(process.resources["tally.dev/high"].devices()), 1)
        expect("and it is said", process.said("is partitioned (MIG)"), True)
        low = process.resources["tally.dev/low"]
        one = low.allocate(low.devices()[0])
        expect("mounts on a GPU", sorted(mounts_of(one)), ["/etc/ld.so.preload", "/opt/tally", "/run/mps", "/run/tally"])
        expect("MPS", one.envs["CUDA_MPS_PIPE_DIRECTORY"], "/run/mps")
    state("")


def test_wrong_commands():
    for arguments, part in ((["--high=x"], "from 0 to 1000"), (["--memory-unit=1K"], "at least 1M"), (["--inject=magic"], "mounts or cdi"),
                            (["--gpu-cdi=gpu"], "nvidia.com/gpu"), (["more"], "is not an option"), (["--check=soon"], "a time such as 5s"),
                            (["--socket=here"], "a path from /")):
        answer = subprocess.run([f"{build}/bin/tally-device-plugin", *arguments], env=environment, capture_output=True, text=True)
        expect(f"{arguments}: status", answer.returncode, 2)
        expect(f"{arguments}: '{part}' in {answer.stderr}", part in answer.stderr, True)
    for arguments, part in ((["--high=0", "--low=0", "--memory-unit=none"], "nothing is offered"),
                            (["--device=gpu", "--nvml=/nonexistent"], "NVML cannot be opened"), (["--memory-unit=1M"], "larger --memory-unit"),
                            (["--kubelet-dir=/" + "x" * 100], "too long"), (["--tally=here"], "a path from /")):
        answer = subprocess.run([f"{build}/bin/tally-device-plugin", "--device=soft", *arguments], env=environment, capture_output=True,
                                text=True)
        expect(f"{arguments}: status", answer.returncode, 1)
        expect(f"{arguments}: '{part}' in {answer.stderr}", part in answer.stderr, True)


def main():
    os.makedirs(os.path.dirname(tallyd_socket))
    test_wrong_commands()
    tallyd = start_tallyd()
    kubelet = stand_in.Kubelet(os.path.join(folder, "kubelet"), messages, services)
    kubelet.start()
    try:
        with plugin(kubelet, "--device=soft") as process:
            test_devices(process.resources)
            test_a_container(process.resources)
            test_refusals(process.resources)
            test_preferences(process.resources)
            test_many_at_once(process.resources)
            test_hostile(process, process.resources)
            tallyd = test_health(process.resources, tallyd)
            test_another_kubelet(kubelet, process)
        test_cdi_and_gpus(kubelet)
    finally:
        tallyd.end()
        kubelet.stop()
    print(f"{checks} checks of the device plugin")


main()

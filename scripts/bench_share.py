"""What a trainer has of the time that a server leaves, as the device and the processors' clocks tell it; for bench-isolation.

The trainer's speed over its speed alone says the same, but a machine that others share computes a tenth faster or slower from one second
to the next.  So it is taken apart:

  had         of the time that the server does not have the device's SMs, the part in which the trainer has them
  rewriting   what its kernels compute longer, by the processors' clocks, while a job above is there that does nothing: against the same
              trainer without Tally, in turns of a few tenths of a second, so that both meet the same machine

The share is had / rewriting.  What the other job's data drive out of the caches is not in it: that is the price of taking turns.
"""
import glob
import os
import signal
import struct
import time

WAITS_MAGIC = 0x5374696157796C54
TURN_S = 0.25  # less than the half second after which the device sets aside who is stopped


def held_ns(folder, pid):
    """How long a process has had SMs so far (device/exec/waits.h), or None if the device does not tell."""
    paths = glob.glob(os.path.join(folder, f"*.{pid}.waits"))
    if not paths:
        return None
    held = 0
    for path in paths:
        with open(path, "rb") as f:
            magic, _, _, ns = struct.unpack("<4Q", f.read(32))
        if magic != WAITS_MAGIC:
            return None
        held += ns
    return held


class Had:
    """What the trainer has of an interval, of what the server leaves."""

    def __init__(self, folder, sms, server, trainer):
        self.folder, self.sms, self.pids = folder, sms, (server, trainer)
        self.begin, self.held = time.monotonic_ns(), self._held()

    def _held(self):
        return [held_ns(self.folder, pid) for pid in self.pids]

    def end(self):
        """The part, or None if the device does not tell, or nothing was left."""
        wall, held = (time.monotonic_ns() - self.begin) * self.sms, self._held()
        if None in held or None in self.held:
            return None
        server, trainer = (now - then for now, then in zip(held, self.held))
        return trainer / (wall - server) if wall > server else None


def computed_ns(pid):
    """Processor time of the threads that are a process's SMs."""
    ns = 0
    for task in glob.glob(f"/proc/{pid}/task/*"):
        try:
            with open(os.path.join(task, "comm"), encoding="ascii") as f:
                if not f.read().startswith("tally-sm"):
                    continue
            with open(os.path.join(task, "schedstat"), encoding="ascii") as f:
                ns += int(f.read().split()[0])
        except OSError:
            continue  # it has just ended
    return ns


def rewriting(plain, tally, seconds):
    """How much longer a step of the trainer `tally` computes than one of `plain`, both under way; each computes for so many seconds."""
    jobs, at = (plain, tally), []
    try:
        for job in jobs:
            job.process.send_signal(signal.SIGSTOP)
        for job in jobs:  # one at a time, from a step that is done to another
            job.process.send_signal(signal.SIGCONT)
            at.append((job.steps(), computed_ns(job.process.pid)))
            job.process.send_signal(signal.SIGSTOP)
        for turn in range(2 * max(1, round(seconds / TURN_S))):
            job = jobs[turn % 2]
            job.process.send_signal(signal.SIGCONT)
            time.sleep(TURN_S)
            job.process.send_signal(signal.SIGSTOP)
        per_step = []
        for job, (steps, ns) in zip(jobs, at):
            job.process.send_signal(signal.SIGCONT)
            done = job.steps()
            per_step.append((computed_ns(job.process.pid) - ns) / (done - steps))
            job.process.send_signal(signal.SIGSTOP)
        return per_step[1] / per_step[0]
    finally:
        for job in jobs:
            job.end()

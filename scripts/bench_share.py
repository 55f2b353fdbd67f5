"""What a trainer has of the time that a server leaves, as the device and the processors' clocks tell it; for bench-isolation.

The trainer's speed over its speed alone says the same, but a machine that others share computes a tenth faster or slower from one second
to the next.  So it is taken apart:

  had         of the time in which no request is served, the part in which the trainer has the device's SMs, over the same part alone;
              what requests lost to it counts as time that was left
  rewriting   what its kernels compute longer, by the processors' clocks, while a job above is there that does nothing: against the same
              trainer without Tally, in turns of a quarter of a second, so that both meet the same machine.  One process may be faster
              than another for as long as it lives, by where its memory lies: the median of several is taken

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


class Held:
    """How long a process has SMs in an interval, and which one that is, in ns of CLOCK_MONOTONIC."""

    def __init__(self, folder, pid):
        self.folder, self.pid = folder, pid
        self.begin, self.then = time.monotonic_ns(), held_ns(folder, pid)

    def end(self):
        """(begin, end, held), or None if the device does not tell."""
        now, held = time.monotonic_ns(), held_ns(self.folder, self.pid)
        return None if held is None or self.then is None else (self.begin, now, held - self.then)


def had(interval, requests, lost, sms):
    """The part that a trainer has of what requests (arrival, begin, end) leave of an interval; `lost` are spans that they waited for it.
    None if they leave nothing."""

    def within(spans):
        return sum(max(0, min(e, end) - max(b, begin)) for b, e in spans)

    begin, end, held = interval
    served = [(b, e) for _, b, e in requests]
    taken = within(served) - sum(within([(max(b, sb), min(e, se))]) for b, e in lost for sb, se in served if b < se and sb < e)
    left = sms * (end - begin - taken)
    return held / left if left > 0 else None


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

"""Servers and trainers under a load of some seconds, for scripts of this folder that measure rather than compare.

Both say in a line on standard error when they are under way, and end with a line of JSON.  A server takes requests that arrive by a
clock of their own, wait their turn, and whose latency counts from the arrival.  A trainer goes on until its time is over or SIGTERM;
SIGUSR1 is when its speed begins to count, and when it says how many steps it has done, in another such line.
"""
import json
import random
import signal
import sys
import time


def add_server_arguments(parser):
    parser.add_argument("--seconds", type=float, default=0, help="serve for that long, requests arriving at random, and print what was measured")
    parser.add_argument("--load", type=float, default=0.5, help="requests a second as a part of what is possible")
    parser.add_argument("--seed", type=int, default=1, help="of the arrivals")
    parser.add_argument("--requests", help="file for when each request arrived, was begun and ended: nanoseconds of CLOCK_MONOTONIC, a line each")


def add_trainer_arguments(parser):
    parser.add_argument("--seconds", type=float, default=0, help="train on the GPU for that long, and print what was measured")


def percentile(values, part):
    """Between neighbours."""
    ordered = sorted(values)
    at = part * (len(ordered) - 1)
    low = int(at)
    return ordered[low] + (at - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def arrivals(rate, seconds, seed):
    rng = random.Random(seed)
    times, t = [], rng.expovariate(rate)
    while t < seconds:
        times.append(t)
        t += rng.expovariate(rate)
    return times or [0.0]


def serve(name, handle, is_right, o, rate=0, warmup=20):
    """Serves: handle() answers one request, is_right(answer) judges it.  Returns the exit status."""
    service = []
    for i in range(warmup + 3):
        begin = time.perf_counter()
        first = handle()
        if i >= 3:  # the first ones compile and allocate
            service.append(time.perf_counter() - begin)
    alone = percentile(service, 0.5)
    rate = rate or o.load / alone
    wrong = 0 if is_right(first) else 1
    print(f"serve: {name}, {alone * 1e3:.3f} ms a request, {rate:.1f} requests/s", file=sys.stderr, flush=True)
    requests = []
    start = time.monotonic_ns() + 10_000_000
    for at in arrivals(rate, o.seconds, o.seed):
        arrival = start + int(at * 1e9)
        time.sleep(max(0, arrival - time.monotonic_ns()) / 1e9)
        begin = time.monotonic_ns()
        answer = handle()
        requests.append((arrival, begin, time.monotonic_ns()))
        wrong += not is_right(answer)
    elapsed = (time.monotonic_ns() - start) / 1e9
    if o.requests:
        with open(o.requests, "w", encoding="ascii") as f:
            f.writelines(f"{arrival} {begin} {end}\n" for arrival, begin, end in requests)
    latency, served = [(end - arrival) / 1e9 for arrival, _, end in requests], [(end - begin) / 1e9 for _, begin, end in requests]
    result = {"job": "serve", "model": name, "requests": len(latency), "wrong": wrong, "rate": rate, "warm_ms": alone * 1e3,
              "busy_share": sum(served) / elapsed, "seconds": elapsed}
    for what, values in (("", latency), ("service_", served)):
        for part, word in ((0.5, "p50"), (0.9, "p90"), (0.99, "p99")):
            result[f"{what}{word}_ms"] = percentile(values, part) * 1e3
    print(json.dumps(result), flush=True)
    return 0 if wrong == 0 else 1


class Trainer:
    """Counts steps until it is told to end."""

    def __init__(self):
        self.is_over, self.counted_from, self.is_asked = False, 0.0, False
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        signal.signal(signal.SIGUSR1, self._count)

    def _stop(self, *_):
        self.is_over = True

    def _count(self, *_):
        self.counted_from, self.is_asked = time.perf_counter(), True

    def run(self, name, step, seconds):
        """step() does one step and returns its loss, by when the device has done it.  Returns the exit status."""
        first = last = step()
        step()  # what is compiled for the second one only
        n, counted, since = 0, 0, time.perf_counter()
        start = end = since
        print(f"train: {name}, loss {first:.4f}", file=sys.stderr, flush=True)
        while not self.is_over and end - start < seconds:
            last = step()
            n, end = n + 1, time.perf_counter()
            if since < self.counted_from:  # the step in which it was told is not counted
                since, counted = end, n
            if self.is_asked:
                self.is_asked = False
                print(f"train: {n} steps", file=sys.stderr, flush=True)
        speed = (n - counted) / (end - since) if end > since else 0.0
        print(json.dumps({"job": "train", "kind": name, "steps": n, "steps_per_s": speed, "first_loss": first, "last_loss": last,
                          "seconds": end - start}), flush=True)
        return 0

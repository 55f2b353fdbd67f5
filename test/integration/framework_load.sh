#!/usr/bin/env bash
# A server of workloads/frameworks as the benchmarks of pairs start it: it takes their arguments, and what it writes down of each request
# agrees with what it prints.  The framework is a pause here; nothing is timed.
set -euo pipefail
cd "$(dirname "$0")/../../scripts"
exec python3 - <<'END'
import argparse, os, sys, tempfile, time
sys.dont_write_bytecode = True
import bench_pairs as b

SERVER = """
import argparse, sys, time
sys.path.insert(0, sys.argv.pop(1))
sys.dont_write_bytecode = True
import load
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=0)
load.add_server_arguments(parser)
o = parser.parse_args()
sys.exit(load.serve("pause", lambda: time.sleep(0.002), lambda got: got is None, o, o.rate))
"""


class Pauses(b.Bench):
    def is_managed(self, mode):
        return False

    def server(self, model):
        return [sys.executable, "-c", SERVER, os.path.join(b.ROOT, "workloads/frameworks")]


bench = Pauses(argparse.Namespace(reports="", sms=1, seconds=1))
try:
    before = time.monotonic_ns()
    served = bench.served(bench.serve("pause", 100, 3, "mps", bench.environment("mps"), "alone"), 120)
    after = time.monotonic_ns()
    with open(bench.requests, encoding="ascii") as f:
        requests = [tuple(map(int, line.split())) for line in f]
finally:
    bench.close()
assert len(requests) == served["requests"] > 50 and served["wrong"] == 0, served
assert before < requests[0][0] and requests[-1][2] < after, "another clock than the device's"
for (arrival, begin, end), (_, _, earlier) in zip(requests, [(0, 0, 0), *requests]):
    assert arrival <= begin and earlier <= begin and begin + 2_000_000 <= end, (arrival, begin, end)
assert abs(b.percentile(served["latencies_ms"], 99) - served["p99_ms"]) < 1e-6, served
assert abs(b.percentile([(e - s) / 1e6 for _, s, e in requests], 50) - served["service_p50_ms"]) < 1e-6, served
END

#!/usr/bin/env bash
# What bench-isolation says that requests lost to others, and what others had of the rest, for spans and requests that were worked out by hand.
set -euo pipefail
cd "$(dirname "$0")/../../scripts"
exec python3 - <<'END'
import os, struct, sys, tempfile
sys.dont_write_bytecode = True
import bench_pairs as b
import bench_share as share

ms = 1_000_000
# Three requests of 10, 12 and 6 ms, one after the other.  The first lost 4 ms, so that the second, there since 5 ms, would have begun at
# 6 ms and not at 10; it lost 2 itself.  The third came when all was done either way.  2 ms before the first were nobody's.
requests = [(0, 0, 10 * ms), (5 * ms, 10 * ms, 22 * ms), (30 * ms, 30 * ms, 36 * ms)]
spans = [(-3 * ms, -1 * ms), (2 * ms, 6 * ms), (20 * ms, 24 * ms)]
seen = b.attributed(requests, spans)
want_with, want_without = [10, 17, 6], [6, 11, 6]  # the second: from 6 to 16, come at 5
assert abs(seen["p99_ms"] - b.percentile(want_with, 99)) < 1e-9, seen
assert abs(seen["p99_without_ms"] - b.percentile(want_without, 99)) < 1e-9, seen
assert abs(seen["lost_ms"] - 2) < 1e-9, seen
assert abs(seen["overhead"] - (seen["p99_ms"] / seen["p99_without_ms"] - 1)) < 1e-12, seen
# A span that reaches over the end of a request counts for each with its part.
seen = b.attributed([(0, 0, 10 * ms), (10 * ms, 10 * ms, 20 * ms)], [(8 * ms, 13 * ms)])
assert abs(seen["lost_ms"] - 2.5) < 1e-9 and abs(seen["p99_without_ms"] - b.percentile([8, 7], 99)) < 1e-9, seen
assert b.attributed([(0, 0, ms)], [])["overhead"] == 0

# Of 100 ms a request took 20 and another, which the end cuts off, 10; 5 of the first were lost to the trainer, so 75 were left, of each SM.
requests = [(0, 10 * ms, 30 * ms), (80 * ms, 90 * ms, 120 * ms)]
assert abs(share.had((0, 100 * ms, 60 * ms), requests, [(25 * ms, 40 * ms)], 1) - 60 / 75) < 1e-9
assert abs(share.had((0, 100 * ms, 60 * ms), requests, [(25 * ms, 40 * ms)], 2) - 60 / 150) < 1e-9
assert share.had((0, 10 * ms, 0), [(0, -5 * ms, 15 * ms)], [], 1) is None

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "device.1.waits")
    for head, spans, is_good in (((b.WAITS_MAGIC, 2, 0, 0), (1, 2, 3, 4), True), ((b.WAITS_MAGIC, 1, 5, 0), (1, 2), False), ((7, 1, 0, 0), (1, 2), False)):
        with open(path, "wb") as f:
            f.write(struct.pack("<4Q", *head) + struct.pack(f"<{len(spans)}Q", *spans) + bytes(64))
        try:
            assert b.lost_spans(path) == [(1, 2), (3, 4)] and is_good
        except b.Failed:
            assert not is_good, head
    with open(path, "wb") as f:
        f.write(struct.pack("<4Q", b.WAITS_MAGIC, 0, 0, 7 * ms))
    held = share.Held(folder, 1)
    with open(path, "r+b") as f:
        f.seek(24)
        f.write(struct.pack("<Q", 9 * ms))
    assert held.end()[2] == 2 * ms and share.Held(folder, 2).end() is None
END

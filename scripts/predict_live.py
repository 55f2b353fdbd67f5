"""What the simulator says about live runs, from records of each job alone; for scripts/results.

A prediction knows the device model of the software device, the records of single jobs, and what the live run was told: arrivals, levels,
SLOs, policies.  It knows nothing of the runs that it predicts.

    build/bench/NAME.json              what was measured, jobs together
    build/bench/reports/.../*.tally    what each job did alone   ──► tally-sim --scenario ──► latencies, times
"""
import glob
import json
import math
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, os.environ.get("TALLY_BUILD", "build"))
REPORTS = os.path.join(BUILD, "bench", "reports")
POLICIES = {"mps": "none", "mps-priority": "priority", "timeslice": "timeslice", "kernel": "kernel", "tally": "tally", "tgs": "tgs", "slo": "slo"}
CLEAR = 1.2  # live values that differ by less have no order: a P99 of some hundred requests is not known better
TOLD_APART = 1.02  # simulated values that differ by less are the same
TURNAROUND_US = 500  # tally-run's own for the software device
SERVE_WARM = 3  # requests that workloads/jobs/serve makes before its warm-up


def simulate(scenario):
    """What tally-sim prints for a scenario, or None with the reason on standard error."""
    out = subprocess.run([os.path.join(BUILD, "bin", "tally-sim"), "--scenario=-"], input=json.dumps(scenario), stdout=subprocess.PIPE,
                         check=False, text=True)
    return json.loads(out.stdout) if out.returncode == 0 else None


def records(folder, job):
    """The records of a job in a folder, oldest first."""
    return sorted(glob.glob(os.path.join(glob.escape(folder), job + ".*.tally")), key=os.path.getmtime)


def recorded(path):
    """The one job of a record, as `tally report` tells it."""
    out = subprocess.run([os.path.join(BUILD, "bin", "tally"), "report", "--json", path], stdout=subprocess.PIPE, check=True, text=True).stdout
    return json.loads(out)["runs"][0]["jobs"][0]


def arrivals(rate, seconds, seed):
    """The arrivals of workloads/jobs/serve: the same sequence, so that the simulated server has the requests of the live one."""
    state, at, times = seed, 0.0, []
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2 ** 64
        at += -math.log(((state >> 33) + 0.5) / 2 ** 31) / rate
        if at >= seconds:
            return times
        times.append(at)


def middle(values):
    return sorted(values)[len(values) // 2]


def error(live, simulated):
    """How far a prediction is off: 0 is exact, 1 is twice or half."""
    return max(simulated / live, live / simulated) - 1 if live > 0 and simulated > 0 else math.inf


class Order:
    """Pairs of modes whose live values are clearly apart, and on how many of them the simulator has the same order."""

    seen = []  # all of them, for the sum

    def __init__(self):
        self.pairs, self.clear, self.same, self.undecided, self.wrong = 0, 0, 0, [], []
        Order.seen.append(self)

    def add(self, what, live, simulated, noise=1):
        """live: {mode: (least, median, most)}; simulated: {mode: value}.  Spreads that meet, and medians closer than CLEAR or `noise`, are ties."""
        modes = [m for m in live if m in simulated]
        for i, a in enumerate(modes):
            for b in modes[i + 1:]:
                low, high = sorted((a, b), key=lambda m: live[m][1])
                self.pairs += 1
                if live[low][2] >= live[high][0] or live[high][1] < max(CLEAR, noise) * live[low][1]:
                    continue
                self.clear += 1
                if TOLD_APART * simulated[low] < simulated[high]:
                    self.same += 1
                elif simulated[low] <= TOLD_APART * simulated[high]:
                    self.undecided.append(f"{what}: {low} < {high}")
                else:
                    self.wrong.append(f"{what}: {low} < {high}")

    def text(self):
        said = f"Of {self.pairs} pairs of modes {self.clear} are clearly apart live; simulated and live agree on the order of {self.same} of these"
        said += f", on {len(self.undecided)} simulated values are the same ({'; '.join(self.undecided)})" if self.undecided else ""
        return said + (f", on {len(self.wrong)} they disagree ({'; '.join(self.wrong)})." if self.wrong else ", and disagree on none.")


def agreement():
    """One sentence over everything that was predicted so far; None if nothing was."""
    clear, same, wrong = (sum(n) for n in zip(*((o.clear, o.same, len(o.wrong)) for o in Order.seen))) if Order.seen else (0, 0, 0)
    if clear == 0:
        return None
    return (f"Simulated against live, over all benchmarks with records of their jobs alone: of {sum(o.pairs for o in Order.seen)} pairs of modes {clear} are clearly apart live, and "
            f"simulated and live agree on the order of {same} of these, disagree on {wrong}, and the simulator does not tell {clear - same - wrong} apart.")


def error_text(errors):
    errors = sorted(errors)
    return f"median {100 * errors[len(errors) // 2]:.0f} %, nine tenths within {100 * errors[min(len(errors) - 1, 9 * len(errors) // 10)]:.0f} %, over {len(errors)} values"


# --- pairs of a server and a trainer --------------------------------------------------------------------------------

def predict_pair(pair, mode, bench, repetition, folder):
    """(P50 ms, P99 ms, the trainer's part of its speed alone) of a mode, or of the server alone; None without records."""
    model, kind = "serve", "train"
    n = bench["repetitions"]
    serve, train = records(folder, model)[-n:], records(folder, kind)[-n:]
    if mode not in POLICIES and mode != "alone" or len(serve) <= repetition or len(train) <= repetition:
        return None
    serve, train = serve[repetition], train[repetition]
    bound = 1.1 * recorded(serve)["requests"]["p99_ns"] / 1e6 if mode == "slo" else 0
    jobs = [{"record": serve, "start_s": 0.3, "warm_rounds": 20 + SERVE_WARM, "slo_ms": bound, "arrivals_s": arrivals(pair["rate"], bench["seconds"], repetition + 1)},
            {"record": train, "turnaround_us": TURNAROUND_US}]
    out = simulate({"policy": POLICIES.get(mode, "none"), "sms": bench["sms"], "dispatch": "mps-priority" if mode == "mps-priority" else "mps",
                    "seconds": 600, "seed": repetition + 1, "jobs": jobs[:1] if mode == "alone" else jobs})
    if out is None:
        return None
    share = out[1]["kernels_per_s"] / recorded(train)["launches_per_s"] if mode != "alone" else None
    return out[0]["p50_ms"], out[0]["p99_ms"], share


def spread(value):
    return (value["spread"][0], value["median"], value["spread"][1])


def isolation(bench):
    """Markdown: every pair and mode live and simulated, the error, and the order of the modes; None if there are no records."""
    rows = ["| pair | mode | P50 ms: live | simulated | P99 ms: live | simulated | sim. / live | trainer: live | simulated |", "|---|---|---|---|---|---|---|---|---|"]
    errors, order, shares = [], Order(), Order()
    for pair in bench["pairs"]:
        folder = os.path.join(REPORTS, pair["pair"], "alone")
        live, simulated, live_share, simulated_share = {}, {}, {}, {}
        for mode in ["alone", *pair["modes"]]:
            predicted = [p for p in (predict_pair(pair, mode, bench, r, folder) for r in range(bench["repetitions"])) if p is not None]
            if not predicted:
                continue
            measured = pair["alone"] if mode == "alone" else pair["modes"][mode]
            p50, p99 = middle([p[0] for p in predicted]), middle([p[1] for p in predicted])
            row = f"| {pair['pair']} | {mode} | {measured['p50_ms']['median']:.1f} | {p50:.1f} | {measured['p99_ms']['median']:.1f} | {p99:.1f} | {p99 / measured['p99_ms']['median']:.2f} |"
            if mode == "alone":
                rows.append(row + " | |")
                continue
            share = middle([p[2] for p in predicted])
            rows.append(row + f" {measured['be_share']['median']:.2f} | {share:.2f} |")
            errors.append(error(measured["p99_ms"]["median"], p99))
            live[mode], simulated[mode] = spread(measured["p99_ms"]), p99
            live_share[mode], simulated_share[mode] = spread(measured["be_share"]), share
        alone = pair["alone"]["p99_ms"]["spread"]
        order.add(pair["pair"], live, simulated, alone[1] / alone[0])
        shares.add(pair["pair"], live_share, simulated_share)
    if not errors:
        return None
    return "\n".join(rows + ["", f"Error of P99: {error_text(errors)}.", "", f"Order of P99. {order.text()}", "",
                             f"Order of what the trainer gets. {shares.text()}"])


# --- the policies of other systems ----------------------------------------------------------------------------------

def salus(bench):
    """{order: mean job completion time in seconds} of the very same stream; None without a record of the job alone."""
    record = records(os.path.join(REPORTS, "salus"), "train")
    if not record or "arrivals_s" not in bench:
        return None
    record = record[-1]
    per_step = max(1, round(recorded(record)["launches"] / bench["steps_alone"]))
    found = {}
    for order in bench["orders"]:
        jobs = [{"record": record, "name": str(i), "level": 0, "kernels_per_round": per_step, "total_s": length, "start_s": at + bench["start_s"],
                 "rounds": max(int(length * bench["steps_per_s_alone"]), 4)} for i, (at, length) in enumerate(zip(bench["arrivals_s"], bench["lengths_s"]))]
        out = simulate({"policy": "salus", "parameters": f"order={order},lanes=no", "sms": bench["sms"], "dispatch": "mps", "seconds": 3600, "jobs": jobs})
        if out is None or any(j["finished_s"] <= 0 for j in out):
            return None
        found[order] = sum(j["finished_s"] - at for j, at in zip(out, bench["arrivals_s"])) / len(out)
    return found


def memory(bench):
    """{policy: seconds, or None for a job that finds no memory}.  What a fault costs comes from the job alone on the small device."""
    record = records(os.path.join(REPORTS, "memory"), "large")
    alone = bench["runs"].get("tgs, alone", {})
    if not record or "seconds" not in alone:
        return None
    record, arrays, page, bus = record[-1], 8, 65536, 12 * 2 ** 30
    moved = bench["low_mib"] * 2 ** 20 * bench["passes"]
    fault_ns = max(0, (alone["seconds"] - bench["runs"]["large enough"]["seconds"]) * 1e9 - 2 * moved / bus * 1e9) / (moved / page)
    found = {}
    for policy, parameters in (("tally", None), ("tgs", "step=50ms,alone-step=50ms")):
        scenario = {"policy": policy, "sms": 2, "memory_mb": bench["device_mib"], "dispatch": "mps", "seconds": 120, "bus_bytes_per_s": bus,
                    "fault_ns": fault_ns, "jobs": [
                        {"record": record, "name": "high", "level": 100, "memory_mb": bench["high_mib"], "kernels_per_round": arrays, "rounds": 1, "arrivals_s": [0, 1000]},
                        {"record": record, "name": "low", "level": -100, "start_s": 1, "memory_mb": bench["low_mib"], "touched_mb": bench["low_mib"] / arrays,
                         "kernels_per_round": arrays * bench["passes"], "rounds": 1, "turnaround_us": TURNAROUND_US}]}
        if parameters:
            scenario["parameters"] = parameters
        out = simulate(scenario)
        if out is None:
            return None
        found[policy] = None if out[1]["out_of_memory"] else out[1]["finished_s"] - 1
    return found


def gpulet(bench):
    """{mode: {server: (P99 ms, late part)}} from the servers alone; None without their records.  In parts of the SMs each server has its own, so it
    is as alone on a device of that size, of which there is a record too: that is the profile which such a plan is made from."""
    modes = {"gpulet": "none", "timeslice": "timeslice", "mps": "none"}
    paths = {name: [records(os.path.join(REPORTS, "gpulet", name + part), "serve") for part in ("", "-part")] for name in bench["servers"]}
    if not all(p for pair in paths.values() for p in pair) or "turn_us" not in bench:
        return None
    found = {}
    for mode in bench["modes"]:
        values = {name: [] for name in paths}
        is_apart = mode == "gpulet"
        for seed in range(1, bench["repetitions"] + 1):
            jobs = [{"record": paths[name][is_apart][-1], "name": name, "level": 0, "slo_ms": s["slo_ms"], "warm_rounds": bench["warmup"] + SERVE_WARM,
                     "arrivals_s": arrivals(s["rate"], bench["seconds"], seed)} for name, s in bench["servers"].items()]
            scenario = {"policy": modes[mode], "parameters": f"quantum={bench['turn_us']}us" if mode == "timeslice" else "", "sms": bench["part_sms"] if is_apart else bench["sms"], "dispatch": "mps", "seconds": 600, "seed": seed}
            out = []
            for together in [[j] for j in jobs] if is_apart else [jobs]:
                said = simulate({**scenario, "jobs": together})
                if said is None:
                    return None
                out += said
            for j in out:
                bound = bench["servers"][j["job"]]["slo_ms"]
                values[j["job"]].append((j["p99_ms"], sum(v > bound for v in j["latencies_ms"]) / max(1, len(j["latencies_ms"]))))
        found[mode] = {name: (middle([v[0] for v in vs]), sum(v[1] for v in vs) / len(vs)) for name, vs in values.items()}
    return found

#!/bin/bash
# tally-sim as a user meets it: lists, one experiment as JSON, a page, a what-if on records; and the example policy of the documentation.
set -euo pipefail

sim=$TALLY_BUILD/bin/tally-sim
fail() {
    echo "FAILED: $*"
    exit 1
}

# Every experiment is listed once.
"$sim" --list >"$TMPDIR/list"
for id in TA1 TA10 TG1 TG8 SA1 SA8 GP1 GP8 HE1 HE6; do
    [ "$(grep -c "^$id " "$TMPDIR/list")" = 1 ] || fail "$id is not listed once"
done

# JSON has what was promised, and is the same every time.
"$sim" --experiment=GP6 --experiment=SA7 --experiment=HE2 --json --report="$TMPDIR/page" >"$TMPDIR/a.json"
"$sim" --experiment=GP6 --experiment=SA7 --experiment=HE2 --json >"$TMPDIR/b.json"
cmp "$TMPDIR/a.json" "$TMPDIR/b.json" || fail "two runs differ"
python3 - "$TMPDIR/a.json" <<'PYTHON'
import json, sys
lines = json.load(open(sys.argv[1]))
assert len(lines) == 6, lines
for line in lines:
    for key in ("id", "what", "published", "tag", "ours", "kind", "holds", "fitted", "tolerance", "note"):
        assert key in line, (key, line)
    assert line["kind"] in ("target", "shape"), line
    assert (line["published"] is None) == (line["kind"] == "shape"), line
published = [line["published"] for line in lines if line["id"] == "GP6"]
assert [round(p, 1) for p in published] == [1129.1, 1140.8, 1105.1, 1123.2], published
assert all(line["holds"] for line in lines), lines
PYTHON
grep -q '<h2 id=.GP6.>' "$TMPDIR/page/index.html" || fail "the page lacks an experiment"

# A page with a plot.
"$sim" --experiment=TG5 --report="$TMPDIR/plots" >"$TMPDIR/text"
grep -q '<svg ' "$TMPDIR/plots/index.html" || fail "the page has no plot"

# Wrong command lines are refused, and say how it goes.
for bad in --experiment=XX9 --nonsense ''; do
    # shellcheck disable=SC2086
    if "$sim" $bad 2>"$TMPDIR/err"; then fail "'$bad' was accepted"; else [ $? = 2 ] || fail "'$bad': status"; fi
    grep -q -- '--' "$TMPDIR/err" || fail "'$bad': no help"
done

# A what-if on records: recorded under mps, asked for tally.
"$TALLY_BUILD/test/record-sample" "$TMPDIR/run" mps 2
"$sim" --trace="$TMPDIR/run" --policy=tally --json >"$TMPDIR/tally.json"
"$sim" --trace="$TMPDIR/run" --policy=none --json >"$TMPDIR/none.json"
python3 - "$TMPDIR/tally.json" "$TMPDIR/none.json" <<'PYTHON'
import json, sys
tally, none = (json.load(open(f)) for f in sys.argv[1:])
assert [j["job"] for j in tally] == ["server", "trainer"], tally
assert 0 < tally[0]["predicted"] <= none[0]["predicted"], (tally, none)
assert tally[1]["predicted"] > 0, tally
PYTHON
printf 'arrival_s\n0.1\n0.2\n5\n' >"$TMPDIR/arrivals.csv"
"$sim" --trace="$TMPDIR/run" --policy=tally --arrivals="$TMPDIR/arrivals.csv" >"$TMPDIR/out"
printf '2\n1\n' >"$TMPDIR/arrivals.csv"
if "$sim" --trace="$TMPDIR/run" --policy=tally --arrivals="$TMPDIR/arrivals.csv" 2>"$TMPDIR/err"; then fail "falling times were accepted"; fi
if "$sim" --trace="$TMPDIR/none-such" --policy=tally 2>"$TMPDIR/err"; then fail "a missing record was accepted"; fi
if "$sim" --trace="$TMPDIR/run" --policy=none-such 2>"$TMPDIR/err"; then fail "an unknown policy was accepted"; fi
grep -q 'choose one of' "$TMPDIR/err" || fail "the policies are not listed"

# Jobs that never ran together, each from its record alone.
"$TALLY_BUILD/test/record-sample" "$TMPDIR/solo" alone 2
server=$(echo "$TMPDIR"/solo/server.*.tally) trainer=$(echo "$TMPDIR"/run/trainer.*.tally)
scenario() {
    printf '{"policy": "%s", "sms": 4, "seconds": 60, "jobs": [{"record": "%s", "warm_rounds": 2, "arrivals_s": [0, 0.1, 0.2, %s]}, {"record": "%s"}]}' \
        "$1" "$server" "$2" "$trainer" >"$TMPDIR/scenario.json"
}
for policy in tally none; do
    scenario $policy 0.4
    "$sim" --scenario="$TMPDIR/scenario.json" >"$TMPDIR/$policy.json"
    "$sim" --scenario=- <"$TMPDIR/scenario.json" | cmp - "$TMPDIR/$policy.json" || fail "a scenario from standard input differs"
done
python3 - "$TMPDIR/tally.json" "$TMPDIR/none.json" <<'PYTHON'
import json, sys
tally, none = (json.load(open(f)) for f in sys.argv[1:])
assert [j["job"] for j in tally] == ["server", "trainer"], tally
assert tally[0]["rounds"] == 4 and len(tally[0]["latencies_ms"]) == 4, tally
assert 0 < tally[0]["p50_ms"] <= none[0]["p50_ms"], (tally, none)
assert tally[1]["kernels_per_s"] > 0 and not tally[1]["out_of_memory"], tally
PYTHON
# A server alone is as it was recorded.
printf '{"policy": "none", "seconds": 60, "jobs": [{"record": "%s", "arrivals_s": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}]}' "$server" |
    "$sim" --scenario=- >"$TMPDIR/alone.json"
"$TALLY_BUILD/bin/tally" report --json "$server" >"$TMPDIR/recorded.json"
python3 - "$TMPDIR/alone.json" "$TMPDIR/recorded.json" <<'PYTHON'
import json, sys
alone, recorded = (json.load(open(f)) for f in sys.argv[1:])
p50 = recorded["runs"][0]["jobs"][0]["requests"]["p50_ns"] / 1e6
assert abs(alone[0]["service_p50_ms"] / p50 - 1) < 0.15, (alone[0]["service_p50_ms"], p50)
PYTHON
scenario none 0.15
if "$sim" --scenario="$TMPDIR/scenario.json" 2>"$TMPDIR/err"; then fail "arrivals that fall were accepted"; fi
# Numbers that no simulation could be made of.
for wrong in '"seconds": 1e300' '"seconds": nan' '"bus_bytes_per_s": 0' '"fault_ns": -1'; do
    printf '{"policy": "none", %s, "jobs": [{"record": "%s"}]}' "$wrong" "$server" >"$TMPDIR/scenario.json"
    if "$sim" --scenario="$TMPDIR/scenario.json" 2>"$TMPDIR/err"; then fail "a scenario with $wrong was accepted"; fi
done
printf '{"policy": "none", "jobs": [{"record": "%s", "level": 1e10}]}' "$server" >"$TMPDIR/scenario.json"
if "$sim" --scenario="$TMPDIR/scenario.json" 2>"$TMPDIR/err"; then fail "a level of 1e10 was accepted"; fi
scenario none-such 0.4
if "$sim" --scenario="$TMPDIR/scenario.json" 2>"$TMPDIR/err"; then fail "a scenario with an unknown policy was accepted"; fi
echo '{"policy": "none", "jobs": [{"record": "none-such.tally"}]}' >"$TMPDIR/scenario.json"
if "$sim" --scenario="$TMPDIR/scenario.json" 2>"$TMPDIR/err"; then fail "a scenario without records was accepted"; fi
echo '{"policy": "none", "jobs": [{}]' >"$TMPDIR/scenario.json"
if "$sim" --scenario="$TMPDIR/scenario.json" 2>"$TMPDIR/err"; then fail "broken JSON was accepted"; fi
for wrong in '"rate": 1e300' '"rate": nan' '"memory_mb": -1' '"latency_ms": {"100": {"1": 1e300}}'; do
    printf '{"gpus": 1e300, "models": [{"name": "resnet50", "rate": 1, %s}]}' "$wrong" >"$TMPDIR/models.json"
    if "$TALLY_BUILD/bin/tally" plan "$TMPDIR/models.json" 2>"$TMPDIR/err"; then fail "a model with $wrong was accepted"; fi
done

# What `make results` makes of measurements and records: an invented measurement in which tally is best, and its order.
mkdir -p "$TMPDIR/reports/mlp+long/alone"
cp "$server" "$TMPDIR/reports/mlp+long/alone/serve.1.tally"
cp "$trainer" "$TMPDIR/reports/mlp+long/alone/train.1.tally"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=scripts python3 - "$TMPDIR/reports" <<'PYTHON'
import sys
import predict_live
predict_live.REPORTS = sys.argv[1]
def summary(value): return {"median": value, "spread": [0.95 * value, 1.05 * value]}
def mode(p99, share): return {"p50_ms": summary(p99 / 2), "p99_ms": summary(p99), "be_share": summary(share)}
bench = {"sms": 4, "seconds": 2, "repetitions": 1, "pairs": [{"pair": "mlp+long", "rate": 20, "alone": {"p50_ms": summary(4), "p99_ms": summary(5)},
         "modes": {"tally": mode(6, 0.5), "mps": mode(40, 0.8), "kernel": mode(6.2, 0.5), "tgs": mode(5.5, 0.01)}}]}
text = predict_live.isolation(bench)
assert all(f"| mlp+long | {m} |" in text for m in ("alone", "tally", "mps", "kernel", "tgs")), text
order = predict_live.Order.seen[0]
assert order.pairs == 6 and order.clear == 3 and order.same == 3, (order.__dict__, text)
assert predict_live.agreement() is not None
# Ties, agreement, disagreement and values that the simulator does not tell apart.
o = predict_live.Order()
o.add("x", {"a": (1, 1, 1), "b": (2, 2, 2), "c": (1.9, 2.1, 2.3), "d": (9, 9, 9)}, {"a": 5, "b": 3, "c": 5, "d": 9})
assert (o.pairs, o.clear, o.same, len(o.undecided), len(o.wrong)) == (6, 5, 3, 1, 1), o.__dict__
assert predict_live.records(sys.argv[1] + "/none", "serve") == [] and predict_live.salus({"orders": {}}) is None
PYTHON

# tally plan.
cat >"$TMPDIR/models.json" <<'JSON'
{"gpus": 2, "models": [{"name": "resnet50", "rate": 300}, {"name": "vgg16", "rate": 150},
  {"name": "mine", "rate": 100, "slo_ms": 40, "memory_mb": 500, "latency_ms": {"100": {"1": 2, "8": 8, "32": 25}, "50": {"8": 10}}}]}
JSON
"$TALLY_BUILD/bin/tally" plan --json "$TMPDIR/models.json" >"$TMPDIR/plan.json"
python3 - "$TMPDIR/plan.json" <<'PYTHON'
import json, sys
plan = json.load(open(sys.argv[1]))
assert plan["fits"], plan
served, sizes = {}, {}
for g in plan["gpulets"]:
    sizes[g["gpu"]] = sizes.get(g["gpu"], 0) + g["size_percent"]
    for m in g["models"]:
        served[m["name"]] = served.get(m["name"], 0) + m["rate"]
assert all(s == 100 for s in sizes.values()), sizes
assert served["resnet50"] >= 285 * 0.85 and served["vgg16"] >= 135 * 0.85 and served["mine"] >= 85 * 0.85, served
PYTHON
echo '{"models": [{"name": "resnet50", "rate": 1e6}]}' >"$TMPDIR/models.json"
if "$TALLY_BUILD/bin/tally" plan "$TMPDIR/models.json" 2>"$TMPDIR/err"; then fail "a plan for far too much"; fi
grep -q resnet50 "$TMPDIR/err" || fail "the model that does not fit is not named"
echo '{"models": [' >"$TMPDIR/models.json"
if "$TALLY_BUILD/bin/tally" plan "$TMPDIR/models.json" 2>"$TMPDIR/err"; then fail "broken JSON was accepted"; fi

# Jobs on GPUs: by memory with ours, blindly with others, and the order of the file does not matter to high ones.
cat >"$TMPDIR/jobs.json" <<'JSON'
{"gpus": 3, "gpus_per_node": 2, "gpu_memory_mb": 40000,
 "jobs": [{"name": "train", "load": 0.9, "memory_mb": 12000, "count": 3}, {"name": "serve", "priority": "high", "load": 0.3, "memory_mb": 20000, "count": 3}]}
JSON
for rule in tally slurm-mps; do
    "$TALLY_BUILD/bin/tally" plan --json --place=$rule "$TMPDIR/jobs.json" >"$TMPDIR/$rule.json" || fail "$rule finds no place"
done
if "$TALLY_BUILD/bin/tally" plan --place=slurm "$TMPDIR/jobs.json" >"$TMPDIR/out"; then fail "three whole GPUs for six jobs"; fi
[ "$(grep -c 'train, low: waits' "$TMPDIR/out")" = 3 ] || fail "three trainings do not wait: $(cat "$TMPDIR/out")"
python3 - "$TMPDIR" <<'PYTHON'
import collections, json, sys
def load(rule): return json.load(open(f"{sys.argv[1]}/{rule}.json"))["jobs"]
ours = load("tally")
where = collections.defaultdict(list)
for j in ours:
    where[j["node"], j["gpu"]].append(j["name"])
assert sorted(map(sorted, where.values())) == [["serve", "train"]] * 3 and all(j["has_memory"] for j in ours), ours
assert max(n for n, g in where) == 1 and (1, 1) not in where, where
assert [j["name"] for j in load("slurm-mps")][:2] == ["serve", "serve"], "gres/mps fills the first GPU first"
PYTHON
# Ten thousand GPUs: no GPU has two high jobs, or more of memory or load than it has.
cat >"$TMPDIR/jobs.json" <<'JSON'
{"gpus": 10000, "gpus_per_node": 8, "gpu_memory_mb": 40960,
 "jobs": [{"name": "serve", "priority": "high", "load": 0.3, "memory_mb": 16000, "count": 6000},
          {"name": "train", "load": 0.9, "memory_mb": 12000, "count": 10000}, {"name": "small", "load": 0.4, "memory_mb": 8000, "count": 4000}]}
JSON
"$TALLY_BUILD/bin/tally" plan --json --place=tally "$TMPDIR/jobs.json" >"$TMPDIR/plan.json" || [ $? = 1 ] # some wait
python3 - "$TMPDIR/plan.json" <<'PYTHON'
import collections, json, sys
placed = [j for j in json.load(open(sys.argv[1]))["jobs"] if j["is_placed"]]
where = collections.defaultdict(list)
for j in placed:
    where[j["node"], j["gpu"]].append(j["name"])
memory = {"serve": 16000, "train": 12000, "small": 8000}
assert len(where) == 10000 and sum(j["name"] == "serve" for j in placed) == 6000, (len(where), len(placed))
assert all(len(w) <= 2 and w.count("serve") <= 1 and w != ["train", "train"] and sum(memory[n] for n in w) <= 40960 for w in where.values())
PYTHON
for bad in '{"gpu_memory_mb": 1, "jobs": []}' '{"jobs": [{"name": "a"}]}' '{"gpu_memory_mb": 9, "jobs": [{"name": "a", "load": 7}]}' \
    '{"gpu_memory_mb": 9, "jobs": [{"name": "a", "count": 1e12}]}' '{"gpu_memory_mb": 9, "gpus": -1, "jobs": [{"name": "a"}]}'; do
    echo "$bad" >"$TMPDIR/jobs.json"
    if "$TALLY_BUILD/bin/tally" plan --place=tally "$TMPDIR/jobs.json" 2>"$TMPDIR/err"; then fail "accepted: $bad"; fi
    [ -s "$TMPDIR/err" ] || fail "no word about $bad"
done
for bad in 0 x '10,' '10,,20'; do
    if "$TALLY_BUILD/bin/tally-sim" --fleet="$bad" 2>"$TMPDIR/err"; then fail "accepted --fleet=$bad"; fi
done

# A fleet's tables and plots: FULL=1, since it takes two minutes of a core.
if [ -n "${FULL:-}" ]; then
    "$TALLY_BUILD/bin/tally-sim" --fleet=10,100 --report="$TMPDIR/fleet" >"$TMPDIR/fleet.txt" || fail "--fleet=10,100"
    for line in 'What sharing saves and costs' 'Growth: all ways of placing' 'GPUs 10, time'; do
        grep -q "$line" "$TMPDIR/fleet.txt" || fail "no '$line' in the fleet's tables"
    done
    python3 - "$TMPDIR/fleet/index.html" <<'PYTHON'
import re, sys
page = open(sys.argv[1]).read()
for title in ("mean completion of trainings over their work", "requests of services whose P99 is a fifth above alone",
              "GPUs that would do, of those there are", "P99 of services over that alone, with as few GPUs as would do"):
    assert title in page, title
assert len(re.findall("<svg", page)) >= 4, len(re.findall("<svg", page))
for placement in ("slurm", "slurm-mps", "kubernetes", "kubernetes-replicas", "tally"):
    assert re.search(rf">{placement}<", page), placement
PYTHON
fi

# The example policy of docs/policies.md compiles.
# shellcheck disable=SC2016
sed -n '/^```c$/,/^```$/p' docs/policies.md | sed '1d;$d' >"$TMPDIR/policy_batch.c"
[ "$(wc -l <"$TMPDIR/policy_batch.c")" -le 50 ] || fail "the example has become long"
# shellcheck disable=SC2086 # CC may have arguments
${CC:-cc} -std=c11 -Wall -Wextra -Werror -Iinclude -I. -c -o "$TMPDIR/policy_batch.o" "$TMPDIR/policy_batch.c"
echo "all as expected"

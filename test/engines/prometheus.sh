#!/usr/bin/env bash
# The real Prometheus scrapes a real tallyd while a server and a trainer share the software device.  Its own tools accept the text and
# the rules; every query of the dashboard and every rule returns data there, as far as it tells of something that is always so.
set -euo pipefail
# shellcheck source=test/integration/needs.inc
. test/integration/needs.inc
build=$(realpath "${TALLY_BUILD:-build}")
need_built "$build/bin/tallyd" "$build/workloads/jobs/serve" "$build/workloads/jobs/train"
need_plain "$build/lib/tally/libcuda.so.1"
for program in prometheus promtool curl; do
    command -v $program >/dev/null || skip "no $program (scripts/setup --with-engines)"
done
scratch=$(mktemp -d)
export TALLY_SOCKET=$scratch/tallyd.sock TALLY_DEVICE_NAME=tally-prometheus-$$ TALLY_CACHE=$scratch/cache TALLY_DEVICE=soft TALLY_DAEMON=no
started=()
# shellcheck disable=SC2317 # called by the trap
finish() {
    local status=$?
    kill "${started[@]}" 2>/dev/null || :
    wait "${started[@]}" 2>/dev/null || :
    [ $status = 0 ] || tail -n 20 "$scratch"/*.log
    rm -f "/dev/shm/$TALLY_DEVICE_NAME".*
    rm -rf "$scratch"
}
trap finish EXIT
fail() {
    echo "FAIL: $*"
    exit 1
}
await() { # WHAT COMMAND...
    local what=$1 until=$((SECONDS + 120))
    shift
    while [ $SECONDS -lt $until ]; do
        ! "$@" >/dev/null 2>&1 || return 0
        sleep 0.1
    done
    fail "$what does not come about"
}

"$build/bin/tallyd" --idle=0 --log=info --metrics=127.0.0.1:0 2>"$scratch/tallyd.log" &
started+=($!)
await "tallyd" grep -q 'listens on' "$scratch/tallyd.log"
port=$(sed -n 's/.*metrics are told at 127\.0\.0\.1:\([0-9]*\)$/\1/p' "$scratch/tallyd.log")
"$build/bin/tally-run" --quiet --priority=low --memory=2G --min-share=5% "$build/workloads/jobs/train" --kind=coarse --seconds=600 \
    >"$scratch/train.log" 2>&1 &
started+=($!)
"$build/bin/tally-run" --quiet --priority=high --slo=p99:1us "$build/workloads/jobs/serve" --model=mlp --rate=20 --seconds=600 \
    >"$scratch/serve.log" 2>&1 &
started+=($!)
has_preempted() {
    curl -fs "http://127.0.0.1:$port/metrics" >"$scratch/text" &&
        grep -E '^tally_job_preemption_seconds_count.* [1-9]' "$scratch/text" && grep -E '^tally_job_request_seconds_count.* [1-9]' "$scratch/text"
}
await "a preemption" has_preempted

# --- its own tools

python3 test/integration/openmetrics.py "$scratch/text" || fail "the text"
# dcgm-exporter's modelName is none of the names that promtool likes; nothing else may be wrong.
status=0
found=$(curl -fs -H 'Accept: text/plain' "http://127.0.0.1:$port/metrics" | promtool check metrics 2>&1) || status=$?
rest=$(grep -v "label names should be written in 'snake_case' not 'camelCase'" <<<"$found" || :)
case $status:$rest in
0: | 3:) ;;
*) fail "promtool finds fault with the metrics ($status): $rest" ;;
esac
[ "$(grep -v '^#' "$scratch/text" | grep -oE '[{,][a-z]+[A-Z][A-Za-z]*=' | tr -d '{,' | sort -u)" = modelName= ] || fail "labels in camelCase"
! echo 'tally_wrong{a="1"} x' | promtool check metrics >/dev/null 2>&1 || fail "promtool finds no fault with anything"
promtool check rules runtime/monitoring/tally-alerts.yml || fail "promtool finds fault with the rules"

# --- the server, scraping twice a second

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
web=$(free_port)
cat >"$scratch/prometheus.yml" <<YML
global: {scrape_interval: 500ms, evaluation_interval: 500ms}
rule_files: ["$PWD/runtime/monitoring/tally-alerts.yml"]
scrape_configs:
  - job_name: tally
    static_configs: [{targets: ["127.0.0.1:$port"]}]
YML
prometheus --config.file="$scratch/prometheus.yml" --storage.tsdb.path="$scratch/data" --web.listen-address="127.0.0.1:$web" \
    >"$scratch/prometheus.log" 2>&1 &
started+=($!)
python3 - "$web" <<'PY' || fail "see above"
import json, re, sys, time, urllib.parse, urllib.request

api = f"http://127.0.0.1:{sys.argv[1]}/api/v1/"


def get(path, **question):
    try:
        with urllib.request.urlopen(api + path + "?" + urllib.parse.urlencode(question), timeout=10) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        sys.exit(f"{question}: {error.read().decode()}")
    except OSError:
        return None


def data(query):
    found = get("query", query=query)
    values = [r["value"][1] for r in found["result"]] if found else []
    return [v for v in values if v != "NaN"]


def await_(what, is_so):
    until = time.monotonic() + 120
    while not is_so():
        if time.monotonic() > until:
            sys.exit(f"{what} does not come about")
        time.sleep(0.2)


await_("a scrape", lambda: data('up{job="tally"} == 1'))
await_("a rate", lambda: data("rate(tally_job_request_seconds_count[1m]) > 0"))
targets = get("targets")["activeTargets"]
assert [t["health"] for t in targets] == ["up"] and not targets[0]["lastError"], targets

dashboard = json.load(open("runtime/monitoring/tally-dashboard.json"))
queries = 0
for panel in dashboard["panels"]:
    assert panel["targets"], panel["title"]
    for target in panel["targets"]:
        query = target["expr"].replace("$host", ".*").replace("$tally_job", ".*")
        assert "$" not in query, query
        await_(f"data of panel '{panel['title']}': {query}", lambda query=query: data(query))
        queries += 1
for variable in dashboard["templating"]["list"][1:]:
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()
    await_(f"values of {variable['name']}", lambda: data(f'count by ({label}) ({metric}{{{label}!=""}})'))

# Rules are evaluated without errors, records have data, and the alert of an SLO that nobody keeps is on its way.
def rules():
    (group,) = get("rules")["groups"]
    return group["rules"]


await_("the rules' first turn", lambda: all(r["health"] == "ok" for r in rules()))
await_("records", lambda: all(data(r["name"]) for r in rules() if r["type"] == "recording"))
await_("the missed SLO", lambda: [r for r in rules() if r["name"] == "TallySloMissed"][0]["state"] in ("pending", "firing"))
states = {r["name"]: r["state"] for r in rules() if r["type"] == "alerting"}
assert states["TallyDown"] == "inactive" and states["TallyMemoryNearLimit"] == "inactive", states
print(f"{queries} queries of {len(dashboard['panels'])} panels return data; {len(rules())} rules are evaluated")
PY

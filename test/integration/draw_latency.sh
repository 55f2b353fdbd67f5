#!/usr/bin/env bash
# The picture of the README: made of a measurement, well-formed, the same every time, and refused for what is no measurement.
set -euo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
complain() {
    echo "FAIL  $*"
    failed=1
}

cat >"$scratch/measured.json" <<'END'
{"device": "software", "sms": 1, "load": 0.5, "seconds": 6.0, "repetitions": 1, "other_cores": 0.02,
 "pairs": [{"pair": "a<b+mixed",
   "alone": {"p50_ms": {"median": 8.5}, "p99_ms": {"median": 27}, "busy_share": {"median": 0.48}},
   "modes": {"mps": {"p50_ms": {"median": 1219}, "p99_ms": {"median": 2465}, "be_share": {"median": 0.57}},
             "a mode of tomorrow": {"p50_ms": {"median": 9}, "p99_ms": {"median": 30, "spread": [25, 3000]}, "be_share": {"median": 1.2},
                                    "other_cores": {"median": 0.7}},
             "tally": {"p50_ms": {"median": 8.26}, "p99_ms": {"median": 22.1}, "be_share": {"median": 0.465}}}}]}
END
scripts/draw-latency "$scratch/measured.json" "$scratch/one.svg" >/dev/null
scripts/draw-latency "$scratch/measured.json" "$scratch/two.svg" >/dev/null
cmp -s "$scratch/one.svg" "$scratch/two.svg" || complain "two pictures of one measurement differ"

# All numbers are there, no word or dot stands outside, and a larger P99 stands further to the right.
python3 - "$scratch/one.svg" <<'END' || failed=1
import sys
import xml.etree.ElementTree as tree

root = tree.parse(sys.argv[1]).getroot()
words = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
width, height = (float(root.get(side)) for side in ("width", "height"))
places = [(float(e.get(x)), float(e.get(y))) for tag, x, y in (("text", "x", "y"), ("circle", "cx", "cy"))
          for e in root.iter("{http://www.w3.org/2000/svg}" + tag)]
missing = [w for w in ("27.0 ms", "2.5 s", "1.2 s", "22.1 ms", "57 %", "46 %", "120 %", "no trainer", "a mode of tomorrow",
                           "while others took 0.7 cores") if w not in words]
wrong = [f"no text says {w}" for w in missing] + [f"something stands at {p}" for p in places if not (0 < p[0] < width and 0 < p[1] < height)]
filled = [float(c.get("cx")) for c in root.iter("{http://www.w3.org/2000/svg}circle") if c.get("r") == "6"]
if not filled[3] < filled[0] < filled[2] < filled[1]:
    wrong.append(f"P99 of 27, 2465, 30 and 22.1 ms are drawn at {filled}")
if not any("not on a GPU" in w for w in words):
    wrong.append("nothing says that it was no GPU")
print("\n".join("FAIL  " + w for w in wrong))
sys.exit(1 if wrong else 0)
END

echo '{"pairs": []}' >"$scratch/empty.json"
for file in "$scratch/empty.json" "$scratch/nowhere.json"; do
    if scripts/draw-latency "$file" "$scratch/three.svg" >"$scratch/out" 2>&1; then
        complain "$file was drawn"
    fi
    grep -q 'make demo' "$scratch/out" || complain "of $file was said: $(cat "$scratch/out")"
done
[ ! -e "$scratch/three.svg" ] || complain "there is a picture of nothing"
exit $failed

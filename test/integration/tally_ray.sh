#!/usr/bin/env bash
# tally_ray without Ray: what fractions of a GPU become, what is refused, and the command line that it makes on a node.  With Ray:
# test/engines/ray.sh.
set -euo pipefail
. test/integration/needs.inc

command -v python3 >/dev/null || skip "no python3"
build=$(realpath "${TALLY_BUILD:-build}")
need_built "$build/bin/tally-run" "$build/lib/tally/libcuda.so.1" "$build/lib/tally/device/libnvidia-ml.so.1"
need_plain "$build/lib/tally/libcuda.so.1"
export PYTHONPATH=runtime/python PYTHONDONTWRITEBYTECODE=1 TALLY_DEVICE_MEM=8G TALLY_DEVICE_NAME=tally-ray-$$
PATH=$build/bin:$PATH python3 - <<'END'
import os
import shlex
import subprocess
import sys

import tally_ray

checks = 0


def expect(what, got, wanted):
    global checks
    checks += 1
    if got != wanted:
        sys.exit(f"FAIL {what}: got {got!r}, wanted {wanted!r}")


def refused(what, kind, part, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kind as error:
        expect(f"{what}: '{part}' in '{error}'", part in str(error), True)
        return
    sys.exit(f"FAIL {what}: it was not refused")


def settings(*arguments, **named):
    return tally_ray.gpu(*arguments, **named)["runtime_env"]["tally"]


expect("a fraction", tally_ray.gpu(0.3, priority="low"),
       {"num_gpus": 0.3, "runtime_env": {"tally": {"priority": "low", "share": "30%", "memory_fraction": 0.3}}})
expect("of the highest level", settings(0.25, priority="high"), {"priority": "high", "memory_fraction": 0.25})
expect("the same by number", settings(0.25, priority=100), {"priority": 100, "memory_fraction": 0.25})
expect("a whole GPU", settings(1, priority="low"), {"priority": "low"})
expect("two", tally_ray.gpu(2), {"num_gpus": 2, "runtime_env": {"tally": {}}})
expect("other limits", settings(0.5, max_share="60%", memory="4G"), {"max_share": "60%", "memory": "4G"})
expect("none", settings(0.5, share=None, memory=None), {})
expect("beside others", tally_ray.gpu(0.5, runtime_env={"pip": ["x"]}, share=None, memory=None)["runtime_env"], {"pip": ["x"], "tally": {}})
for number in (0, -1, 1.5, "0.5", True, float("nan")):
    refused(f"num_gpus={number}", ValueError, "num_gpus", tally_ray.gpu, number)
refused("an unknown option", ValueError, "it may have priority", tally_ray.gpu, 0.5, prio="low")
refused("a list", ValueError, "a text or a number", tally_ray.gpu, 0.5, weight=[1])
refused("twice", ValueError, "already", tally_ray.gpu, 0.5, runtime_env={"tally": {}})

# What num_gpus alone becomes where tally_ray is installed; that needs Ray.
fraction = tally_ray._with_fraction
expect("num_gpus alone", fraction({"num_gpus": 0.3}), {"tally": {"share": "30%", "memory_fraction": 0.3}})
expect("beside a runtime_env", fraction({"num_gpus": 0.3, "runtime_env": {"pip": ["x"]}})["pip"], ["x"])
for options in ({}, {"num_gpus": None}, {"num_gpus": 0}, {"num_gpus": 1}, {"num_gpus": 2}, {"num_gpus": True}, {"num_gpus": "0.5"},
                {"num_gpus": 0.3, "runtime_env": {"tally": {}}}, {"num_gpus": 0.3, "runtime_env": {"py_executable": "x"}}):
    expect(f"left alone: {options}", fraction(options), None)
try:
    import ray
except ImportError:
    refused("a hook without Ray", RuntimeError, "use tally_ray.gpu", tally_ray.hook, {})
refused("a hook with nonsense", ValueError, "it may have priority", tally_ray.hook, {"tally": {"prio": 1}})

line = tally_ray.command({**settings(0.25, priority="low"), "device": "soft", "job": "a b"}, "python3 -u")
words = shlex.split(line)
expect("the command", [os.path.basename(words[0]), *sorted(words[1:])],
       ["tally-run", *sorted(["-q", "--priority=low", "--share=25%", "--job=a b", "--device=soft", f"--memory={2 << 30}", "python3", "-u"])])
said = subprocess.run(["bash", "-c", f"exec {line} -c 'import os; print(os.environ[\"TALLY_MEMORY\"], os.environ[\"TALLY_JOB\"])'"],
                      env={**os.environ, "TALLY_OFF": "1"}, check=True, capture_output=True, text=True).stdout
expect("what the program is given", said.strip(), f"{2 << 30} a b")
refused("what tally-run refuses", RuntimeError, "TALLY_PRIORITY=urgent", tally_ray.command, {"priority": "urgent", "device": "soft"}, "python3")
refused("another tally-run", RuntimeError, "this node has no /nonexistent", tally_ray.command, {"tally_run": "/nonexistent"}, "python3")
print(f"{checks} checks of tally_ray")
END

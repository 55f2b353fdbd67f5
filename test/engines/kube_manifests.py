"""Checks manifests: by the schemas of Kubernetes (PyPI's kubernetes-validate has them), and that what they call is there.

usage: kube_manifests.py BUILD FILE...
"""
import copy
import subprocess
import sys

import kubernetes_validate
import yaml

VERSIONS = ("1.31", "1.37")
RESOURCES = {"tally.dev/high", "tally.dev/low", "tally.dev/memory"}
build, files = sys.argv[1], sys.argv[2:]
checks = 0


def fail(message):
    sys.exit(f"FAIL {message}")


def pod_of(manifest):
    """The specification of its pods, or None."""
    spec = manifest.get("spec", {})
    return spec.get("template", {}).get("spec") or (spec if manifest["kind"] == "Pod" else None)


def is_refused(manifest, version):
    try:
        kubernetes_validate.validate(manifest, version, strict=True)
    except kubernetes_validate.ValidationError:
        return True
    return False


def check_schema(name, manifest):
    global checks
    for version in VERSIONS:
        kubernetes_validate.validate(manifest, version, strict=True)
        # The check itself is worth something: a name that is not there, and a value of another type.
        wrong = copy.deepcopy(manifest)
        wrong["metadata"]["nmae"] = "x"
        other = copy.deepcopy(manifest)
        other["metadata"]["labels"] = ["x"]
        if not is_refused(wrong, version) or not is_refused(other, version):
            fail(f"{name}: mistakes are not found")
        checks += 3


def check_programs(name, container):
    """What of ours is called takes the options that it gets."""
    global checks
    words = " ".join(container["command"]).split()
    program = next((word for word in words if word.startswith("/opt/tally/bin/")), None)
    if program is None:
        return
    told = subprocess.run([f"{build}/bin/{program.rsplit('/', 1)[1]}", "--help"], check=True, capture_output=True, text=True).stdout
    for word in words[words.index(program) + 1:]:
        checks += 1
        if f"{word.split('=')[0]}=" not in told:
            fail(f"{name}: {program} knows no {word}")


def check_pod(name, pod):
    global checks
    volumes = {volume["name"] for volume in pod.get("volumes", [])}
    for container in pod.get("initContainers", []) + pod["containers"]:
        check_programs(name, container)
        mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
        asked = {key for key in container.get("resources", {}).get("limits", {}) if "/" in key}
        checks += 2
        if not mounted <= volumes:
            fail(f"{name}: {mounted - volumes} is mounted and is no volume")
        if not asked <= RESOURCES or ("tally.dev/memory" in asked and len(asked) != 2):
            fail(f"{name}: {asked} is asked for; Tally has slots, and memory with a slot")


for file in files:
    with open(file, encoding="utf-8") as text:
        for document in yaml.safe_load_all(text):
            check_schema(file, document)
            if pod_of(document) is not None:
                check_pod(file, pod_of(document))
print(f"{checks} checks of manifests")

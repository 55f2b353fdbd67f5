"""Checks manifests: by the schemas of Kubernetes (PyPI's kubernetes-validate has them), and that what they call is there.  Of a page,
those that stand in it; an InferenceService of KServe's by the pod that KServe makes of it.

usage: kube_manifests.py BUILD FILE...
"""
import copy
import os
import re
import subprocess
import sys
import textwrap

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


def check_variables(name, pod, annotations):
    """What a container sets of Tally's, tally-run takes."""
    global checks
    for container in pod["containers"]:
        given = {}
        for variable in container.get("env", []):
            if not variable["name"].startswith("TALLY_"):
                continue
            path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            key = re.fullmatch(r"metadata\.annotations\['(.*)'\]", path)[1] if path else None
            given[variable["name"]] = annotations[key] if path else variable["value"]
        for wrong in ({}, *({key: "no such value"} for key in given)):
            done = subprocess.run([f"{build}/bin/tally-run", "--quiet", "--device=soft", "true"], check=False, capture_output=True,
                                  env={**os.environ, **given, **wrong, "TALLY_OFF": "1"})
            checks += 1
            if (done.returncode == 0) != (not wrong):
                fail(f"{name}: {given} with {wrong}: status {done.returncode}")


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


def pod_of_service(service):
    """A pod with the container that KServe makes of a predictor: what it does not know it hands on."""
    model = dict(service["spec"]["predictor"]["model"])
    for own in ("modelFormat", "storageUri"):
        model.pop(own)
    container = {"name": "kserve-container", "image": "registry.example/runtime:1", **model, "command": ["serve"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": service["metadata"], "spec": {"containers": [container]}}


def documents_of(file):
    text = open(file, encoding="utf-8").read()
    if file.endswith(".md"):
        text = "\n---\n".join(textwrap.dedent(block) for block in re.findall(r"^    apiVersion:.*\n(?:    .*\n)*", text, re.M))
    found = [pod_of_service(d) if d["kind"] == "InferenceService" else d for d in yaml.safe_load_all(text)]
    return found if found else fail(f"{file}: there is no manifest in it")


for file in files:
    for document in documents_of(file):
        check_schema(file, document)
        if pod_of(document) is not None:
            template = document if document["kind"] == "Pod" else document["spec"]["template"]
            check_pod(file, pod_of(document))
            check_variables(file, pod_of(document), template["metadata"].get("annotations", {}))
print(f"{checks} checks of manifests")

#!/usr/bin/env python3
"""Reads OpenMetrics text strictly, as the specification has it, and complains about whatever is not.

usage: openmetrics.py [FILE]      standard input if none is named; exit status 1 with a complaint

As a module: parse(text) returns {family: (type, {(sample name, labels as a frozenset): value})}.
"""
import math
import re
import sys

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\Z|[+-]?[Ii]nf\Z|NaN\Z")
SUFFIXES = {
    "counter": {"_total", "_created"},
    "gauge": {""},
    "info": {"_info"},
    "histogram": {"_bucket", "_count", "_sum", "_created"},
}


class Bad(Exception):
    pass


def need(condition, line, what):
    if not condition:
        raise Bad(f"{what}: {line[:200]!r}")


def number(text, line):
    need(NUMBER.match(text), line, "not a number")
    return float(text)


def labels(text, at, line):
    """From behind the opening brace: the labels and where they end."""
    found = {}
    while text[at] != "}":
        if found:
            need(text[at] == ",", line, "a comma is missing")
            at += 1
        equals = text.index("=", at)
        name = text[at:equals]
        need(LABEL.match(name), line, f"label {name!r}")
        need(name not in found, line, f"label {name} twice")
        need(text[equals + 1] == '"', line, "a quote is missing")
        at, value = equals + 2, ""
        while text[at] != '"':
            if text[at] == "\\":
                need(text[at + 1] in '\\"n', line, "an escape")
                value += {"n": "\n"}.get(text[at + 1], text[at + 1])
                at += 2
            else:
                value += text[at]
                at += 1
        found[name] = value
        at += 1
    return found, at + 1


def sample(line, family, kind):
    at = re.match(r"[a-zA-Z0-9_:]*", line).end()
    name = line[:at]
    found = {}
    try:
        if line[at] == "{":
            found, at = labels(line, at + 1, line)
    except (IndexError, ValueError):
        raise Bad(f"labels do not end: {line[:200]!r}") from None
    need(line[at : at + 1] == " ", line, "a blank is missing")
    need(name.startswith(family), line, f"not of the family {family}")
    need(name[len(family) :] in SUFFIXES[kind], line, f"no sample of a {kind}")
    value = number(line[at + 1 :], line)
    if kind in ("counter", "histogram"):
        need(value >= 0, line, "a counter below zero")
    if kind == "info":
        need(value == 1, line, "an info is 1")
    return name, found, value


def check_histogram(family, samples):
    series = {}
    for (name, found), value in samples.items():
        rest = dict(found)
        le = rest.pop("le", None)
        entry = series.setdefault(frozenset(rest.items()), {"buckets": []})
        if name.endswith("_bucket"):
            entry["buckets"].append((math.inf if le == "+Inf" else float(le), value))
        else:
            entry[name[len(family) :]] = value
    for entry in series.values():
        bounds = [b for b, _ in entry["buckets"]]
        counts = [c for _, c in entry["buckets"]]
        if bounds != sorted(set(bounds)) or counts != sorted(counts) or bounds[-1:] != [math.inf]:
            raise Bad(f"buckets of {family}: {entry}")
        if entry.get("_count") != counts[-1] or "_sum" not in entry:
            raise Bad(f"count or sum of {family}: {entry}")


def parse(text):
    need(text.endswith("# EOF\n"), text[-100:], "no # EOF at the end")
    families, family, kind, meta = {}, None, None, set()
    for line in text[: -len("# EOF\n")].split("\n")[:-1]:
        need(line == line.strip(), line, "blanks around a line")
        if line.startswith("#"):
            words = line.split(" ", 3)
            need(len(words) == 4 and words[1] in ("TYPE", "UNIT", "HELP"), line, "not understood")
            need(NAME.match(words[2]), line, "a name")
            if words[2] != family:
                need(words[1] == "TYPE", line, "TYPE is not first")
                need(words[2] not in families, line, "a family is in two places")
                need(words[3] in SUFFIXES, line, "a type")
                family, kind, meta = words[2], words[3], set()
                families[family] = (kind, {})
            need(words[1] not in meta and not families[family][1], line, "twice, or behind samples")
            meta.add(words[1])
            if words[1] == "UNIT":
                need(family.endswith("_" + words[3]), line, "the unit is not in the name")
            continue
        need(family is not None, line, "a sample of no family")
        name, found, value = sample(line, family, kind)
        key = (name, frozenset(found.items()))
        need(key not in families[family][1], line, "a series twice")
        families[family][1][key] = value
    for family, (kind, samples) in families.items():
        if kind == "histogram":
            check_histogram(family, samples)
    return families


if __name__ == "__main__":
    try:
        with open(sys.argv[1] if len(sys.argv) > 1 else 0, encoding="utf-8", newline="") as file:
            told = parse(file.read())
    except (Bad, UnicodeDecodeError) as complaint:
        sys.exit(f"openmetrics: {complaint}")
    print(f"{len(told)} families, {sum(len(s) for _, s in told.values())} samples")

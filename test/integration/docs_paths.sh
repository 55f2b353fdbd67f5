#!/usr/bin/env bash
# What the documents name is there: every path of the tree in *.md, in manual pages, and in comments and scripts; every target of
# make, and every test that a T= names.
set -euo pipefail
. test/integration/needs.inc

command -v python3 >/dev/null || skip "no python3"
python3 - "${TALLY_BUILD:-build}" "$@" <<'END'
import fnmatch
import os
import pathlib
import re
import sys

# Files that are not the tree's: Unity's, CUDA's, those of other projects' suites, and what examples invent.
STRANGERS = re.compile(r"unity(_internals)?\.[ch]|cuda\w*\.h|stddef\.h|(test_\w+|\w+_base|\*_test)\.py|serve\.py|train\.py|\.c")
WORD = r"[A-Za-z0-9_.*+-]"
PATH = re.compile(rf"(?<![A-Za-z0-9_./*-])({WORD}+(?:/{WORD}+)*/?)")
SOURCE = re.compile(r"\.(c|h|S|sh|inc|mk|py|cu|md|svg|txt|supp|scd)$")

tree = set()
for folder, folders, names in os.walk("."):
    folders[:] = [f for f in folders if f not in (".git", "build", "__pycache__")]
    tree |= {os.path.relpath(os.path.join(folder, n), ".") for n in folders + names}
tops = {p for p in tree if os.path.isdir(p) and "/" not in p}
basenames = {os.path.basename(p) for p in tree}
tests = {str(p.relative_to("test/unit"))[: -len("_test.c")] for p in pathlib.Path("test/unit").rglob("*_test.c")}
tests |= {p.stem for p in pathlib.Path("test/integration").glob("*.sh")}
makefiles = "\n".join(p.read_text() for p in [pathlib.Path("Makefile"), *pathlib.Path(".").glob("*/*.mk"),
                                                *pathlib.Path(".").glob("*/*/*.mk")] if p.parts[0] != "build")
targets = set(" ".join(re.findall(r"^((?:\.PHONY:)?[\w -]+)(?::(?!=)|$)", makefiles, re.M)).split())


def exists(name, home):
    """A path from the top or from where it is mentioned; with *, a pattern."""
    for path in (name, os.path.normpath(os.path.join(home, name))):
        if path in tree or any(fnmatch.fnmatch(t, path) for t in tree if "*" in path):
            return True
    return False


def is_there(name, home, is_document):
    is_folder = name.endswith("/") and name.count("/") == 1 and home == ""
    name = name.rstrip("./-").replace("NAME", "*").replace("ROOM", "*")
    if name.split("/")[0] == "build" or STRANGERS.fullmatch(os.path.basename(name)):
        return True
    top = name.split("/")[0]
    if is_folder and is_document:
        return exists(name, home)
    if "/" in name and top in tops:
        # A program is called by its source's name, a test by its path under test/unit.
        return exists(name, home) or exists(name + ".*", home) or re.sub("_test$", "", name) in tests
    if not is_document or not SOURCE.search(name) or name.startswith(".."):
        return True
    if "/" in name:
        return exists(name, home) or any(t.endswith("/" + name) for t in tree)
    return bool(fnmatch.filter(basenames, name))


def documents():
    for p in sorted(tree):
        if p.endswith(".md") and not p.startswith("test/cases") or p.startswith("docs/man/"):
            yield p, True
        elif re.search(r"\.(c|h|S|sh|inc|mk|py)$", p) and p.split("/")[0] in tops or p == "Makefile" or p.startswith("scripts/"):
            yield p, False


wrong, checked = [], 0
for path, is_document in documents():
    if os.path.isdir(path) or path == "test/integration/docs_paths.sh" or path == "test/integration/rooms.sh":
        continue
    text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        spans = [line] if is_document else [m for m in re.findall(r"(?:/\*|^\s*\*|//|#).*", line) if "#include" not in m]
        for span in spans:
            span = re.sub(r"[a-z]+://\S+", "", span)
            for name in PATH.findall(span):
                if "/" not in name and not SOURCE.search(name):
                    continue
                checked += 1
                if not is_there(name, os.path.dirname(path), is_document):
                    wrong.append(f"{path}:{number}: there is no {name}")
            if is_document:
                for words in re.findall(r'make test T=(?:"([^"]*)"|([\w/%]+))', span):
                    for pattern in "".join(words).split():
                        checked += 1
                        if not fnmatch.filter(tests, pattern.replace("%", "*")):
                            wrong.append(f"{path}:{number}: there is no test {pattern}")
                for name in re.findall(r"`([\w/]+_test)`", span):
                    checked += 1
                    if not name.startswith("build/") and name[: -len("_test")] not in tests:
                        wrong.append(f"{path}:{number}: there is no test {name}")
                for target in re.findall(r"`make ([a-z][\w-]*)", span):
                    checked += 1
                    if target not in targets:
                        wrong.append(f"{path}:{number}: make has no target {target}")
for line in wrong:
    print(line)
if len(tests) < 50 or checked < 500:
    wrong.append("few")
    print(f"only {len(tests)} tests and {checked} mentions were found: this test looks at the wrong place")
print(f"{checked} mentions, {len(wrong)} of what is not there")
sys.exit(1 if wrong else 0)
END

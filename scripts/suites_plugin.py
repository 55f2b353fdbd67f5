"""Loaded into pytest by scripts/suites: tells which cases there are, runs those that were chosen, and says of each, while the
process lives, that it begins and how it ended.  Names are compared as pytest makes them, so none needs quoting."""
import json
import os

import pytest


def _say(row):
    with open(os.environ["SUITES_TOLD"], "a", encoding="utf-8") as f:
        f.write(json.dumps(row) + "\n")


def pytest_collection_modifyitems(config, items):
    if "SUITES_COLLECTED" in os.environ:
        with open(os.environ["SUITES_COLLECTED"], "w", encoding="utf-8") as f:
            f.write("".join(json.dumps(item.nodeid) + "\n" for item in items))
    if "SUITES_CHOSEN" in os.environ:
        with open(os.environ["SUITES_CHOSEN"], encoding="utf-8") as f:
            chosen = {json.loads(line) for line in f}
        items[:] = [item for item in items if item.nodeid in chosen]


def pytest_runtest_logstart(nodeid, location):
    if "SUITES_TOLD" in os.environ:
        _say({"begin": nodeid})


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    """numba-cuda's tests want this of a conftest.py that its package leaves out."""
    request.cls._dump_failed_filechecks = False


def _ends(text):
    """The first of what was raised, to which some frameworks add where they were called from, and the end."""
    at = max(0, text.find("\nE "))
    return text if len(text) <= 4000 else f"{text[at:at + 2500]}\n...\n{text[-1500:]}"


_worst = {}


def pytest_runtest_logreport(report):
    """Of a case's three steps the worst counts."""
    if "SUITES_TOLD" not in os.environ:
        return
    row = _worst.setdefault(report.nodeid, {"case": report.nodeid, "result": "passed", "why": "", "seconds": 0})
    row["seconds"] = round(row["seconds"] + report.duration, 2)
    if report.failed:
        row["result"], row["why"] = "failed" if report.when == "call" else "error", _ends(report.longreprtext)
    elif report.skipped and row["result"] == "passed":
        row["result"] = "skipped"
        row["why"] = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(getattr(report, "wasxfail", ""))
    if report.when == "teardown":
        _say(_worst.pop(report.nodeid))

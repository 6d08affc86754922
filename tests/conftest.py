"""The order of test files, the group of each, and where temporary files lie.

A file's tests run in one process, so that what they share is made once, unless they are
marked `spread`. Tests that need a cluster or a Prefect server run in one process for
each folder of `tests` that has them. Groups start in the order of `durations.json`,
those of the longest files first, so that none is left over at the end. `make durations`
renews that file.
"""

import gc
import json
import os
import shutil
import sys
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path

import pytest
from ruamel.yaml import YAML

TESTS = Path(__file__).parent
DURATIONS = TESTS / "durations.json"
MEMORY = Path("/dev/shm")
CPU = Path("/proc/cpuinfo")
ENOUGH = 4 * 2**30  # bytes in memory for what tests write
UNKNOWN = 5.0  # seconds of a file that was not measured
UNKNOWN_SERVER = 60.0  # and of one whose tests start servers
TEXTS = 64  # of YAML whose nodes are kept
SERVERS = ("prefect", "cluster")  # markers whose tests share servers


def pytest_addoption(parser):
    parser.addoption(
        "--record-durations",
        action="store_true",
        help=f"write the seconds of each test file that runs to tests/{DURATIONS.name}",
    )


def pytest_configure(config):
    # On processors that are not Intel's, last bits of products and chains depend on
    # where in memory arrays lie, unless all go the way that all processors have.
    known = CPU.read_text(encoding="utf-8") if CPU.exists() else "GenuineIntel"
    if "GenuineIntel" not in known:
        os.environ.setdefault("MKL_CBWR", "COMPATIBLE")
        os.environ.setdefault("ATEN_CPU_CAPABILITY", "default")
    # Folders of tests in memory: thousands of stores are flushed to the medium, and the
    # medium is no subject of these tests.
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ENOUGH:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    config.option.loadscopereorder = False  # else xdist starts with the most tests
    if config.getoption("record_durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(), "durations")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    # A million objects of modules and tests stay to the end: garbage is not looked for
    # among them, and rarely among all others.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(3000, 10, 40)
        gc.enable()


def pytest_itemcollected(item):
    # Here, since xdist reads groups before the items of this file's other hooks.
    if not item.get_closest_marker("spread"):
        item.add_marker(pytest.mark.xdist_group(group(item)))


def pytest_collection_modifyitems(items):
    measured = json.loads(DURATIONS.read_text(encoding="utf-8"))
    known = {name: entry["seconds"] for name, entry in measured.items()}
    groups = defaultdict(list)
    for item in items:
        groups[group(item)].append(item)
    seconds = {
        name: sum(
            known.get(file, UNKNOWN_SERVER if server_of(own[0]) else UNKNOWN)
            for file in {file_of(item.nodeid) for item in own}
        )
        for name, own in groups.items()
    }
    items.clear()
    for name in sorted(groups, key=lambda name: -seconds[name]):
        items += groups[name]


@pytest.fixture(scope="session", autouse=True)
def composed():
    """Compose a text of YAML once: many tests open the same studies."""
    compose, kept = YAML.compose, {}

    def once(self, text):
        if text not in kept:
            kept[text] = compose(self, text)
            if len(kept) > TEXTS:
                del kept[next(iter(kept))]
        return kept[text]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(YAML, "compose", once)
        yield


@pytest.fixture(scope="session", autouse=True)
def commands():
    """Let commands freeze nothing: the process goes on, and its garbage would stay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("curvflow.cli.app.one_command", nullcontext)
        yield


@pytest.fixture(autouse=True)
def import_path():
    """Take off what a study that was opened put on the path, which all would search."""
    before = sys.path[:]
    yield
    sys.path[:] = before


def group(item):
    """Name the tests of one process: a server's of a folder, a file's, or one."""
    file = file_of(item.nodeid)
    if item.get_closest_marker("spread"):
        return item.nodeid
    if server := server_of(item):
        return f"{server}:{'/'.join(file.split('/')[:-1][:2])}"
    return file


def server_of(item):
    """Return the server that a test needs, or None."""
    return next((name for name in SERVERS if item.get_closest_marker(name)), None)


def file_of(nodeid):
    return nodeid.partition("::")[0]


class Recorder:
    """The seconds and the number of tests of each file of this run."""

    def __init__(self):
        self.seconds, self.tests = defaultdict(float), defaultdict(int)

    def pytest_runtest_logreport(self, report):
        file = file_of(report.nodeid)
        self.seconds[file] += report.duration
        self.tests[file] += report.when == "call"

    def pytest_sessionfinish(self):
        found = json.loads(DURATIONS.read_text(encoding="utf-8"))
        found = {name: v for name, v in found.items() if (TESTS.parent / name).exists()}
        for file, seconds in self.seconds.items():
            found[file] = {"seconds": round(seconds, 1), "tests": self.tests[file]}
        longest = sorted(found.items(), key=lambda entry: -entry[1]["seconds"])
        lines = [f"  {json.dumps(file)}: {json.dumps(v)}" for file, v in longest]
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        DURATIONS.write_text(text, encoding="utf-8")

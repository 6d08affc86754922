"""Changes that were taken as done: each has to run something again."""

import sys

import pytest

import curvflow
from curvflow.flows.reads import places
from tests.flows.reads.project import HERE, Project, flip, reader

pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
FRESH = f"""
import collections, functools, importlib, sys, threading, time, types
from dataclasses import dataclass
import pandas as pd
{HERE}
def fresh():
    return float(open(HERE + "/x.txt").read())
"""
CHOSEN = """
class Chosen(Params):
    seed: int

@stage("my.one", version=1, outputs=VALUE)
def one(params: Chosen) -> dict[str, object]:
    return {"value": np.asarray(float(load()) + params.seed)}
"""


def three(mine: Project, text: str) -> None:
    """Write a kind that takes its number from `load`, for three nodes."""
    mine.kinds(FRESH + text + CHOSEN)
    mine.study(axes="{seed: 3}", one='use: "mine:one", seed: "${seed}"')


DEEP = "KEPT[0][0][0][0][0][0][0]"
# By name: a value made empty, how it is filled, and how the number is taken from it.
HOLDERS = {
    "namespace": ("types.SimpleNamespace(v=0)", "KEPT.v = fresh()", "KEPT.v"),
    "slots": ("Slots()", "KEPT.v = fresh()", "KEPT.v"),
    "deque": ("collections.deque([0])", "KEPT[0] = fresh()", "KEPT[0]"),
    "bytes": ("bytearray(b'0')", "KEPT[:] = b'%d' % fresh()", "float(bytes(KEPT))"),
    "partial": (
        "functools.partial(dict, v=[0])",
        "KEPT()['v'][0] = fresh()",
        "KEPT()['v'][0]",
    ),
    "user": ("collections.UserDict({1: 0})", "KEPT[1] = fresh()", "KEPT[1]"),
    "frame": ("pd.DataFrame({'v': [0.0]})", "KEPT['v'] = [fresh()]", "KEPT['v'][0]"),
    "deep": ("[[[[[[[0]]]]]]]", "KEPT[0][0][0][0][0][0][0] = fresh()", DEEP),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_value_kept_in_any_holder_counts_for_later_calls(mine, holder):
    mine.write("x.txt", "1")
    made, fill, value = HOLDERS[holder]
    three(
        mine,
        f"""
@dataclass(slots=True)
class Slots:
    v: float = 0

KEPT = {made}
def load():
    if not {value}:
        {fill}
    return {value}
""",
    )
    assert mine.executed() == {"one": 3}
    flip(mine.folder / "x.txt")
    assert mine.executed() == {"one": 3}
    assert mine.executed() == {}


def test_a_generator_of_a_module_counts_for_whoever_draws_from_it(mine):
    mine.write("x.txt", "1")
    three(
        mine,
        """
def endless():
    value = fresh()
    while True:
        yield value
DRAWN = endless()
def load():
    return next(DRAWN)
""",
    )
    assert mine.executed() == {"one": 3}
    flip(mine.folder / "x.txt")
    assert mine.executed() == {"one": 3}


def test_what_others_put_into_a_module_that_reads_as_well_is_held_by_it(mine):
    mine.write("x.txt", "1")
    mine.write("limit.txt", "5")
    mine.write(
        "cached.py",
        f"""
{HERE}
KEPT = {{}}
def get(key):
    return KEPT.get(key)
def put(key, value):
    if len(KEPT) < int(open(HERE + "/limit.txt").read()):
        KEPT[key] = value
""",
    )
    three(
        mine,
        """
import cached
def load():
    if cached.get("x") is None:
        cached.put("x", fresh())
    return cached.get("x")
""",
    )
    assert mine.executed() == {"one": 3}
    flip(mine.folder / "x.txt")
    assert mine.executed() == {"one": 3}


IMPORTS = {
    "computed": 'importlib.import_module("plug" + "ged%d" % 0)',
    "called": '__import__("plug" + "ged%d" % 0)',
    "statement": "sys.path.insert(0, HERE + '/plugins'); import plugged0",
}


@pytest.mark.parametrize("how", IMPORTS)
@pytest.mark.parametrize("file", ["plugged0.py", "helping0.py", "value.txt"])
def test_a_module_that_no_text_leads_to_counts_for_every_call(mine, how, file):
    folder = "plugins/" if how == "statement" else ""
    mine.write(f"{folder}value.txt", "1")
    mine.write(f"{folder}helping0.py", "MORE = 1\n")
    mine.write(
        f"{folder}plugged0.py",
        f'import helping0\n{HERE}VALUE = float(open(HERE + "/value.txt").read())\n'
        "VALUE += helping0.MORE + 1\n",
    )
    mine.names |= {"plugged0", "helping0"}
    three(
        mine,
        f"""
def load():
    {IMPORTS[how]}
    return sys.modules["plugged0"].VALUE
""",
    )
    assert mine.executed() == {"one": 3}
    assert mine.executed() == {}
    flip(mine.folder / folder / file)
    assert mine.executed() == {"one": 3}
    assert mine.executed() == {}


OPENINGS = {
    "appending": 'f = open(X, "a+"); f.seek(0); return float(f.read())',
    "creating": "return float(os.read(os.open(X, os.O_RDWR | os.O_CREAT), 99))",
    "linked": 'os.link(X, X + ".l"); os.rename(X + ".l", X + ".m")\n'
    '    f = open(X + ".m"); os.remove(X + ".m"); return float(f.read())',
    "above": 'return float(open(HERE + "/link/../x.txt").read())',
}


@pytest.mark.parametrize("how", OPENINGS)
def test_an_opening_that_reads_counts_however_it_is_written(mine, how):
    path = mine.write("far/x.txt" if how == "above" else "x.txt", "1")
    if how == "above":
        (mine.folder / "far/sub").mkdir()
        (mine.folder / "link").symlink_to("far/sub")
    reader(mine, f'X = HERE + "/x.txt"\ndef read():\n    {OPENINGS[how]}')
    assert mine.executed() == {"one": 1, "two": 1}
    assert mine.executed() == {}
    flip(path)
    assert mine.executed() == {"one": 1}
    assert mine.executed() == {}


def test_a_thread_that_reads_between_two_calls_counts_for_the_module(mine):
    mine.write("x.txt", "1")
    three(
        mine,
        """
from concurrent.futures import ThreadPoolExecutor
def slow():
    time.sleep(0.4)
    return fresh()
LATER = ThreadPoolExecutor(1).submit(slow)
def load():
    return LATER.result()
""",
    )
    assert mine.executed() == {"one": 3}
    flip(mine.folder / "x.txt")
    assert mine.executed() == {"one": 3}


def test_a_declared_file_that_changes_while_a_node_runs_counts_as_changing(mine):
    path = mine.write("x.bin", "1")
    mine.write("swap", "now")
    reader(
        mine,
        """
def read():
    if open(HERE + "/swap").read():
        os.system(f"echo 2 > {HERE}/x.bin")  # after it was used
    return 1.0
""",
    )
    mine.study(one='use: "mine:one", files: [x.bin]')
    mine.executed()
    assert path.read_text() == "2\n"
    assert mine.causes() == ["file x.bin: changed while it was read"]
    mine.write("swap", "")
    assert mine.executed() == {"one": 1}
    assert mine.executed() == {}


def test_a_folder_of_the_project_that_is_named_as_one_of_python_counts(
    mine, monkeypatch
):
    monkeypatch.setattr(sys, "prefix", str(mine.folder))
    mine.write("share/x.txt", "1")
    reader(mine, 'def read():\n    return float(open(HERE + "/share/x.txt").read())')
    for known in (places._installed, places.origin):
        known.cache_clear()
    try:
        mine.executed()
    finally:
        monkeypatch.undo()
        for known in (places._installed, places.origin):
            known.cache_clear()
    assert set(mine.reads()["one"]["files"]) == {"share/x.txt"}


def test_another_study_that_is_read_by_the_interface_counts(mine, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "study.yaml").write_text("study: o\nstages:\n  k: {use: data.xor}\n")
    reader(
        mine,
        f"""
import curvflow
def read():
    return float(len(curvflow.open({str(other / "study.yaml")!r})["k"]["inputs"]))
""",
    )
    curvflow.run(other / "study.yaml", workers=1)
    assert mine.executed() == {"one": 1, "two": 1}
    assert mine.executed() == {}
    (other / "study.yaml").write_text("study: o\nstages:\n  l: {use: data.xor}\n")
    assert [n.stage for n in mine.plan().graph if n.state == "stale"] == ["one"]


def test_a_value_of_a_thread_counts_for_later_calls_of_the_thread(mine):
    mine.write("x.txt", "1")
    three(
        mine,
        """
KEPT = threading.local()
def load():
    if not vars(KEPT):
        KEPT.value = fresh()
    return KEPT.value
""",
    )
    assert mine.executed() == {"one": 3}
    flip(mine.folder / "x.txt")
    assert mine.executed() == {"one": 3}

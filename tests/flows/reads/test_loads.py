"""Modules that computed names lead to count as a run has recorded them."""

import sys
import threading

import pytest

import curvflow
from curvflow import Answer
from curvflow.errors import ChangedCodeError
from curvflow.flows.reads import ledgers, windows
from tests.flows.reads.project import HERE, KINDS, ONE, reader

pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
LOADING = """
import importlib
from helping import SCALE
def read():
    return SCALE * getattr(importlib.import_module(open(HERE + "/which").read()), "V")
"""
DIRECT = """
from helping import SCALE
@stage("my.one", version=1, outputs=VALUE)
def one() -> dict[str, object]:
    found = __import__(open(HERE + "/which").read())
    return {"value": np.asarray(SCALE * found.V)}
"""


@pytest.fixture
def lab(mine, monkeypatch):
    """Modules `far` and `helping`, of both of which a name is used by text."""
    monkeypatch.setattr(windows, "is_script", lambda: False)
    mine.write("helping.py", "from far import W\nSCALE = 2.0 * W\nV = 5.0\n")
    mine.write("far.py", "V, W = 3.0, 1.0\n\ndef other():\n    return 1\n")
    mine.write("which", "far")
    reader(mine, LOADING)
    return mine


def edit(lab, name: str, old: str, new: str) -> None:
    text = (lab.folder / name).read_text()
    assert old in text
    lab.write(name, text.replace(old, new))


def test_what_a_computed_name_has_led_to_is_in_the_receipt_and_counts(lab):
    assert lab.executed() == {"one": 1, "two": 1}
    assert lab.reads()["one"]["loads"] == ["far"]
    assert "loads" not in (lab.reads()["two"] or {})
    assert lab.executed() == {}
    edit(lab, "far.py", "return 1", "return 2")
    with pytest.raises(ChangedCodeError, match="far:other changed"):
        lab.run()


def test_what_it_has_not_led_to_counts_by_the_names_that_are_used(lab):
    lab.executed()
    edit(lab, "helping.py", "V = 5.0", "V = 6.0\ndef unused(): return 1")
    assert lab.executed() == {}
    edit(lab, "helping.py", "SCALE = 2.0", "SCALE = 3.0")
    with pytest.raises(ChangedCodeError, match="helping:SCALE changed"):
        lab.run()


def test_another_name_in_a_file_computes_again_and_is_recorded(lab):
    lab.executed()
    lab.write("which", "helping")
    assert lab.executed() == {"one": 1}
    assert lab.reads()["one"]["loads"] == ["helping"]  # in a process of its own
    assert lab.executed() == {}


@pytest.mark.parametrize("why", ["no record", "a script", "another call"])
def test_without_a_whole_record_all_that_is_imported_counts(lab, why, monkeypatch):
    options = {"record_reads": False} if why == "no record" else {}
    if why == "a script":
        monkeypatch.setattr(windows, "is_script", lambda: True)
    if why == "another call":
        monkeypatch.setattr(ledgers, "by_name", _NeverEmpty({ledgers.UNKNOWN}))
    lab.executed(**options)
    assert "loads" not in lab.reads()["one"]
    edit(lab, "helping.py", "V = 5.0", "V = 6.0")
    with pytest.raises(ChangedCodeError, match="helping:V changed"):
        lab.run()


def test_a_kind_that_loads_by_itself_is_seen(lab):
    lab.kinds(f"{HERE}{DIRECT}", one='use: "mine:one"')
    assert lab.executed() == {"one": 1}
    assert lab.reads()["one"]["loads"] == ["far"]


def test_a_result_of_the_text_alone_is_compared_as_before(lab):
    lab.executed(record_reads=False)
    assert lab.executed() == {}
    edit(lab, "helping.py", "SCALE = 2.0", "SCALE = 2.5")
    with pytest.raises(ChangedCodeError, match="helping:SCALE changed"):
        lab.run()


def test_an_accepted_change_is_settled(lab):
    lab.executed()
    edit(lab, "far.py", "return 1", "return 2")
    lab.run(answer=Answer(accept=["my.one"], reason="the same"))
    assert lab.executed() == {}
    edit(lab, "helping.py", "V = 5.0", "V = 7.0")
    assert lab.executed() == {}


def test_a_module_that_was_not_there_counts_once_it_is(lab):
    lab.write("which", "coming")
    reader(
        lab,
        LOADING.replace("    return", "    try:\n        return", 1)
        + "    except ImportError:\n        return 0.0\n",
    )
    assert lab.executed() == {"one": 1, "two": 1}
    assert lab.reads()["one"]["loads"] == ["coming"]
    assert lab.executed() == {}
    lab.write("coming.py", "V = 1.0\n")
    with pytest.raises(ChangedCodeError, match="coming:V added"):
        lab.run()


RULES = """
import importlib
from helping import SCALE
def read():
    value = SCALE * importlib.import_module(open(HERE + "/which").read()).V
    if text := os.environ.get("SAVED"):
        open(HERE + "/lab/rules/flat.py", "w").write(text)
    return value
"""


@pytest.fixture
def rules(lab):
    """Modules in a package, of which the text names the package alone."""
    lab.write("lab/__init__.py", "")
    lab.write("lab/rules/__init__.py", "K = 1.0\n")
    lab.write("lab/rules/flat.py", "V = 3.0\n")
    lab.write("helping.py", "import lab.rules\nSCALE = lab.rules.K\n")
    lab.write("which", "lab.rules.flat")
    reader(lab, RULES)
    return lab


def value(lab) -> float:
    return float(curvflow.open(lab.folder / "study.yaml")["one"].value)


def test_a_module_that_is_edited_while_it_is_used_counts_as_it_was_loaded(
    rules, monkeypatch
):
    monkeypatch.setenv("SAVED", "V = 4.0\n")
    assert rules.executed()["one"] == 1
    monkeypatch.delenv("SAVED")
    assert "loads" not in rules.reads()["one"]
    assert rules.executed() == {"one": 1}
    assert value(rules) == 4.0
    assert rules.reads()["one"]["loads"] == ["lab", "lab.rules"]
    assert rules.executed() == {}


def test_a_module_that_was_edited_since_it_was_loaded_counts_as_it_was_loaded(
    rules, monkeypatch
):
    rules.executed()
    rules.write("lab/rules/flat.py", "V = 5.0\n")
    with monkeypatch.context() as patch:
        patch.setattr(rules, "forget", lambda: None)  # one process goes on
        rules.run(answer=Answer(rerun=["my.one"]))
    assert "loads" not in rules.reads()["one"]
    assert rules.executed() == {"one": 1}
    assert value(rules) == 5.0


NEAR = """
def read():
    try:
        return {expression}.V
    except (AttributeError, ImportError):
        return 0.0
"""


@pytest.mark.parametrize(
    "expression",
    [
        '__import__(open(HERE + "/which").read(), globals(), None, ["V"], 1)',
        'getattr(__import__("lab", None, None, [NAME := open(HERE + "/which").read()]),'
        " NAME)",
    ],
    ids=["relative", "by a list"],
)
def test_a_module_beside_that_was_not_there_counts_once_it_is(lab, expression):
    lab.write("lab/__init__.py", "")
    lab.write("lab/which", "coming")
    kinds = f"{KINDS}{HERE}{NEAR.format(expression=expression)}{ONE}"
    lab.write("lab/mine.py", kinds)
    lab.study(one='use: "lab.mine:one"')
    assert lab.executed() == {"one": 1}
    assert lab.executed() == {}
    lab.write("lab/coming.py", "V = 1.0\n")
    with pytest.raises(ChangedCodeError, match=r"lab\.coming:"):
        lab.run()


def test_threads_may_load_while_what_was_loaded_is_told(monkeypatch):
    names = {f"lab.n{number}": False for number in range(1000)}
    monkeypatch.setitem(ledgers.linked, "lab", dict(names))
    over = threading.Event()

    def grow():
        for number in range(200_000):
            ledgers.link(ledgers.linked["lab"], {f"lab.m{number}": False})
            if over.is_set():
                break

    thread, before = threading.Thread(target=grow), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        for _ in range(2):
            assert names.keys() <= ledgers.loads(["lab"]).texts.keys()
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(before)


class _NeverEmpty(set):
    """Knows that there was a call at which nobody looked."""

    def clear(self):
        """Keep it."""

"""Modules that computed names lead to count as a run has recorded them."""

import pytest

from curvflow.errors import ChangedCodeError
from curvflow.flows.reads import ledgers, windows
from tests.flows.reads.project import HERE, reader

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
    from curvflow import Answer

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


class _NeverEmpty(set):
    """Knows that there was a call at which nobody looked."""

    def clear(self):
        """Keep it."""

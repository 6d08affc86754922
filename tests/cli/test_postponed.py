"""Libraries that the command line loads when they are used."""

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from threading import Barrier

import pytest

from curvflow.cli import Postponed, postpone

LIBRARY = """
import time

time.sleep(0.05)  # others wait meanwhile
COUNT.append(1)

class Thing:
    pass

def __getattr__(name):
    if name == "late":
        return "late"
    raise AttributeError(f"no {name}")
"""


@pytest.fixture
def loads(tmp_path, monkeypatch):
    """Make a package that can be imported, and return how often it was executed."""
    count = []
    (tmp_path / "heavy_lib").mkdir()
    text = "from builtins import heavy_lib_count as COUNT\n" + LIBRARY
    (tmp_path / "heavy_lib" / "__init__.py").write_text(text)
    (tmp_path / "heavy_lib" / "inner.py").write_text("import heavy_lib\nVALUE = 2\n")
    monkeypatch.setattr("builtins.heavy_lib_count", count, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    yield count
    for name in ("heavy_lib", "heavy_lib.inner"):
        sys.modules.pop(name, None)


def test_an_import_loads_nothing_before_something_is_used(loads):
    postpone("heavy_lib")
    heavy_lib = import_module("heavy_lib")

    again = import_module("heavy_lib")
    assert isinstance(again, Postponed)
    assert not loads
    assert heavy_lib.Thing.__module__ == "heavy_lib"
    assert loads == [1]
    assert not isinstance(sys.modules["heavy_lib"], Postponed)
    assert sys.modules["heavy_lib"].Thing is again.Thing
    assert isinstance(pickle.loads(pickle.dumps(again.Thing())), again.Thing)


@pytest.mark.parametrize(
    "statement", ["import heavy_lib.inner as inner", "from heavy_lib import inner"]
)
def test_a_module_within_it_is_imported_after_it(loads, statement):
    postpone("heavy_lib")
    names = {}
    exec(statement, names)
    assert names["inner"].VALUE == 2
    assert loads == [1]


def test_what_it_lacks_or_makes_on_request_is_as_without_a_stand_in(loads):
    postpone("heavy_lib")
    heavy_lib = import_module("heavy_lib")

    assert heavy_lib.late == "late"
    with pytest.raises(AttributeError, match="no never"):
        _ = heavy_lib.never
    assert loads == [1]


def test_threads_that_use_it_at_once_find_it_whole(loads):
    postpone("heavy_lib")
    heavy_lib = import_module("heavy_lib")

    together = Barrier(8)

    def use(_):
        together.wait()
        return heavy_lib.Thing

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(use, range(8)))) == 1
    assert loads == [1]


def test_a_library_that_is_there_stays(loads):
    heavy_lib = import_module("heavy_lib")

    postpone("heavy_lib")
    assert sys.modules["heavy_lib"] is heavy_lib
    assert loads == [1]


def test_what_is_set_or_taken_away_is_of_the_library(loads):
    postpone("heavy_lib")
    stand_in = import_module("heavy_lib")
    assert "Thing" in dir(stand_in)
    assert loads == [1]
    stand_in.added = 3
    library = sys.modules["heavy_lib"]
    assert library is not stand_in
    assert (library.added, stand_in.added) == (3, 3)
    del stand_in.added
    assert not hasattr(library, "added")
    assert not hasattr(stand_in, "added")


def test_a_library_that_there_is_not_is_not_postponed():
    postpone("no_such_library")
    assert "no_such_library" not in sys.modules

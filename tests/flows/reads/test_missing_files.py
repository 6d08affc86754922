"""Files that are asked for and missing, further ways to read one, and further memos."""

import pytest

from tests.flows.reads.project import flip, reader, touch
from tests.flows.reads.test_noticed import three

# Users leave files to be closed by whoever comes.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
IMPORTS = """
import asyncio, codecs, csv, io, linecache, runpy, shutil
from pathlib import Path
import pandas as pd
X = HERE + "/x.txt"
async def waited():
    return float(open(X).read())
"""
# How a number comes of a file that is there, or is 0 while it is not.
MISSING = {
    "loadtxt": "try: return float(np.loadtxt(X))\n    except OSError: return 0.0",
    "genfromtxt": "try: return float(np.genfromtxt(X))\n    except OSError: return 0.0",
    "pandas": "try: return float(pd.read_csv(X, header=None)[0][0])\n"
    "    except OSError: return 0.0",
    "exists": "return float(open(X).read()) if os.path.exists(X) else 0.0",
    "isfile": "return float(open(X).read()) if os.path.isfile(X) else 0.0",
    "path": "return float(Path(X).read_text()) if Path(X).exists() else 0.0",
    "is_file": "return float(Path(X).read_text()) if Path(X).is_file() else 0.0",
    "getsize": "try: return float(os.path.getsize(X))\n    except OSError: return 0.0",
}
# What is asked for and made by the call itself is its own.
MADE = {
    "a file": "c = X + '.c'\n    if not os.path.exists(c): open(c, 'w').write('3')\n"
    "    return float(open(c).read())",
    "a folder": "if not os.path.isdir(X): os.makedirs(X)\n    return 1.0",
}
WAYS = {
    "pread": "return float(os.pread(os.open(X, 0), 9, 0))",
    "linecache": "return float(linecache.getline(X, 1))",
    "codecs": "return float(codecs.open(X).read())",
    "raw": "return float(io.FileIO(X).read())",
    "csv": "return float(next(csv.reader(open(X)))[0])",
    "pandas": "return float(pd.read_csv(X, header=None)[0][0])",
    "pandas_map": "return float(pd.read_csv(X, header=None, memory_map=True)[0][0])",
    "run": "return float(runpy.run_path(X) and open(X).read())",
    "globbed": "return float([*Path(HERE).glob('x.t*')][0].read_text())",
    "awaited": "return asyncio.run(waited())",
    "sent": "a, b = os.open(X, 0), os.open(X + 's', os.O_RDWR | os.O_CREAT)\n"
    "    os.sendfile(b, a, 0, 9)\n    return float(open(X + 's').read())",
    "in a tree": "shutil.rmtree(HERE + '/c', True)\n"
    "    os.makedirs(HERE + '/d', exist_ok=True)\n    shutil.copy(X, HERE + '/d/x')\n"
    "    shutil.copytree(HERE + '/d', HERE + '/c')\n"
    "    return float(open(HERE + '/c/x').read())",
}
MEMOS = {
    "a function's attribute": "def load():\n    if not hasattr(load, 'v'):\n"
    "        load.v = fresh()\n    return load.v",
    "setattr of a function": "def load():\n    if not hasattr(load, 'v'):\n"
    "        setattr(load, 'v', fresh())\n    return load.v",
    "setattr of a class": "class K: pass\ndef load():\n    if not hasattr(K, 'v'):\n"
    "        setattr(K, 'v', fresh())\n    return K.v",
    "setattr of a module": "def load():\n    m = sys.modules[__name__]\n"
    "    if not hasattr(m, 'v'):\n        setattr(m, 'v', fresh())\n    return m.v",
    "setattr of another module": "import holder\ndef load():\n"
    "    if not hasattr(holder, 'v'):\n        setattr(holder, 'v', fresh())\n"
    "    return holder.v",
    "a frozen object": "@dataclass(frozen=True)\nclass K:\n    v: float = 0\nA = K()\n"
    "def load():\n    if not A.v:\n        object.__setattr__(A, 'v', fresh())\n"
    "    return A.v",
    "a default": "def load(kept=[]):\n    if not kept:\n        kept.append(fresh())\n"
    "    return kept[0]",
    "a closure": "def made():\n    kept = None\n    def inner():\n"
    "        nonlocal kept\n        kept = kept or fresh()\n        return kept\n"
    "    return inner\nload = made()",
    "a cached property": "class K:\n    @functools.cached_property\n"
    "    def m(self): return fresh()\nA = K()\ndef load(): return A.m",
}


@pytest.mark.parametrize("way", MISSING)
def test_a_missing_file_that_was_asked_for_counts_once_it_is_there(mine, way):
    reader(mine, f"{IMPORTS}def read():\n    {MISSING[way]}")
    assert mine.executed() == {"one": 1, "two": 1}
    assert mine.executed() == {}
    mine.write("x.txt", "1\n")
    assert mine.executed() == {"one": 1}
    assert mine.executed() == {}


def test_sources_that_a_module_claims_do_not_count(mine, monkeypatch):
    monkeypatch.chdir(mine.folder)
    claims = (
        "import inspect, sys, types\nM = types.ModuleType('m')\nM.__file__ = '{}'\n"
    )
    claims += "sys.modules['m'] = M\ndef read():\n    inspect.getmodule(len, 'x.py')\n"
    claims += "    try: inspect.getsourcefile(M)\n    except OSError: pass\n"
    reader(mine, f"{IMPORTS}{claims.format('claimed.py')}    return 1.0")
    assert mine.executed() == {"one": 1, "two": 1}
    mine.write("claimed.py", "1\n")
    assert mine.executed() == {}


@pytest.mark.parametrize("way", MADE)
def test_what_a_call_asks_for_and_makes_is_its_own(mine, way):
    reader(mine, f"{IMPORTS}def read():\n    {MADE[way]}")
    assert mine.executed() == {"one": 1, "two": 1}
    assert mine.executed() == {}


@pytest.mark.parametrize("way", WAYS)
def test_further_ways_to_read_a_file_are_seen(mine, way):
    path = mine.write("x.txt", "1\n")
    reader(mine, f"{IMPORTS}def read():\n    {WAYS[way]}")
    mine.executed()
    mine.executed()  # a folder that is listed and written into runs once more
    assert mine.executed() == {}
    flip(path)
    assert mine.executed() == {"one": 1}
    touch(path)
    assert mine.executed() == {}


@pytest.mark.parametrize("way", MEMOS)
def test_a_value_kept_anywhere_in_a_module_counts_for_later_calls(mine, way):
    mine.write("x.txt", "1")
    mine.write("holder.py", "")
    three(mine, MEMOS[way])
    assert mine.executed() == {"one": 3}
    flip(mine.folder / "x.txt")
    assert mine.executed() == {"one": 3}
    assert mine.executed() == {}

"""Ways of reading a file, each of which is seen."""

import gzip
import sqlite3
import zipfile
from pathlib import Path

import pytest
import torch

from tests.flows.reads.project import HERE, Project, flip, touch

# Users leave files to be closed by whoever comes.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
# How a function of one parameter comes to a number from the file of its name.
WAYS = {
    "open": "return float(open(path).read())",
    "in_bytes": "return float(open(path.encode()).read())",
    "pathlib": "return float(Path(path).read_text())",
    "os_open": "return float(os.read(os.open(path, os.O_RDONLY), 99))",
    "descriptor": "return float(open(os.open(path, os.O_RDONLY)).read())",
    "relative": "return float(open(os.path.relpath(path)).read())",
    "torch": "return float(torch.load(path))",
    "loadtxt": "return float(np.loadtxt(path))",
    "fromfile": "return float(np.fromfile(path, sep=' ')[0])",
    "memmap": "return float(bytes(np.memmap(path, np.uint8)))",
    "map": """
    with open(path, "rb") as file:
        return float(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ).read())
""",
    "linked": "return float(open(path + '.link').read())",
    "gzip": "return float(gzip.open(path, 'rt').read())",
    "zip": "return float(zipfile.ZipFile(path).read('value'))",
    "sqlite": """
    with sqlite3.connect(path) as base:
        return base.execute("select value from numbers").fetchone()[0]
""",
    "json": "return json.load(open(path))",
    "copied": """
    shutil.copyfile(path, path + ".copy")
    return float(open(path + ".copy").read())
""",
    "in_thread": """
    found = []
    thread = threading.Thread(target=lambda: found.append(float(open(path).read())))
    thread.start(), thread.join()
    return found[0]
""",
    "in_pool": """
    with ThreadPoolExecutor(1) as pool:
        return float(pool.submit(np.loadtxt, path).result())
""",
    "by_dask": "return float(dask.compute(dask.delayed(np.loadtxt)(path), 1)[0])",
    "run": "return float(exec(open(path).read()) or 0)",
    "plugin": """
    sys.path.insert(0, os.path.dirname(path))
    try:
        return importlib.import_module("plugged").VALUE
    finally:
        sys.path.pop(0)
""",
    "located": """
    spec = importlib.util.spec_from_file_location("placed", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.VALUE
""",
}
NAMES = {"plugin": "plugged.py", "located": "placed.py", "sqlite": "base.db"}
IMPORTS = """
import gzip, importlib, importlib.util, json, mmap, os, shutil, sqlite3, sys, threading
import dask, torch, zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
"""


def fill(mine: Project) -> dict[str, Path]:
    """Write the file of each way; return the files."""
    paths = {way: mine.folder / "data" / way / NAMES.get(way, "value") for way in WAYS}
    for path in paths.values():
        path.parent.mkdir(parents=True)
        path.write_text("1\n")
    for way, text in {"run": "x = 1\n", "plugin": "VALUE = 1\n"}.items():
        paths[way].write_text(text)
    paths["located"].write_text("VALUE = 1\n")
    paths["linked"].rename(paths["linked"].with_name("target"))
    paths["linked"].with_name("value.link").symlink_to("target")
    paths["gzip"].write_bytes(gzip.compress(b"1\n", mtime=0))
    with zipfile.ZipFile(paths["zip"], "w") as file:
        file.writestr("value", "1")
    torch.save(torch.tensor(1.0), paths["torch"])
    paths["sqlite"].unlink()
    base = sqlite3.connect(paths["sqlite"])
    base.execute("create table numbers (value real)")
    base.execute("insert into numbers values (1.0)")
    base.commit()
    base.close()
    return paths


def rewrite(way: str, path) -> None:
    """Change a file so that it still can be read."""
    if way == "linked":
        path = path.with_name("target")
    if way == "gzip":
        path.write_bytes(gzip.compress(b"2\n", mtime=0))
    elif way == "torch":
        torch.save(torch.tensor(2.0), path)
    elif way == "zip":
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("value", "2")
    elif way == "sqlite":
        base = sqlite3.connect(path)
        base.execute("update numbers set value = 2.0")
        base.commit()
        base.close()
    else:
        flip(path)


def test_a_file_read_in_any_way_runs_again_exactly_what_stands_on_it(mine):
    mine.names |= {"plugged", "placed"}
    functions = "\n".join(
        f"def by_{way}(path):\n    {text}\n" for way, text in WAYS.items()
    )
    names = {way: f"data/{way}/{NAMES.get(way, 'value')}" for way in WAYS}
    mine.kinds(f"""
{IMPORTS}
{HERE}
NAMES = {names!r}

class Way(Params):
    way: str

{functions}

@stage("my.value", version=1, outputs=VALUE)
def value(params: Way) -> dict[str, object]:
    read = globals()["by_" + params.way]
    return {{"value": np.asarray(float(read(f"{{HERE}}/{{NAMES[params.way]}}")))}}
""")
    mine.study(
        axes=f"{{way: [{', '.join(WAYS)}]}}", value='use: "mine:value", way: "${way}"'
    )
    paths = fill(mine)
    assert mine.executed() == {"value": len(WAYS)}
    assert mine.executed() == {}
    for way, path in paths.items():
        mine.names |= {"plugged", "placed"}
        rewrite(way, path)
        stale = [n for n in mine.plan().graph if n.state == "stale"]
        assert [n.coords["way"] for n in stale] == [way]
        assert mine.executed() == {"value": 1}, way
        assert mine.executed() == {}, way
    for path in paths.values():
        if path.exists():
            touch(path)
    assert mine.executed() == {}

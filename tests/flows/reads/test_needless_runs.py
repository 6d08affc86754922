"""Runs of what nothing has changed for: there is to be none."""

import os

import pytest

from curvflow.errors import StudyError
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.reads import hook
from curvflow.flows.run.tracebacks import portable
from tests.flows.reads.project import KINDS, flip, project, reader

pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
PASSING = {
    "unpacked": """
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(HERE + "/x.zip", "w").writestr("a.csv", "1")
        zipfile.ZipFile(HERE + "/x.zip").extractall(folder)
        return sum(float(path.read_text()) for path in Path(folder).glob("*.csv"))
""",
    "saved": """
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        torch.save(torch.tensor(1.0), folder + "/a.pt")
        return float(torch.load(folder + "/a.pt"))
""",
    "copied": """
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        os.system(f"cp {HERE}/x.txt {folder}/x.txt")
        return float(open(folder + "/x.txt").read())
""",
    "in_place": """
    with open(HERE + "/x.txt", "r+") as file:
        value = int(file.read())
        file.seek(0), file.write(str(value + 1))
    return float(value)
""",
    "data_base": """
    with sqlite3.connect(HERE + "/x.db") as base:
        base.execute("create table if not exists t (v real)")
        base.execute("insert into t values (1)")
    return 1.0
""",
    "beside": """
    count = len(os.listdir(HERE + "/data"))
    np.save(HERE + "/data/new.npy", np.zeros(1))
    return float(count)
""",
    "tilde": "return float(open(HERE + '/~/x.txt').read())",
    "sign": "return float(open(HERE + '/$USER/$$USER/x.txt').read())",
}


@pytest.mark.parametrize("how", PASSING)
def test_nothing_runs_again_for_what_a_call_did_itself(mine, how):
    for name in ("x.txt", "data/a", "~/x.txt", "$USER/$$USER/x.txt"):
        mine.write(name, "1")
    imports = "import sqlite3, tempfile, torch, zipfile\nfrom pathlib import Path\n"
    reader(mine, f"{imports}def read():\n    {PASSING[how]}")
    assert mine.executed() == {"one": 1, "two": 1}
    assert mine.causes() == []
    assert mine.executed() == {}
    assert mine.executed() == {}


SETTING = {
    "unset": "os.environ.setdefault('MY_VALUE', '3')",
    "twice": "os.environ['MY_VALUE'] = os.environ.get('MY_VALUE', '3')",
    "read": "os.environ['MY_VALUE'] = open(HERE + '/x.txt').read()",
}


@pytest.mark.parametrize("how", SETTING)
def test_a_declared_variable_that_the_code_sets_is_as_it_was_outside(
    mine, monkeypatch, how
):
    monkeypatch.setenv("MY_VALUE", "")
    monkeypatch.delenv("MY_VALUE")
    mine.write("x.txt", "3")
    mine.write(
        "mine.py",
        f"""{KINDS}
import os
HERE = os.path.dirname(__file__)
class Chosen(Params):
    seed: int

@stage("my.one", version=1, outputs=VALUE)
def one(params: Chosen) -> dict[str, object]:
    if "{how}" != "read" or not params.seed:
        {SETTING[how]}
    return {{"value": np.asarray(float(os.environ["MY_VALUE"]))}}
""",
    )
    entry = 'use: "mine:one", seed: "${seed}", env: [MY_VALUE]'
    mine.study(axes="{seed: 3}", one=entry)
    assert mine.executed() == {"one": 3}
    monkeypatch.delenv("MY_VALUE", raising=False)
    assert mine.executed() == {}
    flip(mine.folder / "x.txt")
    assert mine.executed() == ({"one": 3} if how == "read" else {})


def test_tables_that_a_run_writes_are_no_news_of_a_folder(mine):
    mine.write("data.txt", "1")
    reader(mine, "def read():\n    return float(len(os.listdir(HERE)))")
    assert mine.executed() == {"one": 1, "two": 1}
    mine.write("results/project/.written.json", "{}")
    assert mine.executed() == {}
    mine.write("more.txt", "1")
    assert mine.causes() == ["file ./: the names in it changed"]


def test_a_study_runs_where_the_system_knows_no_home(mine, monkeypatch):
    mine.write("x.txt", "1")
    reader(mine, 'def read():\n    return float(open(HERE + "/x.txt").read())')
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert mine.executed() == {"one": 1, "two": 1}


def test_names_below_the_study_do_not_depend_on_the_users(mine, monkeypatch):
    monkeypatch.setenv("HOME", "/h/data")
    mine.write("data/x.txt", "1")
    reader(mine, 'def read():\n    return float(open(HERE + "/data/x.txt").read())')
    mine.executed()
    monkeypatch.setenv("HOME", "/h/ann")
    assert mine.executed() == {}


def test_patterns_are_relative_to_a_folder_of_any_name(tmp_path):
    folder = tmp_path / "run[1]"
    folder.mkdir()
    with project(folder) as made:
        made.write("x.txt", "1")
        made.study(data='use: data.xor, files: ["*.txt"]')
        assert made.executed() == {"data": 1}


def test_a_declared_file_that_is_gone_stops_the_run_alone(mine):
    path = mine.write("x.txt", "1")
    mine.study(data="use: data.xor, files: [x.txt]")
    mine.executed()
    path.unlink()
    assert mine.causes() == ["file x.txt: is not there any more"]
    opened = open_study(mine.folder / "study.yaml")
    assert len(opened.store.index().receipts) == 1
    with pytest.raises(StudyError, match="A folder is no file"):
        mine.run()


def test_a_traceback_is_told_though_the_working_folder_is_gone(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert portable("it failed") == "it failed"


def test_what_goes_wrong_while_recording_is_told(mine, monkeypatch):
    def fail(_: str) -> None:
        raise ZeroDivisionError

    mine.write("x.txt", "1")
    reader(mine, 'def read():\n    return float(open(HERE + "/x.txt").read())')
    monkeypatch.setattr(hook, "_absolute", fail)
    mine.executed()
    assert "ZeroDivisionError" in mine.reads()["one"]["unseen"][0]

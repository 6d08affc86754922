"""What a failed node leaves in the store and on the page names no folder or user."""

import getpass
import json
import re
import socket
import sys
from pathlib import Path

import pytest

import curvflow
from curvflow.flows.report.render import write_report
from curvflow.flows.report.request import ReportRequest
from curvflow.flows.run.tracebacks import portable
from curvflow.stores.open import open_store

STUDY = """\
study: failing
stages:
  data: {use: data.xor}
  fail: {use: "my_kinds:fail", data: data}
"""
KINDS = """\
from pathlib import Path

import curvflow
from curvflow.schemas.kind import Input, Variable
from curvflow.schemas.nodes import Data, Numbers, Outcome
from curvflow.schemas.params import Params


class Nothing(Params):
    pass


@curvflow.stage(
    "mine.fail",
    version=1,
    outputs=[Variable("number", "a number")],
    returns=Numbers,
)
def fail(data: Data, params: Nothing) -> dict:
    \"\"\"Fail.\"\"\"
    (Path(__file__).parent / "sub folder" / "missing.txt").read_text()
"""


@pytest.fixture
def failed(tmp_path):
    folder = tmp_path / "a private folder"
    folder.mkdir()
    (folder / "study.yaml").write_text(STUDY)
    (folder / "my_kinds.py").write_text(KINDS)
    before = [*sys.path]
    results = curvflow.run(folder / "study.yaml", workers=1)
    yield results
    sys.path[:] = before
    del sys.modules["my_kinds"]


def test_a_traceback_names_files_from_where_they_are_imported(failed):
    (failure,) = failed.run.failures
    assert failure["error"].startswith("FileNotFoundError: [Errno 2]")
    assert failure["error"].endswith("'sub folder/missing.txt'")
    assert re.search(r'File "my_kinds.py", line \d+, in fail', failure["traceback"])
    assert 'File "curvflow/flows/graph/tiles.py"' in failure["traceback"]
    assert 'File "pathlib.py"' in failure["traceback"]
    assert 'File "/' not in failure["traceback"]


def test_store_and_page_hold_no_absolute_path_user_or_host(failed, tmp_path):
    folder = tmp_path / "a private folder"
    page, _ = write_report(ReportRequest(folder / "study.yaml"))
    source = Path(curvflow.__file__).parent
    names = [str(tmp_path), str(source), sys.prefix, sys.base_prefix, str(Path.home())]
    names.append(f'"{socket.gethostname()}"')
    if getpass.getuser() not in ("root", "runner"):  # words of other texts
        names.append(getpass.getuser())
    kept = [path for path in folder.rglob("*") if path.is_file()]
    kept = [path for path in kept if path.suffix not in (".py", ".pyc", ".yaml")]
    assert page in kept
    assert len(kept) > 3
    for path in kept:
        content = path.read_bytes()
        assert [name for name in names if name.encode() in content] == [], path
    index = open_store(folder / ".curvflow", create=False).index()
    assert str(tmp_path) not in json.dumps([run.failures for run in index.runs])


HOME = Path.home()
HERE = Path.cwd()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('File "/usr/x/y.py", line 3', 'File "y.py", line 3'),
        ('File "/usr/my own/y.py", line 3', 'File "y.py", line 3'),
        ("no file '/usr/me/data.npz'", "no file 'data.npz'"),
        ("no file /usr/me/data.npz: gone", "no file data.npz: gone"),
        ("PATH=/usr/a/b:/usr/c/d", "PATH=b:d"),
        ("file:///usr/me/data.npz", "file://data.npz"),
        ("s3://bucket/a/b and http://host/a/b", "s3://bucket/a/b and http://host/a/b"),
        ("loss / parameter^2, 1/2/3, a/b/c", "loss / parameter^2, 1/2/3, a/b/c"),
        ("<string>, ./a/b, ../a/b, ~/usr/b", "<string>, ./a/b, ../a/b, ~/usr/b"),
        ("GET /no-such-folder/v1/run", "GET /no-such-folder/v1/run"),
        (f"in {HERE}/a/b.npz", "in a/b.npz"),
        (f"http://host{HERE}/a", f"http://host{HERE}/a"),
        (f"/usr/copy{HERE}/a", "a"),
        (f"no folder {HOME}", "no folder ~"),
        (f"no folder {HOME}/", "no folder ~"),
        (f"'{HOME}/a b/c'", "'c'"),
        ("/usr", "/usr"),
        ("", ""),
    ],
)
def test_only_absolute_paths_are_shortened(text, shown):
    assert portable(text) == shown


def test_a_folder_of_the_user_is_not_named(monkeypatch):
    monkeypatch.setattr("curvflow.flows.run.tracebacks._user", lambda: "rosa")
    assert portable("no folder /usr/rosa, '/usr/rosa'") == "no folder ~, '~'"

"""Files and variables that a user's code reads, and what their changes run again."""

import importlib
import json
import shutil
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from curvflow.errors import StudyError
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.graph.stopping import Stopping
from curvflow.flows.graph.tiles import MemberJob, TileJob
from curvflow.flows.reads.windows import files
from curvflow.flows.results.node_results import plan_views
from curvflow.flows.run.compute import READS, Snapshots, outcomes
from curvflow.flows.run.run import run_study
from curvflow.flows.run.settle import Answer
from curvflow.tasks import registry
from curvflow.tasks.machine import machine_for
from tests.flows.reads.project import (
    HERE,
    ONE,
    TWO,
    flip,
    project,
    reader,
    touch,
)
from tests.flows.reads.random_cases import check_case
from tests.flows.run.runners.clusters import forking
from tests.flows.toys import FitParams

# Users leave files to be closed by whoever comes.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)


def test_a_missing_file_that_appears_is_noticed(mine):
    reader(
        mine,
        """
def read():
    try:
        return float(open(HERE + "/x.txt").read())
    except FileNotFoundError:
        return 0.0
""",
    )
    mine.executed()
    mine.write("x.txt", "1")
    assert mine.causes() == ["file x.txt: is there by now"]
    assert mine.executed() == {"one": 1}
    (mine.folder / "x.txt").unlink()
    assert mine.causes() == ["file x.txt: is not there any more"]
    assert mine.executed() == {"one": 1}
    assert mine.executed() == {}


def test_a_file_that_the_call_writes_itself_is_none_that_it_stands_on(mine):
    reader(
        mine,
        """
def read():
    path = HERE + "/kept.txt"
    try:
        return float(open(path).read())
    except FileNotFoundError:
        with open(path + ".part", "w") as file:
            file.write("1")
        os.replace(path + ".part", path)
        return float(open(path).read())
""",
    )
    mine.executed()
    assert mine.reads()["one"] == {}
    assert mine.executed() == {}


def test_what_a_module_reads_on_import_counts_for_all_that_reach_it(mine):
    mine.write("settings.json", "1")
    mine.write(
        "config.py",
        'import json\nSET = json.load(open(__file__[:-9] + "settings.json"))\n',
    )
    mine.kinds(
        """
from config import SET

def read():
    return float(SET)
"""
        + ONE,
    )
    mine.write(
        "other.py",
        mine.folder.joinpath("mine.py").read_text().partition("from config")[0] + TWO,
    )
    mine.study(one='use: "mine:one"', two='use: "other:two"')
    assert mine.executed() == {"one": 1, "two": 1}
    assert set(mine.reads()["one"]["files"]) == {"settings.json"}
    flip(mine.folder / "settings.json")
    assert mine.executed() == {"one": 1}
    assert mine.executed() == {}


MEMOS = {
    "cache": "from functools import cache\n@cache\ndef load():\n    return fresh()\n",
    "global": "KEPT = None\ndef load():\n    global KEPT\n    if KEPT is None:\n"
    "        KEPT = fresh()\n    return KEPT\n",
    "dictionary": "KEPT = {}\ndef load():\n    if 1 not in KEPT:\n"
    "        KEPT[1] = fresh()\n    return KEPT[1]\n",
    "attribute": "class Loader:\n    value = None\n    def load(self):\n"
    "        self.value = self.value or fresh()\n        return self.value\n"
    "LOADER = Loader()\ndef load():\n    return LOADER.load()\n",
    "default": "def load(kept=[]):\n    if not kept:\n        kept.append(fresh())\n"
    "    return kept[0]\n",
    "array": "KEPT = np.zeros(1)\ndef load():\n    if not KEPT[0]:\n"
    "        KEPT[:] = fresh()\n    return float(KEPT[0])\n",
}


@pytest.mark.parametrize("memo", MEMOS)
def test_a_memo_counts_for_the_calls_that_do_not_read_again(mine, memo):
    mine.write("x.txt", "1")
    mine.kinds(f"""
{HERE}
def fresh():
    return float(open(HERE + "/x.txt").read())

{MEMOS[memo]}

class Chosen(Params):
    seed: int

@stage("my.one", version=1, outputs=VALUE)
def one(params: Chosen) -> dict[str, object]:
    return {{"value": np.asarray(load() + params.seed)}}
""")
    mine.study(axes="{seed: 3}", one='use: "mine:one", seed: "${seed}"')
    assert mine.executed() == {"one": 3}
    flip(mine.folder / "x.txt")
    assert mine.executed() == {"one": 3}
    assert mine.executed() == {}


def test_a_folder_counts_by_the_names_in_it(mine):
    reader(mine, 'def read():\n    return float(len(os.listdir(HERE + "/data")))')
    mine.write("data/a", "1")
    mine.executed()
    assert set(mine.reads()["one"]["files"]) == {"data/"}
    mine.write("data/a", "2")
    assert mine.executed() == {}
    mine.write("data/b", "1")
    assert mine.executed() == {"one": 1}


def test_consumers_run_again_only_if_the_content_of_what_they_take_moves(mine):
    mine.write("x.txt", "1")
    mine.kinds(
        f"""
from curvflow import Numbers
{HERE}
def read():
    return float(open(HERE + "/x.txt").read().split()[0])
{ONE}

@stage("my.half", version=1, outputs=VALUE)
def half(of: Numbers) -> dict[str, object]:
    return {{"value": of["value"] / 2}}
"""
    )
    mine.study(one='use: "mine:one"', half='use: "mine:half", of: one')
    mine.executed()
    mine.write("x.txt", "1 and more")
    assert mine.executed() == {"one": 1}
    mine.write("x.txt", "2 and more")
    assert mine.plan().counts() == {"total": 2, "cached": 0, "stale": 1, "waiting": 1}
    assert mine.executed() == {"one": 1, "half": 1}


def test_a_file_changed_while_it_was_read_runs_again(mine):
    reader(
        mine,
        """
def read():
    value = float(open(HERE + "/x.txt").read())
    with open(HERE + "/change") as change:
        if change.read():
            LATER[0]()
    return value
LATER = [lambda: os.system(f"echo 2 > {HERE}/x.txt")]
""",
    )
    path = mine.write("x.txt", "1")
    mine.write("change", "now")
    mine.executed()
    assert path.read_text() == "2\n"
    assert mine.causes() == ["file x.txt: changed while it was read"]
    mine.write("change", "")
    assert mine.executed() == {"one": 1}
    assert mine.executed() == {}


def test_declared_files_count_before_the_first_run_and_patterns_are_checked(mine):
    reader(mine, "def read():\n    return 1.0")
    mine.write("data/a.csv", "1")
    mine.write("data/b.csv", "1")
    mine.study(one='use: "mine:one", files: ["data/*.csv"]', two='use: "mine:two"')
    assert mine.executed() == {"one": 1, "two": 1}
    assert set(mine.reads()["one"]["files"]) == {"data/a.csv", "data/b.csv"}
    touch(mine.folder / "data/a.csv")
    assert mine.executed() == {}
    flip(mine.folder / "data/a.csv")
    assert mine.executed() == {"one": 1}
    mine.write("data/c.csv", "1")
    assert mine.causes() == ["file data/c.csv: matches `files` since"]
    assert mine.executed() == {"one": 1}
    mine.study(one='use: "mine:one", files: ["dat/*.csv"]')
    assert mine.causes() == ["file dat/*.csv: is matched by none"]
    with pytest.raises(StudyError, match=r"stages\.one\.files\.0.*dat/\*\.csv"):
        mine.run()


def test_a_built_in_kind_may_declare_files(mine):
    mine.write("x.txt", "1")
    mine.study(data="use: data.xor, files: [x.txt]")
    assert mine.executed() == {"data": 1}
    flip(mine.folder / "x.txt")
    assert mine.executed() == {"data": 1}
    assert mine.executed() == {}


def test_unrecorded_results_say_so_and_are_not_compared(mine):
    mine.write("x.txt", "1")
    reader(mine, 'def read():\n    return float(open(HERE + "/x.txt").read())')
    mine.executed(record_reads=False)
    assert mine.reads() == {"one": {"observed": False}, "two": {"observed": False}}
    told = ["what code of yours read was not recorded (1 of 1 nodes)"]
    assert {n: v.blind_spots() for n, v in plan_views(mine.plan()).items()} == {
        "one": told,
        "two": told,
    }
    flip(mine.folder / "x.txt")
    assert mine.executed() == {}


def test_a_memo_that_was_filled_unseen_is_named_afterwards(mine):
    mine.write("x.txt", "1")
    memo = MEMOS["cache"]
    read = 'def fresh():\n    return float(open(HERE + "/x.txt").read())\n'
    reader(mine, f"{read}{memo}read = load\n")
    mine.executed(record_reads=False)
    opened = open_study(mine.folder / "study.yaml")
    run_study(opened.study, opened.store, opened.files, answer=Answer(rerun=["my.one"]))
    mine.store = opened.store
    assert mine.reads()["one"] == {"unseen": ["mine"]}


def test_what_accepting_code_computes_again_is_seen(mine):
    mine.write("x.txt", "1")
    memo = MEMOS["cache"]
    read = 'def fresh():\n    return float(open(HERE + "/x.txt").read())\n'
    reader(mine, f"{read}{memo}read = load\n")
    mine.executed()
    text = mine.folder.joinpath("mine.py").read_text()
    mine.write("mine.py", text.replace("np.asarray(read())", "np.asarray(+read())"))
    mine.study(one='use: "mine:one"', more='use: "mine:two"')
    answer = Answer(accept=["my.one", "my.two"], reason="the same", verify=1.0)
    mine.forget()
    opened = open_study(mine.folder / "study.yaml")
    run_study(opened.study, opened.store, opened.files, answer=answer)
    rerun = Answer(rerun=["my.one"])
    run_study(opened.study, opened.store, opened.files, answer=rerun)
    mine.store = opened.store
    assert set(mine.reads()["one"]["files"]) == {"x.txt"}


def test_factories_are_seen_and_their_networks_by_every_tile(mine):
    mine.write("x.txt", "1")
    mine.write("w.txt", "1")
    mine.write(
        "nets.py",
        f"""
import numpy as np, torch
{HERE}
def points():
    shift = float(open(HERE + "/x.txt").read())
    return np.arange(8.0).reshape(4, 2) + shift, np.arange(4) % 2

def net():
    made = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(made.bias, float(open(HERE + "/w.txt").read()))
    return made
""",
    )
    mine.study(
        axes="{seed: 2}",
        data='use: data.factory, factory: "nets:points"',
        fit='use: train, data: data, model: {factory: "nets:net"}, epochs: 2, '
        'rule: {rule: sgd, lr: 0.1}, seed: "${seed}"',
        trace="use: probe.hessian_trace, weights: fit, num_probes: 2",
        fixed="use: data.xor",
    )
    assert mine.executed() == {"data": 1, "fit": 2, "trace": 2, "fixed": 1}
    assert mine.lines == []
    assert mine.executed() == {}
    reads = mine.reads()
    assert set(reads["data"]["files"]) == {"x.txt"}
    assert set(reads["fit"]["files"]) == set(reads["trace"]["files"]) == {"w.txt"}
    assert reads["fixed"] is None
    flip(mine.folder / "w.txt")
    assert mine.executed()["fit"] == 2
    flip(mine.folder / "x.txt")
    assert mine.executed()["data"] == 1
    assert mine.executed() == {}


@pytest.mark.processes
def test_a_process_that_runs_built_in_code_alone_has_no_hook(tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text("study: plain\nstages:\n  data: {use: data.xor}\n")
    code = (
        "import sys, curvflow\n"
        "curvflow.run(sys.argv[1], workers=1)\n"
        "from curvflow.flows.reads import hook\n"
        "assert not hook._is_installed"
    )
    subprocess.run([sys.executable, "-c", code, str(study)], check=True)


def test_other_threads_of_servers_are_not_the_users(mine):
    path = mine.write("x.txt", "1")
    reader(mine, "import time\ndef read():\n    time.sleep(0.05)\n    return 1.0")
    source = (
        "def serve(path, over):\n    while not over.wait(0.005): open(path).close()\n"
    )
    server = {"__name__": "distributed.worker"}
    exec(compile(source, f"{sys.prefix}/lib/distributed/worker.py", "exec"), server)
    over = threading.Event()
    thread = threading.Thread(target=server["serve"], args=(path, over))
    thread.start()
    mine.executed()
    over.set(), thread.join()
    assert mine.reads()["one"] == {}


def test_a_project_that_was_copied_elsewhere_has_all_it_needs(mine, tmp_path_factory):
    reader(mine, 'def read():\n    return float(open(HERE + "/data/x.txt").read())')
    mine.write("data/x.txt", "1")
    mine.executed()
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "deeper"
    shutil.copytree(mine.folder, elsewhere)
    with project(elsewhere) as copied:
        copied.names |= mine.names
        assert copied.executed() == {}
        flip(elsewhere / "data/x.txt")
        assert copied.executed() == {"one": 1}


def test_a_module_that_was_imported_before_anybody_looked_is_named(mine):
    reader(mine, "import early\ndef read():\n    return early.VALUE")
    mine.write("x.txt", "1")
    mine.write("early.py", 'VALUE = float(open(__file__[:-8] + "x.txt").read())\n')
    sys.path.insert(0, str(mine.folder))
    importlib.import_module("early")
    mine.names.remove("early")
    mine.executed()
    assert mine.reads()["one"] == {"unseen": ["early"]}
    del sys.modules["early"]


def test_longer_trainings_do_not_go_on_from_one_of_another_file(mine):
    mine.write("w.txt", "1")
    mine.write(
        "nets.py",
        f"""
import torch
{HERE}
def net():
    made = torch.nn.Linear(2, 1)
    torch.nn.init.constant_(made.bias, float(open(HERE + "/w.txt").read()))
    return made
""",
    )
    train = 'use: train, data: data, model: {factory: "nets:net"}, rule: {rule: sgd, '

    def fitted(epochs):
        fit = f"{train}lr: 0.1}}, epochs: {epochs}"
        mine.study(data="use: data.xor", fit=fit)

    fitted(2)
    mine.executed()
    fitted(4)
    assert all(node.shorter for node in mine.plan().graph.nodes["fit"])
    flip(mine.folder / "w.txt")
    assert not any(node.shorter for node in mine.plan().graph.nodes["fit"])


@pytest.mark.parametrize("changes", [False, True])
def test_a_kept_state_is_used_with_the_files_that_it_was_kept_with(
    tmp_path, store, monkeypatch, changes
):
    path, states = tmp_path / "x.txt", []
    path.write_text("1")
    real = registry.find("toy.fit")

    def compute(members, machine):
        states.append(machine.partial.load())
        path.read_text()
        machine.partial.keep({"weight": np.ones(2)})
        return real.compute(members, machine)

    watched = replace(real, compute=compute)
    monkeypatch.setitem(registry._implementations, "toy.fit", watched)
    member = MemberJob("key", FitParams(), {"data": []}, {}, modules=("nowhere",))
    job = TileJob("toy.fit", [member], ["code"])
    for _ in range(2):
        snapshots = Snapshots(store, Stopping(), folder=str(tmp_path))
        outcomes(store, job, machine_for("cpu", 1), snapshots)
        assert set(files(snapshots.observed["key"].sights)) == {str(path)}
        if changes:
            flip(path)
    assert states[0] is None
    assert (states[1] is None) == changes
    assert changes or set(states[1]) == {"weight"}
    kept = store.load_snapshot(*snapshots.taken())
    names = json.loads(kept[READS].tobytes())
    assert list(names) == ["file:x.txt"]


@pytest.mark.cluster
def test_workers_see_what_their_tiles_read(mine):
    mine.write("x.txt", "1")
    mine.write("settings.txt", "1")
    mine.kinds(f"""
{HERE}
SET = float(open(HERE + "/settings.txt").read())

class Chosen(Params):
    seed: int

@stage("my.one", version=1, outputs=VALUE)
def one(params: Chosen) -> dict[str, object]:
    return {{"value": np.asarray(float(open(HERE + "/x.txt").read()) + params.seed)}}
""")
    mine.study(axes="{seed: 40}", one='use: "mine:one", seed: "${seed}"')
    with forking():
        assert mine.executed(workers=2) == {"one": 40}
        assert set(mine.reads()["one"]["files"]) == {"settings.txt", "x.txt"}
        assert mine.executed(workers=2) == {}
        flip(mine.folder / "x.txt")
        assert mine.executed(workers=2) == {"one": 40}


def test_random_projects_have_no_change_that_is_silent_and_none_in_vain():
    counts = sum(map(check_case, range(3)), Counter())
    assert counts["noticed"] > 20
    assert (counts["silent"], counts["in vain"], counts["after"]) == (0, 0, 0)


FIRST_SEARCH = """
import tempfile
from unittest import mock
from curvflow.flows.reads import hook

assert tempfile.tempdir is None, "something has looked for it before"
with hook.looking(mock.MagicMock()):
    print(tempfile.gettempdir())
"""


NO_FOLDER = """
import tempfile
from unittest import mock
from curvflow.flows.reads import hook, places

tempfile._candidate_tempdir_list = lambda: ["/no such folder"]
eye = mock.MagicMock()
with hook.looking(eye):
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        open("/etc/hosts").close()
        print(places.is_temporary("/etc/hosts"), eye.failed.called)
"""


@pytest.mark.processes
def test_without_a_folder_that_can_be_written_files_are_seen():
    done = subprocess.run(
        [sys.executable, "-c", NO_FOLDER],
        check=True,
        timeout=60,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.stdout == "False False\n"


@pytest.mark.processes
def test_the_first_search_for_the_temporary_folder_ends():
    subprocess.run([sys.executable, "-c", FIRST_SEARCH], check=True, timeout=60)

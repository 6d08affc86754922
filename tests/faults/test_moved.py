"""Stores that were moved, copied, cannot be written, or lie on poor file systems."""

import errno
import json
import shutil
import sys

import pytest

from curvflow.cli.app import main
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.run.run import run_study
from curvflow.stores.commits import LocalCommits
from curvflow.stores.files import Disk
from curvflow.stores.local import LocalStore
from curvflow.stores.local_payloads import LocalPayloads
from curvflow.stores.memory import MemoryStore
from tests.faults.children import committed, digests
from tests.flows.run.test_run import EXPECTED, executed
from tests.flows.toys import STUDY, run


@pytest.fixture
def study(tmp_path):
    """Return a study file that has been run."""
    path = tmp_path / "first" / "toys.yaml"
    path.parent.mkdir()
    path.write_text(STUDY)
    rerun(path)
    return path


def rerun(path, *overrides):
    o = open_study(path, overrides=overrides, create=True)
    return run_study(o.study, o.store, o.files)


@pytest.fixture
def curvflow(monkeypatch, capsys):
    """Return a function that runs a command and gives exit code, stdout and stderr."""

    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["curvflow", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return command


def expected(*overrides):
    store = MemoryStore()
    run(store)
    run(store, *overrides)
    return digests(store)


def test_a_copied_store_is_done_and_goes_its_own_way(study, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(study.parent, copy)
    assert executed(rerun(copy / "toys.yaml")) == {}
    rerun(copy / "toys.yaml", "axes.seed=4")
    assert digests(LocalStore(copy / ".curvflow")) == expected("axes.seed=4")
    assert digests(LocalStore(study.parent / ".curvflow")) == expected()
    assert executed(rerun(study)) == {}


def test_a_store_behind_symbolic_links_is_the_same_store(study, tmp_path):
    (tmp_path / "link").symlink_to(study.parent)
    (tmp_path / "link.yaml").symlink_to(study)
    assert executed(rerun(tmp_path / "link" / "toys.yaml")) == {}
    rerun(tmp_path / "link" / "toys.yaml", "axes.seed=4")
    assert executed(rerun(study, "axes.seed=4")) == {}
    linked = open_study(tmp_path / "link.yaml", store=study.parent / ".curvflow")
    assert executed(run_study(linked.study, linked.store, linked.files)) == {}


@pytest.fixture
def read_only(study, monkeypatch):
    """Return the study, its file system mounted for reading alone from now on."""

    def refuse(self, *_):
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("write", "append", "rename", "link", "remove", "flush"):
        monkeypatch.setattr(Disk, name, refuse)
    return study


def test_a_read_only_store_answers_every_question(read_only, curvflow):
    before = {p: p.stat().st_mtime_ns for p in read_only.parent.rglob("*")}
    code, out, err = curvflow("plan", read_only, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["stale"] == 0
    for command in (
        ("show", read_only, "mean", "--json"),
        ("show", read_only),
        ("log", read_only),
        ("why", read_only, "last[seed=1,rule=slow]"),
        ("check", read_only),
        ("runs", read_only),
        ("gc", read_only),
    ):
        code, out, err = curvflow(*command)
        assert (code, err) == (0, ""), command
        assert out, command
    assert before == {p: p.stat().st_mtime_ns for p in read_only.parent.rglob("*")}


@pytest.mark.parametrize("overrides", [(), ("--set", "axes.seed=4")])
def test_a_run_on_a_read_only_store_is_refused_on_one_line(
    read_only, curvflow, overrides
):
    code, out, err = curvflow("run", read_only, *overrides)
    assert (code, out) == (1, "")
    assert "Read-only file system" in err
    assert err.count("\n") == 1


def unlinkable(self, source, target):
    raise OSError(errno.EOPNOTSUPP, "Operation not supported")


def lying(self, source, target):
    target.hardlink_to(source)
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("link", [unlinkable, lying])
def test_runs_end_alike_where_hard_links_fail_or_say_they_do(
    tmp_path, monkeypatch, link
):
    monkeypatch.setattr(Disk, "link", link)
    folder = tmp_path / "store"
    assert executed(run(LocalStore(folder))) == EXPECTED
    assert executed(run(LocalStore(folder))) == {}
    run(LocalStore(folder), "axes.seed=4")
    assert digests(LocalStore(folder)) == expected("axes.seed=4")
    assert set(committed(LocalStore(folder)).values()) == {1}
    assert list((folder / "tmp").iterdir()) == []


def test_a_store_begun_with_hard_links_goes_on_without(tmp_path, monkeypatch):
    run(LocalStore(tmp_path / "store"))
    monkeypatch.setattr(Disk, "link", unlinkable)
    run(LocalStore(tmp_path / "store"), "axes.seed=4")
    monkeypatch.undo()
    assert executed(run(LocalStore(tmp_path / "store"), "axes.seed=4")) == {}
    assert digests(LocalStore(tmp_path / "store")) == expected("axes.seed=4")


def slow_to_show(monkeypatch, *, times=3):
    """Hide what others have written from the first few looks at it."""
    seen, ours = {}, set()
    after, create = LocalCommits.after, LocalCommits.create

    def late(self, number):
        found = after(self, number)
        for place, one in enumerate(found):
            where = id(self), one
            seen[where] = seen.get(where, 0) + 1
            if where not in ours and seen[where] <= times:
                return found[:place]
        return found

    def create_and_see(self, number, data):
        is_ours = create(self, number, data)
        if is_ours:
            ours.add((id(self), number))
        return is_ours

    monkeypatch.setattr(LocalCommits, "after", late)
    monkeypatch.setattr(LocalCommits, "create", create_and_see)


def test_entries_that_are_slow_to_be_listed_are_neither_lost_nor_doubled(
    tmp_path, monkeypatch
):
    folder = tmp_path / "store"
    first, second = LocalStore(folder), LocalStore(folder)
    slow_to_show(monkeypatch)
    for store in (first, second, first, second):
        assert run(store).record.status == "done"
    run(first, "axes.seed=4")
    run(second, "axes.seed=4")
    monkeypatch.undo()
    assert digests(LocalStore(folder)) == expected("axes.seed=4")
    assert set(committed(LocalStore(folder)).values()) == {1}
    numbers = [record.number for record in LocalStore(folder).index().runs]
    assert numbers == [1, 2, 3, 4, 5, 6]


def test_payloads_that_are_slow_to_be_listed_cost_work_and_no_result(
    tmp_path, monkeypatch
):
    folder = tmp_path / "store"
    run(LocalStore(folder))
    present = LocalPayloads.present
    monkeypatch.setattr(LocalPayloads, "present", lambda self, names: set())
    o = LocalStore(folder)
    watched = run(o)
    monkeypatch.setattr(LocalPayloads, "present", present)
    assert watched.record.status == "done"
    assert digests(LocalStore(folder)) == expected()
    assert executed(run(LocalStore(folder))) == {}

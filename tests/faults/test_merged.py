"""Stores that were merged by copying one over the other tell what has collided."""

import json
import os
import shutil
import sys

import pytest

from curvflow.cli.app import main
from curvflow.flows.upkeep.verify import verify
from curvflow.schemas.records.receipts import Pin
from curvflow.stores.files import Disk
from curvflow.stores.local import LocalStore
from curvflow.stores.log import MARKED
from curvflow.stores.memory import MemoryStore
from curvflow.testing.stores import begin, end
from tests.faults.children import digests
from tests.flows.toys import STUDY, run


def merge(source, target, wins=lambda source, target: True):
    """Copy a tree over another as `rsync -a` does, or those files that win."""
    for path in sorted(source.rglob("*")):
        there = target / path.relative_to(source)
        if path.is_dir():
            there.mkdir(exist_ok=True)
        elif not there.exists() or wins(path, there):
            shutil.copy2(path, there)


def newer(source, target):
    """Let the younger file win, as `rsync --update` does."""
    return source.stat().st_mtime > target.stat().st_mtime


def never(source, target):
    """Let what is there win, as `rsync --ignore-existing` does."""
    return False


@pytest.fixture
def apart(tmp_path):
    """Return two copies of a store which have both gone on, the second for longer."""
    first, second = tmp_path / "first", tmp_path / "second"
    run(LocalStore(first))
    shutil.copytree(first, second)
    run(LocalStore(first), "axes.seed=4")
    run(LocalStore(second), "axes.seed=5")
    run(LocalStore(second), "axes.seed=6")
    return first, second


@pytest.mark.parametrize("wins", [lambda *_: True, never, newer])
@pytest.mark.parametrize("way", [1, -1], ids=["the longer last", "the shorter last"])
def test_two_copies_that_went_apart_tell_so_once_merged(apart, wins, way):
    source, target = apart[::way]
    assert [LocalStore(folder).collided_entries() for folder in apart] == [[], []]
    merge(source, target, wins)
    collided = LocalStore(target).collided_entries()
    begun = [run.begun for run in LocalStore(apart[1]).index().runs]
    assert begun[1] in collided
    run(LocalStore(target), "axes.seed=6")
    assert LocalStore(target).collided_entries() == collided
    expected = MemoryStore()
    for seeds in (3, 4, 5, 6):
        run(expected, f"axes.seed={seeds}")
    assert digests(LocalStore(target)).items() <= digests(expected).items()
    assert verify(LocalStore(target)).is_well


def test_stores_that_were_begun_apart_tell_so_once_merged(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    run(LocalStore(first))
    run(LocalStore(second), "axes.seed=4")
    merge(first, second)
    assert 1 in LocalStore(second).collided_entries()


def test_a_copy_that_went_on_alone_collides_with_nothing(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    run(LocalStore(first))
    shutil.copytree(first, second)
    run(LocalStore(second), "axes.seed=4")
    merge(second, first)
    assert LocalStore(first).collided_entries() == []


def test_the_end_of_another_copys_run_is_not_that_of_ours(tmp_path):
    first, second = LocalStore(tmp_path / "first"), LocalStore(tmp_path / "second")
    begin(first, study="ours")
    end(second, begin(second, study="theirs"))
    merge(tmp_path / "second", tmp_path / "first", never)
    (record,) = LocalStore(tmp_path / "first").index().runs
    assert (record.study, record.status) == ("ours", "interrupted")


def test_a_pin_that_was_lost_by_a_merge_is_told(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    run(LocalStore(first))
    shutil.copytree(first, second)
    LocalStore(first).pin(Pin("good", 1, "why"))
    run(LocalStore(second), "axes.seed=4")
    merge(second, first)
    store = LocalStore(first)
    assert store.index().pins == {}
    assert store.collided_entries()


def test_torn_entries_and_their_tombstones_are_no_collisions(tmp_path):
    run(LocalStore(tmp_path))
    for number in (1, 3):
        path = tmp_path / "commits" / f"{number:010}.json"
        path.write_bytes(path.read_bytes()[:-9])
    assert LocalStore(tmp_path).collided_entries() == []
    verify(LocalStore(tmp_path))
    run(LocalStore(tmp_path), "axes.seed=4")
    assert LocalStore(tmp_path).collided_entries() == []


class Unmarked(Disk):
    """Cannot write marks."""

    def write(self, path, data):
        if path.suffix == ".mark":
            raise PermissionError(path)
        super().write(path, data)


def test_a_mark_that_cannot_be_written_costs_no_entry(tmp_path):
    run(LocalStore(tmp_path, disk=Unmarked()))
    assert list(tmp_path.glob("commits/*.mark")) == []
    assert LocalStore(tmp_path).collided_entries() == []
    assert LocalStore(tmp_path).index().runs[0].status == "done"


def test_every_rare_entry_has_a_mark_and_no_other(tmp_path):
    run(LocalStore(tmp_path))
    entries = [json.loads(p.read_text()) for p in tmp_path.glob("commits/*.json")]
    marked = {(e["number"], e["crc32"]) for e in entries if e["type"] in MARKED}
    names = {path.name for path in tmp_path.glob("commits/*.mark")}
    assert names == {f"{number:010}-{crc}.mark" for number, crc in marked}


@pytest.mark.parametrize("words", [["verify"], ["log"], ["doctor"]], ids=str)
def test_commands_tell_on_one_line_that_logs_were_merged(
    tmp_path, monkeypatch, capsys, words
):
    study = tmp_path / "toys.yaml"
    study.write_text(STUDY)
    run(LocalStore(tmp_path / ".curvflow"))
    run(LocalStore(tmp_path / "other"), "axes.seed=4")
    merge(tmp_path / "other", tmp_path / ".curvflow")
    monkeypatch.setattr(sys, "argv", ["curvflow", *words, os.fspath(study)])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr()
    text = " ".join((said.out + said.err).split())
    assert text.count("had gone on apart were merged (at commit 1") == 1

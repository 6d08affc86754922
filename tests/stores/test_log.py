import json
import logging
import os
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvflow.errors import StoreError, StoreFormatError
from curvflow.stores import commits, log
from curvflow.stores.commits import LocalCommits, MemoryCommits
from curvflow.stores.files import Disk
from curvflow.stores.local import LocalStore
from curvflow.stores.log import Log
from curvflow.stores.log_entries import (
    TornEntryError,
    decode,
    encode,
    pack_receipts,
    unpack_receipts,
)
from curvflow.testing.stores import arrays_of, begin, end, publish, receipt_of


def receipts_of(*keys, seed=0, **changes):
    receipts = [receipt_of(arrays_of(seed), 0, key=key) for key in keys]
    return [replace(receipt, **changes) for receipt in receipts]


def store_of(folder, count=5):
    store = LocalStore(folder)
    for number in range(count):
        store.commit(receipts_of(f"k{number}"))
    return store


def commit_path(folder, number):
    return folder / "commits" / f"{number:010}.json"


@pytest.mark.parametrize("number", [2, 5], ids=["a middle", "the last"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: b"",
        lambda data: b"\0" * len(data),
        lambda data: data.replace(b'"slot":0', b'"slot":1'),
        lambda data: data.replace(b"train", b"trbin"),
        lambda data: data[1:],
    ],
    ids=["half", "end", "empty", "zeros", "digit", "letter", "start"],
)
def test_a_torn_commit_is_void_and_the_others_stand(tmp_path, caplog, number, damage):
    store_of(tmp_path)
    path = commit_path(tmp_path, number)
    path.write_bytes(damage(path.read_bytes()))
    store = LocalStore(tmp_path)
    index = store.index()
    assert set(index.receipts) == {f"k{n}" for n in range(5) if n != number - 1}
    assert index.number == 5
    store.index(), store.index(as_of=4), store.index(as_of=number)
    LocalStore(tmp_path).index(), LocalStore(tmp_path).index()  # once per process
    assert [record.message for record in caplog.records] == [
        f"curvflow: {tmp_path}: commit {number} is torn or missing: "
        "what it held, if anything, will run again; "
        "`curvflow verify` marks it as void"
    ]
    (again,) = store.commit(receipts_of(f"k{number - 1}"))
    assert LocalStore(tmp_path).index().rows[6, 0] == again


def test_several_torn_commits_each_name_the_store(tmp_path, caplog):
    store_of(tmp_path)
    for number in (2, 4):
        commit_path(tmp_path, number).write_bytes(b"")
    LocalStore(tmp_path).index()
    assert caplog.text.count(f"{tmp_path}: commit ") == 2
    assert caplog.text.count("is torn or missing") == 2


def test_every_flipped_byte_of_a_commit_is_noticed():
    data = encode(1, {"type": "receipts", **pack_receipts(receipts_of("a"))})
    for position in range(len(data)):
        for flip in (1, 32, 255):
            bad = bytearray(data)
            bad[position] ^= flip
            with pytest.raises(TornEntryError):
                decode(1, bytes(bad))


def test_a_missing_commit_before_others_is_void_and_never_filled(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    store_of(tmp_path)
    commit_path(tmp_path, 3).unlink()
    store = LocalStore(tmp_path)
    assert "k2" not in store.index().receipts
    store.commit(receipts_of("k2"))
    assert not commit_path(tmp_path, 3).exists()
    assert LocalStore(tmp_path).index().receipts.keys() == {f"k{n}" for n in range(5)}
    assert "commit 3 is torn or missing" in caplog.text


def test_a_run_whose_beginning_is_torn_is_not_listed(tmp_path):
    store = LocalStore(tmp_path)
    end(store, begin(store))
    kept = end(store, begin(store))
    commit_path(tmp_path, 1).write_bytes(b"")
    (run,) = LocalStore(tmp_path).index().runs
    assert (run.begun, run.number) == (kept.begun, 1)


def test_other_files_among_the_commits_do_no_harm(tmp_path):
    store_of(tmp_path, count=1)
    for name in (".nfs0001", "notes.txt", "0000000002.json.swp", "x.json"):
        (tmp_path / "commits" / name).write_text("x")
    assert LocalStore(tmp_path).index().number == 1


@pytest.mark.parametrize("changes", [{"format": 3}, {"type": "imagined"}])
def test_an_entry_of_a_newer_curvflow_is_refused_rather_than_skipped(tmp_path, changes):
    store_of(tmp_path, count=1)
    entry = {"type": "retired", "keys": ["k0"], "reason": ""} | changes
    commit_path(tmp_path, 2).write_bytes(encode(2, entry))
    with pytest.raises(StoreFormatError, match="commit 2: expected format 2"):
        LocalStore(tmp_path).index()


def test_an_entry_under_another_number_is_void():
    with pytest.raises(TornEntryError, match="holds the entry 1"):
        decode(2, encode(1, {"type": "retired", "keys": [], "reason": ""}))


def test_a_result_that_differs_from_the_live_one_is_noted_as_twin(tmp_path):
    store, other = LocalStore(tmp_path), LocalStore(tmp_path)
    first = publish(store, arrays_of(0), ["a", "b"])
    second = publish(other, arrays_of(1), ["a", "b", "c"])
    assert second[:2] == first
    entry = json.loads(commit_path(tmp_path, 2).read_text())
    mine = receipt_of(arrays_of(1), 0)
    assert entry["twins"][0] == {
        "key": "a",
        "digest": mine.digest,
        "live": first[0].digest,
    }
    assert len(entry["rows"]) == 1
    assert len(store.index().rows) == 3


def test_twins_alone_are_noted_too(tmp_path):
    store = LocalStore(tmp_path)
    publish(store, arrays_of(0), ["a"])
    publish(store, arrays_of(1), ["a"])
    assert json.loads(commit_path(tmp_path, 2).read_text())["rows"] == []
    assert list(LocalStore(tmp_path).index().rows) == [(1, 0)]


class Rival(MemoryCommits):
    """Another writer takes the number just before we do."""

    def __init__(self, entries):
        super().__init__()
        self.rivals = list(entries)

    def create(self, number, data):
        if self.rivals:
            super().create(number, encode(number, self.rivals.pop(0)))
        return super().create(number, data)


def test_the_loser_of_a_race_adopts_and_takes_the_next_number():
    theirs = receipts_of("a", "b", device="cuda:0")
    rival = Rival([{"type": "receipts", **pack_receipts(theirs)}])
    live = Log(rival, "here").commit(receipts_of("b", "c", seed=1))
    assert live[0] == theirs[1]
    index = Log(rival, "here").index()
    assert sorted(index.receipts) == ["a", "b", "c"]
    assert index.number == 2
    assert list(index.rows) == [(1, 0), (1, 1), (2, 0)]


def test_the_loser_of_a_race_with_nothing_left_to_say_says_nothing():
    theirs = receipts_of("a")
    rival = Rival([{"type": "receipts", **pack_receipts(theirs)}])
    assert Log(rival, "here").commit(receipts_of("a")) == theirs
    assert rival.after(0) == [1]


def test_a_receipt_for_a_live_key_is_kept_for_history_alone():
    # Such an entry can arise where a network file system shows a commit late.
    commits = MemoryCommits()
    first, second = receipts_of("a"), receipts_of("a", seed=1)
    for number, receipts in enumerate((first, second), start=1):
        entry = {"type": "receipts", **pack_receipts(receipts)}
        commits.create(number, encode(number, entry))
    index = Log(commits, "here").index()
    assert index.receipts == {"a": first[0]}
    assert index.rows == {(1, 0): first[0], (2, 0): second[0]}


def test_a_race_with_a_retirement_is_won_by_the_later():
    rival = Rival([{"type": "retired", "keys": ["a"], "reason": "lost"}])
    ours = receipts_of("a")
    assert Log(rival, "here").commit(ours) == ours
    assert list(Log(rival, "here").index().receipts) == ["a"]


def test_a_taken_number_that_nobody_lists_is_reported(monkeypatch):
    class Hidden(MemoryCommits):
        def create(self, number, data):
            return False

    monkeypatch.setattr(log, "MAX_ATTEMPTS", 1)
    with pytest.raises(StoreError, match="expected commit 1, which is taken"):
        Log(Hidden(), "here").commit(receipts_of("a"))


class Faulty(Disk):
    """Links in a way of its own."""

    def __init__(self, link):
        self.how = link

    def link(self, source, target):
        self.how(source, target)


def links_then_fails(source, target):
    target.hardlink_to(source)
    raise OSError(5, "Input/output error")


def links_then_says_it_exists(source, target):
    target.hardlink_to(source)
    raise FileExistsError(17, "File exists")


@pytest.mark.parametrize("link", [links_then_fails, links_then_says_it_exists])
def test_a_link_that_succeeds_and_reports_failure_counts(tmp_path, link):
    store = LocalStore(tmp_path, disk=Faulty(link))
    store.commit(receipts_of("a"))
    assert list(LocalStore(tmp_path).index().rows) == [(1, 0)]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_link_that_fails_for_good_is_an_error_and_leaves_nothing(tmp_path):
    def fails(source, target):
        raise OSError(5, "Input/output error")

    store = LocalStore(tmp_path, disk=Faulty(fails))
    with pytest.raises(StoreError, match="Input/output error"):
        store.commit(receipts_of("a"))
    assert LocalStore(tmp_path).index().number == 0
    assert list((tmp_path / "tmp").iterdir()) == []


def unlinkable(source, target):
    raise OSError(95, "Operation not supported")


def test_writers_with_and_without_hard_links_exclude_each_other(tmp_path):
    folders = [tmp_path / name for name in ("commits", "tmp")]
    for folder in folders:
        folder.mkdir()
    with_links, without = (
        LocalCommits(disk, *folders, prepare=lambda: None)
        for disk in (Disk(), Faulty(unlinkable))
    )
    assert without.create(1, b"one")
    assert not with_links.create(1, b"other")
    assert not without.create(1, b"other")
    assert with_links.create(2, b"two")
    assert not without.create(2, b"other")
    assert without.after(0) == [1, 2]
    assert [with_links.read(number) for number in (1, 2)] == [b"one", b"two"]
    assert list(folders[1].iterdir()) == []


numbers = st.booleans() | st.integers() | st.floats(allow_nan=False)
labels = st.one_of(st.none(), numbers, st.text(max_size=5))
plain = st.recursive(labels, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
mappings = st.dictionaries(st.text(max_size=3), plain, max_size=3)


@given(
    st.lists(
        st.builds(
            receipt_of,
            st.just(arrays_of()),
            st.integers(0, 2),
            key=st.text(max_size=2),
            payload=st.none() | st.just("p"),
        ).flatmap(
            lambda receipt: st.builds(
                lambda params, coords: replace(receipt, params=params, coords=coords),
                mappings,
                mappings,
            )
        ),
        max_size=4,
    )
)
def test_any_receipts_survive_the_log_with_their_types(receipts):
    entry = decode(7, encode(7, {"type": "receipts", **pack_receipts(receipts)}))
    got = unpack_receipts(entry)
    assert got == receipts
    assert [repr(sorted_(receipt.params)) for receipt in got] == [
        repr(sorted_(receipt.params)) for receipt in receipts
    ]


def sorted_(mapping):
    return sorted(mapping.items())


def test_receipts_of_one_entry_may_have_different_fields():
    first, second, third = receipts_of("a", "b", "c", params={"seed": 1})
    second = replace(second, reads={"env": {"HOME": "1"}}, params={"seed": True})
    third = replace(third, status="diverged", reason="loss is NaN")
    for receipts in ([first, second, third], [second, first], [third, third, second]):
        entry = decode(7, encode(7, {"type": "receipts", **pack_receipts(receipts)}))
        got = unpack_receipts(entry)
        assert got == receipts
        assert [type(r.params["seed"]) for r in got] == [
            type(r.params["seed"]) for r in receipts
        ]
        with pytest.raises(FrozenInstanceError):
            got[-1].key = "d"


class Holey(MemoryCommits):
    """Lists names as a growing folder may: one is left out, the next is there."""

    hidden: frozenset[int] = frozenset()

    def after(self, number):
        return [n for n in super().after(number) if n not in self.hidden]


@pytest.mark.parametrize("hidden", [{1}, {2}, {1, 2}, {3}, {2, 3}])
def test_an_entry_that_a_listing_leaves_out_is_read_by_its_name(hidden, caplog):
    commits = Holey()
    writer, reader = Log(commits, "here"), Log(commits, "here")
    for number in range(3):
        writer.commit(receipts_of(f"k{number}"))
    commits.hidden = frozenset(hidden)
    reader.append(lambda _: {"type": "retired", "keys": ["x"], "reason": "y"})
    assert reader.index().void == []
    assert set(reader.index().receipts) == {"k0", "k1", "k2"}
    assert not caplog.records


def test_runs_are_numbered_within_their_study_however_many_there_are():
    log = Log(MemoryCommits(), "here")
    begun = {"started": "", "document": {}, "environment": {}, "options": {}}
    for number in range(6):
        study = ("a", "b")[number % 2]
        log.append(lambda _, s=study: {"type": "run-begun", "study": s, **begun})
    assert [(run.study, run.number) for run in log.index().runs] == [
        ("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3), ("b", 3),
    ]  # fmt: skip


def test_a_long_log_is_not_listed_at_every_look(tmp_path, monkeypatch):
    listed = []
    real = os.listdir

    def noted(path):
        listed.append(Path(path).name)
        return real(path)

    monkeypatch.setattr(commits, "LIST_EVERY", 3600.0)
    monkeypatch.setattr(os, "listdir", noted)
    store, other = store_of(tmp_path), LocalStore(tmp_path)
    assert listed.count("commits") == 1
    for number in range(3):
        other.commit(receipts_of(f"other {number}"))
        assert f"other {number}" in store.live([f"other {number}"])
    assert listed.count("commits") <= 5  # two stores began, and three had news


def test_an_entry_beyond_a_lost_one_is_seen_with_the_next_whole_list(
    tmp_path, monkeypatch, caplog
):
    store, other = store_of(tmp_path, 2), LocalStore(tmp_path)
    assert store.index().number == 2
    other.commit(receipts_of("lost"))
    other.commit(receipts_of("kept"))
    commit_path(tmp_path, 3).unlink()
    monkeypatch.setattr(commits, "LIST_EVERY", 0.0)
    assert set(store.live(["lost", "kept"])) == {"kept"}
    assert "commit 3 is torn or missing" in caplog.text

import json
import logging
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from curvflow.errors import StoreError, StoreFormatError
from curvflow.stores import local_payloads
from curvflow.stores.files import Disk
from curvflow.stores.local import LocalStore
from curvflow.stores.memory import MemoryStore
from curvflow.stores.open import open_store
from curvflow.testing.stores import StoreContract, arrays_of, begin, end, publish


def payload_path(store, payload):
    (path,) = store._folder.glob(f"payloads/{payload[:2]}/{payload}.*")
    return path


class TestLocalStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        return open_store(tmp_path / "store", create=True)

    @pytest.fixture
    def other(self, store):
        return open_store(store.location, create=False)

    def lose(self, store, payload):
        Disk().remove(payload_path(store, payload))

    def swap(self, store, payload, other):
        target, source = payload_path(store, payload), payload_path(store, other)
        Disk().remove(target)
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, target)


class TestLocalStoreOfLargePayloads(TestLocalStore):
    """The same, every payload a sharded folder."""

    @pytest.fixture(autouse=True)
    def _folders_only(self, monkeypatch):
        monkeypatch.setattr(local_payloads, "ZIP_BYTES", -1)


class TestLocalStoreWithoutHardLinks(TestLocalStore):
    """The same, on a file system such as FAT."""

    @pytest.fixture(autouse=True)
    def _no_links(self, monkeypatch):
        def link(self, source, target):
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(Disk, "link", link)


def names(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_store_holds_the_files_that_the_design_names(tmp_path):
    store = open_store(tmp_path, create=True)
    (receipt,) = publish(store, arrays_of(), ["a"])
    store.append_event(begin(store), {"event": "begins"})
    name = receipt.payload
    held = names(tmp_path)
    assert re.fullmatch(r"commits/0000000002-[0-9a-f]{8}\.mark", held.pop(2))
    assert held == [
        "FORMAT",
        "commits/0000000001.json",
        "commits/0000000002.json",
        f"payloads/{name[:2]}/{name}.zarr.zip",
        "runs/0000000002.ndjson",
    ]
    assert json.loads((tmp_path / "FORMAT").read_text())["format"] == 1


def test_a_commit_is_json_that_people_can_read(tmp_path):
    store = open_store(tmp_path, create=True)
    publish(store, arrays_of(), ["a", "b"])
    entry = json.loads((tmp_path / "commits/0000000001.json").read_text())
    assert (entry["format"], entry["number"], entry["type"]) == (1, 1, "receipts")
    assert [row["key"] for row in entry["rows"]] == ["a", "b"]
    assert entry["shared"]["kind"] == "train"
    assert entry["params"] == {"lr": 0.1, "whole": 1.0, "hidden": [12]}


def test_a_store_that_is_not_there_reads_as_empty_and_is_made_by_the_first_write(
    tmp_path,
):
    store = open_store(tmp_path / "deep" / "store", create=False)
    assert store.index().number == 0
    assert store.present(["a" * 64]) == set()
    assert not (tmp_path / "deep").exists()
    publish(store, arrays_of(), ["a"])
    assert (tmp_path / "deep" / "store" / "FORMAT").exists()


def test_reading_writes_nothing(tmp_path):
    store = open_store(tmp_path, create=True)
    (receipt,) = publish(store, arrays_of(), ["a"])
    run = end(store, begin(store))
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}

    class ReadOnly(Disk):
        def __getattribute__(self, name):
            raise AssertionError(name)

    reader = LocalStore(tmp_path, disk=ReadOnly())
    reader.index(), reader.index(as_of=1), reader.journal(run)
    assert reader.present([receipt.payload]) == {receipt.payload}
    reader.read(receipt, ["loss"])
    reader.layout(receipt.payload)
    assert before == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}


def test_a_store_that_cannot_be_written_is_refused_with_the_reason(tmp_path):
    class ReadOnly(Disk):
        def write(self, path, data):
            raise OSError(30, "Read-only file system")

    open_store(tmp_path, create=True)
    store = LocalStore(tmp_path, disk=ReadOnly())
    with pytest.raises(StoreError, match="got Read-only file system"):
        store.write_payload(arrays_of())
    with pytest.raises(StoreError, match=r"0000000001\.json.*got Read-only"):
        begin(store)


def test_a_moved_store_reads_as_before(tmp_path):
    (receipt,) = publish(open_store(tmp_path / "old", create=True), arrays_of(), ["a"])
    (tmp_path / "old").rename(tmp_path / "new")
    (tmp_path / "link").symlink_to(tmp_path / "new")
    moved = open_store(tmp_path / "link", create=False)
    assert moved.index().receipts == {"a": receipt}
    np.testing.assert_array_equal(
        moved.read(receipt, ["loss"])["loss"], arrays_of()["loss"][0]
    )


def test_a_newer_format_is_refused(tmp_path):
    open_store(tmp_path, create=True)
    (tmp_path / "FORMAT").write_text('{"store":"curvflow","format":2}')
    with pytest.raises(StoreFormatError, match="expected store format 1, got 2"):
        open_store(tmp_path, create=False)


@pytest.mark.parametrize("text", ["", "{}", "[]", "format 1", '{"format":"1"}'])
def test_a_format_file_of_something_else_is_refused(tmp_path, text):
    (tmp_path / "FORMAT").write_text(text)
    with pytest.raises(StoreFormatError, match="FORMAT: expected the format"):
        open_store(tmp_path, create=True)


def test_a_folder_with_other_files_is_no_store(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    for create in (True, False):
        with pytest.raises(StoreFormatError, match=r"'thesis\.tex' and no FORMAT"):
            open_store(tmp_path, create=create)
    assert names(tmp_path) == ["thesis.tex"]


def test_a_file_is_no_store(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreFormatError, match="expected a folder, got a file"):
        open_store(tmp_path / "file", create=True)


def test_a_store_whose_making_was_cut_short_is_made_whole(tmp_path):
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / "format-1").write_text("{")
    assert open_store(tmp_path, create=True).index().number == 0


def test_a_line_of_the_journal_that_was_cut_short_is_left_out(tmp_path):
    store = open_store(tmp_path, create=True)
    run = begin(store)
    store.append_event(run, {"event": "begins"})
    with (tmp_path / "runs" / "0000000001.ndjson").open("a") as file:
        file.write('{"event": "com')
    assert store.journal(run) == [{"event": "begins"}]


def test_opening_knows_memory_and_folders(tmp_path):
    assert isinstance(open_store("memory:", create=True), MemoryStore)
    assert isinstance(open_store(str(tmp_path), create=True), LocalStore)


@pytest.mark.processes
def test_opening_and_reading_the_log_import_neither_zarr_nor_xarray(tmp_path):
    publish(open_store(tmp_path, create=True), arrays_of(), ["a"])
    code = (
        "import sys; from curvflow.stores.open import open_store;"
        f"s = open_store({str(tmp_path)!r}, create=False); i = s.index();"
        "assert s.present(r.payload for r in i.receipts.values());"
        "assert not {'zarr', 'xarray', 'torch'} & set(sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_good_folder_of_the_same_content_is_left_in_place(tmp_path, monkeypatch):
    monkeypatch.setattr(local_payloads, "ZIP_BYTES", -1)
    store = open_store(tmp_path, create=True)
    name = store.write_payload(arrays_of())
    place = payload_path(store, name).stat().st_ino
    assert store.write_payload(arrays_of()) == name
    assert payload_path(store, name).stat().st_ino == place
    assert names(tmp_path / "tmp") == []


def test_payloads_above_the_limit_become_folders_of_few_files(tmp_path, monkeypatch):
    monkeypatch.setattr(local_payloads, "ZIP_BYTES", 1000)
    store = open_store(tmp_path, create=True)
    small = store.write_payload({"x": np.zeros((5, 25))})
    large = store.write_payload({"x": np.zeros((5, 26))})
    assert payload_path(store, small).suffix == ".zip"
    assert names(payload_path(store, large)) == ["x/c/0/0", "x/zarr.json", "zarr.json"]


def test_new_commits_alone_are_read(tmp_path, monkeypatch):
    store, other = (open_store(tmp_path, create=True) for _ in range(2))
    publish(store, arrays_of(0), ["a"])
    other.index()
    read = []
    original = other._log._commits.read
    monkeypatch.setattr(
        other._log._commits, "read", lambda n: (read.append(n), original(n))[1]
    )
    other.index()
    assert read == []
    publish(store, arrays_of(1), ["b"])
    assert sorted(other.index().receipts) == ["a", "b"]
    assert read == [2]


def test_reading_is_silent(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    publish(open_store(tmp_path, create=True), arrays_of(), ["a"])
    open_store(tmp_path, create=False).index()
    assert caplog.records == []


def test_what_is_no_sign_of_life_is_left_out(tmp_path):
    store = open_store(tmp_path, create=True)
    run = begin(store)
    (tmp_path / "runs" / "x.beat").write_text('{"count": 1}')
    (tmp_path / "runs" / "0000000009.beat").write_text('{"other": 1}')
    (tmp_path / "runs" / "0000000008.beat").mkdir()
    assert store.heartbeats() == {}
    sign = {"count": 1, "pid": 1, "host": "here"}
    store.write_heartbeat(run, sign)
    assert store.heartbeats() == {run.begun: sign}

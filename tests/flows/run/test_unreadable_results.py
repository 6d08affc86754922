"""What cannot be read is computed again, and never believed."""

import logging

import pytest

from curvflow.errors import StoreError
from curvflow.flows.api import open as open_results
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.run.context import Unwatched
from curvflow.flows.run.run import run_study
from curvflow.stores.local import LocalStore
from tests.flows.run.test_run import EXPECTED, executed
from tests.flows.toys import STUDY, opened, run


class Watcher(Unwatched):
    """Keeps the warnings."""

    def __init__(self):
        self.warnings = []

    def warn(self, message):
        self.warnings.append(message)


@pytest.fixture
def folder(tmp_path):
    run(LocalStore(tmp_path / "store"))
    return tmp_path / "store"


def payload_of(folder, stage):
    index = LocalStore(folder).index()
    receipts = [r for r in index.receipts.values() if r.stage == stage]
    (path,) = {p for r in receipts for p in folder.rglob(f"{r.payload}*")}
    return path


def digests(folder):
    index = LocalStore(folder).index()
    return {key: receipt.digest for key, receipt in index.receipts.items()}


def rerun(folder, *overrides):
    watcher = Watcher()
    o = opened(LocalStore(folder), *overrides)
    return run_study(o.study, o.store, o.files, observer=watcher), watcher.warnings


def test_a_deleted_payload_is_computed_again_and_nothing_else(folder):
    before = digests(folder)
    payload_of(folder, "fit").unlink()
    report, warnings = rerun(folder)
    assert executed(report) == {"fit": 6}
    assert "payload lost" in warnings[0]
    assert digests(folder) == before
    assert executed(rerun(folder)[0]) == {}


def test_a_flipped_byte_is_found_when_it_is_needed_and_healed(folder):
    payload = payload_of(folder, "fit")
    content = bytearray(payload.read_bytes())
    for position in range(60, len(content), 97):
        content[position] ^= 0xFF
    payload.write_bytes(content)
    report, warnings = rerun(folder, "stages.last.scale=5.0")
    assert executed(report)["last"] == 6
    assert executed(report)["fit"] > 0
    assert warnings
    clean = run(LocalStore(folder.parent / "clean"), "stages.last.scale=5.0")
    scaled = {n.key: n.receipt.digest for n in clean.plan.graph}
    assert {key: digests(folder)[key] for key in scaled} == scaled


def test_a_payload_that_is_lost_again_and_again_ends_the_run(folder, monkeypatch):
    def unreadable(self, receipts, parts):
        from curvflow.errors import CorruptPayloadError

        return [CorruptPayloadError("the disk lies") for _ in receipts]

    monkeypatch.setattr(LocalStore, "read_together", unreadable)
    with pytest.raises(StoreError, match="the disk lies"):
        rerun(folder, "stages.last.scale=5.0")


def test_a_torn_last_commit_is_a_miss(folder, caplog):
    last = sorted((folder / "commits").glob("*.json"))[-2]
    last.write_bytes(last.read_bytes()[:-20])
    with caplog.at_level(logging.WARNING):
        report, _ = rerun(folder)
    assert 0 < sum(executed(report).values()) < sum(EXPECTED.values())
    assert digests(folder).keys() >= {n.key for n in report.plan.graph}


def test_a_moved_store_and_study_are_still_done(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    (old / "toys.yaml").write_text(STUDY)
    o = open_study(old / "toys.yaml", create=True)
    run_study(o.study, o.store, o.files)
    old.rename(new)
    o = open_study(new / "toys.yaml")
    assert executed(run_study(o.study, o.store, o.files)) == {}
    assert len(open_results(new / "toys.yaml")["last"].seed) == 3

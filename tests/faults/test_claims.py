"""Claims: who is at work on what, whatever becomes of the claims themselves."""

from types import SimpleNamespace

import pytest

from curvflow.flows.graph.heartbeats import beating
from curvflow.flows.graph.stopping import Stopping
from curvflow.flows.run.context import Unwatched
from curvflow.flows.run.shared_work import SharedWork
from curvflow.schemas.options import RunOptions
from curvflow.stores.claims import Claims
from curvflow.stores.commits import MemoryCommits
from curvflow.stores.local import LocalStore
from curvflow.stores.log_entries import encode
from curvflow.stores.memory import MemoryStore
from curvflow.testing.stores import begin
from tests.faults.children import digests
from tests.flows.run.test_run import executed
from tests.flows.toys import run


def alive(_):
    return False


def gone(_):
    return True


@pytest.fixture
def commits():
    return MemoryCommits()


def test_what_one_run_is_at_work_on_another_does_not_get(commits):
    first, second = Claims(commits), Claims(commits)
    assert first.take(1, ["a", "b"], alive) == ["a", "b"]
    assert second.take(2, ["b", "c"], alive) == ["c"]
    assert first.take(1, ["a", "c"], alive) == ["a"]
    assert second.holders() == first.holders() == {"a": 1, "b": 1, "c": 2}


def test_what_a_run_gave_up_or_left_behind_is_free(commits):
    first, second = Claims(commits), Claims(commits)
    first.take(1, ["a", "b"], alive)
    first.release(1, ["a"])
    assert second.take(2, ["a", "b"], alive) == ["a"]
    assert second.take(2, ["a", "b"], gone) == ["a", "b"]
    assert first.take(1, ["a", "b"], alive) == []


def test_giving_up_what_another_has_taken_over_changes_nothing(commits):
    first, second = Claims(commits), Claims(commits)
    first.take(1, ["a"], alive)
    second.take(2, ["a"], gone)
    first.release(1, ["a"])
    assert second.holders() == {"a": 2}


class Rival(MemoryCommits):
    """Another run takes the number just before we do."""

    def __init__(self, keys):
        super().__init__()
        self.keys = keys

    def create(self, number, data):
        if keys := self.keys:
            self.keys = None
            entry = {"type": "claimed", "run": 7, "keys": keys}
            super().create(number, encode(number, entry))
        return super().create(number, data)


def test_the_loser_of_a_race_takes_what_is_left():
    assert Claims(Rival(["a", "b"])).take(1, ["a", "b", "c"], alive) == ["c"]
    assert Claims(Rival(["a"])).take(1, ["a"], alive) == []


def test_claims_are_swept_again_and_again(tmp_path):
    claims = LocalStore(tmp_path).claims
    for begun in range(1, 4):
        for key in "abc":
            claims.take(begun, [key], alive)
        claims.sweep(gone, readers=list)
        assert len(list((tmp_path / "claims").iterdir())) == 1
    assert LocalStore(tmp_path).claims.take(4, ["d"], alive) == ["d"]


@pytest.mark.parametrize("torn", [b"", b'{"crc32":"', b"\0" * 80])
def test_a_torn_claim_frees_what_it_held_and_no_more(commits, torn):
    first = Claims(commits)
    first.take(1, ["a"], alive)
    first.take(1, ["b"], alive)
    commits.replace(2, torn)
    assert Claims(commits).holders() == {"a": 1}
    assert Claims(commits).take(2, ["a", "b"], alive) == ["b"]


def test_claims_are_swept_once_all_who_made_them_are_gone(commits):
    first, second = Claims(commits), Claims(commits)
    for key in "abc":
        first.take(1, [key], alive)
    second.take(2, ["d"], alive)
    first.sweep(lambda run: run == 1, readers=list)
    assert commits.after(0) == [1, 2, 3, 4]
    second.sweep(gone, readers=list)
    assert commits.after(0) == [4]
    assert first.take(1, ["e"], alive) == ["e"]
    assert commits.after(0) == [4, 5]
    assert Claims(commits).holders()["e"] == 1


def test_a_run_that_waits_and_holds_nothing_keeps_claims_from_being_swept(tmp_path):
    ended, behind, ahead = (LocalStore(tmp_path) for _ in range(3))
    runs = [begin(store) for store in (ended, behind, ahead)]
    with (
        beating(behind, runs[1], Stopping(), silence=60.0),
        beating(ahead, runs[2], Stopping(), silence=60.0),
    ):
        take = ended.claims.take
        take(runs[0].begun, ["a"], alive)
        assert behind.claims.holders().keys() == {"a"}  # it waits, and reads no more
        take(runs[0].begun, ["b"], alive, done=["a"])
        take(runs[0].begun, ["c"], alive, done=["b"])
        assert ahead.claims.holders().keys() == {"c"}
        context = SimpleNamespace(
            store=ended, stop=Stopping(), options=RunOptions(), observer=Unwatched()
        )
        SharedWork(context, runs[0]).sweep()
        assert behind.claims.take(runs[1].begun, ["d"], alive) == ["d"]
        assert ahead.claims.take(runs[2].begun, ["d"], alive) == []
    SharedWork(context, runs[0]).sweep()
    assert len(list((tmp_path / "claims").iterdir())) == 1


def test_claims_that_were_deleted_cost_no_result(tmp_path):
    store = LocalStore(tmp_path)
    store.claims.take(begin(store).begun, ["a"], alive)
    for path in (tmp_path / "claims").iterdir():
        path.unlink()
    run(LocalStore(tmp_path))
    expected = MemoryStore()
    run(expected)
    assert digests(LocalStore(tmp_path)) == digests(expected)
    assert executed(run(LocalStore(tmp_path))) == {}

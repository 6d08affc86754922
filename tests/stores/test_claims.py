"""Claims under races and losses; what every store must do is in the contract."""

import threading

import pytest

from curvflow.stores.claims import Claims
from curvflow.stores.commits import MemoryCommits


def nobody(_):
    return False


class Late(MemoryCommits):
    """Before our entry is written, somebody else has written theirs."""

    def __init__(self):
        super().__init__()
        self.first = []

    def create(self, number, data):
        if self.first:
            self.first.pop()()
        return super().create(number, data)


def test_the_first_between_reading_and_writing_has_the_key():
    commits = Late()
    ours, theirs = Claims(commits), Claims(commits)
    commits.first.append(lambda: theirs.take(2, ["b"], nobody))
    assert ours.take(1, ["a", "b"], nobody) == ["a"]
    assert ours.holders() == theirs.holders() == {"b": 2, "a": 1}


def test_a_release_that_comes_second_is_written_after_all():
    commits = Late()
    ours, theirs = Claims(commits), Claims(commits)
    ours.take(1, ["a"], nobody)
    commits.first.append(lambda: theirs.take(2, ["b"], nobody))
    ours.release(1, ["a"])
    assert theirs.holders() == {"b": 2}


def test_a_torn_claim_is_none():
    commits = MemoryCommits()
    Claims(commits).take(1, ["a"], nobody)
    commits.replace(1, b'{"ty')
    assert Claims(commits).take(2, ["a"], nobody) == ["a"]


def test_what_is_swept_while_somebody_reads_on_is_not_missed():
    commits = MemoryCommits()
    first, second = Claims(commits), Claims(commits)
    for number in range(5):
        first.take(1, [str(number)], nobody)
    first.sweep(lambda _: True, readers=list)
    assert commits.after(0) == [5]
    assert second.take(2, ["0", "4"], lambda run: run == 1) == ["0", "4"]
    assert first.holders()["0"] == 2


@pytest.mark.parametrize("gone", [nobody, lambda run: run == 1])
def test_a_run_is_never_in_its_own_way(gone):
    claims = Claims(MemoryCommits())
    claims.take(1, ["a"], gone)
    assert claims.take(1, ["a", "b"], gone) == ["a", "b"]


def test_among_threads_each_key_is_claimed_once():
    commits, got = MemoryCommits(), set()
    keys = [str(number) for number in range(40)]

    def claim(run):
        claims = Claims(commits)
        for start in range(0, 40, 4):
            ours = claims.take(run, keys[start : start + 6], nobody)
            got.update((key, run) for key in ours)

    threads = [threading.Thread(target=claim, args=(run,)) for run in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(key for key, _ in got) == sorted(keys)
    assert Claims(commits).holders() == dict(got)


class Holey(MemoryCommits):
    """A listing that leaves out what its folder has got meanwhile."""

    def after(self, number):
        return [n for n in super().after(number) if n != 1]


def test_a_claim_that_a_listing_leaves_out_still_holds():
    commits = Holey()
    assert Claims(commits).take(1, ["k"], lambda _: False) == ["k"]
    other = Claims(commits)
    assert other.take(2, ["k"], lambda _: False) == []
    assert other.take(2, ["m", "k"], lambda _: False) == ["m"]
    assert Claims(commits).take(3, ["k"], lambda _: False) == []


def test_what_is_done_is_given_up_with_the_next_claim():
    commits = MemoryCommits()
    first, other = Claims(commits), Claims(commits)
    first.take(1, ["a", "b"], lambda _: False)
    first.take(1, ["c"], lambda _: False, done=["a"])
    assert other.take(2, ["a", "b", "c"], lambda _: False) == ["a"]
    first.release(1, ["b", "c"])
    assert other.take(2, ["b", "c"], lambda _: False) == ["b", "c"]

"""Collection takes what nobody needs, in two passes, and nothing else."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from curvflow.errors import StoreError, UnknownNameError
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.upkeep.collect import collect
from curvflow.flows.upkeep.pins import pin_run
from curvflow.flows.upkeep.proposal import (
    COLLECTED_BEFORE,
    DROPPED,
    ORPHAN,
    STRUCK,
    UNUSED,
    propose,
)
from curvflow.stores.files import Disk
from curvflow.stores.local import LocalStore
from curvflow.stores.trash import trash_folder
from tests.flows.run.test_run import executed
from tests.flows.toys import CALLS, opened, run

HOUR = 3600.0
STAGES = ("data", "fit", "last", "path", "mean")
OTHER = ("axes.seed=2", "stages.fit.epochs=6")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def local(folder):
    return LocalStore(folder)


def reasons(proposal):
    return {(removal.stage, removal.reason) for removal in proposal.removals}


def payloads(store, *stages, index=None):
    receipts = (index or store.index()).rows.values()
    return {r.payload for r in receipts if r.stage in (stages or STAGES)}


def shift(folder, seconds, pattern="**/*"):
    """Move the times of files, and of the folders they are in."""
    for path in [folder, *folder.glob(pattern)]:
        time = path.stat().st_mtime + seconds
        os.utime(path, (time, time))


def files(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*"))


def assert_sound(store):
    """No live result lacks its payload, unless collection has removed it."""
    named = {r.payload for r in store.index().receipts.values() if r.payload}
    missing = named - store.present(named)
    assert missing <= store.index().evicted  # also by one that went on meanwhile


def twice(store, **options):
    collect(store, **options)
    return collect(store, **options)


def test_a_proposal_touches_nothing(folder, local):
    run(local)
    run(local, *OTHER)
    before = files(folder)
    assert propose(local, keep_runs=1).removals
    assert files(folder) == before
    assert not folder.with_name("none").exists()
    propose(LocalStore(folder.with_name("none")))
    assert not folder.with_name("none").exists()


def test_what_no_kept_run_names_goes_in_two_passes(store):
    run(store)
    old = payloads(store, "fit", "mean")
    run(store, *OTHER)
    proposal = propose(store, keep_runs=1)
    assert {removal.item.payload for removal in proposal.removals} >= old
    assert {removal.reason for removal in proposal.removals} == {UNUSED}
    assert {removal.study for removal in proposal.removals} == {"toys"}
    first = collect(store, keep_runs=1)
    assert old <= store.index().evicted
    assert store.present(old) == old  # in the trash
    second = collect(store, keep_runs=1)
    assert second.number is None
    assert "collected before" in second.proposal.leftovers
    assert store.present(old) == set()
    assert_sound(store)
    assert executed(run(store, *OTHER)) == {}
    assert first.number == 1 + first.proposal.index.number
    assert propose(store, keep_runs=1).removals == []


def test_enough_runs_are_kept_of_each_study(store):
    run(store)
    run(store, *OTHER)
    run(store, "study=others", "stages.fit.epochs=8")
    assert propose(store, keep_runs=2).removals == []
    removals = propose(store, keep_runs=1).removals
    assert {removal.study for removal in removals} == {"toys"}
    assert {removal.study for removal in propose(store, keep_runs=0).removals} == {
        "toys",
        "others",
    }


def test_a_payload_shared_with_a_kept_run_stays_whole(store):
    run(store)
    run(store, "axes.seed=2")  # some nodes of each payload
    removed = {removal.item.payload for removal in propose(store, keep_runs=1).removals}
    assert removed.isdisjoint(payloads(store, "data", "fit", "last", "path"))
    assert reasons(propose(store, keep_runs=1)) == {("mean", UNUSED)}


def test_what_was_struck_off_goes_unless_a_kept_run_names_it(store):
    run(store)
    keys = [r.key for r in store.index().receipts.values() if r.stage == "fit"]
    store.retire(keys, "wrong")
    assert propose(store).removals == []
    run(store, *OTHER)
    assert ("fit", STRUCK) in reasons(propose(store, keep_runs=1))
    assert sum(
        removal.seconds
        for removal in propose(store, keep_runs=1).removals
        if removal.reason == STRUCK
    ) == pytest.approx(0)


def test_a_payload_without_results_is_given_its_grace(folder, local):
    run(local)
    orphan = local.write_payload({"lost": np.arange(3.0)})
    assert propose(local).removals == []
    shift(folder, -2 * HOUR, f"payloads/*/{orphan}*")
    (removal,) = propose(local).removals
    assert (removal.item.payload, removal.reason, removal.stage) == (orphan, ORPHAN, "")
    assert propose(local, grace=3 * HOUR).removals == []
    collect(local)
    assert list(folder.glob(f"trash/*/{orphan}*"))
    collect(local)
    assert not list(folder.rglob(f"{orphan}*"))


def test_a_kind_is_dropped_as_requested_and_its_nodes_stay_done(store):
    run(store)
    fits = payloads(store, "fit")
    with pytest.raises(UnknownNameError, match=r"Did you mean 'toy\.fit'"):
        propose(store, drop=["toy.fitt"])
    assert reasons(propose(store, drop=["toy.fit"])) == {("fit", DROPPED)}
    twice(store, drop=["toy.fit"])
    assert store.present(fits) == set()
    assert store.present(payloads(store, "mean")) == payloads(store, "mean")
    CALLS.clear()
    assert executed(run(store)) == {}
    assert sum(CALLS.values()) == 0
    again = run(store, "stages.last.scale=2.0", "stages.path.scale=4.0")
    assert not again.record.failures
    assert executed(again)["last"] == 6
    assert CALLS["toy.fit"] >= 1


def test_a_pinned_run_stays_even_if_its_kind_is_dropped(store):
    run(store)
    pin_run(store, "toys", "paper", number=None, reason="figures")
    run(store, *OTHER)
    assert propose(store, keep_runs=1).removals == []
    pinned = payloads(store, index=store.index(store.index().runs[0].ended))
    removals = propose(store, keep_runs=0, drop=["toy.fit"]).removals
    assert removals
    assert pinned.isdisjoint(removal.item.payload for removal in removals)


def test_pinning_brings_back_what_is_in_the_trash(store):
    run(store)
    run(store, *OTHER)
    gone = {
        removal.item.payload
        for removal in collect(store, keep_runs=1).proposal.removals
    }
    pin_run(store, "toys", "paper", number=1, reason="")
    collect(store, keep_runs=1)
    assert store.present(gone) == gone
    collect(store, keep_runs=1)
    assert store.present(gone) == gone


def test_what_an_interrupted_run_has_made_stays_for_the_next(folder, local):
    run(local)
    cut = begun(local)
    made = local.write_payload({"final": np.zeros(2)})
    old = next(iter(local.index().receipts.values()))
    local.commit([replace(old, key="made", payload=made, run=cut.begun)])
    local.append_event(
        cut, {"event": "plan", "payloads": sorted(payloads(local, "fit"))}
    )
    shift(folder, -2 * HOUR)
    removed = {removal.item.payload for removal in propose(local, keep_runs=0).removals}
    assert removed
    assert removed.isdisjoint({made} | payloads(local, "fit"))
    local.append_event(cut, {})
    run(local)  # the next has finished
    after = {removal.item.payload for removal in propose(local, keep_runs=1).removals}
    assert after == {made}


def begun(store, study="toys"):
    return store.begin_run(study, document={}, environment={}, options={})


ELSEWHERE = {"count": 3, "host": "other", "boot": "other", "pid": 1, "started": "1"}


def test_nothing_goes_while_a_run_has_not_recorded_its_plan(folder, local):
    run(local)
    at_work = begun(local)
    proposal = propose(local, keep_runs=0)
    assert "run 2 of toys may be running" in proposal.blocked
    assert proposal.removals == ()
    before = files(folder)
    assert collect(local, keep_runs=0).proposal.blocked
    assert files(folder) == before
    local.write_heartbeat(at_work, ELSEWHERE)
    assert propose(local, keep_runs=0).blocked
    local.append_event(at_work, {"event": "plan", "payloads": []})
    assert not propose(local, keep_runs=0).blocked


def test_a_run_that_never_gave_a_sign_of_life_is_waited_for_once(folder, local):
    run(local)
    begun(local)
    assert propose(local).blocked
    shift(folder, -2 * HOUR, "commits/*")
    assert not propose(local).blocked


@pytest.mark.parametrize(("hours", "is_live"), [(0.5, True), (2, False)])
def test_a_silent_run_elsewhere_is_judged_by_the_age_of_its_heartbeat(
    folder, local, hours, is_live
):
    run(local)
    at_work = begun(local)
    local.write_heartbeat(at_work, ELSEWHERE)
    shift(folder, -hours * HOUR, "runs/*.beat")
    proposal = propose(local)
    assert bool(proposal.blocked) == is_live
    assert ("stale heartbeats" in proposal.leftovers) != is_live


def test_a_sign_of_a_run_that_the_log_has_lost_goes_once_it_is_old(folder, local):
    run(local)
    (record,) = local.index().runs
    local.write_heartbeat(record, ELSEWHERE)
    path = folder / "commits" / f"{record.begun:010}.json"
    path.write_bytes(path.read_bytes()[:-9])
    torn = LocalStore(folder)
    assert torn.index().runs == []
    assert "stale heartbeats" not in propose(torn).leftovers
    shift(folder, -2 * HOUR, "runs/*.beat")
    assert "stale heartbeats" in propose(torn).leftovers
    collect(torn)
    assert torn.heartbeats() == {}


def test_what_a_live_run_takes_and_makes_stays(folder, local):
    run(local)
    taken = payloads(local, "fit")
    run(local, *OTHER)
    at_work = begun(local)
    local.write_heartbeat(at_work, ELSEWHERE)
    local.append_event(at_work, {"event": "plan", "payloads": sorted(taken)})
    made = local.write_payload({"final": np.zeros(2)})
    orphan = local.write_payload({"final": np.ones(2)})
    old = next(iter(local.index().receipts.values()))
    local.commit([replace(old, key="made", payload=made)])
    shift(folder, -2 * HOUR)
    local.write_heartbeat(at_work, ELSEWHERE)
    removed = {removal.item.payload for removal in propose(local, keep_runs=0).removals}
    assert removed >= payloads(local, "mean")
    assert removed.isdisjoint(taken | {made, orphan})
    collect(local, keep_runs=0)
    # What went to the trash after it began stays readable while it is at work.
    assert not propose(local, keep_runs=0).leftovers
    local.end_run(at_work, seconds=1, counts={}, failures=[], tables={})
    local.write_heartbeat(at_work, None)
    assert "collected before" in propose(local).leftovers


def test_a_run_that_plans_with_the_trash_gets_it_back(local):
    run(local)
    fits = payloads(local, "fit")
    run(local, *OTHER)
    collect(local, keep_runs=1)
    at_work = begun(local)
    local.write_heartbeat(at_work, ELSEWHERE)
    local.append_event(at_work, {"event": "plan", "payloads": sorted(fits)})
    collect(local, keep_runs=1)
    home = {item.payload for item in local.files.items("payloads")}
    assert fits <= home
    assert "fit" not in executed(run(local))


def test_a_result_committed_while_its_payload_was_in_the_trash_gets_it_back(local):
    run(local)
    run(local, *OTHER)
    done = collect(local, keep_runs=1)
    removed = done.proposal.removals[0].item.payload
    old = next(r for r in local.index().rows.values() if r.payload == removed)
    local.commit([replace(old, key="another")])
    assert_sound(local)
    collect(local, keep_runs=5)
    assert removed in {item.payload for item in local.files.items("payloads")}
    assert_sound(local)


class Stopping(Disk):
    """Fails every change from some point on, as a process that is killed."""

    def __init__(self, left):
        self.left = left

    def __getattribute__(self, name):
        if name in vars(Disk) and not name.startswith("_"):
            if self.left <= 0:
                raise KeyboardInterrupt
            self.left -= 1
        return super().__getattribute__(name)


def test_collection_may_be_cut_short_at_any_point(tmp_path):
    first = tmp_path / "first"
    run(LocalStore(first))
    run(LocalStore(first), *OTHER)
    (first / "tmp" / f"payload-{'0' * 32}").write_bytes(b"half")
    shift(first, -2 * HOUR)
    point, ended = 0, False
    while not ended:
        folder = tmp_path / str(point)
        shutil.copytree(first, folder)
        cut = LocalStore(folder, disk=Stopping(point))
        try:
            twice(cut, keep_runs=1)
            ended = True
        except KeyboardInterrupt:
            point += 1
        store = LocalStore(folder)
        assert_sound(store)
        assert executed(run(store, *OTHER)) == {}
        twice(store, keep_runs=1)
        assert_sound(store)
        shift(folder, -2 * HOUR)
        collect(store, keep_runs=1)
        assert not store.files.items("trash")
        assert not store.files.items("tmp")
    assert point > 10


def test_a_payload_that_its_entry_outlived_is_used_until_it_goes(local):
    run(local)
    run(local, *OTHER)
    payloads = [
        removal.item.payload for removal in propose(local, keep_runs=1).removals
    ]
    local.evict(payloads, "collected")  # and killed
    assert {removal.reason for removal in propose(local, keep_runs=1).removals} == {
        COLLECTED_BEFORE
    }
    CALLS.clear()
    assert executed(run(local, "stages.last.scale=2.0"))["last"] == 6
    assert CALLS["toy.fit"] == 0
    twice(local, keep_runs=1)
    assert_sound(local)


def test_leftovers_go_once_they_are_old_and_strangers_never(folder, local):
    run(local)
    ours = [
        folder / "tmp" / f"commit-{'0' * 32}",
        folder / "tmp" / f"payload-{'1' * 32}",
        folder / "partials" / "abc123.zarr.zip",
    ]
    strangers = [
        folder / "notes" / "mine.txt",
        folder / "tmp" / "mine.txt",
        folder / "payloads" / "mine" / "a.zarr.zip",
        folder / "payloads" / "ab" / "mine.zarr.zip",
        folder / "trash" / "mine" / f"{'a' * 64}.zarr",
        folder / "runs" / "mine.beat",
    ]
    for path in [*ours, *strangers]:
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(b"some")
    link = folder / "payloads" / "ab" / f"{'b' * 64}.zarr"
    link.symlink_to(folder.parent)
    assert propose(local).leftovers == {}
    shift(folder, -2 * HOUR)
    twice(local)
    assert [path.exists() for path in ours] == [False, False, True]
    shift(folder, -8 * 24 * HOUR)
    twice(local)
    assert [path.exists() for path in ours] == [False, False, False]
    assert all(path.exists() for path in strangers)
    assert link.is_symlink()


@pytest.mark.parametrize("days", [-1000, 1000])
def test_only_the_clock_of_the_store_counts(folder, local, days, monkeypatch):
    run(local)
    young = local.write_payload({"lost": np.arange(3.0)})
    monkeypatch.setattr("time.time", lambda: days * 24 * HOUR)
    assert propose(local).removals == []
    shift(folder, 24 * HOUR * 365, f"payloads/*/{young}*")  # from the future
    twice(local)
    assert young in local.present([young])
    assert_sound(local)


def test_what_is_dated_ahead_counts_as_written_at_the_next_collection(folder, local):
    run(local)
    run(local, *OTHER)
    lost = local.write_payload({"lost": np.arange(3.0)})
    collect(local, keep_runs=1)
    (folder / "tmp" / f"commit-{'0' * 32}").write_bytes(b"some")
    names = [f"payloads/*/{lost}*", "trash/**/*", "tmp/*"]
    assert local.files.items("trash")
    for name in names:
        shift(folder, 24 * HOUR, name)
    collect(local, keep_runs=1)
    assert len(list((folder / "tmp").iterdir())) == 1
    for name in names:
        shift(folder, -2 * HOUR, name)
    twice(local, keep_runs=1)
    assert local.files.items("trash") == local.files.items("tmp") == []
    assert lost not in local.present([lost])
    assert_sound(local)


def test_claims_of_a_run_that_the_log_has_lost_are_swept(folder, local):
    run(local)
    (record,) = local.index().runs
    take = local.claims.take
    take(record.begun + 99, ["a"], lambda _: False)
    take(record.begun + 99, ["b"], lambda _: False)
    local.write_heartbeat(replace(record, begun=record.begun + 99), ELSEWHERE)
    collect(local)
    assert local.claims.holders().keys() == {"a", "b"}
    local.write_heartbeat(replace(record, begun=record.begun + 99), None)
    collect(local)
    assert LocalStore(folder).claims.holders().keys() <= {"b"}


class ReadOnly(Disk):
    def __getattribute__(self, name):
        if name in vars(Disk) and not name.startswith("_"):
            raise OSError(30, "Read-only file system")
        return super().__getattribute__(name)


def test_a_store_that_cannot_be_written_can_be_read(folder, local):
    run(local)
    run(local, *OTHER)
    frozen = LocalStore(folder, disk=ReadOnly())
    assert len(propose(frozen, keep_runs=1).removals) == len(
        propose(local, keep_runs=1).removals
    )
    with pytest.raises(StoreError, match="Read-only"):
        collect(frozen, keep_runs=1)


class Overtaken(LocalStore):
    """A store whose log moves on just before or after each entry of a collection."""

    def __init__(self, folder, before=None, after=None):
        super().__init__(folder)
        self._before, self._after = before, after

    def evict(self, payloads, reason, *, unless=None):
        if self._before is not None:
            self._before()
        number = super().evict(payloads, reason, unless=unless)
        if self._after is not None:
            self._after()
        return number


def test_a_run_that_ends_before_the_entry_keeps_what_it_names(folder, local):
    run(local)
    old = payloads(local)
    run(local, *OTHER)
    again = iter([lambda: run(LocalStore(folder))])
    store = Overtaken(folder, lambda: next(again, lambda: None)())
    collect(store, keep_runs=1)
    home = {item.payload for item in local.files.items("payloads")}
    assert {payload for payload in old if payload} <= home


class Tidied(LocalStore):
    """Collected whenever it is asked what is present, after its log was read."""

    def __init__(self, folder):
        super().__init__(folder)
        self._tidied = folder

    def present(self, payloads):
        collect(LocalStore(self._tidied), keep_runs=1)
        collect(LocalStore(self._tidied), keep_runs=1, grace=0.0)
        return super().present(payloads)


def test_a_plan_takes_nothing_for_lost_that_is_collected_meanwhile(folder, local):
    run(local)
    run(local, *OTHER)
    o = opened(Tidied(folder))
    planned = make_plan(o.study, o.store, o.files)
    afterwards = make_plan(o.study, local, o.files)
    states = [[node.state for node in plan.graph] for plan in (planned, afterwards)]
    assert states[0] == states[1]
    assert planned.removed == afterwards.removed != set()


def test_a_log_that_changes_all_the_time_is_an_error(folder, local):
    run(local)
    run(local, *OTHER)

    def pin():
        number = local.index().number
        pin_run(LocalStore(folder), "toys", f"p{number}", number=2, reason="")

    with pytest.raises(StoreError, match="expected a moment in which no run"):
        collect(Overtaken(folder, pin), keep_runs=1)


SCALED = ("stages.last.scale=2.0", "stages.path.scale=4.0")  # they take fits


def assert_at_home(store, wanted):
    assert wanted <= {item.payload for item in store.files.items("payloads")}


def test_what_is_computed_again_after_the_entry_is_at_home_in_the_end(folder, local):
    run(local)
    fits = payloads(local, "fit")
    run(local, *OTHER)

    def meanwhile():  # other collections are quicker, and a run needs it all again
        other = LocalStore(folder)
        twice(other, keep_runs=1)
        assert other.present(fits) == set()
        run(other, *SCALED)
        assert fits.isdisjoint(other.index().evicted)

    collect(Overtaken(folder, after=meanwhile), keep_runs=1)
    assert_at_home(local, fits)
    assert_sound(local)


def test_what_a_run_has_written_again_and_not_committed_stays(folder, local):
    run(local)
    fits = payloads(local, "fit")
    arrays = [local.read_payload(name) for name in fits]
    run(local, *OTHER)
    twice(local, keep_runs=1)
    at_work = begun(local)
    local.write_heartbeat(at_work, ELSEWHERE)
    local.append_event(at_work, {"event": "plan", "payloads": []})
    assert {local.write_payload(payload) for payload in arrays} == fits
    assert propose(local, keep_runs=0).removals
    collect(local, keep_runs=0)
    assert_at_home(local, fits)


class Stale(LocalStore):
    """A store whose results change just before its files are first listed."""

    def __init__(self, folder, meanwhile):
        super().__init__(folder)
        items, done = self.files.items, []

        def late(place):
            if place == "payloads" and not done:
                done.append(place)
                meanwhile()
            return items(place)

        self.files.items = late


def test_what_came_to_life_again_in_the_trash_is_not_removed(folder, local):
    run(local)
    fits = payloads(local, "fit")
    run(local, *OTHER)
    twice(local, keep_runs=1)

    def needed_again():
        run(local, *SCALED)
        assert fits.isdisjoint(local.index().evicted)
        for item in local.files.items("payloads"):
            if item.payload in fits:  # by a collection whose entry is older
                local.files.move(item, trash_folder("trash", 7))

    collect(Stale(folder, needed_again), keep_runs=1)
    assert local.present(fits) == fits
    assert_sound(local)


def together(*workers):
    errors = []

    def guarded(work):
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_collections_at_the_same_time_do_not_disturb_each_other(folder):
    for epochs in (4, 6, 8):
        run(LocalStore(folder), f"stages.fit.epochs={epochs}")
    gate = threading.Barrier(4)

    def work():
        store = LocalStore(folder)
        gate.wait()
        for _ in range(3):
            collect(store, keep_runs=1)

    together(*[work] * 4)
    store = LocalStore(folder)
    assert_sound(store)
    assert store.files.items("trash") == []
    assert executed(run(store, "stages.fit.epochs=8")) == {}


def test_runs_are_undisturbed_by_collections_that_never_stop(folder):
    over, rounds = threading.Event(), []

    def collecting():
        store = LocalStore(folder)
        while not over.is_set():
            done = collect(store, keep_runs=1, grace=0.0)
            rounds.append(len(done.proposal.removals))

    def running():
        try:
            for number in range(12):
                store = LocalStore(folder)
                report = run(store, f"stages.fit.epochs={4 + 2 * (number % 3)}")
                assert not report.record.failures
                assert_sound(store)
        finally:
            over.set()

    together(collecting, collecting, running)
    assert any(rounds)
    store = LocalStore(folder)
    expected = {r.key: r.digest for r in store.index().receipts.values()}
    fresh = LocalStore(Path(f"{folder}-fresh"))
    for epochs in (4, 6, 8):
        run(fresh, f"stages.fit.epochs={epochs}")
    assert {r.key: r.digest for r in fresh.index().receipts.values()} == expected


def test_a_proposal_is_plain_data_for_scripts(store):
    run(store)
    run(store, *OTHER)
    notices = propose(store, keep_runs=1).as_json()
    assert notices["blocked"] is None
    assert notices["payloads"] == sum(group["payloads"] for group in notices["groups"])
    assert notices["bytes"] == sum(group["bytes"] for group in notices["groups"])
    assert notices["groups"][0]["study"] == "toys"
    sizes = [group["bytes"] for group in notices["groups"]]
    assert sizes == sorted(sizes, reverse=True)


def test_asking_needs_nothing_of_a_study(store):
    assert propose(store).as_json()["payloads"] == 0
    assert collect(store).number is None
    assert opened(store).store is store


AT_WORK = """
import sys, time
from pathlib import Path
from curvflow.flows.graph.heartbeats import beating
from curvflow.flows.graph.stopping import Stopping
from curvflow.stores.local import LocalStore
store = LocalStore(Path(sys.argv[1]))
run = store.begin_run("toys", document={}, environment={}, options={})
with beating(store, run, Stopping(), silence=60.0):
    store.append_event(run, {"event": "plan", "payloads": sys.argv[2:]})
    print("at work", flush=True)
    time.sleep(600)
"""


def test_a_paused_run_keeps_what_it_takes_and_a_killed_one_stands_back(folder, local):
    run(local)
    fits = payloads(local, "fit")
    run(local, *OTHER)
    command = [sys.executable, "-c", AT_WORK, str(folder), *sorted(fits)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        process.send_signal(signal.SIGSTOP)
        shift(folder, -2 * HOUR)  # silent for long, but there
        for _ in range(2):
            done = collect(local, keep_runs=1)
            assert [run.number for run in done.proposal.kept.live] == [3]
            assert fits <= {item.payload for item in local.files.items("payloads")}
        process.kill()
    assert propose(local).kept.live == []
    assert "stale heartbeats" in propose(local).leftovers
    # The next run of the study goes on from what it has left.
    assert fits.isdisjoint(removal.item.payload for removal in propose(local).removals)
    run(local, *OTHER)
    assert fits <= {
        removal.item.payload for removal in propose(local, keep_runs=1).removals
    }

"""A few episodes of `make chaos`, and proof that it can fail."""

from dataclasses import replace

import numpy as np
import pytest

from curvflow.flows.graph.heartbeats import beating
from curvflow.flows.graph.stopping import Stopping
from curvflow.stores.local import LocalStore
from curvflow.testing.stores import begin, receipt_of
from tests.chaos.__main__ import play
from tests.chaos.episodes import ChaosError, Episode, Services
from tests.chaos.judge import differences, faults, leftovers, planned, traces
from tests.chaos.places import KINDS, ROTA, kind_of

pytestmark = pytest.mark.processes


@pytest.fixture
def services(tmp_path):
    with Services(tmp_path / "services") as running:
        yield running


@pytest.fixture
def episode(tmp_path, services):
    """Return an episode in which nothing has happened but a run."""
    one = Episode(3, tmp_path / "episode", services)
    one.run()
    return one


def test_what_was_disturbed_at_random_equals_a_clean_store(tmp_path, services):
    played = play(12, tmp_path / "episode", services, only="folder")
    assert played.tally["nodes"] >= len(planned(played.study, played.clean()))


@pytest.mark.slow
def test_what_lay_in_a_failing_bucket_equals_a_clean_store(tmp_path, services):
    played = play(4, tmp_path / "episode", services, only="bucket")
    assert played.tally["arrays"]


def test_the_same_seed_draws_the_same_study_and_the_same_actions(tmp_path, services):
    first, second = (
        play(10, tmp_path / name, services, only="folder") for name in ("one", "two")
    )
    assert first.study.path.read_text() == second.study.path.read_text()
    assert first.done == second.done


def test_every_kind_of_episode_comes_in_turn():
    assert {kind_of(seed).name for seed in range(len(ROTA))} == KINDS.keys()


def test_a_bit_that_flips_without_a_trace_is_seen(episode):
    store, clean = LocalStore(episode.folder / "store"), episode.clean()
    wanted = planned(episode.study, clean)
    assert differences(store, clean, wanted) == []
    receipt = next(r for r in store.index().receipts.values() if r.stage == "means")
    assert receipt.payload is not None
    arrays = store.read_payload(receipt.payload)
    name = next(name for name, array in arrays.items() if array.dtype == np.float64)
    wrong = arrays[name].copy()
    wrong.view(np.uint64)[...] ^= 1
    changed = arrays | {name: wrong}
    made = receipt_of(changed, receipt.slot, payload=store.write_payload(changed))
    store.retire([receipt.key], "a test")
    found = {"payload": made.payload, "digest": made.digest, "parts": made.parts}
    store.commit([replace(receipt, **found)])
    assert faults(store) == []
    (line,) = differences(LocalStore(episode.folder / "store"), clean, wanted)
    assert line.startswith("means ")
    assert line.endswith(f"other bits in {name}")


def test_a_kind_that_gives_other_numbers_at_another_time_is_seen(episode):
    (episode.study.folder / "wrong").touch()
    with pytest.raises(ChaosError, match="other bits in size"):
        episode.finish()


def test_a_result_that_is_missing_and_one_too_many_are_seen(episode):
    store, clean = LocalStore(episode.folder / "store"), episode.clean()
    wanted = planned(episode.study, clean)
    key = next(iter(wanted))
    store.retire([key], "a test")
    assert differences(store, clean, wanted) == [f"{wanted[key]}: not in the store"]
    clean.retire([key], "a test")
    told = differences(LocalStore(episode.folder / "store"), clean, {})
    assert told == []
    clean.retire(list(wanted), "a test")
    assert len(differences(store, clean, {})) == len(wanted) - 1


def test_what_is_left_over_and_what_names_a_folder_is_seen(episode):
    folder = episode.folder / "store"
    (folder / "runs" / "note.ndjson").write_text(f"in {episode.folder}")
    (told,) = traces(folder, [str(episode.folder)])
    assert told == f"runs/note.ndjson names {episode.folder}"
    store = LocalStore(folder)
    assert leftovers(store) == []
    run = begin(store)
    store.claims.take(run.begun, ["never"], lambda _: False)
    with beating(store, run, Stopping(), silence=60.0):
        assert leftovers(store)[-1] == "claimed: never"


def test_a_command_that_ends_otherwise_than_it_may_fails_the_episode(episode):
    with pytest.raises(ChaosError, match="exit code 2"):
        episode.end(episode.start("run", "nothing.yaml"), 0, 1)

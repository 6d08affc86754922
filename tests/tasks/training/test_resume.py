"""Training that is stopped and resumed, against training in one go."""

import numpy as np
import pytest

from curvflow.errors import Stopped
from curvflow.stores.local import LocalStore
from curvflow.tasks.registry import Machine, find
from tests.tasks.partials import SIGTERM, Steps
from tests.tasks.toys import ADAM, SGD, TANH_NET, blobs, train_member, waves

STILL = {"rule": "sgd", "lr": 0.1}
SMALL = {**TANH_NET, "hidden": [3]}


def tile(rules=(SGD, ADAM), batch_size=8, epochs=3, data=(), **settings):
    data = data or (blobs(20),)
    return [
        train_member(
            data[number % len(data)],
            rule=rule,
            seed=number,
            batch_size=batch_size,
            model=SMALL,
            epochs=epochs,
            record_every=2,
            checkpoints={"every": 2},
            **settings,
        )
        for number, rule in enumerate(rules)
    ]


def train(members, partial):
    return find("train").compute(members, Machine("cpu", partial))


def stopped(members, partial) -> Steps:
    with pytest.raises(Stopped) as raised:
        train(members, partial)
    assert raised.value.signal == SIGTERM
    return partial


def assert_equal(result, expected):
    for first, other in zip(result, expected, strict=True):
        assert (first.status, first.reason) == (other.status, other.reason)
        assert first.arrays.keys() == other.arrays.keys()
        for name, array in first.arrays.items():
            twin = other.arrays[name]
            assert array.dtype == twin.dtype, name
            assert array.tobytes() == twin.tobytes(), name


TILES = {
    "momentum": {"rules": (SGD, {**SGD, "nesterov": True})},
    "no-state": {"rules": (STILL, STILL)},
    "part-of-them-momentum": {"rules": (STILL, SGD, STILL)},
    "adam": {"rules": (ADAM, ADAM)},
    "mixed-rules": {"rules": (SGD, ADAM, STILL, ADAM)},
    "single-precision": {"rules": (SGD, ADAM, ADAM), "dtype": "float32"},
    "all-samples-at-once": {"batch_size": None},
    "sums": {"data": (waves(),), "loss": "sse", "rules": ({**SGD, "lr": 1e-3},) * 2},
    "own-data": {"data": (blobs(20), blobs(20, seed=1)), "rules": (SGD,) * 4},
    "mixed-problems": {
        "data": (blobs(20), blobs(17, seed=1), waves(9)),
        "rules": (SGD, ADAM, SGD, STILL, SGD),
        "epochs": 2,
    },
    "one-diverges": {
        "data": (waves(),),
        "rules": ({**STILL, "lr": 1e6}, {**STILL, "lr": 1e-3}),
    },
}


def test_a_kept_state_grows_with_the_steps_taken_and_not_with_those_to_come():
    def size(step, epochs):
        kept = stopped(tile(epochs=epochs), Steps(stop=step)).kept
        return sum(array.nbytes for array in kept.values())

    # Of three steps an epoch, and of two epochs one that records and keeps.
    assert size(4, 10) == size(4, 1000)
    assert size(7, 1000) - size(4, 1000) == size(13, 1000) - size(10, 1000) > 0


@pytest.mark.parametrize("name", TILES)
def test_training_stopped_at_any_step_and_resumed_equals_training_in_one_go(name):
    members = tile(**TILES[name])
    whole = Steps()
    expected = train(members, whole)
    assert whole.count >= 3
    for stop in range(1, whole.count + 1):
        before = stopped(members, Steps(stop=stop))
        after = Steps(before.kept)
        assert_equal(train(members, after), expected)
        assert before.count + after.count == whole.count


@pytest.mark.parametrize("name", ["momentum", "mixed-problems"])
def test_progress_lost_after_the_last_kept_state_is_made_again(name):
    members = tile(**TILES[name])
    whole = Steps()
    expected = train(members, whole)
    kept = None
    for ahead in (2, 3):
        # What follows the kept state is lost, as if the process had been killed.
        partial = Steps(kept, due=lambda step, ahead=ahead: step == ahead)
        train(members, partial)
        kept = partial.kept
    last = Steps(kept)
    assert_equal(train(members, last), expected)
    assert last.count == whole.count - 5


def test_training_stopped_at_every_step_in_turn_gets_to_its_end():
    members = tile(**TILES["mixed-problems"])
    whole = Steps()
    expected = train(members, whole)
    kept = None
    for _ in range(whole.count):
        kept = stopped(members, Steps(kept, stop=1)).kept
    assert_equal(train(members, Steps(kept)), expected)


def test_keeping_changes_no_result():
    members = tile()
    often = Steps(due=lambda step: True)
    assert_equal(train(members, often), train(members, Steps()))
    assert often.lives == often.count


def test_a_store_keeps_the_state(tmp_path):
    members = tile(**TILES["mixed-problems"])
    expected = train(members, Steps())
    kept = stopped(members, Steps(stop=7)).kept
    store = LocalStore(tmp_path)
    store.save_snapshot("tile", kept)
    assert_equal(train(members, Steps(store.load_snapshot("tile"))), expected)


def test_groups_that_have_ended_are_not_trained_again():
    members = tile(**TILES["mixed-problems"])
    whole = Steps()
    train(members, whole)
    last = whole.count - 1
    kept = stopped(members, Steps(stop=last)).kept
    after = Steps(kept)
    train(members, after)
    assert after.count == 1


def without_one(kept):
    return dict(list(kept.items())[1:])


def reshaped(kept):
    return {name: array[..., None] for name, array in kept.items()}


def retyped(kept):
    return {name: array.astype("float16") for name, array in kept.items()}


def renamed(kept):
    return {f"{name}x": array for name, array in kept.items()}


@pytest.mark.parametrize("spoil", [without_one, reshaped, retyped, renamed])
def test_a_state_that_does_not_fit_is_ignored(spoil):
    members = tile()
    whole = Steps()
    expected = train(members, whole)
    kept = stopped(members, Steps(stop=5)).kept
    after = Steps(spoil(kept))
    assert_equal(train(members, after), expected)
    assert after.count == whole.count


@pytest.mark.parametrize(
    "other", [{"rules": (ADAM, SGD)}, {"data": (blobs(20, seed=1),)}, {"loss": "mse"}]
)
def test_members_that_differ_do_not_take_each_others_states(other):
    base = {"data": (waves(20),), "loss": "sse"} if "loss" in other else {}
    kept = stopped(tile(**base), Steps(stop=5)).kept
    members = tile(**(base | other))
    after, whole = Steps(kept), Steps()
    assert_equal(train(members, after), train(members, whole))
    assert after.count == whole.count


def test_states_are_plain_arrays():
    kept = stopped(tile(), Steps(stop=2)).kept
    assert {array.dtype.kind for array in kept.values()} <= set("fiub")
    assert sum(array.nbytes for array in kept.values()) < 50_000
    assert all(isinstance(array, np.ndarray) for array in kept.values())

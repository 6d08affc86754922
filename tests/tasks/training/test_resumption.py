"""Training that goes on from the end of shorter training, against one go."""

from dataclasses import replace

import numpy as np
import pytest

from curvflow.errors import Stopped
from curvflow.schemas.kinds.train import KIND
from curvflow.schemas.nodes import NodeData
from curvflow.schemas.rules import Rule
from curvflow.tasks.registry import Machine, find
from tests.tasks.partials import Steps
from tests.tasks.toys import ADAM, SGD, TANH_NET, blobs, train_all, train_member, waves

STILL = {"rule": "sgd", "lr": 0.1}
SMALL = {**TANH_NET, "hidden": [3]}
CONTINUES = KIND.continues
assert CONTINUES is not None
RULES = (SGD, ADAM, STILL, {**SGD, "nesterov": True, "weight_decay": 1e-3})


def tile(epochs, rules=RULES, data=None, **settings):
    fixed = {"model": SMALL, "batch_size": 8, "record_every": 3, **settings}
    fixed.setdefault("checkpoints", {"every": 2})
    data = data or [blobs(20)]
    return [
        train_member(data[n % len(data)], rule=rule, seed=n, epochs=epochs, **fixed)
        for n, rule in enumerate(rules)
    ]


def stored(outcome, parts=CONTINUES.parts):
    arrays = {name: outcome.arrays[name] for name in parts if name in outcome.arrays}
    return NodeData("fit", "train", {}, arrays, "d", outcome.status, outcome.reason)


def going_on(members, outcomes):
    pairs = zip(members, outcomes, strict=True)
    return [replace(m, earlier=None if o is None else stored(o)) for m, o in pairs]


def steps_of(members):
    partial = Steps()
    return find("train").compute(members, Machine("cpu", partial)), partial.count


def assert_equal(result, expected):
    for first, other in zip(result, expected, strict=True):
        assert (first.status, first.reason) == (other.status, other.reason)
        assert first.arrays.keys() == other.arrays.keys()
        for name, array in first.arrays.items():
            twin = other.arrays[name]
            assert array.dtype == twin.dtype, name
            assert array.tobytes() == twin.tobytes(), name


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("batch_size", [None, 8])
@pytest.mark.parametrize("checkpoints", [None, {"every": 2}])
@pytest.mark.parametrize(("short", "long"), [(5, 9), (1, 2), (6, 7), (20, 40)])
def test_training_goes_on_as_if_it_had_never_stopped(
    dtype, batch_size, checkpoints, short, long
):
    settings = {"dtype": dtype, "batch_size": batch_size, "checkpoints": checkpoints}
    expected, all_steps = steps_of(tile(long, **settings))
    shorter, done = steps_of(tile(short, **settings))
    result, rest = steps_of(going_on(tile(long, **settings), shorter))
    assert_equal(result, expected)
    assert done + rest == all_steps


@pytest.mark.parametrize("rule", [SGD, ADAM, STILL], ids=["sgd", "adam", "still"])
def test_each_rule_alone_goes_on_too(rule):
    expected = train_all(tile(9, rules=[rule] * 3))
    shorter = train_all(tile(5, rules=[rule] * 3))
    assert_equal(train_all(going_on(tile(9, rules=[rule] * 3), shorter)), expected)


def test_training_that_went_on_goes_on_again():
    first = train_all(tile(2))
    second = train_all(going_on(tile(5), first))
    assert_equal(train_all(going_on(tile(9), second)), train_all(tile(9)))


def test_what_a_rule_keeps_for_a_member_does_not_depend_on_its_siblings():
    alone = train_all(tile(5, rules=[STILL] * 4))[2]
    among = train_all(tile(5))[2]
    assert alone.arrays["rule_state"].shape == among.arrays["rule_state"].shape == (0,)


def test_the_state_of_a_rule_is_laid_out_as_declared():
    sgd, adam, still, _ = train_all(tile(5))
    size = int(sgd.arrays["num_parameters"])
    assert sgd.arrays["rule_state"].shape == (size,)
    assert still.arrays["rule_state"].shape == (0,)
    state = adam.arrays["rule_state"]
    assert state.shape == (2 * size + 2,)
    assert (state[size : 2 * size] >= 0).all()
    steps = 5 * 3
    np.testing.assert_allclose(state[-2:], [0.9**steps, 0.999**steps], rtol=1e-12)


def test_members_of_a_tile_begin_each_at_its_own_epoch():
    data = [blobs(20)]
    begins = [5, None, 3, 5, 3, None]
    rules = (SGD, ADAM, STILL, ADAM, SGD, SGD)
    shorter = {
        epochs: train_all(tile(epochs, rules=rules, data=data)) for epochs in (3, 5)
    }
    chosen = [
        None if begin is None else shorter[begin][number]
        for number, begin in enumerate(begins)
    ]
    result = train_all(going_on(tile(9, rules=rules, data=data), chosen))
    for first, other in zip(result, train_all(tile(9, rules=rules)), strict=True):
        for name, array in first.arrays.items():
            if array.dtype.kind == "f":  # last bits depend on the width of the group
                twin = other.arrays[name]
                np.testing.assert_allclose(array, twin, rtol=1e-9, atol=1e-12)


def test_members_alone_of_their_end_go_on():
    first, second = train_all(tile(3))[0], train_all(tile(5))[1]
    members = tile(9)[:2]
    result, steps = steps_of(going_on(members, [first, second]))
    assert steps == 3 * (6 + 4)
    for first, other in zip(result, train_all(tile(9)), strict=False):
        np.testing.assert_allclose(
            first.arrays["weights"], other.arrays["weights"], rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("rate", [0.3, 1.0, 2.0, 4.0])
def test_divergence_after_the_end_of_the_shorter_training_is_seen_all_the_same(rate):
    rules = [{"rule": "sgd", "lr": lr} for lr in (0.01, rate, 0.01, rate)]
    settings = {"model": {"kind": "linear"}, "diverged_above": 100.0}
    settings |= {"rules": rules, "data": [waves()]}
    expected = train_all(tile(40, **settings))
    for short in (1, 2, 3, 5, 8, 11):
        shorter = train_all(tile(short, **settings))
        calm = [s if s.status == "ok" else None for s in shorter]
        if len({s is None for s in calm}) == 1:
            assert_equal(train_all(going_on(tile(40, **settings), shorter)), expected)
        else:
            result = train_all(going_on(tile(40, **settings), shorter))
            for first, other in zip(result, expected, strict=True):
                assert (first.status, first.reason) == (other.status, other.reason)


def test_training_from_a_loss_of_nothing_goes_on():
    flat = waves()
    flat = replace(flat, arrays={**flat.arrays, "targets": 0 * flat["targets"]})
    zero = {"rule": "sgd", "lr": 0.1, "init": {"normal": 1e-300}}
    expected = train_all(tile(9, rules=[zero, SGD], data=[flat]))
    shorter = train_all(tile(5, rules=[zero, SGD], data=[flat]))
    members = tile(9, rules=[zero, SGD], data=[flat])
    assert_equal(train_all(going_on(members, shorter)), expected)


def lacking(trained):
    parts = [name for name in CONTINUES.parts if name != "rule_state"]
    return stored(trained, parts)


def diverged(trained):
    return replace(stored(trained), status="diverged", reason="of old")


def of_another_network(trained):
    arrays = {**stored(trained).arrays, "network": np.array("{}")}
    return replace(stored(trained), arrays=arrays)


def with_another_state(trained):
    longer = np.append(trained.arrays["rule_state"], 0.0)
    return replace(
        stored(trained), arrays={**stored(trained).arrays, "rule_state": longer}
    )


def as_long(_):
    return stored(train_all(tile(9))[0])


@pytest.mark.parametrize(
    "spoil", [lacking, diverged, of_another_network, with_another_state, as_long]
)
def test_what_cannot_be_gone_on_from_is_left_alone(spoil):
    expected, all_steps = steps_of(tile(9))
    shorter = train_all(tile(5))
    pairs = zip(tile(9), shorter, strict=True)
    members = [replace(m, earlier=spoil(pair)) for m, pair in pairs]
    result, steps = steps_of(members)
    assert_equal(result, expected)
    assert steps == all_steps


def test_training_that_goes_on_can_be_stopped_and_resumed():
    expected = train_all(tile(9))
    members = going_on(tile(9), train_all(tile(5)))
    for stop in range(1, 13):
        partial = Steps(stop=stop)
        with pytest.raises(Stopped):
            find("train").compute(members, Machine("cpu", partial))
        for again in (members, tile(9)):
            after = Steps(partial.kept)
            result = find("train").compute(again, Machine("cpu", after))
            assert_equal(result, expected)
            assert after.count == 12 - stop


def params(**settings):
    return train_member(waves(), **settings).params


@pytest.mark.parametrize(
    ("shorter", "longer", "allowed"),
    [
        ({"epochs": 5}, {"epochs": 9}, True),
        ({"epochs": 5}, {"epochs": 5}, False),
        ({"epochs": 9}, {"epochs": 5}, False),
        ({"epochs": 5}, {"epochs": 9, "seed": 1}, False),
        ({"epochs": 5}, {"epochs": 9, "record_every": 2}, False),
        ({"epochs": 5}, {"epochs": 9, "checkpoints": {"every": 2}}, False),
        ({"epochs": 5}, {"epochs": 9, "rule": {**SGD, "lr": 0.2}}, False),
        ({"epochs": 5}, {"epochs": 9, "diverged_above": None}, False),
        ({"epochs": 5}, {"epochs": 9, "dtype": "float32"}, False),
    ],
)
def test_only_training_that_differs_in_length_alone_goes_on(shorter, longer, allowed):
    assert CONTINUES.param == "epochs"
    assert CONTINUES.allows(params(**shorter), params(**longer)) is allowed


class Cosine(Rule):
    """A rule whose rate falls to nothing at the last epoch."""

    rule: str = "cosine"

    @property
    def is_extendable(self) -> bool:
        return False


def test_a_schedule_over_the_whole_length_begins_anew():
    shorter, longer = (
        params(epochs=epochs).model_copy(update={"rule": Cosine()}) for epochs in (5, 9)
    )
    assert not CONTINUES.allows(shorter, longer)


def test_what_is_read_of_the_shorter_result_is_declared():
    assert set(CONTINUES.parts) <= {variable.name for variable in KIND.outputs}

"""Properties of every learning rule."""

import numpy as np
import pytest

from curvflow.errors import Stopped
from curvflow.schemas.nodes import Member, NodeData
from curvflow.tasks.registry import Machine, find
from tests.tasks.partials import Steps
from tests.tasks.rules.examples import SETTINGS, cases
from tests.tasks.toys import RELU_NET, blobs, train_all, train_member

CASES = [pytest.param(name, examples, id=name) for name, examples in cases()]
EPOCHS = 3
STOPPED_AT = 7  # of three epochs of four or three steps


def members(name, settings, epochs=EPOCHS):
    return [
        train_member(
            blobs(),
            model=RELU_NET,
            rule={"rule": name, **fields},
            seed=seed,
            epochs=epochs,
            batch_size=8,
            **SETTINGS.get(name, {}),
        )
        for seed in range(3)
        for fields in settings
    ]


@pytest.fixture(scope="module")
def trained():
    """Return a function that trains a rule's members together, once."""
    outcomes = {}

    def once(name, settings):
        if name not in outcomes:
            outcomes[name] = train_all(members(name, settings))
        return outcomes[name]

    return once


def assert_alike(actual, expected):
    for result, other in zip(actual, expected, strict=True):
        for name in ("weights", "rule_state", "train_loss", "update_norm"):
            np.testing.assert_allclose(
                result.arrays[name], other.arrays[name], rtol=1e-8, atol=1e-11
            )


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_every_rule_learns_and_says_what_it_did(trained, name, settings):
    assert len(settings) >= 2, f"{name}: give its test file SETTINGS, two or more"
    for outcome in trained(name, settings):
        assert outcome.status == "ok", outcome.reason
        loss = outcome.arrays["train_loss"]
        assert loss[-1] < loss[0]
        assert np.isfinite(outcome.arrays["rule_state"]).all()
        assert (outcome.arrays["lr"] > 0).all()


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_no_result_depends_on_the_siblings(trained, name, settings):
    nodes, first = members(name, settings), len(settings)
    apart = [train_all([node, node])[0] for node in nodes[:first]]
    assert_alike(trained(name, settings), apart + train_all(nodes[first:]))


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_longer_training_goes_on_as_if_it_had_never_ended(trained, name, settings):
    whole = trained(name, settings)
    short = train_all(members(name, settings, epochs=2))
    longer = [
        Member(
            node.params,
            node.inputs,
            earlier=NodeData("fit", "train", {}, done.arrays, "e", done.status),
        )
        for node, done in zip(members(name, settings), short, strict=True)
        if node.params.rule.is_extendable
    ]
    extendable = [
        outcome
        for outcome, node in zip(whole, members(name, settings), strict=True)
        if node.params.rule.is_extendable
    ]
    if longer:
        assert_alike(train_all(longer), extendable)


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_a_rule_that_is_stopped_goes_on_bit_for_bit(trained, name, settings):
    compute, tile = find("train").compute, members(name, settings)
    place = Steps(stop=STOPPED_AT)
    with pytest.raises(Stopped):
        compute(tile, Machine(partial=place))
    outcomes = compute(tile, Machine(partial=Steps(place.kept)))
    for outcome, other in zip(outcomes, trained(name, settings), strict=True):
        assert outcome.status == other.status == "ok"
        for variable, array in outcome.arrays.items():
            np.testing.assert_array_equal(array, other.arrays[variable])

"""Properties of every learning rule."""

import numpy as np
import pytest

from curvflow.schemas.nodes import Member, NodeData
from tests.tasks.rules.examples import SETTINGS, cases
from tests.tasks.toys import RELU_NET, blobs, train_all, train_member

CASES = [pytest.param(name, some, id=name) for name, some in cases()]
EPOCHS = 4


def members(name, settings, epochs=EPOCHS):
    return [
        train_member(
            blobs(),
            model=RELU_NET,
            rule={"rule": name, **one},
            seed=seed,
            epochs=epochs,
            batch_size=8,
            **SETTINGS.get(name, {}),
        )
        for seed in range(3)
        for one in settings
    ]


def assert_alike(found, expected):
    for one, other in zip(found, expected, strict=True):
        for name in ("weights", "rule_state", "train_loss", "update_norm"):
            np.testing.assert_allclose(
                one.arrays[name], other.arrays[name], rtol=1e-8, atol=1e-11
            )


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_every_rule_learns_and_says_what_it_did(name, settings):
    assert len(settings) >= 2, f"{name}: give its test file SETTINGS, two or more"
    for outcome in train_all(members(name, settings)):
        assert outcome.status == "ok", outcome.reason
        loss = outcome.arrays["train_loss"]
        assert loss[-1] < loss[0]
        assert np.isfinite(outcome.arrays["rule_state"]).all()
        assert (outcome.arrays["lr"] > 0).all()


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_no_result_depends_on_the_siblings(name, settings):
    tile = members(name, settings)
    together = train_all(tile)
    apart = [train_all([one, one])[0] for one in tile]
    assert_alike(together, apart)


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_longer_training_goes_on_as_if_it_had_never_ended(name, settings):
    whole = train_all(members(name, settings))
    short = train_all(members(name, settings, epochs=2))
    longer = [
        Member(
            one.params,
            one.inputs,
            earlier=NodeData("fit", "train", {}, done.arrays, "e", done.status),
        )
        for one, done in zip(members(name, settings), short, strict=True)
        if one.params.rule.is_extendable
    ]
    extendable = [
        outcome
        for outcome, one in zip(whole, members(name, settings), strict=True)
        if one.params.rule.is_extendable
    ]
    if longer:
        assert_alike(train_all(longer), extendable)

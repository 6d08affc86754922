"""Training that begins with the weights of another."""

import numpy as np
import pytest

from curvflow.errors import InputError, StudyError
from curvflow.flows.graph.graph import expand
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.schemas.study.study import load_study
from tests.tasks.toys import (
    ADAM,
    SGD,
    TANH_NET,
    blobs,
    member,
    train_all,
    train_member,
    weights_of,
)

DATA = blobs(24)
STILL = {"rule": "sgd", "lr": 0.1}


def split(outcome, rule=STILL, checkpoint=-1, data=DATA, **settings):
    given = {"model": TANH_NET, "rule": rule, "epochs": 3, "dtype": "float64"}
    taken = weights_of(outcome, checkpoint)
    return member("train", {**given, **settings}, data=data, weights=taken)


@pytest.fixture(scope="module")
def trained():
    (outcome,) = train_all(
        [train_member(DATA, rule=STILL, epochs=6, checkpoints={"every": 2})]
    )
    return outcome


def test_training_in_two_parts_is_training_in_one(trained):
    """Full-batch sgd without momentum has no memory, so nobody can tell."""
    (rest,) = train_all([split(trained, checkpoint=1, epochs=4)])
    np.testing.assert_allclose(
        rest.arrays["weights"][-1], trained.arrays["weights"][-1], rtol=1e-12
    )
    np.testing.assert_allclose(
        rest.arrays["train_loss"], trained.arrays["train_loss"][2:], rtol=1e-12
    )


def test_several_rules_begin_at_one_point_side_by_side(trained):
    rules = (STILL, SGD, ADAM)
    result = train_all([split(trained, rule) for rule in rules])
    alone = [train_all([split(trained, rule)])[0] for rule in rules]
    for first, other in zip(result, alone, strict=True):
        assert first.arrays["train_loss"][0] == trained.arrays["train_loss"][-1]
        np.testing.assert_allclose(
            first.arrays["weights"], other.arrays["weights"], rtol=1e-9
        )


def test_laws_of_initial_weights_have_no_say(trained):
    rule = {**STILL, "init": {"normal": 3.0}}
    (outcome,), (other,) = (train_all([split(trained, r)]) for r in (rule, STILL))
    np.testing.assert_array_equal(outcome.arrays["weights"], other.arrays["weights"])


def test_weights_of_another_network_are_refused(trained):
    wrong = split(trained, model={**TANH_NET, "hidden": [7]})
    with pytest.raises(InputError, match="weights: expected a network with the model"):
        train_all([wrong])


STUDY = """
study: splits
axes: {{seed: 2, rule: {{sgd: {{rule: sgd, lr: 0.1}}, ngd: {{rule: ngd, lr: 0.1}}}}}}
stages:
  data: {{use: data.xor}}
  fit: {{use: train, data: data, model: {{kind: linear}}, seed: "${{seed}}",
        rule: {{rule: sgd, lr: 0.1}}, epochs: 6, checkpoints: {{every: 2}}}}
  split: {{use: train, weights: fit{at}, model: {{kind: linear}}, rule: "${{rule}}",
          seed: "${{seed}}", epochs: 2}}
  norms: {{use: probe.norms, weights: split, at: all}}
"""


def nodes(at, tmp_path):
    study = load_study(STUDY.format(at=at), file="study.yaml")
    return study, expand(study, SourceFiles(tmp_path)).nodes["split"]


@pytest.mark.parametrize(("at", "epoch"), [("", 6), (", at: 4", 4), (", at: 0", 0)])
def test_a_study_says_from_which_epoch(at, epoch, tmp_path):
    study, result = nodes(at, tmp_path)
    assert study.stages["split"].dims == ("seed", "rule")
    (taken,) = result[0].inputs["weights"]
    assert taken.parts == (f"weights@{epoch}", "network")
    assert [source.node.stage for source in result[0].inputs["data"]] == ["data"]


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (", at: all", "stages.split.at: expected 'final' or one epoch to begin"),
        (", at: [2]", "stages.split.at: expected 'final' or one epoch to begin"),
        (", at: 3", "stages.split.at: expected one of the epochs 0, 2, 4, 6, got 3"),
    ],
)
def test_several_epochs_or_none_are_refused(at, message, tmp_path):
    with pytest.raises(StudyError, match=message):
        nodes(at, tmp_path)

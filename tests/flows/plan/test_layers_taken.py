"""Factors that a model's layers have none of are refused while planning."""

import pytest

from curvflow.errors import StudyError
from curvflow.flows.plan.plan import make_plan
from tests.flows.toys import opened

STUDY = """\
study: refused
stages:
  data: {use: data.xord}
  fit:
    {use: train, data: data, model: {kind: conv1d_xord}, rule: {rule: sgd, lr: 0.1},
     epochs: 1}
  factors: {use: probe.factors, weights: fit, CHOICE}
"""
TOKENS = """\
study: tokens
stages:
  data: {use: data.modular, p: 5}
  fit: {use: train, data: data, epochs: 1, rule: {rule: sgd, lr: 0.1},
        model: {kind: transformer, width: 4, heads: 2, layers: 1, vocabulary: 6}}
  factors: {use: probe.factors, weights: fit, CHOICE}
"""
DENSE = "{kind: conv1d_xord}", "{kind: mlp, hidden: [4]}"
OWN = "{kind: conv1d_xord}", "{factory: 'tests.tasks.toys:make_batch_norm'}"


def planned(store, choice, *changes, text=STUDY, folder=None):
    for old, new in (("CHOICE", choice), *changes):
        assert old in text
        text = text.replace(old, new)
    given = opened(store, text=text, folder=folder)
    make_plan(given.study, given.store, given.files)


def refused(store, *given, **how):
    with pytest.raises(StudyError) as caught:
        planned(store, *given, **how)
    return str(caught.value)


@pytest.mark.parametrize("choice", ["fisher_type: recursive", "curvature: hessian"])
def test_dense_layers_one_after_another_are_crossed(store, choice):
    planned(store, choice, DENSE)


def test_a_hessian_is_of_dense_layers_alone(store):
    said = refused(store, "curvature: hessian")
    assert "stages.factors.curvature: expected dense layers one after another" in said


def test_means_cross_convolutions_but_no_table_of_tokens(store):
    planned(store, "fisher_type: recursive")
    said = refused(store, "fisher_type: recursive", text=TOKENS)
    assert "stages.factors.fisher_type: expected dense layers and convolutions" in said
    known = "fisher_type: recursive, layers: ['*ff*', '*attention*', '*head*']"
    with pytest.raises(StudyError, match="layers"):
        planned(store, known.replace("head", "nothing"), text=TOKENS)


def test_what_is_in_no_layer_is_named(store):
    planned(store, "other: block", text=TOKENS)
    said = refused(store, "other: refuse", text=TOKENS)
    assert "stages.factors.other: expected every parameter in a dense layer" in said


def test_a_module_of_ones_own_is_not_called_in_planning(store):
    planned(store, "curvature: hessian", OWN)
    planned(store, "other: refuse", OWN)


WAVES = """\
study: waves
stages:
  data: {use: data.teacher, dim: 3, outputs: 2, num_train: 20}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [4]}, LOSS,
        rule: {rule: sgd, lr: 0.1}, epochs: 1}
  factors: {use: probe.factors, weights: fit, CHOICE}
"""
OWN_LOSS = "loss: {factory: 'tests.flows.plan.test_rules_taken:not_called'}"


@pytest.mark.parametrize("loss", ["loss: huber", OWN_LOSS])
def test_labels_are_drawn_from_a_likelihood_alone(store, loss):
    given = {"text": WAVES}
    for choice in ("fisher_type: type-2", "psd: clip", "fisher_type: empirical"):
        planned(store, choice, ("LOSS", loss), **given)
    said = refused(store, "fisher_type: mc", ("LOSS", loss), **given)
    assert "stages.factors.fisher_type: mc cannot be combined with a loss" in said
    said = refused(store, "psd: fisher", ("LOSS", loss), **given)
    assert "stages.factors.psd: fisher cannot be combined with a loss" in said


def test_indefinite_losses_need_psd_where_their_hessian_is_taken(store):
    given = ("LOSS", "loss: gaussian")
    for choice in ("psd: abs", "fisher_type: mc", "fisher_type: empirical"):
        planned(store, choice, given, text=WAVES)
    for choice in ("seed: 1", "fisher_type: projection", "fisher_type: recursive"):
        said = refused(store, choice, given, text=WAVES)
        assert (
            "stages.factors.psd: refuse cannot be combined with loss gaussian" in said
        )


def test_positions_with_a_loss_each_are_not_reduced(store, tmp_path):
    # The labels of these are of the whole sequence.
    planned(store, "kfac_approx: reduce", text=TOKENS)
    (tmp_path / "story.txt").write_text("to be or not to be " * 9, encoding="utf-8")
    text = TOKENS.replace(
        "use: data.modular, p: 5", "use: data.text, path: story.txt, length: 4"
    )
    text = text.replace(", vocabulary: 6", "").replace(
        "weights: fit, CHOICE}",
        "weights: fit, CHOICE}\n  more: {use: train, data: data, "
        "epochs: 1, rule: {rule: kfac, RULE}, model: {kind: transformer, width: 4, "
        "heads: 2, layers: 1}}",
    )
    for choice, of_rule, place in (
        ("seed: 1", "mc_samples: 2", ""),
        ("kfac_approx: reduce", "mc_samples: 2", "stages.factors.kfac_approx"),
        ("seed: 1", "kfac_approx: reduce", "stages.more.rule: kfac_approx"),
    ):
        given = choice, ("RULE", of_rule)
        if not place:
            planned(store, *given, text=text, folder=tmp_path)
            continue
        said = refused(store, *given, text=text, folder=tmp_path)
        assert f"{place}: reduce cannot be combined with" in said

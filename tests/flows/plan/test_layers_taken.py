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


def planned(store, choice, *changes, text=STUDY):
    for old, new in (("CHOICE", choice), *changes):
        assert old in text
        text = text.replace(old, new)
    given = opened(store, text=text)
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

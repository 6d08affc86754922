"""Learning rules that a model or a loss does not fit are refused while planning."""

import pytest

from curvflow.errors import StudyError
from curvflow.flows.plan.plan import make_plan
from curvflow.tasks.rules.shared import kfac_parts
from tests.flows.toys import opened

STUDY = """\
study: refused
axes:
  rule:
    plain: {rule: sgd, lr: 0.1}
    factors: {rule: kfac}
stages:
  data: {use: data.xord}
  fit: {use: train, data: data, model: {kind: conv1d_xord}, rule: "${rule}", epochs: 1}
"""
TOKENS = """\
study: tokens
stages:
  data: {use: data.modular, p: 5}
  fit: {use: train, data: data, epochs: 1, rule: {rule: kfac},
        model: {kind: transformer, width: 4, heads: 2, layers: 1, vocabulary: 6}}
"""
HUBER = (
    ("data.xord", "data.sinusoid"),
    ("conv1d_xord}", "linear}, loss: {kind: huber}"),
)
CG = ("rule: kfac", "rule: gauss_newton")
OWN = "{factory: 'tests.tasks.toys:make_batch_norm'}"
KRON = ("rule: kfac", "rule: gauss_newton, preconditioner: kron")


def not_called(outputs, targets):
    """A loss that planning has no use for."""
    raise AssertionError


def planned(store, *changes, text=STUDY):
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    given = opened(store, text=text)
    make_plan(given.study, given.store, given.files)


def refused(store, *changes, text=STUDY):
    with pytest.raises(StudyError) as caught:
        planned(store, *changes, text=text)
    return str(caught.value)


def test_what_fits_is_planned(store):
    planned(store)
    planned(store, *HUBER, CG)
    planned(store, text=TOKENS)


def test_means_from_layer_to_layer_are_of_dense_layers_alone(store):
    said = refused(store, ("rule: kfac", "rule: kfac, fisher_type: recursive"))
    assert "toys.yaml:5:14: axes.rule.factors: fisher_type: expected dense" in said
    assert "stages.fit.rule at rule='factors'" in said


@pytest.mark.parametrize("change", [(), (KRON,)], ids=["kfac", "gauss_newton"])
def test_a_loss_without_a_likelihood_has_no_factors(store, change):
    name = "gauss_newton" if change else "kfac"
    said = refused(store, *HUBER, *change)
    assert f"axes.rule.factors: {name} cannot be combined with a loss" in said


@pytest.mark.parametrize(
    "around",
    [
        "MUON",
        "rule: sam, inner: {MUON}",
        "rule: ema, inner: {MUON}",
        "rule: lookahead, inner: {rule: sam, inner: {MUON}}",
    ],
)
def test_muon_is_refused_where_it_finds_no_matrix(around, store):
    def muon(pattern):
        rule = f"rule: muon, adamw_also: [{pattern}]"
        return "rule: kfac", around.replace("MUON", rule)

    known = "toys.yaml:5:14: axes.rule.factors: adamw_also: expected names of"
    assert known in refused(store, muon("nothing"))
    said = refused(store, muon("'*'"))
    assert "expected a model with matrices of weights, got conv1d_xord" in said
    planned(store, muon("filter1.*"))


def test_a_large_tensor_in_no_layer_is_named(store, monkeypatch):
    monkeypatch.setattr(kfac_parts, "MOST_REST", 5)
    kfac_parts.parts_of.cache_clear()
    said = refused(store, text=TOKENS)
    kfac_parts.parts_of.cache_clear()
    assert "toys.yaml:4:" in said
    assert "stages.fit.rule: expected 'position" in said


@pytest.mark.parametrize("model", ["{kind: conv1d_xord}", OWN])
@pytest.mark.parametrize("change", [(), (KRON,)], ids=["kfac", "gauss_newton"])
def test_a_loss_of_ones_own_has_no_factors_and_is_not_called(store, change, model):
    loss = "{factory: 'tests.flows.plan.test_rules_taken:not_called'}"
    name = "gauss_newton" if change else "kfac"
    given = "{kind: conv1d_xord}", f"{model}, loss: {loss}"
    said = refused(store, given, *change)
    assert f"axes.rule.factors: {name} cannot be combined with a loss" in said


def test_a_loss_without_a_likelihood_is_refused_for_a_module_of_ones_own(store):
    huber = "{kind: conv1d_xord}", f"{OWN}, loss: {{kind: huber}}"
    assert "cannot be combined with a loss" in refused(store, HUBER[0], huber)


def test_a_module_of_ones_own_is_not_called_in_planning(store):
    planned(store, ("{kind: conv1d_xord}", OWN))

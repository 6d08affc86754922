"""Factors beside the operator that they stand for."""

import pytest

from curvflow.errors import InputError, StudyError
from curvflow.schemas.study.study import load_study
from tests.tasks.probes.kronecker.nets import as_factors, probed, trained
from tests.tasks.probes.kronecker.test_factors import of_network
from tests.tasks.toys import assert_declared, compute, member


def beside(kind, factors, name="labels", **params):
    data, (weights, _) = trained(name)
    inputs = {"weights": weights, "data": data}
    if factors is not None:
        inputs["preconditioner"] = factors
    one = member(kind, {"operator": "ggn", **params}, **inputs)
    return compute(kind, [one, one])[0]


@pytest.mark.parametrize("name", ["labels", "tokens"])
def test_the_trace_is_told_better_with_factors(name):
    factors = as_factors(probed(name))
    found = beside("probe.trace", factors, name, num_probes=32)
    assert_declared("probe.trace", found)
    exact = float(of_network(name, operator="ggn").trace())
    arrays, plain = found.arrays, beside("probe.trace", None, name, num_probes=32)
    assert arrays["trace_low"] <= exact <= arrays["trace_high"]
    assert arrays["variance_left"] < 1
    assert arrays["trace_sem"] < plain.arrays["trace_sem"]
    assert arrays["layer_trace"].sum() == pytest.approx(float(arrays["trace"]))


def test_exact_blocks_of_one_layer_leave_nothing():
    layers = ["layer1.*"]
    factors = as_factors(probed("labels", structure="block", layers=layers))
    found = beside("probe.trace", factors, num_probes=4, layers=layers).arrays
    exact = float(factors["trace"])
    assert float(found["trace"]) == pytest.approx(exact, rel=1e-9)
    assert found["variance_left"] < 1e-12


def test_factors_of_other_layers_are_refused():
    factors = as_factors(probed("labels", layers=["layer1.*"]))
    with pytest.raises(InputError, match=r"^preconditioner: expected factors of"):
        beside("probe.trace", factors)


STUDY = """
study: s
stages:
  digits: {use: data.digits, num_train: 60}
  fit: {use: train, data: digits, model: {kind: mlp, hidden: [4]},
        rule: {rule: sgd, lr: 0.1}, epochs: 1}
  other: {use: train, data: digits, model: {kind: mlp, hidden: [4]},
          rule: {rule: sgd, lr: 0.2}, epochs: 1}
  factors: {use: probe.factors, weights: fit%s}
  trace: {use: probe.trace, %s, operator: ggn, preconditioner: factors%s}
"""
REFUSED = {
    "weights": ("", "weights: other", "", r"weights 'other' that 'trace' is of"),
    "layers": (
        ", layers: [layer1.*]",
        "weights: fit",
        "",
        r"expected factors of all layers, got 'factors' of layers layer1",
    ),
    "method": ("", "weights: fit", ", method: xtrace", r"'method' cannot be combined"),
    "factors": ("", "factors: factors", "", r"'preconditioner' cannot be combined"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_go_together_is_refused_while_planning(name):
    *parts, message = REFUSED[name]
    with pytest.raises(StudyError, match=message):
        load_study(STUDY % tuple(parts), file="study.yaml")

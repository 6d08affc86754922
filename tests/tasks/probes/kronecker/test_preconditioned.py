"""Factors beside the operator that they stand for."""

import numpy as np
import pytest
import torch

from curvflow.errors import InputError, StudyError
from curvflow.schemas.study.study import load_study
from curvflow.tasks.curvature.stored_factors import block_operator
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


def test_layers_beside_factors_have_intervals():
    factors = as_factors(probed("labels"))
    arrays = beside("probe.trace", factors, num_probes=32).arrays
    for low, high in (
        ("layer_trace_low", "layer_trace"),
        ("layer_trace", "layer_trace_high"),
    ):
        assert (arrays[low] < arrays[high]).all()


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


@pytest.mark.parametrize("method", ["auto", "preconditioned_meme"])
def test_the_determinant_is_that_of_the_factors_and_what_is_left(method):
    damping = 0.05
    factors = as_factors(probed("labels"))
    given = {"damping": damping, "num_runs": 6, "num_steps": 12, "method": method}
    found = beside("probe.logdet", factors, **given)
    assert_declared("probe.logdet", found)
    G = of_network("labels", operator="ggn")
    exact = float(torch.logdet(G + damping * torch.eye(len(G), dtype=G.dtype)))
    arrays = found.arrays
    assert arrays["logdet_low"] <= exact <= arrays["logdet_high"]
    assert (arrays["rank"], arrays["definite"]) == (0, "damping")
    plain = beside("probe.logdet", None, **{**given, "method": "slq"}).arrays
    assert arrays["logdet_vectors"] < plain["logdet_vectors"]


def test_the_determinant_of_an_exact_block_has_no_error():
    layers = ["layer1.*"]
    factors = as_factors(probed("labels", structure="block", layers=layers))
    given = {"damping": 0.1, "num_steps": 3, "layers": layers}
    exact = np.log(factors["values"] + 0.1).sum()
    for num_runs in (2, 6):
        given["num_runs"] = num_runs
        found = beside("probe.logdet", factors, **given).arrays
        assert float(found["logdet"]) == pytest.approx(float(exact), rel=1e-9)
        # Two vectors may both lie in the space of one of several eigenvalues.
        assert found["converged"] == (num_runs > 2)
        assert found["num_matvecs"] < 3 * num_runs  # ended early: every value is 1


def test_a_stage_may_have_the_name_of_no_value():
    text = LOGDET % ("k", "k, damping: 0.1")
    stage = load_study(text, file="study.yaml").stages["det"]
    assert stage.inputs["preconditioner"] == ("k",)
    text = LOGDET % ("k", "nystrom, damping: 0.1")
    stage = load_study(text, file="study.yaml").stages["det"]
    assert "preconditioner" not in stage.inputs


LOGDET = """
study: s
stages:
  digits: {use: data.digits, num_train: 60}
  fit: {use: train, data: digits, model: {kind: mlp, hidden: [4]},
        rule: {rule: sgd, lr: 0.1}, epochs: 1}
  %s: {use: probe.factors, weights: fit}
  det: {use: probe.logdet, weights: fit, operator: ggn, preconditioner: %s}
"""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("k", r"damping: 0 cannot be combined with factors 'k'"),
        (
            "k, damping: 1, method: meme",
            r"method: meme cannot be combined with factors",
        ),
        ("k, damping: 1, rank: 7", r"'rank' cannot be combined with 'preconditioner'"),
        (
            "j, damping: 1",
            r"preconditioner: expected one of 'auto', 'cholesky', 'nystrom', got 'j'",
        ),
    ],
)
def test_a_determinant_with_factors_is_refused_while_planning(given, message):
    with pytest.raises(StudyError, match=message):
        load_study(LOGDET % ("k", given), file="study.yaml")


@pytest.mark.parametrize("which", ["SA", "LA"])
def test_factors_are_turned_to_either_end(which):
    K = block_operator([as_factors(probed("labels"))])
    eye = torch.eye(K.shape[1], dtype=torch.float64)[None]
    found = torch.linalg.inv((K.towards(which) @ eye)[0])
    values = K.eigenvalues[0]
    edge = 0.01 * (values[-1] - values[0])
    matrix = (K @ eye)[0]
    expected = (
        matrix + (edge - values[0]) * eye[0]
        if which == "SA"
        else (values[-1] + edge) * eye[0] - matrix
    )
    torch.testing.assert_close(found, expected)


def test_the_lowest_eigenvalues_are_the_same_with_factors():
    factors = as_factors(probed("labels"))
    given = {"operator": "hessian", "method": "lobpcg", "which": "SA"}
    given |= {"k": 2, "oversampling": 1, "tol": 1e-6}
    found = beside("probe.eigenvalues", factors, **given)
    assert_declared("probe.eigenvalues", found)
    assert found.arrays["converged"].all()
    lowest = torch.linalg.eigvalsh(of_network("labels", operator="hessian"))[:2]
    np.testing.assert_allclose(found.arrays["eigenvalues"], lowest, rtol=1e-5)


def test_factors_are_refused_by_other_methods():
    text = LOGDET.replace("probe.logdet", "probe.eigenvalues")
    with pytest.raises(StudyError, match="Take lobpcg, or remove precond"):
        load_study(text % ("k", "k"), file="study.yaml")

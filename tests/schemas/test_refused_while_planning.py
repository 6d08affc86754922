"""Combinations that a probe would refuse at run time are refused while planning."""

import pytest

from curvflow.errors import StudyError
from curvflow.schemas.study.study import load_study

STUDY = """\
study: refused
stages:
  xor: {use: data.xor}
  strings: {use: data.xord, pairs: 5, num_train: 8, num_test: 2}
  fit: {use: train, data: xor, model: {kind: linear}, rule: {rule: sgd, lr: 0.1},
        epochs: 4}
  few: {use: train, data: strings, model: {kind: mlp, hidden: [3]},
        rule: {rule: sgd, lr: 0.1}, epochs: 4}
  huber: {use: train, data: xor, model: {kind: linear}, rule: {rule: sgd, lr: 0.1},
          epochs: 4, loss: huber}
  wigner: {use: data.random_matrix, ensemble: wigner, size: 9}
  ring: {use: data.random_graph, model: watts_strogatz, n: 30, k: 4, p: 0.3}
  runs: {use: probe.spectrum, matrix: wigner, num_steps: 4}
  deflated: {use: probe.spectrum, graph: ring, num_steps: 4, deflate: [twins]}
  moments: {use: probe.moments, matrix: wigner, num_moments: 6}
  wide: {use: probe.moments, matrix: wigner, num_moments: 6, support: [-1, 3]}
  taken_out: {use: probe.moments, graph: ring, num_moments: 6, deflate: [twins]}
  read: {use: probe.moments, ritz: deflated, num_moments: 6}
  plain: {use: probe.moments, ritz: runs, num_moments: 6}
  noisy: {use: data.known_answer, model: {kind: quadratic_well, eigenvalues: [3.0]},
          noise: 0.1, num_samples: 50}
  population: {use: data.known_answer,
               model: {kind: quadratic_well, eigenvalues: [3.0]}}
  truth: {use: weights.known_answer, data: noisy,
          model: {kind: quadratic_well, eigenvalues: [3.0]}}
  draws: {use: probe.llc, weights: truth, data: noisy}
"""


def loaded(line):
    return load_study(f"{STUDY}  asked: {{use: {line}}}\n", file="study.yaml")


@pytest.mark.parametrize(
    ("line", "path", "got"),
    [
        ("probe.maxent, moments: moments, atoms: apart", "atoms", "apart"),
        ("probe.maxent, moments: plain, atoms: apart", "atoms", "apart"),
        ("probe.kpm, moments: moments, atoms: apart", "atoms", "apart"),
        ("probe.maxent, moments: wide, prior: log", "prior", "log"),
        ("probe.logdet, ritz: runs, method: dense", "method", "dense"),
        (
            "probe.logdet, ritz: runs, method: preconditioned_slq",
            "method",
            "preconditioned_slq",
        ),
        ("probe.logdet, ritz: runs, compare: true", "compare", "true"),
        (
            "probe.logdet, weights: fit, method: preconditioned_slq, "
            "preconditioner: cholesky",
            "preconditioner",
            "cholesky",
        ),
        ("probe.eigenvalues, ritz: runs, k: 5", "k", "5"),
        ("probe.gradient_variance, weights: few, batch_size: 9", "batch_size", "9"),
        ("probe.gradient_variance, weights: few, num_samples: 9", "num_samples", "9"),
        (
            "probe.gradient_variance, weights: few, mode: train, batch_size: 5",
            "batch_size",
            "5",
        ),
        ("probe.hessian_variance, weights: few, batch_size: 5", "batch_size", "5"),
        (
            "probe.hessian_variance, weights: few, batch_size: 2, num_batches: 5",
            "num_batches",
            "5",
        ),
        ("probe.alignment, weights: few, num_batches: 9", "num_batches", "9"),
        (
            "probe.alignment, weights: few, batch_size: 5, num_batches: 2",
            "num_batches",
            "2",
        ),
        ("probe.dense, matrix: wigner, max_size: 5", "max_size", "5"),
        ("probe.dense, graph: ring, max_size: 5", "max_size", "5"),
        ("probe.dense, weights: few, max_size: 36", "max_size", "36"),
        ("probe.gershgorin, matrix: wigner, max_size: 5", "max_size", "5"),
        (
            "probe.trace, weights: huber, operator: fisher_mc",
            "operator",
            "huber of 'huber'",
        ),
        (
            "probe.factors, weights: huber, fisher_type: mc",
            "fisher_type",
            "huber of 'huber'",
        ),
        (
            "probe.llc_known, draws: draws, data: noisy, "
            "model: {kind: quadratic_well, eigenvalues: [3.0]}",
            "data",
            "0.1",
        ),
    ],
)
def test_it_is_refused_in_one_line_with_its_place(line, path, got):
    with pytest.raises(StudyError, match=r"^study.yaml:\d+:\d+: ") as raised:
        loaded(line)
    message = str(raised.value)
    _, _, said = message.partition(f"stages.asked.{path}: ")
    assert said.startswith("expected ") or " cannot be combined with " in said
    assert f"{got}. " in message or f"{path}: {got} cannot be combined" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "line",
    [
        "probe.maxent, moments: taken_out, atoms: apart",
        "probe.maxent, moments: read, atoms: apart",
        "probe.kpm, moments: read, atoms: apart",
        "probe.maxent, moments: wide, prior: log, support: [0.1, 3]",
        "probe.logdet, ritz: runs, method: chebyshev, num_moments: 4",
        "probe.logdet, weights: fit, method: preconditioned_slq",
        "probe.eigenvalues, ritz: runs, k: 4",
        "probe.gradient_variance, weights: few, mode: train, batch_size: 4",
        "probe.hessian_variance, weights: few, batch_size: 4, num_batches: 2",
        "probe.alignment, weights: few, batch_size: 4, num_batches: 2",
        "probe.dense, matrix: wigner, max_size: 9",
        "probe.dense, graph: ring, max_size: 5, isolated: drop",
        "probe.dense, weights: few, max_size: 37",
        "probe.dense, weights: few, max_size: 4, layers: ['*.bias']",
        "probe.trace, weights: fit, operator: fisher_mc",
        "probe.llc_known, draws: draws, data: population, "
        "model: {kind: quadratic_well, eigenvalues: [3.0]}",
        "probe.trace, weights: huber, operator: fisher_empirical",
    ],
)
def test_what_may_be_computed_is_planned(line):
    loaded(line)


def test_a_prior_of_the_logarithm_wants_a_support_above_zero():
    with pytest.raises(StudyError, match=r"support above zero with prior log"):
        loaded("probe.maxent, moments: moments, prior: log, support: [0, 1]")


def test_the_coefficient_of_two_samples_wants_a_number_as_temperature():
    two = STUDY.replace("num_train: 8, num_test: 2", "num_train: 2, num_test: 2")
    asked = "  asked: {use: probe.llc, weights: few}\n"
    with pytest.raises(StudyError, match=r"stages.asked.nbeta: expected a number"):
        load_study(two + asked, file="study.yaml")

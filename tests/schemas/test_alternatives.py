"""Inputs of which one is enough, and what has a say beside which of them."""

import pytest

from curvflow.errors import StudyError
from curvflow.schemas.study.study import load_study

STUDY = """\
study: spectra
axes: {seed: 2, kind: [hessian, ggn]}
stages:
  xor: {use: data.xor}
  fit:
    use: train
    data: xor
    model: {kind: linear}
    rule: {rule: sgd, lr: 0.1}
    epochs: 4
    seed: "${seed}"
    checkpoints: {every: 2}
  blocks: {use: probe.eigenvalues, weights: fit, operator: "${kind}"}
  wigner: {use: data.random_matrix, ensemble: wigner, size: 9, seed: "${seed}"}
  runs: {use: probe.spectrum, matrix: wigner}
"""


def loaded(line):
    return load_study(f"{STUDY}  asked: {{use: {line}}}\n", file="study.yaml")


@pytest.mark.parametrize(
    ("line", "inputs"),
    [
        ("probe.spectrum, weights: fit", {"weights": ("fit",), "data": ("xor",)}),
        ("probe.spectrum, matrix: wigner", {"matrix": ("wigner",)}),
        ("probe.eigenvalues, ritz: runs", {"ritz": ("runs",)}),
    ],
    ids=["weights", "matrix", "ritz"],
)
def test_one_of_the_alternatives_is_enough(line, inputs):
    assert loaded(line).stages["asked"].inputs == inputs


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "probe.spectrum, weights: fit, matrix: wigner",
            "study.yaml:16:32: stages.asked.weights: 'weights' cannot be combined",
        ),
        (
            "probe.spectrum, num_runs: 2",
            "study.yaml:16:3: stages.asked: expected one of 'weights', 'matrix', "
            "'graph', 'factors', got none. Add 'weights: fit' or 'matrix: wigner'.",
        ),
        (
            "probe.eigenvalues, data: xor",
            "study.yaml:16:3: stages.asked: expected one of 'weights', 'matrix', "
            "'graph', 'factors', 'ritz', got none. Add 'weights: fit' or 'matrix: "
            "wigner' or "
            "'ritz: runs'.",
        ),
        (
            "probe.spectrum, matrix: wigner, data: xor",
            "study.yaml:16:48: stages.asked.data: 'data' cannot be combined",
        ),
        (
            "probe.eigenvalues, ritz: fit",
            "study.yaml:16:41: stages.asked.ritz: expected a stage that returns Ritz, "
            "got 'fit', whose kind train returns Preconditioned. Of these there are: "
            "'runs'.",
        ),
    ],
    ids=["both", "neither", "data-alone", "data-beside-matrix", "wrong-edge"],
)
def test_too_many_alternatives_too_few_and_wrong_ones_are_refused(line, message):
    with pytest.raises(StudyError) as caught:
        loaded(line)
    assert str(caught.value).startswith(message)


def test_what_no_stage_returns_is_not_suggested():
    with pytest.raises(StudyError) as caught:
        load_study(
            "study: bare\nstages:\n  runs: {use: probe.spectrum}\n", file="study.yaml"
        )
    assert str(caught.value) == (
        "study.yaml:3:3: stages.runs: expected one of 'weights', 'matrix', 'graph', "
        "'factors', "
        "got none. No stage returns what fits."
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "probe.spectrum, matrix: wigner, operator: ggn",
            "study.yaml:16:58: stages.asked.operator: 'operator' cannot be combined",
        ),
        (
            'probe.spectrum, matrix: wigner, operator: "${kind}"',
            "study.yaml:2:33: axes.kind.1: 'operator' cannot be combined",
        ),
        (
            "probe.spectrum, matrix: wigner, layers: [layer1.*]",
            "study.yaml:16:56: stages.asked.layers: 'layers' cannot be combined",
        ),
        (
            "probe.effective_dimension, ritz: runs, num_runs: 50",
            "study.yaml:16:65: stages.asked.num_runs: 'num_runs' cannot be "
            "combined with 'ritz'. Remove it, or give it to 'runs'.",
        ),
        (
            "probe.eigenvalues, ritz: runs, eigenvectors: true",
            "study.yaml:16:61: stages.asked.eigenvectors: 'eigenvectors' cannot",
        ),
        (
            "probe.spectrum, matrix: wigner, at: all",
            "study.yaml:16:48: stages.asked.at: expected weights to choose the epochs "
            "of, got 'matrix'. Remove 'at'.",
        ),
        (
            "probe.eigenvalues, ritz: runs, at: [2]",
            "study.yaml:16:47: stages.asked.at: expected weights to choose the epochs "
            "of, got 'ritz'. Remove 'at'.",
        ),
        (
            "probe.sharpness, weights: fit",
            "study.yaml:16:42: stages.asked.weights: expected a stage with "
            "keep_preconditioner: true, got 'fit' without. Give 'fit' "
            "keep_preconditioner: true.",
        ),
        (
            "probe.landscape, weights: fit, directions: stored, eigen: blocks",
            "study.yaml:16:74: stages.asked.eigen: expected a stage with eigenvectors: "
            "true, got 'blocks' without. Give 'blocks' eigenvectors: true.",
        ),
    ],
    ids=[
        "operator-matrix",
        "axis-matrix",
        "layers-matrix",
        "runs-ritz",
        "eigenvectors-ritz",
        "at-matrix",
        "at-ritz",
        "no-preconditioner",
        "no-eigenvectors",
    ],
)
def test_ignored_parameters_are_refused_while_planning(line, message):
    with pytest.raises(StudyError) as caught:
        loaded(line)
    assert str(caught.value).startswith(message)


def test_defaults_and_what_is_final_may_be_written_with_a_matrix():
    line = "probe.spectrum, matrix: wigner, operator: hessian, at: final"
    assert loaded(line).stages["asked"].dims == ("seed",)

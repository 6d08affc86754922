"""Draws that a probe cannot use are refused while planning."""

import pytest

from curvflow.errors import StudyError
from curvflow.schemas.study.study import load_study

STUDY = """\
study: draws
axes: {t: [auto, devinterp], gamma: [0.0, 1.0]}
stages:
  xor: {use: data.xor}
  fit: {use: train, data: xor, model: {kind: linear}, rule: {rule: sgd, lr: 0.1},
        epochs: 4}
  spectrum: {use: probe.spectrum, weights: fit}
  noise: {use: probe.spectrum, weights: fit, operator: gradient_covariance}
  ggn: {use: probe.spectrum, weights: fit, operator: ggn}
  moving: {use: probe.spectrum, weights: fit, mode: train}
  auto: {use: probe.llc, weights: fit}
  hot: {use: probe.llc, weights: fit, nbeta: 3.5}
  temperatures: {use: probe.llc, weights: fit, nbeta: "${t}", batch_size: 2}
  loose: {use: probe.llc, weights: fit, localization: 0.0}
  both: {use: probe.llc, weights: fit, localization: "${gamma}"}
"""


def loaded(line):
    return load_study(f"{STUDY}  asked: {{use: {line}}}\n", file="study.yaml")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "probe.wbic, draws: hot",
            "stages.asked.draws: expected draws at nbeta auto, which is n / ln n, got "
            "'hot' at 3.5. Set nbeta of 'hot' to auto.",
        ),
        (
            "probe.wbic, draws: temperatures",
            "stages.asked.draws: expected draws at nbeta auto, which is n / ln n, got "
            "'temperatures' at devinterp. Set nbeta of 'temperatures' to auto.",
        ),
        (
            "probe.llc_regular, draws: loose, ritz: spectrum",
            "stages.asked.draws: expected a localization above 0, got 'loose' with 0. "
            "Raise localization of 'loose', or leave it null.",
        ),
        (
            "probe.free_energy, draws: auto, ritz: moving",
            "stages.asked.ritz: expected Ritz data in mode eval, as draws are, got "
            "'moving' in train. Remove mode of 'moving'.",
        ),
        (
            "probe.free_energy, draws: auto, ritz: noise",
            "stages.asked.ritz: expected the hessian, ggn or a fisher, got 'noise' of "
            "gradient_covariance. Set operator of 'noise' to hessian.",
        ),
        (
            "probe.free_energy, draws: both, ritz: spectrum",
            "stages.asked.draws: expected a localization above 0, got 'both' with 0. "
            "Raise localization of 'both', or leave it null.",
        ),
    ],
)
def test_draws_of_another_posterior_are_refused_in_one_line(line, message):
    with pytest.raises(StudyError) as caught:
        loaded(line)
    text = str(caught.value)
    assert text.startswith("study.yaml:16:")
    assert text.endswith(message)


@pytest.mark.parametrize(
    "line",
    [
        "probe.wbic, draws: auto",
        "probe.llc_regular, draws: auto, ritz: ggn",
        "probe.llc_regular, draws: hot, ritz: spectrum",
        "probe.free_energy, draws: loose, ritz: spectrum, prior_precision: 0.1",
    ],
)
def test_draws_that_can_be_used_are_taken(line):
    assert "asked" in loaded(line).stages

"""Figures that tell the stages they take apart, as planning sees them."""

import pytest

from curvflow.errors import StudyError
from curvflow.schemas.study.study import load_study

TEXT = """\
study: norms
axes:
  rule: {slow: {rule: sgd, lr: 0.1}, fast: {rule: sgd, lr: 0.3}}
stages:
  signs: {use: data.xor}
  digits: {use: data.digits}
  fit_xor: {use: train, data: signs, model: {kind: mlp, hidden: [4]},
            rule: "${rule}", epochs: 2}
  fit_digits: {use: train, data: digits, model: {kind: linear},
               rule: "${rule}", epochs: 2}
  size: {use: probe.norms, weights: fit_xor}
  figure:
    use: figure.scatter
    of: [fit_xor, fit_digits]
    x: norm_tensor_sum
    y: {fit_xor: final_test_loss, fit_digits: final_test_accuracy}
    label: rule
    marker: stage
    normalise: max
    within: stage
    lower_is_better: [fit_xor]
"""
Y = "{fit_xor: final_test_loss, fit_digits: final_test_accuracy}"


def test_a_figure_may_distinguish_its_stages():
    study = load_study(TEXT, file="study.yaml")
    assert study.stages["figure"].dims == ()
    assert study.stages["figure"].reduced == ("rule",)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "lower_is_better: [fit_xor]",
            "lower_is_better: [fit_xord]",
            "study.yaml:21:23: stages.figure.lower_is_better.0: expected a stage "
            "taken, got 'fit_xord'. Did you mean 'fit_xor'?",
        ),
        (
            Y,
            "{fit_xor: final_test_loss, fit_digit: final_test_accuracy}",
            "study.yaml:16:35: stages.figure.y.fit_digit: expected a stage taken, got "
            "'fit_digit'. Did you mean 'fit_digits'?",
        ),
        (
            Y,
            "{fit_xor: final_test_loss}",
            "study.yaml:16:8: stages.figure.y: expected each stage taken, got none of "
            "fit_digits. Name it, or leave it out of `of`.",
        ),
        (
            Y,
            "{fit_xor: final_test_los, fit_digits: final_test_accuracy}",
            "study.yaml:16:18: stages.figure.y.fit_xor: expected a variable of the "
            "stages taken, got 'final_test_los'. Did you mean 'final_test_loss'?",
        ),
        (
            "label: rule",
            "label: rule\n    over: stage",
            "study.yaml:12:3: stages.figure: expected marker to differ from over, got "
            "'stage' for both. Name it once.",
        ),
    ],
)
def test_what_names_no_stage_taken_is_refused(old, new, message):
    with pytest.raises(StudyError) as caught:
        load_study(TEXT.replace(old, new), file="study.yaml")
    assert str(caught.value) == message


def test_kinds_that_mix_their_stages_do_not_know_them_as_an_axis():
    text = TEXT + "  bars: {use: figure.bars, of: size, y: norm_l2, label: stage}\n"
    with pytest.raises(StudyError) as caught:
        load_study(text, file="study.yaml")
    assert "expected a dimension of the stages taken, got 'stage'" in str(caught.value)

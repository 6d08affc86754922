"""Losses that chains do not keep are refused while planning."""

import pytest

from curvflow.errors import StudyError
from curvflow.schemas.study.study import load_study

STUDY = """\
study: draws
stages:
  moons: {use: data.two_moons, num_samples: 40}
  waves: {use: data.sinusoid}
  all: {use: data.two_moons, num_samples: 40, test_fraction: 0.0}
  fit: {use: train, data: moons, model: {kind: linear}, rule: {rule: sgd, lr: 0.1},
        epochs: 4}
  fitted: {use: train, data: waves, model: {kind: linear}, rule: {rule: sgd, lr: 0.1},
           epochs: 4}
  none: {use: probe.llc, weights: fit}
  train: {use: probe.llc, weights: fit, keep_losses: samples, max_observed: 8}
  labels: {use: probe.llc, weights: fit, keep_losses: labels, observed: both}
  batch: {use: probe.llc, weights: fit, keep_losses: samples, at_draws: batch,
          batch_size: 4}
"""


def loaded(line):
    return load_study(f"{STUDY}  asked: {{use: {line}}}\n", file="study.yaml")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "probe.covariances, draws: none",
            "draws: expected a stage with keep_losses, got 'none' without. Give 'none' "
            "keep_losses: samples.",
        ),
        (
            "probe.influence, draws: train",
            "queries.split: expected train, which 'train' observes, got test. Set "
            "observed of 'train' to both.",
        ),
        (
            "probe.covariances, draws: train, rows: {by: token}",
            "rows.by: expected a stage that keeps tokens, got 'train' of samples. Set "
            "keep_losses of 'train' to tokens.",
        ),
        (
            "probe.covariances, draws: labels, rows: {subsets: {few: [1, 2]}}",
            "rows.subsets: expected a stage that keeps samples or tokens, got 'labels' "
            "of labels. Set keep_losses of 'labels' to samples.",
        ),
        (
            "probe.llc_pointwise, draws: train, observables: {subsets: {few: [8]}}",
            "observables.subsets: expected numbers below the 8 samples of 'train', got "
            "8. Raise max_observed of 'train'.",
        ),
        (
            "probe.susceptibility, draws: batch",
            "draws: expected a stage with at_draws full, got 'batch' with batch. Set "
            "at_draws of 'batch' to full.",
        ),
        (
            "probe.covariances, draws: train, rows: {by: all, subsets: {few: [1]}}",
            "rows: expected subsets or by, got subsets with by all. Remove one.",
        ),
        (
            "probe.covariances, draws: train, rows: {subsets: {few: [1, 1]}}",
            "rows: expected different numbers from 0 in subset few, got [1, 1]. Number "
            "samples from 0.",
        ),
        (
            "probe.llc, weights: fit, max_observed: 3",
            "max_observed 3 cannot be combined with keep_losses null. Give "
            "keep_losses, or remove max_observed.",
        ),
        (
            "probe.llc, weights: fitted, keep_losses: labels",
            "keep_losses: expected samples, as the targets of 'waves' are values, got "
            "labels. Take samples.",
        ),
        (
            "probe.llc, weights: fit, data: all, keep_losses: samples, observed: both",
            "observed: both cannot be combined with 'all', which has no test "
            "samples. Remove it, or take data with test samples.",
        ),
    ],
)
def test_losses_that_are_not_kept_are_refused_in_one_line(line, message):
    with pytest.raises(StudyError) as caught:
        loaded(line)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(message)


@pytest.mark.parametrize(
    "line",
    [
        "probe.covariances, draws: labels, columns: {split: test, by: label}",
        "probe.influence, draws: train, queries: {by: all}",
        "probe.susceptibility, draws: train, shifts: {subsets: {few: [0, 7]}}",
        "probe.covariances, draws: batch",
    ],
)
def test_losses_that_are_kept_are_taken(line):
    assert "asked" in loaded(line).stages

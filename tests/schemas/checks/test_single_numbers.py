"""Figures of what has more dimensions than they draw are refused while planning."""

import pytest

from curvflow.errors import StudyError
from curvflow.schemas.study.study import load_study

STUDY = """
study: drawn
axes: {{seed: 3, step: [0.1, 0.2]}}
stages:
  data: {{use: data.xor}}
  fit: {{use: train, data: data, model: {{kind: linear}}, seed: "${{seed}}", epochs: 2,
        rule: {{rule: sgd, lr: "${{step}}"}}}}
  top: {{use: probe.eigenvalues, weights: fit, k: 2}}
  drawn: {{of: top, over: seed, {given}}}
"""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "use: figure.bars, y: eigenvalues, label: step",
            r"drawn.y: expected a single number per node, got 'eigenvalues' with rank",
        ),
        (
            "use: figure.lines, y: eigenvalues, x: step",
            r"drawn.y: expected a single number per node, got 'eigenvalues' with rank. "
            r"Name rank by `label`, `x` or `select`",
        ),
        (
            "use: figure.lines, y: eigenvalues, x: step, select: {rnak: 1}",
            r"drawn.select.rnak: expected a dimension of eigenvalues, got 'rnak'. Did "
            r"you mean 'rank'",
        ),
        (
            "use: figure.bars, y: [eigenvalues, size], select: {rank: 1}",
            r"drawn.select.rank: expected a dimension of size, got 'rank'. It has none",
        ),
        (
            "use: figure.lines, y: eigenvalues, x: rank, select: {rank: 1}",
            r"expected select to differ from x, got 'rank' for both",
        ),
    ],
)
def test_a_dimension_that_has_no_part_is_refused(given, message):
    with pytest.raises(StudyError, match=message):
        load_study(STUDY.format(given=given), file="study.yaml")


@pytest.mark.parametrize(
    "given",
    [
        "use: figure.lines, y: eigenvalues, x: rank, label: step",
        "use: figure.lines, y: eigenvalues, x: step, label: rank",
        "use: figure.bars, y: num_matvecs, label: step",
        "use: figure.lines, y: eigenvalues, x: step, select: {rank: 2}",
        "use: figure.bars, y: [eigenvalues, residuals], select: {rank: 2}",
    ],
)
def test_one_that_has_a_part_is_not(given):
    study = load_study(STUDY.format(given=given), file="study.yaml")
    assert "drawn" in study.stages

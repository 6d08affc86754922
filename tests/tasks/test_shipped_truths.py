"""Expectations of the study of known coefficients against their closed forms."""

from pathlib import Path

import pytest

from curvflow.schemas.models import parse_model
from curvflow.schemas.study.study import load_study
from curvflow.tasks.datasets.known_answers import answer

PATH = Path(__file__).parents[2] / "studies" / "llc-truth.yaml"
STUDY = load_study(PATH.read_text("utf-8"), file=PATH.name)
CASE = STUDY.axes["case"]
CASES = dict(zip(map(str, CASE.labels), CASE.values, strict=True))


def test_every_case_is_expected_once():
    assert [expectation.where["case"] for expectation in STUDY.expect] == [*CASES]
    assert {expectation.where["sampler"] for expectation in STUDY.expect} == {
        "calibrated"
    }


@pytest.mark.parametrize(
    "expected", STUDY.expect, ids=lambda expectation: expectation.where["case"]
)
def test_an_expected_coefficient_is_the_one_in_closed_form(expected):
    case = CASES[expected.where["case"]]
    model = parse_model(case["model"])
    known = answer(model, case["inputs"], case["outputs"], case["rank"])
    assert expected.value == pytest.approx(float(known.value), abs=1e-4)
    # Within two standard errors or 5 %.
    assert expected.within_sems == 2
    assert expected.within == pytest.approx(0.05 * expected.value, abs=1e-4)
